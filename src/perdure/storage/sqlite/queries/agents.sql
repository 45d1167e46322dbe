-- Agents, their names, and their logs as they are read.

-- name: find_agent
-- The first columns come out of the index; the last, out of the row that it leads to.
SELECT no, name, incarnation, deleted, (SELECT name FROM agents o NOT INDEXED WHERE o.no = a.no)
FROM agents a
WHERE name = ?1 AND (?2 IS NULL OR incarnation = ?2)
ORDER BY incarnation DESC LIMIT 1;

-- name: wanted_agents
-- A part: those from the prefix, or where the last page ended, to the least text behind all that begin
-- with the prefix.
FROM agents
WHERE deleted = 0 AND name >= max(?1, ?2) AND name < ?4 AND +name > ?2
ORDER BY name LIMIT ?3;

-- name: list_agents
-- A log's end is the head of its latest branch: those lie close together.
SELECT no, name, incarnation,
       (SELECT max(seq) FROM refs WHERE agent_no = no AND kind = 'branch')
{wanted_agents}

-- name: list_agents_alone
SELECT no, name, incarnation, deleted {wanted_agents}

-- name: list_incarnations
SELECT no, name, incarnation, deleted FROM agents ORDER BY no;

-- name: list_heads
-- Incarnations with the key of their latest commit: a descent of the b-tree for each.
SELECT no, name, incarnation, deleted,
       (SELECT c.id FROM commits c WHERE c.id BETWEEN no << 36 AND (no + 1 << 36) - 1
        ORDER BY c.id DESC LIMIT 1)
FROM agents WHERE no BETWEEN ? AND ? ORDER BY no;

-- name: list_names
SELECT no, name, incarnation FROM agents WHERE no <= ?;

-- name: last_place
SELECT id FROM commits WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1;

-- name: read
SELECT c.id, c.header, c.payload, EXISTS (SELECT 1 FROM snapshots s WHERE s.id = c.id)
FROM commits c WHERE c.id BETWEEN ? AND ? ORDER BY c.id {order} LIMIT ?;

-- name: last_agent
-- The highest number that was ever given to an incarnation; NULL where there is none.
SELECT max(no) FROM agents;

-- name: find_header
SELECT header FROM commits WHERE id = ?;

-- name: find_ref
-- The last column, too, is what was asked for, as far as all is where it belongs.
SELECT name, kind, seq, deleted, epoch, held, holder, checkpoint, agent_no FROM refs
WHERE agent_no = ? AND name = ?;

-- name: list_refs
SELECT name, kind, seq, deleted, epoch, held, holder, checkpoint, agent_no FROM refs
WHERE agent_no = ? ORDER BY name;

-- name: list_again
INSERT INTO agents (no, name, incarnation, deleted) VALUES (?, ?, ?, ?);

-- name: put_ref
-- Nobody holds a lease then: of what was lost nobody knows who did.
INSERT OR REPLACE INTO refs (agent_no, name, kind, seq, deleted, epoch, checkpoint)
VALUES (?, ?, ?, ?, ?, ?, ?);
