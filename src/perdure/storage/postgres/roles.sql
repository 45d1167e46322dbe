-- Roles for one store: who may write, who may look, who may audit. For psql, as the owner of the
-- store's schema, after the store was made (by `perdure` itself, opening it once as that owner):
--
--   psql DATABASE_URL -v schema=perdure -f roles.sql
--
-- Then: GRANT perdure_writer TO some_login; and so on. Run it again after an update of perdure that
-- brought the schema a new format.

\set ON_ERROR_STOP on
\if :{?schema}
\else
  \set schema perdure
\endif
\set writer :schema _writer
\set reader :schema _reader
\set auditor :schema _auditor

SELECT format('CREATE ROLE %I NOLOGIN', r) FROM unnest(ARRAY[:'writer', :'reader', :'auditor']) r
WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = r) \gexec

BEGIN;

REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC;
GRANT USAGE ON SCHEMA :"schema" TO :"writer", :"reader", :"auditor";
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" TO :"writer";
GRANT EXECUTE ON FUNCTION
    :"schema".clock_1(), :"schema".server_1(), :"schema".executor_lock_1(text)
    TO :"reader", :"auditor";

-- Writes agents: appends to logs, and can change or delete nothing that is in one (I7).
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema" TO :"writer";
GRANT INSERT ON :"schema".commits, :"schema".keys, :"schema".leaves TO :"writer";
GRANT INSERT, UPDATE ON
    :"schema".agents, :"schema".refs, :"schema".snapshots, :"schema".runs TO :"writer";
GRANT INSERT, UPDATE, DELETE ON
    :"schema".inbox, :"schema".executors, :"schema".claims, :"schema".standings TO :"writer";
GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA :"schema" TO :"writer";

-- Sees everything, changes nothing: dashboards, exports, `perdure` on the command line.
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema" TO :"reader";

-- Sees the record and all that follows from it, and can verify it; not what waits in inboxes.
GRANT SELECT ON
    :"schema".format, :"schema".agents, :"schema".commits, :"schema".refs, :"schema".keys,
    :"schema".snapshots, :"schema".leaves, :"schema".runs, :"schema".standings TO :"auditor";

COMMIT;
