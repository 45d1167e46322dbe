-- Stores and agents that are closed to writers.

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
SELECT 1 FROM standings WHERE closed = 1 AND no >= 0 LIMIT 1;

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

-- name: find_closed_to
-- As `closed_to_messages`.
SELECT 1 WHERE coalesce((SELECT closed FROM standings WHERE no = 0), 0)
AND NOT EXISTS (SELECT 1 FROM agents JOIN standings USING (no) WHERE name = ? AND closed = 0)
AND NOT EXISTS (SELECT 1 FROM standings WHERE no = -1);

-- name: reopen
DROP TRIGGER IF EXISTS closed_to_commits;
DROP TRIGGER IF EXISTS closed_to_heads;
DROP TRIGGER IF EXISTS closed_to_agents;
DROP TRIGGER IF EXISTS closed_to_messages;
