-- A run does not end over a "cancel" that its maker has not read: who asked for that was told that it
-- is there, and then it was lost with the run's end, and those that the run had started lived on.

-- As in 0004_named_rows.sql.
CREATE OR REPLACE FUNCTION {schema}.hindrance_1(
    p_agent_no bigint, p_deleted boolean, p_branch text, p_expected bigint, p_key text,
    p_more jsonb
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
    IF p_more ? 'read_to' THEN
        -- Locked first: a signal that is just being put in is seen by the next statement.
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
        ) m WHERE m.no > l.last AND m.kind = 'signal' OR m.kind IN ('start', 'cancel')
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
