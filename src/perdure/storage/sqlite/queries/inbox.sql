-- Messages, by run and by number.

-- name: message_columns
-- A part: the fields of Message, in their order.
run, agent, kind, name, key, value, who, at, no

-- name: add_message
INSERT INTO inbox (run, agent, kind, name, key, value, who, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING no;

-- name: add_known_message
INSERT INTO inbox (run, agent, kind, name, key, who, at, consumed) VALUES (?, ?, ?, ?, ?, ?, ?, 1);

-- name: find_message
SELECT {message_columns} FROM inbox WHERE run = ? AND kind = ? AND name = ? AND key = ?;

-- name: find_start
SELECT 1 FROM inbox WHERE run = ? AND kind = 'start' AND consumed = 0;

-- name: waiting
-- A part, as the next three: those that no commit took out. What `name` passes over is read.
WHERE consumed = 0 AND no > :after AND (:name IS NULL OR name = :name)

-- name: waiting_of_kind
INDEXED BY inbox_by_kind
WHERE consumed = 0 AND kind = :kind AND no > :after AND (:name IS NULL OR name = :name)

-- name: waiting_of_run
INDEXED BY inbox_by_run
WHERE consumed = 0 AND run = :run AND no > :after AND (:agent IS NULL OR agent = :agent)
    AND (:kind IS NULL OR kind = :kind) AND (:name IS NULL OR name = :name)

-- name: waiting_of_agent
-- However many runs of others wait to begin. What is no row of this table is not passed over.
INDEXED BY inbox_by_agent
WHERE agent = :agent AND no > :after AND (typeof(at) <> 'integer' OR (
    consumed = 0 AND (:kind IS NULL OR kind = :kind) AND (:name IS NULL OR name = :name)
))

-- name: list_messages
SELECT {message_columns} FROM inbox {waiting} ORDER BY no {order} LIMIT :limit;

-- name: list_messages_of_kind
SELECT {message_columns} FROM inbox {waiting_of_kind} ORDER BY no {order} LIMIT :limit;

-- name: list_messages_of_run
SELECT {message_columns} FROM inbox {waiting_of_run} ORDER BY no {order} LIMIT :limit;

-- name: list_messages_of_agent
SELECT {message_columns} FROM inbox {waiting_of_agent} ORDER BY no {order} LIMIT :limit;

-- name: count_messages
-- The numbers come as a JSON array.
SELECT count(*) FROM inbox WHERE consumed = 0 AND no IN (SELECT value FROM json_each(?));

-- name: consume_messages
UPDATE inbox SET consumed = 1, value = NULL WHERE no IN (SELECT value FROM json_each(?));

-- name: forget_taken
DELETE FROM inbox WHERE consumed = 1 AND no IN (SELECT value FROM json_each(?));

-- name: find_unread
-- ?2: the last signal or answer that was read, if those count; ?3: what is taken out.
SELECT 1 FROM inbox INDEXED BY inbox_by_run WHERE run = ?1 AND consumed = 0 AND (
    kind IN ('signal', 'answer') AND no > ?2
    OR kind IN ('start', 'cancel') AND no NOT IN (SELECT value FROM json_each(?3))
) LIMIT 1;

-- name: find_begun
-- ?2: what is taken out.
SELECT 1 FROM runs WHERE id = ?1
UNION ALL
SELECT 1 FROM inbox INDEXED BY inbox_by_run WHERE run = ?1 AND consumed = 0 AND kind = 'start'
AND no NOT IN (SELECT value FROM json_each(?2)) LIMIT 1;

-- name: find_going
SELECT 1 FROM runs WHERE id = ?1 AND status NOT IN ('done', 'failed', 'cancelled')
UNION ALL
SELECT 1 FROM inbox INDEXED BY inbox_by_run WHERE run = ?1 AND consumed = 0 AND kind = 'start'
AND NOT EXISTS (SELECT 1 FROM runs WHERE id = ?1) LIMIT 1;

-- name: find_unread_start
SELECT 1 FROM inbox INDEXED BY inbox_by_agent WHERE agent = ?1 AND kind = 'start' AND consumed = 0
AND no NOT IN (SELECT value FROM json_each(?2)) LIMIT 1;

-- name: close_inbox
UPDATE inbox SET consumed = 1, value = NULL WHERE run = ? AND consumed = 0;

-- name: end_inbox
DELETE FROM inbox WHERE agent = ?;

-- name: list_mail
SELECT run, agent, kind, name, key, CASE consumed WHEN 0 THEN value END, who, at, no FROM inbox
WHERE no > ? ORDER BY no LIMIT ?;

-- name: last_message
SELECT seq FROM sqlite_sequence WHERE name = 'inbox';

-- name: raise_last_message
UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'inbox' AND seq < ?1;

-- name: begin_messages
INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', ?);

-- name: find_message_by_number
SELECT run, kind, name, key, consumed FROM inbox WHERE no = ?;

-- name: forget_message
DELETE FROM inbox WHERE run = ? AND kind = ? AND name = ? AND key = ?;

-- name: take_message_in
INSERT INTO inbox (run, agent, kind, name, key, value, who, at, no, consumed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
