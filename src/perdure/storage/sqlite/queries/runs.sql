-- Rows of runs.

-- name: put_run
INSERT INTO runs ({run_columns})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    branch = excluded.branch, status = excluded.status, started = excluded.started,
    ended = excluded.ended, args = excluded.args, result = excluded.result,
    problem = excluded.problem, wake_at = excluded.wake_at, waits = excluded.waits,
    turn = excluded.turn, turn_at = excluded.turn_at, version = excluded.version,
    queue = excluded.queue, parent = excluded.parent, started_at = excluded.started_at,
    changed_at = excluded.changed_at, seen = excluded.seen;

-- name: run_columns
-- A part of other statements: the fields of RunInfo, in their order.
id, agent, agent_no, branch, function, key, status, started, ended, args, result, problem,
wake_at, waits, turn, turn_at, version, queue, parent, started_at, changed_at, seen

-- name: unfinished
-- A part: written as the indexes have it, so that they serve.
status IN ('pending', 'running', 'waiting', 'needs_attention')

-- name: wanted_runs
-- A part: what narrows every list of runs. What is no row of this table is not passed over.
place > :low AND place < :high AND (typeof(seen) <> 'integer' OR (
    (:function IS NULL OR function = :function)
    AND (:parent IS NULL OR parent = :parent)
    AND (:status IS NULL OR status IN (SELECT value FROM json_each(:status)))
))

-- name: find_run
SELECT {run_columns} FROM runs WHERE id = ?;

-- name: find_run_place
SELECT place FROM runs WHERE id = ?;

-- name: list_runs
SELECT {run_columns}, place FROM runs WHERE {wanted_runs} ORDER BY place {order} LIMIT :limit;

-- name: list_agents_runs
SELECT {run_columns}, place FROM runs WHERE agent = :agent AND {wanted_runs}
ORDER BY place {order} LIMIT :limit;

-- name: unfinished_runs
-- A part: those that are narrowed to one status come out of the index in their order.
runs INDEXED BY runs_unfinished
        WHERE status IN ('pending', 'running', 'waiting', 'needs_attention')
          AND place > :low AND place < :high AND (:function IS NULL OR function = :function)
          AND (:parent IS NULL OR parent = :parent)

-- name: list_unfinished
-- The first few must not cost what all cost: as many of each status that is wanted, put together.
SELECT {run_columns} FROM runs WHERE place IN (
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'pending' AND :pending
        ORDER BY place {order} LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'running' AND :running
        ORDER BY place {order} LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'waiting' AND :waiting
        ORDER BY place {order} LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'needs_attention' AND :needs_attention
        ORDER BY place {order} LIMIT :limit
    )
) ORDER BY place {order} LIMIT :limit;

-- name: list_agents_unfinished
-- :direction is 1 or -1.
SELECT {run_columns} FROM runs INDEXED BY runs_unfinished_by_agent
WHERE agent = :agent AND {unfinished} AND {wanted_runs}
ORDER BY place * :direction LIMIT :limit;

-- name: list_unfinished_of_agent
SELECT {run_columns}, place FROM runs INDEXED BY runs_unfinished_by_agent
WHERE agent = ? AND {unfinished} ORDER BY place;

-- name: list_ready
-- Its cost must not grow with the runs that wait: each branch has an index of its own, and takes
-- those that are due for longest. The order is that of `due_since`.
SELECT {run_columns} FROM runs WHERE place IN (
    SELECT place FROM (
        SELECT place FROM runs INDEXED BY runs_unfinished
        WHERE {unfinished} AND status = 'pending' ORDER BY place LIMIT :limit
    )
    UNION
    SELECT place FROM (
        SELECT place FROM runs INDEXED BY runs_by_timer
        WHERE status = 'waiting' AND wake_at > 0 AND wake_at <= :now ORDER BY wake_at LIMIT :limit
    )
    UNION
    SELECT r.place FROM inbox m INDEXED BY inbox_by_kind CROSS JOIN runs r ON r.id = m.run
    WHERE m.consumed = 0 AND m.kind IN ('signal', 'answer') AND r.status = 'waiting'
      AND m.no > r.seen
    UNION
    SELECT r.place FROM inbox m INDEXED BY inbox_by_kind CROSS JOIN runs r ON r.id = m.run
    WHERE m.consumed = 0 AND m.kind = 'cancel'
      AND r.status IN ('pending', 'running', 'waiting', 'needs_attention')
) ORDER BY CASE
    WHEN status = 'waiting' AND wake_at > 0 AND wake_at <= :now THEN wake_at ELSE changed_at
END, place LIMIT :limit;

-- name: list_running
-- But those on a branch that is held by one of :holders, a JSON array.
SELECT {run_columns} FROM runs INDEXED BY runs_unfinished
WHERE {unfinished} AND status = 'running' AND NOT EXISTS (
    SELECT 1 FROM refs WHERE refs.agent_no = runs.agent_no AND refs.name = runs.branch
    AND refs.holder IN (SELECT value FROM json_each(:holders))
)
ORDER BY place LIMIT :limit;

-- name: next_timer
SELECT wake_at FROM runs INDEXED BY runs_by_timer WHERE status = 'waiting' AND wake_at > 0
ORDER BY wake_at LIMIT 1;
