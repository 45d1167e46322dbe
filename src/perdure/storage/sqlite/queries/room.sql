-- What takes how much room, and giving that back.

-- name: count_commits
SELECT count(*), coalesce(sum(length(header)), 0), coalesce(sum(length(payload)), 0)
FROM commits WHERE id BETWEEN ? AND ?;

-- name: count_snapshots
SELECT count(*), coalesce(sum(length(manifest)), 0) FROM snapshots WHERE id BETWEEN ? AND ?;

-- name: leaf_ids
SELECT leaf_ids FROM snapshots WHERE id BETWEEN ? AND ?;

-- name: count_leaves
SELECT coalesce(sum(length(data)), 0) FROM leaves WHERE id IN (SELECT value FROM json_each(?));

-- name: list_to_purge
SELECT no FROM (
    SELECT CAST(substr(name, 7) AS INTEGER) AS no FROM marks
    WHERE name > 'purge ' AND name < 'purge!'
) WHERE no > ? ORDER BY no LIMIT ?;

-- name: find_numbered
SELECT no, name, incarnation, deleted FROM agents WHERE no = ?;

-- name: find_deleted
SELECT deleted FROM agents WHERE no = ?;

-- name: note_purged
UPDATE agents SET deleted = 2 WHERE no = ? AND deleted = 1;

-- name: end_mark
DELETE FROM marks WHERE name = ?;

-- name: list_snapshots
SELECT id, leaf_ids FROM snapshots WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?;

-- name: measure_leaves
-- length() of a blob does not read it.
SELECT id, length(data) FROM leaves WHERE id IN (SELECT value FROM json_each(?)) LIMIT ?;

-- name: purge_leaves
DELETE FROM leaves WHERE id IN (SELECT value FROM json_each(?));

-- name: count_there
SELECT count(*) FROM leaves WHERE id IN (SELECT value FROM json_each(?));

-- name: trim_commit
UPDATE commits SET payload = ?2 WHERE id = ?1;

-- name: purge_snapshot
DELETE FROM snapshots WHERE id = ?;

-- name: measure_commits
SELECT id, length(payload) FROM commits WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?;

-- name: purge_commits
DELETE FROM commits WHERE id BETWEEN ? AND ?;

-- name: purge_keys
DELETE FROM keys WHERE agent_no = ?1 AND key IN (
    SELECT key FROM keys WHERE agent_no = ?1 LIMIT ?2
);

-- name: purge_refs
DELETE FROM refs WHERE agent_no = ?1 AND name IN (
    SELECT name FROM refs WHERE agent_no = ?1 LIMIT ?2
);

-- name: purge_runs
-- By the name, which has an index.
DELETE FROM runs WHERE place IN (
    SELECT place FROM runs
    WHERE agent = (SELECT name FROM agents WHERE no = ?1) AND agent_no = ?1 LIMIT ?2
);
