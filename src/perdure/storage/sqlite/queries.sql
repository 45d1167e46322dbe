-- Every statement of the backend, by name. Parameters are bound by name or place, never spliced in.

-- name: claim_head
-- I2, I4: moves the head if the branch stands where the writer saw it, is held by nobody else, and
-- the log goes on to where the writer links.
UPDATE refs SET seq = ?3
WHERE agent_no = ?1 AND name = ?2 AND kind = 'branch' AND deleted = 0
  AND seq = ?4 AND held IS ?5 AND EXISTS (SELECT 1 FROM commits WHERE id = ?6);

-- name: put_back_head
UPDATE refs SET seq = ?3 WHERE agent_no = ?1 AND name = ?2;

-- name: add_commit
-- The log's next place can be taken only once.
INSERT OR IGNORE INTO commits (id, header, payload) VALUES (?, ?, ?);

-- name: release
UPDATE refs SET held = NULL, holder = NULL WHERE agent_no = ? AND name = ?;

-- name: raise_epoch
-- I4: a branch that comes from another store goes on with greater fencing tokens.
UPDATE refs SET epoch = max(epoch, ?3) WHERE agent_no = ?1 AND name = ?2;

-- name: add_agent
INSERT INTO agents (name, incarnation) VALUES (?, ?) RETURNING no;

-- name: end_agent
UPDATE agents SET deleted = 1 WHERE no = ?;

-- name: end_refs
UPDATE refs SET deleted = 1, held = NULL, holder = NULL WHERE agent_no = ?;

-- name: add_branch
INSERT INTO refs (agent_no, name, kind, seq) VALUES (?, ?, 'branch', ?);

-- name: add_checkpoint
INSERT INTO refs (agent_no, name, kind, seq, checkpoint) VALUES (?, ?, 'checkpoint', ?, ?);

-- name: drop_branch
UPDATE refs SET deleted = 1 WHERE agent_no = ? AND name = ? AND held IS NULL;

-- name: add_key
INSERT INTO keys (agent_no, key, seq, asked) VALUES (?, ?, ?, ?);

-- name: find_key
SELECT seq, asked FROM keys WHERE agent_no = ? AND key = ?;

-- name: add_snapshot
INSERT OR REPLACE INTO snapshots (id, manifest, leaf_ids) VALUES (?, ?, ?);

-- name: add_leaf
INSERT INTO leaves (id, data) VALUES (?, ?);

-- name: find_snapshot
SELECT manifest, leaf_ids FROM snapshots WHERE id = ?;

-- name: find_leaves
-- The ids come as a JSON array.
SELECT id, data FROM leaves WHERE id IN (SELECT value FROM json_each(?));

-- name: put_run
INSERT INTO runs (id, agent, agent_no, branch, function, key, status, started, ended, args, result,
                  problem)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    branch = excluded.branch, status = excluded.status, started = excluded.started,
    ended = excluded.ended, args = excluded.args, result = excluded.result,
    problem = excluded.problem;

-- name: find_runs
SELECT id, agent, agent_no, branch, function, key, status, started, ended, args, result, problem
FROM runs
WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR id = ?2)
  AND (NOT ?3 OR status IN ('pending', 'running', 'needs_attention'))
ORDER BY place;

-- name: find_agent
SELECT no, name, incarnation, deleted FROM agents
WHERE name = ?1 AND (?2 IS NULL OR incarnation = ?2)
ORDER BY incarnation DESC LIMIT 1;

-- name: list_agents
SELECT no, name, incarnation, deleted FROM agents
WHERE deleted = 0 AND name > ?2 AND name >= ?1 AND substr(name, 1, length(?1)) = ?1
ORDER BY name LIMIT ?3;

-- name: list_incarnations
SELECT no, name, incarnation, deleted FROM agents ORDER BY no;

-- name: last_place
SELECT id FROM commits WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1;

-- name: read_up
SELECT c.id, c.header, c.payload, EXISTS (SELECT 1 FROM snapshots s WHERE s.id = c.id)
FROM commits c WHERE c.id BETWEEN ? AND ? ORDER BY c.id LIMIT ?;

-- name: read_down
SELECT c.id, c.header, c.payload, EXISTS (SELECT 1 FROM snapshots s WHERE s.id = c.id)
FROM commits c WHERE c.id BETWEEN ? AND ? ORDER BY c.id DESC LIMIT ?;

-- name: find_header
SELECT header FROM commits WHERE id = ?;

-- name: find_ref
SELECT name, kind, seq, deleted, epoch, held, holder, checkpoint FROM refs
WHERE agent_no = ? AND name = ?;

-- name: list_refs
SELECT name, kind, seq, deleted, epoch, held, holder, checkpoint FROM refs
WHERE agent_no = ? ORDER BY name;

-- name: take_lease
UPDATE refs SET epoch = epoch + 1, held = epoch + 1, holder = ?3
WHERE agent_no = ?1 AND name = ?2 AND kind = 'branch' AND deleted = 0 AND held IS ?4
RETURNING held;

-- name: give_lease
UPDATE refs SET held = NULL, holder = NULL
WHERE agent_no = ?1 AND name = ?2 AND held IS ?3 AND ?3 IS NOT NULL
RETURNING epoch;

-- name: break_lease
-- The epoch grows, so that the owner that was believed dead is fenced if it was not.
UPDATE refs SET epoch = epoch + 1, held = NULL, holder = NULL
WHERE agent_no = ?1 AND name = ?2 AND held IS ?3 AND ?3 IS NOT NULL
RETURNING epoch;

-- name: add_mark
INSERT OR IGNORE INTO marks (name) VALUES (?);

-- name: put_executor
INSERT INTO executors (id, expires) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET expires = excluded.expires;

-- name: end_executor
DELETE FROM executors WHERE id = ?;

-- name: forget_executors
DELETE FROM executors WHERE expires < ?;

-- name: find_executor
SELECT expires FROM executors WHERE id = ?;

-- name: count_commits
SELECT count(*), coalesce(sum(length(header)), 0), coalesce(sum(length(payload)), 0)
FROM commits WHERE id BETWEEN ? AND ?;

-- name: count_snapshots
SELECT count(*), coalesce(sum(length(manifest)), 0) FROM snapshots WHERE id BETWEEN ? AND ?;

-- name: leaf_ids
SELECT leaf_ids FROM snapshots WHERE id BETWEEN ? AND ?;

-- name: count_leaves
SELECT coalesce(sum(length(data)), 0) FROM leaves WHERE id IN (SELECT value FROM json_each(?));
