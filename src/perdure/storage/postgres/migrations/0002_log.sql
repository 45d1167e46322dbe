-- What writes to a log: each commit in one call.
--
-- What a commit names is looked up by its index, name by name. How many rows come out of JSON the
-- server cannot tell, and takes a hundred or two for likely: joined with them, it reads all unread
-- messages of the store, all its runs and snapshots, to look for a few in a hash table.

-- Before a transaction's end: whether its COMMIT waits for the disk (and for standbys, as the server
-- is set), or not. Told in each transaction, as a pooler may give each one another session.
CREATE FUNCTION {schema}.durable_1(p_durable boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT p_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE FUNCTION {schema}.refusal_1(p_why text, p_ref {schema}.refs)
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('why', p_why, 'ref',
        CASE WHEN p_ref.agent_no IS NOT NULL THEN to_jsonb(p_ref) - 'agent_no' END)
$$;

-- What comes along with a commit: the members of p_more, whose bytes are in p_bytes by place.
CREATE FUNCTION {schema}.append_more_1(
    p_agent_no bigint, p_agent text, p_branch text, p_seq bigint, p_more jsonb, p_bytes bytea[]
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_item jsonb;
    v_answer text;
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
        SELECT s.answer INTO v_answer FROM {schema}.send_1(
            NULL, v_item ->> 0, v_item ->> 1, v_item ->> 2, v_item ->> 3, v_item ->> 4,
            p_bytes[(v_item ->> 5)::int], v_item ->> 6, (v_item ->> 7)::bigint,
            (v_item ->> 8)::bigint
        ) s;
        IF v_answer = 'closed' THEN
            RAISE EXCEPTION 'closed' USING ERRCODE = 'PDRCL';  -- append_whole_1 answers
        END IF;
    END LOOP;
    FOR v_item IN SELECT * FROM jsonb_array_elements(p_more -> 'known') LOOP
        INSERT INTO {schema}.inbox (run, agent, kind, name, key, who, at, token, consumed)
            VALUES (
                v_item ->> 0, v_item ->> 1, v_item ->> 2, v_item ->> 3, v_item ->> 4,
                v_item ->> 5, (v_item ->> 6)::bigint, 0, true
            )
            ON CONFLICT (agent, run, kind, name, key) DO UPDATE SET consumed = true, value = NULL;
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

-- What can be told before anything is written; NULL: nothing stands in the way.
CREATE FUNCTION {schema}.hindrance_1(
    p_agent text, p_agent_no bigint, p_deleted boolean, p_branch text, p_expected bigint,
    p_key text, p_more jsonb
) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_found jsonb;
    v_ref {schema}.refs;
BEGIN
    IF p_key IS NOT NULL THEN
        SELECT jsonb_build_object('why', 'key', 'seq', k.seq, 'asked', k.asked) INTO v_found
            FROM {schema}.keys k WHERE k.agent_no = p_agent_no AND k.key = p_key;
        IF FOUND THEN
            RETURN v_found;
        END IF;
    END IF;
    IF p_more ? 'fresh' THEN
        -- Locked first, as by what asks for a run: who was first is seen by the next statement.
        PERFORM {schema}.lock_begin_1(w.run) FROM (
            SELECT f AS run FROM jsonb_array_elements_text(p_more -> 'fresh') f ORDER BY f
        ) w;
        PERFORM 1 FROM jsonb_array_elements_text(p_more -> 'fresh') f
            CROSS JOIN LATERAL (
                SELECT 1 FROM {schema}.runs r WHERE r.id = f
                UNION ALL SELECT 1 FROM {schema}.inbox m
                    WHERE m.run = f AND m.kind = 'start' AND NOT m.consumed
                      AND NOT COALESCE(p_more -> 'consumed', '[]') @> to_jsonb(m.no)
                OFFSET 0  -- it stays a query of its own, run by run
            ) o;
        IF FOUND THEN
            RETURN '{"why": "begun"}';
        END IF;
    END IF;
    IF p_more ? 'going' THEN
        PERFORM 1 FROM (
            SELECT g AS run FROM jsonb_array_elements_text(p_more -> 'going') g ORDER BY g
        ) w WHERE NOT {schema}.going_1(w.run);
        IF FOUND THEN
            RETURN '{"why": "ended"}';
        END IF;
    END IF;
    IF p_more ? 'read_to' THEN
        -- Locked first: a message that is just being put in is seen by the next statement.
        PERFORM 1 FROM {schema}.runs r
            WHERE r.id = ANY (ARRAY(SELECT jsonb_object_keys(p_more -> 'read_to')))
            ORDER BY r.id FOR NO KEY UPDATE;
    END IF;
    IF p_more ? 'read_to' OR p_more ? 'holder' THEN
        PERFORM 1 FROM (
            SELECT t.key AS run, t.value::bigint AS last FROM jsonb_each_text(p_more -> 'read_to') t
            UNION ALL SELECT w ->> 'id', NULL FROM jsonb_array_elements(p_more -> 'runs') w
                WHERE p_more ? 'holder'
        ) l CROSS JOIN LATERAL (
            SELECT m.no, m.kind FROM {schema}.inbox m WHERE m.run = l.run AND NOT m.consumed
            OFFSET 0  -- it stays a query of its own, run by run
        ) m WHERE m.no > l.last AND m.kind IN ('signal', 'answer')
            OR m.kind IN ('start', 'cancel')
            AND NOT COALESCE(p_more -> 'consumed', '[]') @> to_jsonb(m.no);
        IF FOUND THEN
            RETURN '{"why": "unread"}';
        END IF;
    END IF;
    IF p_more ? 'starts_read' THEN
        -- Locked first, as by what asks for a run: what was just put in is seen by the next statement.
        PERFORM pg_advisory_xact_lock(
            hashtext('perdure {schema}'), hashtext('agent ' || p_agent)
        );
        PERFORM 1 FROM {schema}.inbox m
            WHERE m.agent = p_agent AND m.kind = 'start' AND NOT m.consumed
              AND NOT COALESCE(p_more -> 'consumed', '[]') @> to_jsonb(m.no);
        IF FOUND THEN
            RETURN '{"why": "unread"}';
        END IF;
    END IF;
    SELECT r.* INTO v_ref FROM {schema}.refs r WHERE r.agent_no = p_agent_no
        AND r.name = CASE WHEN p_expected IS NULL THEN p_branch
                     ELSE p_more -> 'checkpoint' ->> 0 END;
    IF FOUND THEN
        RETURN {schema}.refusal_1('exists', v_ref);
    END IF;
    IF p_more ? 'drop_branch' THEN
        SELECT r.* INTO v_ref FROM {schema}.refs r
            WHERE r.agent_no = p_agent_no AND r.name = p_more ->> 'drop_branch';
        IF NOT FOUND OR v_ref.deleted OR v_ref.kind <> 'branch' THEN
            RETURN {schema}.refusal_1('gone', v_ref);
        ELSIF v_ref.held IS NOT NULL THEN
            RETURN {schema}.refusal_1('held', v_ref);
        ELSIF v_ref.seq <> (p_more ->> 'drop_head')::bigint THEN
            RETURN {schema}.refusal_1('moved', v_ref);
        END IF;
    END IF;
    IF p_expected IS NULL AND p_deleted THEN
        RETURN '{"why": "gone"}';
    END IF;
    IF p_more ? 'trims' AND (p_more ->> 'trims')::bigint <> coalesce((
        SELECT r.seq FROM {schema}.refs r WHERE r.agent_no = p_agent_no AND r.name = '@retention'
    ), 0) THEN
        RETURN '{"why": "trimmed"}';
    END IF;
    IF p_more ? 'manifest' AND EXISTS (
        SELECT 1 FROM jsonb_array_elements_text(p_more -> 'leaf_ids') i WHERE NOT EXISTS (
            SELECT 1 FROM jsonb_array_elements(p_more -> 'leaves') l WHERE l ->> 0 = i
        ) AND NOT EXISTS (
            SELECT 1 FROM {schema}.leaves l WHERE l.agent_no = p_agent_no AND l.id = i::bigint
        )
    ) THEN
        RETURN '{"why": "leaves"}';
    END IF;
    RETURN NULL;
END $$;

-- Why a branch's head cannot be moved. NULL: it can be, now: what stood in the way went meanwhile.
CREATE FUNCTION {schema}.diagnosis_1(
    p_agent_no bigint, p_branch text, p_expected bigint, p_epoch bigint, p_takes boolean
) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ref {schema}.refs;
BEGIN
    SELECT r.* INTO v_ref FROM {schema}.refs r
        WHERE r.agent_no = p_agent_no AND r.name = p_branch;
    RETURN CASE
        WHEN NOT FOUND OR v_ref.deleted OR v_ref.kind <> 'branch'
            THEN {schema}.refusal_1('gone', v_ref)
        WHEN p_takes AND v_ref.held IS NOT NULL THEN {schema}.refusal_1('held', v_ref)
        WHEN p_takes AND v_ref.epoch + 1 <> p_epoch THEN {schema}.refusal_1('fenced', v_ref)
        WHEN NOT p_takes AND v_ref.held IS DISTINCT FROM p_epoch
            THEN {schema}.refusal_1(CASE WHEN p_epoch IS NULL THEN 'held' ELSE 'fenced' END, v_ref)
        WHEN v_ref.seq <> p_expected THEN {schema}.refusal_1('moved', v_ref)
    END;
END $$;

-- I2, I3, I4: one commit with all that comes along with it, or a refusal and nothing of it. A
-- refusal is an answer, not an exception: the other commits of the transaction go on.
CREATE FUNCTION {schema}.append_1(
    p_durable boolean, p_agent text, p_agent_no bigint, p_incarnation bigint, p_seq bigint,
    p_header bytea, p_payload bytea, p_prev bytea, p_branch text, p_expected bigint,
    p_epoch bigint, p_key text, p_asked bytea, p_more jsonb, p_bytes bytea[],
    OUT agent_no bigint, OUT refusal jsonb
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_deleted boolean;
    v_header bytea;
    v_holder text := p_more ->> 'holder';
    v_ref {schema}.refs;
    v_tx xid8;
    v_linked boolean;
BEGIN
    -- As durable_1, at once: this is on the path of every commit.
    IF p_durable AND current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    ELSIF NOT p_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    agent_no := p_agent_no;
    IF p_agent_no IS NOT NULL THEN
        -- Whoever appends to this log waits here: its places are taken in order, and so is tx.
        SELECT a.deleted INTO v_deleted FROM {schema}.agents a WHERE a.no = p_agent_no
            FOR NO KEY UPDATE;
        v_deleted := coalesce(v_deleted, true);
    END IF;
    PERFORM 1 FROM {schema}.standings;
    IF FOUND THEN
        refusal := {schema}.closed_1(p_agent_no);
        IF refusal IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    IF p_more ? 'consumed' THEN
        IF jsonb_array_length(p_more -> 'consumed') <> (
            SELECT count(*) FROM {schema}.inbox m WHERE m.agent = p_agent AND NOT m.consumed
            AND m.no = ANY (ARRAY(
                SELECT c::bigint FROM jsonb_array_elements_text(p_more -> 'consumed') c
            ))
        ) THEN
            refusal := '{"why": "consumed"}';
            RETURN;
        END IF;
    END IF;
    IF p_agent_no IS NULL THEN
        PERFORM 1 FROM {schema}.agents a WHERE a.name = p_agent
            AND NOT (a.deleted AND a.incarnation < p_incarnation);
        IF FOUND THEN
            refusal := '{"why": "exists"}';
            RETURN;
        ELSIF p_seq <> 1 THEN  -- behind one that did not get in
            refusal := '{"why": "stale"}';
            RETURN;
        END IF;
        INSERT INTO {schema}.agents AS a (name, incarnation) VALUES (p_agent, p_incarnation)
            ON CONFLICT DO NOTHING RETURNING a.no INTO agent_no;
        IF NOT FOUND THEN
            refusal := '{"why": "exists"}';
            RETURN;
        END IF;
    ELSIF p_key IS NOT NULL OR p_expected IS NULL OR p_more IS NOT NULL THEN
        refusal := {schema}.hindrance_1(
            p_agent, agent_no, v_deleted, p_branch, p_expected, p_key, p_more
        );
        IF refusal IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    LOOP
        EXIT WHEN p_expected IS NULL;
        UPDATE {schema}.refs r SET seq = p_seq, held = p_epoch,
                epoch = CASE WHEN v_holder IS NULL THEN r.epoch ELSE p_epoch END,
                holder = coalesce(v_holder, r.holder)
            WHERE r.agent_no = p_agent_no AND r.name = p_branch AND r.kind = 'branch'
              AND NOT r.deleted AND r.seq = p_expected
              AND r.held IS NOT DISTINCT FROM CASE WHEN v_holder IS NULL THEN p_epoch END
              AND (v_holder IS NULL OR r.epoch = p_epoch - 1);
        EXIT WHEN FOUND;
        refusal := {schema}.diagnosis_1(
            p_agent_no, p_branch, p_expected, p_epoch, v_holder IS NOT NULL
        );
        IF refusal IS NOT NULL THEN
            RETURN;
        END IF;
    END LOOP;
    v_linked := p_seq = 1;
    IF NOT v_linked THEN
        SELECT c.header, c.tx INTO v_header, v_tx FROM {schema}.commits c
            WHERE c.agent_no = p_agent_no AND c.seq = p_seq - 1;
        v_linked := FOUND AND p_prev =
            '\x01'::bytea || sha256('\x706572647572652e636f6d6d69742e763100'::bytea || v_header);
    END IF;
    IF v_linked THEN
        INSERT INTO {schema}.commits (agent_no, seq, tx, header, payload)
            SELECT append_1.agent_no, p_seq, greatest(pg_current_xact_id(), v_tx), p_header, p_payload
            ON CONFLICT DO NOTHING;
        v_linked := FOUND;
    END IF;
    IF NOT v_linked THEN
        UPDATE {schema}.refs r SET seq = p_expected,
                epoch = r.epoch - (v_holder IS NOT NULL)::int,
                held = CASE WHEN v_holder IS NULL THEN r.held END,
                holder = CASE WHEN v_holder IS NULL THEN r.holder END
            WHERE p_expected IS NOT NULL AND r.agent_no = p_agent_no AND r.name = p_branch
            RETURNING r.* INTO v_ref;
        refusal := {schema}.refusal_1('stale', v_ref);
        RETURN;
    END IF;
    IF p_expected IS NULL THEN
        INSERT INTO {schema}.refs (agent_no, name, kind, seq)
            VALUES (append_1.agent_no, p_branch, 'branch', p_seq);
    END IF;
    IF p_key IS NOT NULL THEN
        INSERT INTO {schema}.keys (agent_no, key, seq, asked)
            VALUES (append_1.agent_no, p_key, p_seq, p_asked);
    END IF;
    IF p_more IS NOT NULL THEN
        PERFORM {schema}.append_more_1(
            append_1.agent_no, p_agent, p_branch, p_seq, p_more, p_bytes
        );
    END IF;
END $$;

-- A commit of a batch (the p_at-th, from 0), with those behind it that follow it: all of them, or none.
-- Also one with messages, of which a closed store may refuse the last.
CREATE FUNCTION {schema}.append_whole_1(
    p_at int, p_durable boolean, p_numbers bigint[], p_texts text[], p_bytes bytea[],
    p_mores jsonb[], OUT agent_no bigint, OUT refusal jsonb
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_at int := p_at;
BEGIN
    agent_no := p_numbers[5 * v_at + 1];
    LOOP
        SELECT a.agent_no, a.refusal INTO agent_no, refusal FROM {schema}.append_1(
            p_durable, p_texts[3 * v_at + 1], agent_no, p_numbers[5 * v_at + 2],
            p_numbers[5 * v_at + 3], p_bytes[4 * v_at + 1], p_bytes[4 * v_at + 2],
            p_bytes[4 * v_at + 3], p_texts[3 * v_at + 2], p_numbers[5 * v_at + 4],
            p_numbers[5 * v_at + 5], p_texts[3 * v_at + 3], p_bytes[4 * v_at + 4],
            p_mores[v_at + 1], p_bytes
        ) a;
        IF refusal IS NOT NULL THEN
            RAISE EXCEPTION 'refused' USING ERRCODE = 'PDRFS';  -- takes back what is written
        END IF;
        v_at := v_at + 1;
        EXIT WHEN p_numbers[5 * v_at + 1] IS DISTINCT FROM 0;
    END LOOP;
EXCEPTION
    WHEN SQLSTATE 'PDRFS' THEN
        NULL;
    WHEN SQLSTATE 'PDRCL' THEN
        SELECT jsonb_build_object('why', 'closed', 'no', 0, 'says', s.why) INTO refusal
            FROM {schema}.standings s WHERE s.no = 0;
END $$;

-- A batch in one statement, and so in one transaction and one round trip. For each commit p_numbers
-- has agent_no, incarnation, seq, expected, epoch; p_texts agent, branch, key; p_bytes header, payload,
-- prev, asked, and behind those of all commits what p_mores speak of. One whose agent_no is 0 follows
-- the one before it, and has no answer of its own. p_locks: the runs to be locked first, or NULL for
-- a single commit.
CREATE FUNCTION {schema}.append_all_1(
    p_durable boolean, p_locks text[], p_numbers bigint[], p_texts text[], p_bytes bytea[],
    p_mores jsonb[]
) RETURNS TABLE (agent_no bigint, refusal text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_open boolean;
BEGIN
    PERFORM {schema}.durable_1(p_durable);
    PERFORM 1 FROM {schema}.standings WHERE false FOR KEY SHARE;  -- see stand_1
    PERFORM 1 FROM {schema}.standings;
    v_open := NOT FOUND;
    IF p_locks IS NOT NULL THEN
        PERFORM {schema}.lock_1(
            ARRAY(SELECT p_numbers[n] FROM generate_series(1, cardinality(p_numbers), 5) n), p_locks
        );
    END IF;
    FOR v_at IN 0..cardinality(p_numbers) / 5 - 1 LOOP
        CONTINUE WHEN p_numbers[5 * v_at + 1] = 0;
        IF p_numbers[5 * v_at + 6] = 0 OR (NOT v_open AND p_mores[v_at + 1] ? 'sends') THEN
            SELECT a.agent_no, a.refusal::text INTO agent_no, refusal FROM {schema}.append_whole_1(
                v_at, p_durable, p_numbers, p_texts, p_bytes, p_mores
            ) a;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- Most have no key, nothing beside them, and nothing in their way: append_1's own path for
        -- these, without its questions. Where something is in the way, append_1 says what.
        IF v_open AND p_locks IS NOT NULL AND p_numbers[5 * v_at + 4] IS NOT NULL
           AND p_texts[3 * v_at + 3] IS NULL AND p_mores[v_at + 1] IS NULL THEN
            UPDATE {schema}.refs r SET seq = p_numbers[5 * v_at + 3]
                WHERE r.agent_no = p_numbers[5 * v_at + 1] AND r.name = p_texts[3 * v_at + 2]
                  AND r.kind = 'branch' AND NOT r.deleted AND r.seq = p_numbers[5 * v_at + 4]
                  AND r.held IS NOT DISTINCT FROM p_numbers[5 * v_at + 5];
            IF FOUND THEN
                INSERT INTO {schema}.commits (agent_no, seq, tx, header, payload)
                    SELECT c.agent_no, c.seq + 1, greatest(pg_current_xact_id(), c.tx),
                        p_bytes[4 * v_at + 1], p_bytes[4 * v_at + 2]
                    FROM {schema}.commits c WHERE c.agent_no = p_numbers[5 * v_at + 1]
                      AND c.seq = p_numbers[5 * v_at + 3] - 1
                      AND p_bytes[4 * v_at + 3] = '\x01'::bytea
                        || sha256('\x706572647572652e636f6d6d69742e763100'::bytea || c.header)
                    ON CONFLICT DO NOTHING;
                IF FOUND THEN
                    agent_no := p_numbers[5 * v_at + 1];
                    refusal := NULL;
                    RETURN NEXT;
                    CONTINUE;
                END IF;
                UPDATE {schema}.refs r SET seq = p_numbers[5 * v_at + 4]
                    WHERE r.agent_no = p_numbers[5 * v_at + 1] AND r.name = p_texts[3 * v_at + 2];
            END IF;
        END IF;
        SELECT a.agent_no, a.refusal::text INTO agent_no, refusal FROM {schema}.append_1(
            p_durable, p_texts[3 * v_at + 1], p_numbers[5 * v_at + 1], p_numbers[5 * v_at + 2],
            p_numbers[5 * v_at + 3], p_bytes[4 * v_at + 1], p_bytes[4 * v_at + 2],
            p_bytes[4 * v_at + 3], p_texts[3 * v_at + 2], p_numbers[5 * v_at + 4],
            p_numbers[5 * v_at + 5], p_texts[3 * v_at + 3], p_bytes[4 * v_at + 4],
            p_mores[v_at + 1], p_bytes
        ) a;
        RETURN NEXT;
    END LOOP;
END $$;
