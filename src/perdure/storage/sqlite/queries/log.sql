-- What a commit writes.

-- name: claim_head
-- I2, I4: moves the head if the branch stands where the writer saw it, is held by nobody else, and
-- the log goes on to where the writer links.
UPDATE refs SET seq = ?3
WHERE agent_no = ?1 AND name = ?2 AND kind = 'branch' AND deleted = 0
  AND seq = ?4 AND held IS ?5 AND EXISTS (SELECT 1 FROM commits WHERE id = ?6);

-- name: claim_free_head
-- As claim_head, of a branch that nobody holds; and takes its lease (?7), if the epoch is the next.
UPDATE refs SET seq = ?3, epoch = ?5, held = ?5, holder = ?7
WHERE agent_no = ?1 AND name = ?2 AND kind = 'branch' AND deleted = 0
  AND seq = ?4 AND held IS NULL AND epoch = ?5 - 1 AND EXISTS (SELECT 1 FROM commits WHERE id = ?6);

-- name: put_back_head
-- ?4: with a lease that was taken.
UPDATE refs SET seq = ?3, epoch = epoch - ?4, held = iif(?4, NULL, held),
    holder = iif(?4, NULL, holder)
WHERE agent_no = ?1 AND name = ?2;

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

-- name: take_key
INSERT INTO keys (agent_no, key, seq, asked) VALUES (?, ?, ?, ?)
ON CONFLICT (agent_no, key) DO NOTHING;

-- name: put_back_key
DELETE FROM keys WHERE agent_no = ? AND key = ?;

-- name: find_key
SELECT seq, asked, agent_no, key FROM keys WHERE agent_no = ? AND key = ?;

-- name: find_keys
-- The keys come as a JSON array.
SELECT key, seq FROM keys WHERE agent_no = ? AND key IN (SELECT value FROM json_each(?));

-- name: add_snapshot
INSERT OR REPLACE INTO snapshots (id, manifest, leaf_ids) VALUES (?, ?, ?);

-- name: add_leaf
INSERT INTO leaves (id, data) VALUES (?, ?);

-- name: find_snapshot
SELECT manifest, leaf_ids FROM snapshots WHERE id = ?;

-- name: find_leaves
-- The ids come as a JSON array.
SELECT id, data FROM leaves WHERE id IN (SELECT value FROM json_each(?));
