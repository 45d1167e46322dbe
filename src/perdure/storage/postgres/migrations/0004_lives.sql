-- Under which life of a server a session's locks are held: as it was started, and as it recovered from
-- the crash of one of its processes. Then all locks are gone, too, and its own processes are other
-- ones. Their numbers are all that every role may see of them.
CREATE OR REPLACE FUNCTION {schema}.server_1() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), (
        SELECT min(a.pid) FROM pg_stat_get_activity(NULL) a
        WHERE a.datid IS NULL AND a.usesysid IS NULL
    ))
$$;
