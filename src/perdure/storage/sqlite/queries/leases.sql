-- Leases, and the processes that have them.

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
INSERT INTO executors (id, expires, serves) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires = excluded.expires, serves = excluded.serves;

-- name: list_executors
SELECT id, expires, serves FROM executors ORDER BY id;

-- name: end_executor
DELETE FROM executors WHERE id = ?;

-- name: forget_executors
DELETE FROM executors WHERE expires < ?;

-- name: find_executor
SELECT expires FROM executors WHERE id = ?;

-- name: let_go
-- Of a lease that nobody asks for: what is shipped comes from where leases were looked at.
UPDATE refs SET held = NULL, holder = NULL WHERE agent_no = ? AND name = ? AND held IS NOT NULL;
