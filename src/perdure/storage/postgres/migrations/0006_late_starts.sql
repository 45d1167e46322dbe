-- What asks for a run of an agent that was deleted meanwhile is refused: it came in behind the deletion,
-- which ends the inboxes, and stayed there: nobody could begin it, and nobody was told. It and a deletion
-- take turns until their transactions' ends, by a lock on the agent's name: it may have no row yet.

-- As in 0002_log.sql.
CREATE OR REPLACE FUNCTION {schema}.send_1(
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
                answer := 'gone';
                RETURN;
            END IF;
        END IF;
        PERFORM 1 FROM {schema}.standings s WHERE s.no = 0 AND s.closed
            AND NOT EXISTS (
                SELECT 1 FROM {schema}.agents a JOIN {schema}.standings o ON o.no = a.no
                WHERE a.name = p_agent AND NOT o.closed
            );
        IF FOUND THEN
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

-- As in 0004_named_rows.sql.
CREATE OR REPLACE FUNCTION {schema}.append_more_1(
    p_agent_no bigint, p_agent text, p_branch text, p_seq bigint, p_more jsonb, p_bytes bytea[]
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_item jsonb;
BEGIN
    IF p_more ? 'manifest' THEN
        INSERT INTO {schema}.leaves (agent_no, id, data)
            SELECT p_agent_no, (l ->> 0)::bigint, p_bytes[(l ->> 1)::int]
            FROM jsonb_array_elements(p_more -> 'leaves') l
            ON CONFLICT DO NOTHING;  -- what is shipped again
        INSERT INTO {schema}.snapshots (agent_no, seq, manifest, leaf_ids) VALUES (
            p_agent_no, p_seq, p_bytes[(p_more ->> 'manifest')::int],
            ARRAY(SELECT i::bigint FROM jsonb_array_elements_text(p_more -> 'leaf_ids') i)
        ) ON CONFLICT (agent_no, seq) DO UPDATE
            SET manifest = excluded.manifest, leaf_ids = excluded.leaf_ids;
    END IF;
    IF p_more ? 'checkpoint' THEN
        v_item := p_more -> 'checkpoint';
        INSERT INTO {schema}.refs (agent_no, name, kind, seq, checkpoint) VALUES (
            p_agent_no, v_item ->> 0, 'checkpoint', (v_item ->> 1)::bigint,
            p_bytes[(v_item ->> 2)::int]
        );
    END IF;
    IF p_more ? 'drop_branch' THEN
        UPDATE {schema}.refs SET deleted = true
            WHERE agent_no = p_agent_no AND name = p_more ->> 'drop_branch';
    END IF;
    IF p_more ? 'consumed' THEN
        UPDATE {schema}.inbox SET consumed = true, value = NULL WHERE agent = p_agent
            AND no = ANY (ARRAY(
                SELECT c::bigint FROM jsonb_array_elements_text(p_more -> 'consumed') c
            ));
    END IF;
    FOR v_item IN SELECT * FROM jsonb_array_elements(p_more -> 'runs') LOOP
        IF NOT EXISTS (
            SELECT 1 FROM {schema}.runs o WHERE o.agent_no = p_agent_no AND o.id = v_item ->> 'id'
        ) THEN
            PERFORM {schema}.lock_begin_1(v_item ->> 'id');
        END IF;
        INSERT INTO {schema}.runs (
            agent_no, id, agent, branch, function, key, status, started, ended, args, result,
            problem, wake_at, waits, turn, turn_at, version, queue, parent, started_at, changed_at,
            seen
        ) SELECT p_agent_no, r.id, r.agent, r.branch, r.function, r.key, r.status, r.started,
            r.ended, r.args, p_bytes[r.result], r.problem, r.wake_at, r.waits, r.turn, r.turn_at,
            r.version, r.queue, r.parent, r.started_at, r.changed_at, r.seen
        FROM jsonb_to_record(v_item) AS r (
            id text, agent text, branch text, function text, key text, status text, started bigint,
            ended bigint, args text, result int, problem text, wake_at bigint, waits text,
            turn bigint, turn_at bigint, version text, queue text, parent text, started_at bigint,
            changed_at bigint, seen bigint
        )
        ON CONFLICT (agent_no, id) DO UPDATE SET
            branch = excluded.branch, status = excluded.status, started = excluded.started,
            ended = excluded.ended, args = excluded.args, result = excluded.result,
            problem = excluded.problem, wake_at = excluded.wake_at, waits = excluded.waits,
            turn = excluded.turn, turn_at = excluded.turn_at, version = excluded.version,
            queue = excluded.queue, parent = excluded.parent, started_at = excluded.started_at,
            changed_at = excluded.changed_at, seen = excluded.seen;
        IF v_item ->> 'status' IN ('done', 'failed', 'cancelled') THEN
            UPDATE {schema}.inbox SET consumed = true, value = NULL
                WHERE run = v_item ->> 'id' AND NOT consumed;
        END IF;
    END LOOP;
    FOR v_item IN SELECT * FROM jsonb_array_elements(p_more -> 'sends') LOOP
        PERFORM {schema}.send_1(
            NULL, v_item ->> 0, v_item ->> 1, v_item ->> 2, v_item ->> 3, v_item ->> 4,
            p_bytes[(v_item ->> 5)::int], v_item ->> 6, (v_item ->> 7)::bigint,
            (v_item ->> 8)::bigint
        );
    END LOOP;
    IF p_more ? 'epoch_min' THEN  -- I4: an imported log's fencing tokens go on growing
        UPDATE {schema}.refs SET epoch = greatest(epoch, (p_more ->> 'epoch_min')::bigint)
            WHERE agent_no = p_agent_no AND name = p_branch;
    END IF;
    IF p_more ? 'release' THEN
        UPDATE {schema}.refs SET held = NULL, holder = NULL
            WHERE agent_no = p_agent_no AND name = p_branch;
    END IF;
    IF p_more ? 'delete_agent' THEN
        UPDATE {schema}.agents SET deleted = true, to_purge = p_more ? 'purge'
            WHERE no = p_agent_no;
        UPDATE {schema}.refs SET deleted = true, held = NULL, holder = NULL
            WHERE agent_no = p_agent_no;
        PERFORM pg_advisory_xact_lock(
            hashtext('perdure {schema}'), hashtext('agent ' || p_agent)
        );
        -- First what lets messages in for runs that did not start; then what came in until now.
        DELETE FROM {schema}.inbox WHERE agent = p_agent AND kind = 'start';
        DELETE FROM {schema}.inbox WHERE agent = p_agent;
    END IF;
END $$;
