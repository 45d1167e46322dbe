-- What is beside the log: messages, who goes first, leases, heartbeats, notices, and what moves between
-- stores.

-- True if the store is closed, and this agent is not one that is open nonetheless: what it is told
-- may be told of something that is yet to come.
CREATE FUNCTION {schema}.closed_to_1(p_agent text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM {schema}.standings s WHERE s.no = 0 AND s.closed) AND NOT EXISTS (
        SELECT 1 FROM {schema}.agents a JOIN {schema}.standings o ON o.no = a.no
        WHERE a.name = p_agent AND NOT o.closed
    )
$$;

-- Puts one message in. answer: fresh, before (it was there), begun (a "start" for a run that began
-- without one), gone, closed. The lock on the run's row, or on the "start" of one that is not there yet,
-- makes the numbers of its messages grow in the order in which they can be seen, and lets none be
-- put in beside the commit that ends the run. What asks for a run and the deletion of its agent, which
-- ends the inboxes, take turns until their transactions' ends, by a lock on the agent's name: it may
-- have no row yet.
CREATE FUNCTION {schema}.send_1(
    p_durable boolean, p_run text, p_agent text, p_kind text, p_name text, p_key text,
    p_value bytea, p_who text, p_at bigint, p_token bigint,
    OUT answer text, OUT no bigint, OUT value bytea, OUT who text, OUT at bigint, OUT token bigint
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_status text;
    v_began bigint;
BEGIN
    IF p_durable IS NOT NULL THEN
        PERFORM {schema}.durable_1(p_durable);
    END IF;
    PERFORM 1 FROM {schema}.standings WHERE false FOR KEY SHARE;  -- see stand_1
    IF p_kind = 'start' THEN
        PERFORM {schema}.lock_begin_1(p_run);
        PERFORM pg_advisory_xact_lock_shared(
            hashtext('perdure {schema}'), hashtext('agent ' || p_agent)
        );
    END IF;
    FOR v_try IN 1..10 LOOP
        SELECT 'before', m.no, m.value, m.who, m.at, m.token
            INTO answer, no, value, who, at, token FROM {schema}.inbox m
            WHERE m.agent = p_agent AND m.run = p_run AND m.kind = p_kind AND m.name = p_name
              AND m.key = p_key;
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT r.status, r.started_at INTO v_status, v_began FROM {schema}.runs r
            WHERE r.id = p_run ORDER BY r.place DESC LIMIT 1 FOR NO KEY UPDATE;
        IF p_kind = 'start' THEN
            IF FOUND THEN
                answer := 'begun';
                at := v_began;
                RETURN;
            END IF;
            PERFORM 1 FROM {schema}.agents a WHERE a.name = p_agent
                AND a.incarnation + a.deleted::int
                    > coalesce(substring(p_run FROM '~([0-9]+)$')::numeric, 1);
            IF FOUND THEN
                answer := 'gone';
                RETURN;
            END IF;
        ELSIF FOUND THEN
            IF v_status IN ('done', 'failed', 'cancelled') THEN
                answer := 'gone';
                RETURN;
            END IF;
        ELSE
            PERFORM 1 FROM {schema}.inbox m WHERE m.agent = p_agent AND m.run = p_run
                AND m.kind = 'start' AND NOT m.consumed FOR UPDATE;
            IF NOT FOUND THEN
                PERFORM 1 FROM {schema}.runs r WHERE r.id = p_run;
                IF FOUND THEN
                    CONTINUE;  -- it began just now
                END IF;
                answer := CASE WHEN {schema}.closed_to_1(p_agent) THEN 'closed' ELSE 'gone' END;
                RETURN;
            END IF;
        END IF;
        IF {schema}.closed_to_1(p_agent) THEN
            answer := 'closed';
            RETURN;
        END IF;
        INSERT INTO {schema}.inbox AS m (run, agent, kind, name, key, value, who, at, token)
            VALUES (p_run, p_agent, p_kind, p_name, p_key, p_value, p_who, p_at, p_token)
            ON CONFLICT DO NOTHING
            RETURNING 'fresh', m.no, m.value, m.who, m.at, m.token
            INTO answer, no, value, who, at, token;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'messages for run % change too fast', p_run USING ERRCODE = '40001';
END $$;

-- Of a run that is not there yet: what begins it, and what asks for it, take turns until their
-- transactions' ends, as there is no row to lock. Two numbers: no executor's lock is like that.
CREATE FUNCTION {schema}.lock_begin_1(p_run text) RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT pg_advisory_xact_lock(hashtext('perdure {schema}'), hashtext(p_run)) $$;

-- True if a run can be told something: it has not ended, or is asked for. That stays so until the
-- transaction's end, by the locks that send_1 takes, too.
CREATE FUNCTION {schema}.going_1(p_run text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_status text;
BEGIN
    LOOP
        SELECT r.status INTO v_status FROM {schema}.runs r
            WHERE r.id = p_run ORDER BY r.place DESC LIMIT 1 FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN v_status NOT IN ('done', 'failed', 'cancelled');
        END IF;
        PERFORM 1 FROM {schema}.inbox m
            WHERE m.run = p_run AND m.kind = 'start' AND NOT m.consumed FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM 1 FROM {schema}.runs r WHERE r.id = p_run;
        EXIT WHEN NOT FOUND;  -- or it began just now
    END LOOP;
    RETURN false;
END $$;

-- What a batch is going to write to, in one order for all: without this, two processes whose
-- batches hold the same agents in another order would deadlock.
CREATE FUNCTION {schema}.lock_1(p_agents bigint[], p_runs text[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM 1 FROM {schema}.agents WHERE no = ANY (p_agents) ORDER BY no FOR NO KEY UPDATE;
    IF cardinality(p_runs) > 0 THEN
        PERFORM {schema}.lock_begin_1(w.run) FROM (
            SELECT r AS run FROM unnest(p_runs) r
            WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs o WHERE o.id = r) ORDER BY r
        ) w;
        PERFORM 1 FROM {schema}.runs WHERE id = ANY (p_runs) ORDER BY id FOR NO KEY UPDATE;
    END IF;
END $$;

-- The store's clock, in microseconds since 1970.
CREATE FUNCTION {schema}.clock_1() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- As Backend.lease: the epoch that was taken, or NULL; and the branch as it is.
CREATE FUNCTION {schema}.lease_1(
    p_agent_no bigint, p_branch text, p_executor text, p_over bigint, p_release bigint,
    OUT taken bigint, OUT ref jsonb, OUT refusal jsonb
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ref {schema}.refs;
BEGIN
    PERFORM {schema}.durable_1(true);
    PERFORM 1 FROM {schema}.standings WHERE false FOR KEY SHARE;  -- see stand_1
    PERFORM 1 FROM {schema}.standings;
    IF FOUND AND p_release IS NULL AND p_executor IS NOT NULL THEN
        refusal := {schema}.closed_1(p_agent_no);
        IF refusal IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    IF p_release IS NOT NULL THEN
        UPDATE {schema}.refs r SET held = NULL, holder = NULL
            WHERE r.agent_no = p_agent_no AND r.name = p_branch AND r.held = p_release;
    ELSIF p_executor IS NULL THEN
        -- The epoch grows, so that the owner that was believed dead is fenced if it was not.
        UPDATE {schema}.refs r SET epoch = r.epoch + 1, held = NULL, holder = NULL
            WHERE r.agent_no = p_agent_no AND r.name = p_branch AND r.held = p_over;
    END IF;
    LOOP
        IF p_release IS NULL AND p_executor IS NOT NULL THEN
            UPDATE {schema}.refs r SET epoch = r.epoch + 1, held = r.epoch + 1, holder = p_executor
                WHERE r.agent_no = p_agent_no AND r.name = p_branch AND r.kind = 'branch'
                  AND NOT r.deleted AND r.held IS NOT DISTINCT FROM p_over
                RETURNING r.held INTO taken;
        END IF;
        SELECT r.* INTO v_ref FROM {schema}.refs r
            WHERE r.agent_no = p_agent_no AND r.name = p_branch;
        -- Refused is who finds what refuses: else it went since, and the lease can be had.
        EXIT WHEN taken IS NOT NULL OR p_release IS NOT NULL OR p_executor IS NULL OR NOT FOUND
            OR v_ref.kind <> 'branch' OR v_ref.deleted OR v_ref.held IS DISTINCT FROM p_over;
    END LOOP;
    ref := {schema}.refusal_1('', v_ref) -> 'ref';
END $$;

-- Who is about to begin a run, or to go on with it, so that of many workers who see it only one
-- tries. Nothing depends on it: the lease decides. So it is not logged, and empty after a crash.
CREATE UNLOGGED TABLE {schema}.claims (
    run text COLLATE "C" PRIMARY KEY,
    executor text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL
);

-- Those of the runs that nobody else claims. What another one is just claiming is not waited for.
-- What is over goes, so that there are never more than those of a moment.
CREATE FUNCTION {schema}.claim_1(p_runs text[], p_executor text, p_seconds float)
RETURNS SETOF text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_until timestamptz := clock_timestamp() + p_seconds * interval '1 second';
BEGIN
    SET LOCAL synchronous_commit = off;
    DELETE FROM {schema}.claims c WHERE c.run IN (
        SELECT o.run FROM {schema}.claims o
        WHERE o.until < clock_timestamp() - interval '1 second' AND o.run <> ALL (p_runs)
        FOR UPDATE SKIP LOCKED
    );
    RETURN QUERY
    WITH free AS MATERIALIZED (
        SELECT c.run FROM {schema}.claims c
        WHERE c.run = ANY (p_runs) AND (c.executor = p_executor OR c.until < clock_timestamp())
        ORDER BY c.run FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE {schema}.claims c SET executor = p_executor, until = v_until
        FROM free f WHERE c.run = f.run RETURNING c.run
    ), made AS (
        INSERT INTO {schema}.claims (run, executor, until)
        SELECT r, p_executor, v_until FROM unnest(p_runs) r
        WHERE NOT EXISTS (SELECT 1 FROM {schema}.claims c WHERE c.run = r)
        ORDER BY r ON CONFLICT DO NOTHING RETURNING run
    )
    SELECT t.run FROM taken t UNION ALL SELECT m.run FROM made m;
END $$;

-- What there is of an agent and of a run, all at one moment (the query's): a row for each thing, its
-- fields as JSON in their order, its bytes beside. p_commits: how many, up to the branch's head.
-- p_free: only where the run has not begun, or rests, and nobody has the branch.
CREATE FUNCTION {schema}.look_1(p_agent text, p_run text, p_commits bigint, p_free boolean)
RETURNS TABLE (what text, place bigint, fields text, first bytea, second bytea)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH latest AS MATERIALIZED (
        SELECT a.* FROM {schema}.agents a WHERE a.name = p_agent
        ORDER BY a.incarnation DESC LIMIT 1
    ), branch AS MATERIALIZED (
        SELECT f.* FROM latest a JOIN {schema}.refs f ON f.agent_no = a.no
        WHERE f.name = coalesce(
            (SELECT r.branch FROM {schema}.runs r WHERE r.id = p_run ORDER BY r.place LIMIT 1),
            'main')
    )
    SELECT 'agent', 0::bigint, json_build_array(
        a.no, a.name, a.incarnation, a.deleted, coalesce((
            SELECT c.seq FROM {schema}.commits c WHERE c.agent_no = a.no
            ORDER BY c.seq DESC LIMIT 1), 0), a.purged
    )::text, NULL::bytea, NULL::bytea FROM latest a
    UNION ALL SELECT 'ref', 0, json_build_array(
        f.name, f.kind, f.seq, f.deleted, f.epoch, f.held, f.holder
    )::text, f.checkpoint, NULL FROM branch f
    UNION ALL SELECT 'run', r.place, json_build_array(
        r.id, r.agent, r.agent_no, r.branch, r.function, r.key, r.status, r.started, r.ended,
        r.args, NULL, r.problem, r.wake_at, r.waits, r.turn, r.turn_at, r.version, r.queue,
        r.parent, r.started_at, r.changed_at, r.seen
    )::text, r.result, NULL FROM (
        SELECT u.* FROM {schema}.runs u WHERE u.id = p_run
        UNION ALL
        SELECT u.* FROM {schema}.runs u WHERE u.agent = p_agent AND u.id <> p_run
            AND u.status IN ('pending', 'running', 'waiting', 'needs_attention')
    ) r
    UNION ALL SELECT 'message', m.no, json_build_array(
        m.run, m.agent, m.kind, m.name, m.key, NULL, m.who, m.at, m.no
    )::text, m.value, NULL FROM {schema}.inbox m WHERE m.run = p_run AND NOT m.consumed
    UNION ALL SELECT 'commit', -c.seq, json_build_array(c.seq, EXISTS (
        SELECT 1 FROM {schema}.snapshots s WHERE s.agent_no = c.agent_no AND s.seq = c.seq
        OFFSET 0  -- asked commit by commit; else all snapshots of the store go into a table
    ))::text, c.header, c.payload FROM branch f JOIN {schema}.commits c
        ON c.agent_no = f.agent_no AND c.seq BETWEEN f.seq - p_commits + 1 AND f.seq
    WHERE NOT p_free OR (f.held IS NULL AND NOT f.deleted AND NOT EXISTS (
        SELECT 1 FROM {schema}.runs r WHERE r.id = p_run
        AND r.status NOT IN ('pending', 'waiting', 'needs_attention')))
    ORDER BY 2;
END $$;

-- Under which server (as it was started) a session's locks are held.
CREATE FUNCTION {schema}.server_1() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT extract(epoch FROM pg_postmaster_start_time())::text $$;

-- The number of the advisory lock that an executor holds while it lives.
CREATE FUNCTION {schema}.executor_lock_1(p_executor text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT ('x' || left(md5('perdure {schema} ' || p_executor), 16))::bit(64)::bigint $$;

-- A heartbeat need not be durable: one that a crash takes back is said again.
CREATE FUNCTION {schema}.heartbeat_1(
    p_executor text, p_ttl_us bigint, p_serves text, p_proof text, p_now bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM {schema}.durable_1(false);
    INSERT INTO {schema}.executors (id, expires, serves, proof)
        VALUES (p_executor, coalesce(p_now, {schema}.clock_1()) + p_ttl_us, p_serves, p_proof)
        ON CONFLICT (id) DO UPDATE SET
            expires = excluded.expires, serves = excluded.serves, proof = excluded.proof;
    RETURN {schema}.clock_1();
END $$;

-- Notices are worth nothing after a crash: they wait for no disk and no standby.
CREATE FUNCTION {schema}.notify_1(p_channel text, p_runs text[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM {schema}.durable_1(false);
    PERFORM pg_notify(p_channel, r) FROM unnest(p_runs) r;
END $$;

-- A transaction whose COMMIT is durable when all before it are.
CREATE FUNCTION {schema}.flush_1() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM {schema}.durable_1(true);
    PERFORM pg_logical_emit_message(true, 'perdure', 'flush');
END $$;

-- The agent's number if exactly this commit is in the log, else NULL. It waits for whoever is at
-- the log still, be it our own attempt whose connection was lost; and because it locks a row, its
-- own COMMIT is durable (and replicated) only when that commit is.
CREATE FUNCTION {schema}.landed_1(
    p_durable boolean, p_agent text, p_agent_no bigint, p_incarnation bigint, p_seq bigint,
    p_header bytea
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_no bigint;
BEGIN
    PERFORM {schema}.durable_1(p_durable);
    SELECT a.no INTO v_no FROM {schema}.agents a
        WHERE a.no = p_agent_no
           OR (p_agent_no IS NULL AND a.name = p_agent AND a.incarnation = p_incarnation)
        FOR NO KEY UPDATE;
    PERFORM 1 FROM {schema}.commits c
        WHERE c.agent_no = v_no AND c.seq = p_seq AND c.header = p_header;
    RETURN CASE WHEN FOUND THEN v_no END;
END $$;

-- A commit of another store, as append_1. Its agent is found by name and number, leases are not
-- looked at.
CREATE FUNCTION {schema}.ship_1(
    p_durable boolean, p_agent text, p_agent_no bigint, p_incarnation bigint, p_seq bigint,
    p_header bytea, p_payload bytea, p_prev bytea, p_branch text, p_expected bigint,
    p_epoch bigint, p_key text, p_asked bytea, p_more jsonb, p_bytes bytea[],
    OUT agent_no bigint, OUT refusal jsonb
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_no bigint;
BEGIN
    IF p_seq <> 1 THEN
        SELECT a.no INTO v_no FROM {schema}.agents a
            WHERE a.name = p_agent AND a.incarnation = p_incarnation FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            refusal := '{"why": "lost"}';
            RETURN;
        END IF;
        UPDATE {schema}.refs r SET held = NULL, holder = NULL WHERE r.agent_no = v_no
            AND r.name IN (p_branch, p_more ->> 'drop_branch') AND r.held IS NOT NULL;
    END IF;
    SELECT done.agent_no, done.refusal INTO agent_no, refusal FROM {schema}.append_1(
        p_durable, p_agent, v_no, p_incarnation, p_seq, p_header, p_payload, p_prev, p_branch,
        p_expected, NULL, p_key, p_asked, p_more, p_bytes
    ) done;
END $$;

-- A message of another store, with the number that it has there; p_value NULL: it was taken out.
-- False: the number is another message's here.
CREATE FUNCTION {schema}.take_in_1(
    p_run text, p_agent text, p_kind text, p_name text, p_key text, p_value bytea, p_who text,
    p_at bigint, p_no bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_there {schema}.inbox;
BEGIN
    SELECT m.* INTO v_there FROM {schema}.inbox m WHERE m.no = p_no;
    IF FOUND THEN
        IF (v_there.run, v_there.kind, v_there.name, v_there.key)
           <> (p_run, p_kind, p_name, p_key) THEN
            RETURN false;
        ELSIF NOT v_there.consumed OR p_value IS NULL THEN
            RETURN true;
        END IF;
    END IF;
    DELETE FROM {schema}.inbox WHERE agent = p_agent AND run = p_run AND kind = p_kind
        AND name = p_name AND key = p_key;
    INSERT INTO {schema}.inbox (
        run, agent, kind, name, key, value, who, at, no, token, consumed
    ) VALUES (
        p_run, p_agent, p_kind, p_name, p_key, p_value, p_who, p_at, p_no, 0, p_value IS NULL
    );
    RETURN true;
END $$;

-- Messages put in later get greater numbers than this. Numbers are drawn, or skipped with room to
-- spare: others may be drawing at the same moment, and the sequence must not go back.
CREATE FUNCTION {schema}.raise_numbers_1(p_least bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_last bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO v_last
        FROM {schema}.message_numbers;
    IF p_least - v_last > 10000 THEN
        PERFORM setval('{schema}.message_numbers', p_least + 10000);
    ELSIF p_least > v_last THEN
        PERFORM nextval('{schema}.message_numbers') FROM generate_series(v_last + 1, p_least);
    END IF;
END $$;

-- The refusal of a write to an agent, or, with NULL, of a new one; NULL: it is open. What comes from
-- another store (ship.py) passes.
CREATE FUNCTION {schema}.closed_1(p_agent_no bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_found {schema}.standings;
BEGIN
    IF current_setting('perdure.shipping', true) = 'on' THEN
        RETURN NULL;
    END IF;
    SELECT s.* INTO v_found FROM {schema}.standings s
        WHERE s.no IN (0, p_agent_no) ORDER BY s.no DESC LIMIT 1;
    IF v_found.closed THEN
        RETURN jsonb_build_object('why', 'closed', 'no', v_found.no, 'says', v_found.why);
    END IF;
    RETURN NULL;
END $$;

-- Says how an agent, or the store, stands; p_why NULL: nothing is said any more. All writers have the
-- table in the mode ROW SHARE until their transactions' ends (by FOR KEY SHARE of no row): this one
-- waits for these, and they for it. A dump, which reads all tables, is not in its way.
CREATE FUNCTION {schema}.stand_1(p_no bigint, p_closed boolean, p_why text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM {schema}.durable_1(true);
    UPDATE {schema}.standings SET why = p_why
        WHERE no = p_no AND closed = p_closed AND p_why IS NOT NULL;
    IF FOUND THEN
        RETURN;  -- only its words are others
    END IF;
    LOCK TABLE {schema}.standings IN EXCLUSIVE MODE;
    IF p_why IS NULL THEN
        DELETE FROM {schema}.standings WHERE no = p_no OR p_no = 0;
    ELSE
        INSERT INTO {schema}.standings (no, closed, why) VALUES (p_no, p_closed, p_why)
            ON CONFLICT (no) DO UPDATE SET closed = excluded.closed, why = excluded.why;
    END IF;
END $$;
