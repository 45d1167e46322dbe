-- Every statement of the backend, by name. Parameters are bound by name or place, never spliced in;
-- {a_name} stands for the part of that name, which is the same in several statements.

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
-- A part: what narrows every list of runs.
place > :low AND place < :high AND (:function IS NULL OR function = :function)
AND (:status IS NULL OR status IN (SELECT value FROM json_each(:status)))

-- name: find_run
SELECT {run_columns} FROM runs WHERE id = ?;

-- name: find_run_place
SELECT place FROM runs WHERE id = ?;

-- name: list_runs_up
SELECT {run_columns} FROM runs WHERE {wanted_runs} ORDER BY place LIMIT :limit;

-- name: list_runs_down
SELECT {run_columns} FROM runs WHERE {wanted_runs} ORDER BY place DESC LIMIT :limit;

-- name: list_agents_runs_up
SELECT {run_columns} FROM runs WHERE agent = :agent AND {wanted_runs} ORDER BY place LIMIT :limit;

-- name: list_agents_runs_down
SELECT {run_columns} FROM runs WHERE agent = :agent AND {wanted_runs}
ORDER BY place DESC LIMIT :limit;

-- name: unfinished_runs
-- A part: those that are narrowed to one status come out of the index in their order.
runs INDEXED BY runs_unfinished
        WHERE status IN ('pending', 'running', 'waiting', 'needs_attention')
          AND place > :low AND place < :high AND (:function IS NULL OR function = :function)

-- name: list_unfinished_up
-- The first few must not cost what all cost: as many of each status that is wanted, put together.
SELECT {run_columns} FROM runs WHERE place IN (
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'pending' AND :pending
        ORDER BY place LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'running' AND :running
        ORDER BY place LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'waiting' AND :waiting
        ORDER BY place LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'needs_attention' AND :needs_attention
        ORDER BY place LIMIT :limit
    )
) ORDER BY place LIMIT :limit;

-- name: list_unfinished_down
SELECT {run_columns} FROM runs WHERE place IN (
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'pending' AND :pending
        ORDER BY place DESC LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'running' AND :running
        ORDER BY place DESC LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'waiting' AND :waiting
        ORDER BY place DESC LIMIT :limit
    )
    UNION ALL
    SELECT place FROM (
        SELECT place FROM {unfinished_runs} AND status = 'needs_attention' AND :needs_attention
        ORDER BY place DESC LIMIT :limit
    )
) ORDER BY place DESC LIMIT :limit;

-- name: list_agents_unfinished
-- :direction is 1 or -1.
SELECT {run_columns} FROM runs INDEXED BY runs_unfinished_by_agent
WHERE agent = :agent AND {unfinished} AND {wanted_runs}
ORDER BY place * :direction LIMIT :limit;

-- name: list_unfinished_of_agent
SELECT {run_columns} FROM runs INDEXED BY runs_unfinished_by_agent
WHERE agent = ? AND {unfinished} ORDER BY place;

-- name: list_ready
-- Its cost must not grow with the runs that wait: each branch has an index of its own.
SELECT {run_columns} FROM runs WHERE place IN (
    SELECT place FROM (
        SELECT place FROM runs INDEXED BY runs_unfinished
        WHERE {unfinished} AND status = 'pending' ORDER BY place LIMIT :limit
    )
    UNION
    SELECT place FROM runs INDEXED BY runs_by_timer
    WHERE status = 'waiting' AND wake_at > 0 AND wake_at <= :now
    UNION
    SELECT r.place FROM inbox m INDEXED BY inbox_by_kind CROSS JOIN runs r ON r.id = m.run
    WHERE m.consumed = 0 AND m.kind IN ('signal', 'answer') AND r.status = 'waiting'
      AND m.no > r.seen
    UNION
    SELECT r.place FROM inbox m INDEXED BY inbox_by_kind CROSS JOIN runs r ON r.id = m.run
    WHERE m.consumed = 0 AND m.kind = 'cancel'
      AND r.status IN ('pending', 'running', 'waiting', 'needs_attention')
) ORDER BY place LIMIT :limit;

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

-- name: message_columns
-- A part: the fields of Message, in their order.
run, agent, kind, name, key, value, who, at, no

-- name: add_message
INSERT INTO inbox (run, agent, kind, name, key, value, who, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING no;

-- name: find_message
SELECT {message_columns} FROM inbox WHERE run = ? AND kind = ? AND name = ? AND key = ?;

-- name: find_start
SELECT 1 FROM inbox WHERE run = ? AND kind = 'start' AND consumed = 0;

-- name: list_messages
SELECT {message_columns} FROM inbox WHERE consumed = 0 ORDER BY no LIMIT :limit;

-- name: list_messages_of_kind
SELECT {message_columns} FROM inbox INDEXED BY inbox_by_kind
WHERE consumed = 0 AND kind = :kind ORDER BY no LIMIT :limit;

-- name: list_messages_of_run
SELECT {message_columns} FROM inbox INDEXED BY inbox_by_run
WHERE consumed = 0 AND run = :run AND (:kind IS NULL OR kind = :kind) ORDER BY no LIMIT :limit;

-- name: count_messages
-- The numbers come as a JSON array.
SELECT count(*) FROM inbox WHERE consumed = 0 AND no IN (SELECT value FROM json_each(?));

-- name: consume_messages
UPDATE inbox SET consumed = 1, value = NULL WHERE no IN (SELECT value FROM json_each(?));

-- name: find_unread
-- ?2: the last signal that was read; ?3: whether a "cancel" is to be read; ?4: what is taken out.
SELECT 1 FROM inbox INDEXED BY inbox_by_run WHERE run = ?1 AND consumed = 0 AND (
    kind = 'signal' AND no > ?2 OR kind = 'cancel' AND ?3
    OR kind = 'start' AND no NOT IN (SELECT value FROM json_each(?4))
) LIMIT 1;

-- name: close_inbox
UPDATE inbox SET consumed = 1, value = NULL WHERE run = ? AND consumed = 0;

-- name: end_inbox
DELETE FROM inbox WHERE agent = ?;

-- name: find_agent
SELECT no, name, incarnation, deleted FROM agents
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
SELECT no, name, incarnation,
       (SELECT c.id FROM commits c WHERE c.id BETWEEN no << 36 AND (no + 1 << 36) - 1
        ORDER BY c.id DESC LIMIT 1)
FROM agents WHERE no BETWEEN ? AND ? ORDER BY no;

-- name: last_place
SELECT id FROM commits WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1;

-- name: read_up
SELECT c.id, c.header, c.payload, EXISTS (SELECT 1 FROM snapshots s WHERE s.id = c.id)
FROM commits c WHERE c.id BETWEEN ? AND ? ORDER BY c.id LIMIT ?;

-- name: read_down
SELECT c.id, c.header, c.payload, EXISTS (SELECT 1 FROM snapshots s WHERE s.id = c.id)
FROM commits c WHERE c.id BETWEEN ? AND ? ORDER BY c.id DESC LIMIT ?;

-- name: last_agent
-- The highest number that was ever given to an incarnation; NULL where there is none.
SELECT max(no) FROM agents;

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

-- name: count_commits
SELECT count(*), coalesce(sum(length(header)), 0), coalesce(sum(length(payload)), 0)
FROM commits WHERE id BETWEEN ? AND ?;

-- name: count_snapshots
SELECT count(*), coalesce(sum(length(manifest)), 0) FROM snapshots WHERE id BETWEEN ? AND ?;

-- name: leaf_ids
SELECT leaf_ids FROM snapshots WHERE id BETWEEN ? AND ?;

-- name: count_leaves
SELECT coalesce(sum(length(data)), 0) FROM leaves WHERE id IN (SELECT value FROM json_each(?));

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

-- name: let_go
-- Of a lease that nobody asks for: what is shipped comes from where leases were looked at.
UPDATE refs SET held = NULL, holder = NULL WHERE agent_no = ? AND name = ? AND held IS NOT NULL;

-- name: has_standings
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'standings';

-- name: make_standings
-- Made when something is first said of a store or an agent: see docs/format.md, "Standings".
CREATE TABLE IF NOT EXISTS standings (
    no INTEGER PRIMARY KEY,
    closed INTEGER NOT NULL,
    why TEXT NOT NULL
) STRICT;

-- name: find_standing
SELECT closed, why FROM standings WHERE no = ?;

-- name: put_standing
INSERT OR REPLACE INTO standings (no, closed, why) VALUES (?, ?, ?);

-- name: end_standing
DELETE FROM standings WHERE no = ?;

-- name: end_standings
DELETE FROM standings;

-- name: any_closed
SELECT 1 FROM standings WHERE closed = 1 AND no >= 0;

-- name: close_log
CREATE TRIGGER IF NOT EXISTS closed_to_commits BEFORE INSERT ON commits
WHEN coalesce((SELECT closed FROM standings WHERE no = NEW.id >> 36),
              (SELECT closed FROM standings WHERE no = 0), 0)
     AND NOT EXISTS (SELECT 1 FROM standings WHERE no = -1)
BEGIN SELECT RAISE(ABORT, 'closed'); END;

-- name: close_heads
CREATE TRIGGER IF NOT EXISTS closed_to_heads BEFORE UPDATE OF seq, held ON refs
WHEN (NEW.seq <> OLD.seq OR NEW.held IS NOT NULL)
     AND coalesce((SELECT closed FROM standings WHERE no = NEW.agent_no),
                  (SELECT closed FROM standings WHERE no = 0), 0)
     AND NOT EXISTS (SELECT 1 FROM standings WHERE no = -1)
BEGIN SELECT RAISE(ABORT, 'closed'); END;

-- name: close_names
CREATE TRIGGER IF NOT EXISTS closed_to_agents BEFORE INSERT ON agents
WHEN coalesce((SELECT closed FROM standings WHERE no = 0), 0)
     AND NOT EXISTS (SELECT 1 FROM standings WHERE no = -1)
BEGIN SELECT RAISE(ABORT, 'closed'); END;

-- name: close_mail
CREATE TRIGGER IF NOT EXISTS closed_to_messages BEFORE INSERT ON inbox
WHEN coalesce((SELECT closed FROM standings WHERE no = 0), 0)
     AND NOT EXISTS (
         SELECT 1 FROM agents JOIN standings USING (no) WHERE name = NEW.agent AND closed = 0
     )
     AND NOT EXISTS (SELECT 1 FROM standings WHERE no = -1)
BEGIN SELECT RAISE(ABORT, 'closed'); END;

-- name: reopen
DROP TRIGGER IF EXISTS closed_to_commits;
DROP TRIGGER IF EXISTS closed_to_heads;
DROP TRIGGER IF EXISTS closed_to_agents;
DROP TRIGGER IF EXISTS closed_to_messages;

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
