-- Every statement of the backend, by name. {schema} is the store's PostgreSQL schema; another {name}
-- stands for the part of that name, which is the same in several statements. Values are bound.

-- name: find_format
-- And who answers: "" for a standby. Tables that were put back from a dump have other numbers.
SELECT version, readable_by, partitions, store, CASE WHEN pg_is_in_recovery() THEN ''
    ELSE concat_ws(' ', pg_postmaster_start_time(), tableoid) END FROM {schema}.format;

-- name: append
SELECT agent_no, refusal FROM {schema}.append_all_1($1, $2, $3, $4, $5, $6);

-- name: append_plain
-- See plain_commit.py: durable, agent, seq, expected, epoch, branch, before, header, payload. A row if it
-- was written, else nothing was. An older snapshot than the last commit's finds the place taken, which
-- ends the transaction; a branch's row that was changed meanwhile is looked at once more.
WITH moved AS (
    UPDATE {schema}.refs r SET seq = $3 FROM {schema}.commits c
    WHERE r.agent_no = $2 AND r.name = $6 AND r.kind = 'branch' AND NOT r.deleted
      AND r.seq = $4 AND r.held IS NOT DISTINCT FROM $5
      AND c.agent_no = $2 AND c.seq = $3 - 1
      AND c.header = $7
      AND NOT EXISTS (SELECT 1 FROM {schema}.standings)
      AND NOT EXISTS (SELECT 1 FROM {schema}.standings WHERE false FOR KEY SHARE)  -- see stand_1
    RETURNING c.tx
)
INSERT INTO {schema}.commits (agent_no, seq, tx, header, payload)
SELECT $2, $3, greatest(pg_current_xact_id(), moved.tx), $8, $9 FROM moved
RETURNING CASE
    WHEN NOT $1 THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', true) END;

-- name: wait_for_branch
-- For who writes to it (append_plain).
SELECT 1 FROM {schema}.refs WHERE agent_no = %s AND name = %s FOR NO KEY UPDATE;

-- name: ship
SELECT agent_no, refusal::text FROM {schema}.ship_1(
    %s, %s, %s, %s, %s, %b, %b, %b, %s, %s, %s, %s, %b, %s::jsonb, %s
);

-- name: begin_shipping
SELECT set_config('perdure.shipping', 'on', true), {schema}.durable_1(true);

-- name: take_in
SELECT {schema}.take_in_1(%s, %s, %s, %s, %s, %b, %s, %s, %s);

-- name: take_out
-- Messages that commits took out where they come from.
UPDATE {schema}.inbox SET consumed = true, value = NULL WHERE no = ANY(%s) AND NOT consumed;

-- name: forget_taken
DELETE FROM {schema}.inbox WHERE no = ANY(%s) AND consumed;

-- name: lock_standing
-- Who ships goes on from how the store stood: another one who does waits here.
SELECT closed, why FROM {schema}.standings WHERE no = 0 FOR UPDATE;

-- name: lock_standings
-- Who changes how the store stands, because of how it stands: others who do wait here. A row that is
-- not there cannot be locked.
LOCK TABLE {schema}.standings IN EXCLUSIVE MODE;

-- name: wait_briefly
-- Behind somebody who waits for a long transaction, to change how the store stands, all writers wait.
SET LOCAL lock_timeout = 100;

-- name: wait_as_ever
SET LOCAL lock_timeout TO DEFAULT;

-- name: raise_numbers
SELECT {schema}.raise_numbers_1(%s);

-- name: raise_epoch
UPDATE {schema}.refs SET epoch = greatest(epoch, %s) WHERE name = %s AND agent_no = (
    SELECT no FROM {schema}.agents WHERE name = %s AND incarnation = %s);

-- name: stand
SELECT {schema}.stand_1(%s, %s, %s);

-- name: find_standing
SELECT closed, why FROM {schema}.standings WHERE no = %s;

-- name: find_name
SELECT name FROM {schema}.agents WHERE no = %s;

-- name: landed
SELECT {schema}.landed_1(%s, %s, %s, %s, %s, %b);

-- name: send
SELECT answer, no, value, who, at, token
FROM {schema}.send_1(%s, %s, %s, %s, %s, %s, %b, %s, %s, %s);

-- name: lease
SELECT taken, ref::text, refusal::text FROM {schema}.lease_1(%s, %s, %s, %s, %s);

-- name: look
SELECT what, fields, first, second FROM {schema}.look_1($1, $2, $3, true);

-- name: take
-- A lease, and what there is under it: the look comes after, and sees what the lease waited for.
SELECT l.taken, l.ref::text, l.refusal::text, k.what, k.fields, k.first, k.second
FROM {schema}.lease_1($1, $2, $3, $4, NULL) l
LEFT JOIN LATERAL {schema}.look_1($5, $6, CASE WHEN l.taken IS NULL THEN 0 ELSE $7 END, false) k
    ON l.taken IS NOT NULL;

-- name: claim
SELECT {schema}.claim_1(%s, %s, %s);

-- name: heartbeat
SELECT {schema}.heartbeat_1(%s, %s, %s, %s, %s);

-- name: end_executor
DELETE FROM {schema}.executors WHERE id = %s;

-- name: forget_executors
DELETE FROM {schema}.executors WHERE expires < coalesce(%s::bigint, {schema}.clock_1()) - %s;

-- name: executor_columns
-- A part. living: its time is not up. free: nobody holds its lock, though it was held under this
-- very server. Asked for in shared mode, so that those who look do not see each other; what is taken
-- so ends with the statement.
e.id, e.expires, e.serves, e.expires > coalesce(%(now)s::bigint, {schema}.clock_1()),
CASE WHEN e.expires > coalesce(%(now)s::bigint, {schema}.clock_1())
          AND e.proof = (SELECT {schema}.server_1()) AND NOT pg_is_in_recovery()
     THEN pg_try_advisory_xact_lock_shared({schema}.executor_lock_1(e.id)) ELSE false END

-- name: list_executors
SELECT {executor_columns} FROM {schema}.executors e ORDER BY e.id;

-- name: find_executor
SELECT {executor_columns} FROM {schema}.executors e WHERE e.id = %(id)s;

-- name: hold_executor
SELECT pg_try_advisory_lock({schema}.executor_lock_1(%s)), {schema}.server_1();

-- name: drop_executor
SELECT pg_advisory_unlock({schema}.executor_lock_1(%s));

-- name: notify
SELECT {schema}.notify_1(%s, %s::text[]);

-- name: flush
SELECT {schema}.flush_1();

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: agent_columns
-- A part: the fields of AgentInfo.
a.no, a.name, a.incarnation, a.deleted, coalesce(
    (SELECT c.seq FROM {schema}.commits c WHERE c.agent_no = a.no ORDER BY c.seq DESC LIMIT 1), 0),
a.purged

-- name: find_agent
SELECT {agent_columns} FROM {schema}.agents a WHERE a.name = %s
ORDER BY a.incarnation DESC LIMIT 1;

-- name: find_incarnation
SELECT {agent_columns} FROM {schema}.agents a WHERE a.name = %s AND a.incarnation = %s;

-- name: list_agents
SELECT {agent_columns} FROM {schema}.agents a
WHERE NOT a.deleted AND a.name > %(after)s AND a.name >= %(prefix)s
  AND starts_with(a.name, %(prefix)s)
ORDER BY a.name LIMIT %(limit)s;

-- name: commit_columns
-- A part: the fields of StoredCommit. OFFSET 0: as in look_1.
c.seq, c.header, c.payload, EXISTS (
    SELECT 1 FROM {schema}.snapshots s WHERE s.agent_no = c.agent_no AND s.seq = c.seq OFFSET 0)

-- name: read_up
SELECT {commit_columns} FROM {schema}.commits c
WHERE c.agent_no = %s AND c.seq BETWEEN %s AND %s ORDER BY c.seq LIMIT %s;

-- name: read_down
SELECT {commit_columns} FROM {schema}.commits c
WHERE c.agent_no = %s AND c.seq BETWEEN %s AND %s ORDER BY c.seq DESC LIMIT %s;

-- name: find_ref
SELECT name, kind, seq, deleted, epoch, held, holder, checkpoint FROM {schema}.refs
WHERE agent_no = $1 AND name = $2;

-- name: find_heads
-- Of many branches, in the order of the arrays; 0: there is none, or it was deleted. A look-up each,
-- not a join: so none is ever a scan of all of them.
SELECT ARRAY(
    SELECT coalesce((
        SELECT r.seq FROM {schema}.refs r
        WHERE r.agent_no = k.no AND r.name = k.name AND NOT r.deleted
    ), 0) FROM unnest($1, $2) WITH ORDINALITY k (no, name, at) ORDER BY k.at
);

-- name: list_refs
SELECT name, kind, seq, deleted, epoch, held, holder, checkpoint FROM {schema}.refs
WHERE agent_no = %s ORDER BY name;

-- name: find_key
SELECT seq, asked FROM {schema}.keys WHERE agent_no = %s AND key = %s;

-- name: find_snapshot
-- With its leaves, in one look: a row for each, or one without.
SELECT s.manifest, s.leaf_ids, l.id, l.data FROM {schema}.snapshots s
LEFT JOIN {schema}.leaves l ON l.agent_no = s.agent_no AND l.id = ANY (s.leaf_ids)
WHERE s.agent_no = %s AND s.seq = %s;

-- name: run_columns
-- A part: the fields of RunInfo, in their order.
r.id, r.agent, r.agent_no, r.branch, r.function, r.key, r.status, r.started, r.ended, r.args,
r.result, r.problem, r.wake_at, r.waits, r.turn, r.turn_at, r.version, r.queue, r.parent,
r.started_at, r.changed_at, r.seen

-- name: unfinished
-- A part: written as the indexes have it, so that they serve.
r.status IN ('pending', 'running', 'waiting', 'needs_attention')

-- name: find_run_place
SELECT place FROM {schema}.runs WHERE id = %s ORDER BY place DESC LIMIT 1;

-- name: list_runs
-- {conditions} and {order} are chosen by runs.py, out of those of its table.
SELECT {run_columns} FROM {schema}.runs r WHERE {conditions} ORDER BY r.place {order}
LIMIT %(limit)s;

-- name: list_ready
-- Two parts: what could go on; then what runs, but on a branch that is held by an executor that is
-- not one of %(ours)s, and of which nothing says that it is dead. The cost must not grow with the
-- runs that wait: each condition has an index of its own, and takes no more than it may give, of
-- those that are due for longest, in the order of `due_since`.
-- LATERAL … LIMIT 1 keeps the planner from joining whole tables.
WITH others AS MATERIALIZED (
    SELECT o.id FROM (SELECT {executor_columns} FROM {schema}.executors e)
        AS o (id, expires, serves, living, free)
    WHERE o.living AND NOT o.free AND o.id <> ALL (%(ours)s::text[])
)
(SELECT 0 AS part, CASE
     WHEN r.status = 'waiting' AND r.wake_at > 0 AND r.wake_at <= %(at)s THEN r.wake_at
     ELSE r.changed_at END AS since, r.place, {run_columns}
 FROM {schema}.runs r WHERE r.place = ANY (ARRAY(
    (SELECT p.place FROM {schema}.runs p WHERE p.status = 'pending'
     ORDER BY p.place LIMIT %(limit)s)
    UNION
    (SELECT t.place FROM {schema}.runs t
     WHERE t.status = 'waiting' AND t.wake_at > 0 AND t.wake_at <= %(at)s
     ORDER BY t.wake_at LIMIT %(limit)s)
    UNION
    (SELECT w.place FROM {schema}.inbox m, LATERAL (
         SELECT w.place, w.status, w.seen, w.changed_at FROM {schema}.runs w
         WHERE w.id = m.run LIMIT 1) w
     WHERE NOT m.consumed AND m.kind IN ('signal', 'answer')
       AND w.status = 'waiting' AND m.no > w.seen
     GROUP BY w.place, w.changed_at ORDER BY w.changed_at LIMIT %(limit)s)
    UNION
    (SELECT w.place FROM {schema}.inbox m, LATERAL (
         SELECT w.place, w.status, w.changed_at FROM {schema}.runs w WHERE w.id = m.run LIMIT 1) w
     WHERE NOT m.consumed AND m.kind = 'cancel'
       AND w.status IN ('pending', 'running', 'waiting', 'needs_attention')
     GROUP BY w.place, w.changed_at ORDER BY w.changed_at LIMIT %(limit)s)
)) ORDER BY since, r.place LIMIT %(limit)s)
UNION ALL
(SELECT 1, 0, r.place, {run_columns} FROM {schema}.runs r WHERE r.status = 'running' AND NOT EXISTS (
    SELECT 1 FROM {schema}.refs f JOIN others o ON o.id = f.holder
    WHERE f.agent_no = r.agent_no AND f.name = r.branch
) ORDER BY r.place LIMIT %(limit)s)
ORDER BY 1, 2, 3;

-- name: next_timer
SELECT r.wake_at FROM {schema}.runs r WHERE r.status = 'waiting' AND r.wake_at > 0
ORDER BY r.wake_at LIMIT 1;

-- name: message_columns
-- A part: the fields of Message, in their order.
run, agent, kind, name, key, value, who, at, no

-- name: named
-- A part: what narrows every list of messages.
no > %(after)s AND (%(name)s::text IS NULL OR name = %(name)s)

-- name: list_messages
SELECT {message_columns} FROM {schema}.inbox WHERE NOT consumed AND {named}
ORDER BY no {order} LIMIT %(limit)s;

-- name: list_messages_of_kind
SELECT {message_columns} FROM {schema}.inbox WHERE NOT consumed AND kind = %(kind)s AND {named}
ORDER BY no {order} LIMIT %(limit)s;

-- name: list_messages_of_run
SELECT {message_columns} FROM {schema}.inbox
WHERE NOT consumed AND run = %(run)s AND (%(agent)s::text IS NULL OR agent = %(agent)s)
    AND (%(kind)s::text IS NULL OR kind = %(kind)s) AND {named}
ORDER BY no {order} LIMIT %(limit)s;

-- name: list_messages_of_agent
-- However many runs of others wait to begin.
SELECT {message_columns} FROM {schema}.inbox
WHERE agent = %(agent)s AND NOT consumed AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    AND {named}
ORDER BY no {order} LIMIT %(limit)s;

-- name: feed
-- Only what no transaction can still come in front of: those that ended before the oldest that runs.
SELECT c.tx::text, a.no, a.name, a.incarnation, {commit_columns}
FROM {schema}.commits c JOIN {schema}.agents a ON a.no = c.agent_no
WHERE (c.tx, c.agent_no, c.seq) > (%s::xid8, %s, %s)
  AND c.tx < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY c.tx, c.agent_no, c.seq LIMIT %s;

-- name: feed_to_the_end
SELECT c.tx::text, a.no, a.name, a.incarnation, {commit_columns}
FROM {schema}.commits c JOIN {schema}.agents a ON a.no = c.agent_no
WHERE (c.tx, c.agent_no, c.seq) > (%s::xid8, %s, %s)
ORDER BY c.tx, c.agent_no, c.seq LIMIT %s;

-- name: mail
-- By the column: a plain `tx` would be the text that is selected, in which 1000 comes before 999.
SELECT {message_columns}, tx::text FROM {schema}.inbox
WHERE (tx, no) > (%s::xid8, %s) AND tx < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY inbox.tx, inbox.no LIMIT %s;

-- name: mail_to_the_end
SELECT {message_columns}, tx::text FROM {schema}.inbox
WHERE (tx, no) > (%s::xid8, %s) ORDER BY inbox.tx, inbox.no LIMIT %s;

-- name: find_mail
-- A message, and whether its transaction is as late as a cursor says.
SELECT {message_columns}, tx >= %s::xid8 FROM {schema}.inbox WHERE no = %s;

-- name: is_over
-- Whether an incarnation of an agent was deleted, which takes its messages along.
SELECT 1 FROM {schema}.agents WHERE name = %s AND incarnation + deleted::int > %s LIMIT 1;

-- name: last_number
-- Of messages. Of a role that may not ask the sequence, of those that are there.
SELECT coalesce(
    CASE WHEN has_sequence_privilege('{schema}.message_numbers', 'USAGE, SELECT')
        THEN pg_sequence_last_value('{schema}.message_numbers') END,
    (SELECT max(no) FROM {schema}.inbox), 0);

-- name: find_lost_commits
-- Of commits that somebody knows of, those that are not in the log as they were.
SELECT k.no, (SELECT a.name FROM {schema}.agents a WHERE a.no = k.no), k.seq, coalesce(
    (SELECT max(c.seq) FROM {schema}.commits c WHERE c.agent_no = k.no), 0)
FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) AS k (no, seq, header)
WHERE NOT EXISTS (SELECT 1 FROM {schema}.commits c
    WHERE c.agent_no = k.no AND c.seq = k.seq AND c.header = k.header)
  AND NOT EXISTS (SELECT 1 FROM {schema}.agents a WHERE a.no = k.no AND a.purged);

-- name: find_owner
SELECT name, incarnation FROM {schema}.agents WHERE no = %s;

-- name: find_lost_epochs
-- Of epochs that somebody took, those that the branch has not come to.
SELECT k.no, (SELECT a.name FROM {schema}.agents a WHERE a.no = k.no), k.branch, k.epoch,
    coalesce(r.epoch, 0)
FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS k (no, branch, epoch)
LEFT JOIN {schema}.refs r ON r.agent_no = k.no AND r.name = k.branch
WHERE coalesce(r.epoch, 0) < k.epoch
  AND NOT EXISTS (SELECT 1 FROM {schema}.agents a WHERE a.no = k.no AND a.purged);

-- name: has_begun
-- Whether a transaction's number was given here already.
SELECT %s::xid8 < pg_snapshot_xmax(pg_current_snapshot());

-- name: find_header
SELECT header, tx::text FROM {schema}.commits WHERE agent_no = %s AND seq = %s;

-- name: count_commits
SELECT count(*), coalesce(sum(length(header)), 0)::bigint, coalesce(sum(length(payload)), 0)::bigint
FROM {schema}.commits WHERE %(no)s::bigint IS NULL OR agent_no = %(no)s;

-- name: count_snapshots
SELECT count(*), coalesce(sum(length(manifest)), 0)::bigint
FROM {schema}.snapshots WHERE %(no)s::bigint IS NULL OR agent_no = %(no)s;

-- name: count_leaves
SELECT count(*), coalesce(sum(length(data)), 0)::bigint
FROM {schema}.leaves WHERE %(no)s::bigint IS NULL OR agent_no = %(no)s;

-- name: file_bytes
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r';

-- name: list_tables
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
  AND NOT (c.relpersistence = 'u' AND pg_is_in_recovery())  -- a standby has nothing of these
ORDER BY c.relname;

-- name: owns_tables
SELECT coalesce(bool_and(pg_has_role(c.relowner, 'USAGE')), true) FROM pg_class c
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r';

-- name: list_to_purge
SELECT {agent_columns} FROM {schema}.agents a WHERE a.to_purge AND a.no > %s
ORDER BY a.no LIMIT %s;

-- name: feed_again
-- Of a log that begins to be purged, the deletion: whoever follows learns that it is to go there, too.
UPDATE {schema}.commits c SET tx = greatest(pg_current_xact_id(), c.tx)
FROM {schema}.agents a
WHERE a.no = %(no)s AND a.deleted AND NOT a.purged AND c.agent_no = %(no)s
  AND c.seq = (SELECT max(seq) FROM {schema}.commits WHERE agent_no = %(no)s);

-- name: mark_to_purge
UPDATE {schema}.agents SET to_purge = true
WHERE name = %s AND incarnation = %s AND deleted AND NOT purged;

-- name: begin_purge
-- What is gone with the first part is never taken for damage.
UPDATE {schema}.agents SET to_purge = true, purged = true WHERE no = %s AND deleted;

-- name: end_purge
UPDATE {schema}.agents SET to_purge = false WHERE no = %s;

-- name: purge_leaves
DELETE FROM {schema}.leaves WHERE agent_no = %(no)s AND id IN (
    SELECT id FROM {schema}.leaves WHERE agent_no = %(no)s LIMIT %(limit)s);

-- name: purge_snapshots
DELETE FROM {schema}.snapshots WHERE agent_no = %(no)s AND seq IN (
    SELECT seq FROM {schema}.snapshots WHERE agent_no = %(no)s LIMIT %(limit)s);

-- name: purge_commits
DELETE FROM {schema}.commits WHERE agent_no = %(no)s AND seq IN (
    SELECT seq FROM {schema}.commits WHERE agent_no = %(no)s
      AND seq < (SELECT max(seq) FROM {schema}.commits WHERE agent_no = %(no)s)
    ORDER BY seq LIMIT %(limit)s);

-- name: purge_keys
DELETE FROM {schema}.keys WHERE agent_no = %(no)s AND key IN (
    SELECT key FROM {schema}.keys WHERE agent_no = %(no)s LIMIT %(limit)s);

-- name: purge_refs
DELETE FROM {schema}.refs WHERE agent_no = %(no)s AND name IN (
    SELECT name FROM {schema}.refs WHERE agent_no = %(no)s LIMIT %(limit)s);

-- name: purge_runs
DELETE FROM {schema}.runs WHERE agent_no = %(no)s AND id IN (
    SELECT id FROM {schema}.runs WHERE agent_no = %(no)s LIMIT %(limit)s);

-- name: lock_log
SELECT 1 FROM {schema}.agents WHERE no = %s FOR NO KEY UPDATE;

-- name: find_word
SELECT seq FROM {schema}.refs WHERE agent_no = %s AND name = '@retention';

-- name: trim_commits
UPDATE {schema}.commits c SET payload = left_over.payload
FROM unnest(%s::bigint[], %s::bytea[]) AS left_over (seq, payload)
WHERE c.agent_no = %s AND c.seq = left_over.seq;

-- name: trim_snapshots
WITH gone AS (
    DELETE FROM {schema}.snapshots WHERE agent_no = %(no)s AND seq = ANY (%(seqs)s::bigint[])
    RETURNING leaf_ids
)
DELETE FROM {schema}.leaves l
WHERE l.agent_no = %(no)s AND l.id IN (SELECT unnest(leaf_ids) FROM gone) AND NOT EXISTS (
    SELECT 1 FROM {schema}.snapshots s
    WHERE s.agent_no = %(no)s AND s.seq <> ALL (%(seqs)s::bigint[]) AND l.id = ANY (s.leaf_ids));

-- name: is_purged
SELECT 1 FROM {schema}.agents WHERE no = %s AND purged;

-- name: make_agent
INSERT INTO {schema}.agents (name, incarnation) VALUES (%s, %s) ON CONFLICT DO NOTHING;

-- name: lock_agent
SELECT no FROM {schema}.agents WHERE name = %s AND incarnation = %s FOR NO KEY UPDATE;

-- name: add_grave
INSERT INTO {schema}.commits (agent_no, seq, tx, header, payload)
SELECT %(no)s, %(seq)s, greatest(pg_current_xact_id(), (
    SELECT tx FROM {schema}.commits WHERE agent_no = %(no)s ORDER BY seq DESC LIMIT 1
)), %(header)s, %(payload)s
WHERE NOT EXISTS (SELECT 1 FROM {schema}.commits WHERE agent_no = %(no)s AND seq >= %(seq)s);

-- name: end_agent
UPDATE {schema}.agents SET deleted = true, to_purge = true, purged = true WHERE no = %(no)s;

-- name: end_refs
UPDATE {schema}.refs SET deleted = true, held = NULL, holder = NULL WHERE agent_no = %(no)s;

-- name: end_inbox
DELETE FROM {schema}.inbox WHERE agent = %(agent)s;

-- name: end_runs
DELETE FROM {schema}.runs WHERE agent_no = %(no)s;
