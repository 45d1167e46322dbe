-- The second format: runs that wait, and an inbox of messages for runs, which are in no log until a
-- commit takes them out. Rows of `runs` and `executors` are kept; upgrade.py adds, from the log,
-- what the first format did not keep of a run: the times of its first and its latest change.

CREATE TABLE runs_2 (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    agent_no INTEGER NOT NULL,
    branch TEXT NOT NULL,
    function TEXT NOT NULL,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    args TEXT NOT NULL,
    result BLOB NOT NULL,
    problem TEXT,
    wake_at INTEGER NOT NULL,
    waits TEXT NOT NULL,
    turn INTEGER NOT NULL,
    turn_at INTEGER NOT NULL,
    version TEXT NOT NULL,
    queue TEXT NOT NULL,
    parent TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    seen INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO runs_2
SELECT place, id, agent, agent_no, branch, function, key, status, started, ended, args, result,
       problem, 0, '', 1, started, '', 'default', '', 0, 0, 0
FROM runs ORDER BY place;
DROP TABLE runs;
ALTER TABLE runs_2 RENAME TO runs;

CREATE INDEX runs_by_agent ON runs (agent);
CREATE INDEX runs_unfinished ON runs (status)
    WHERE status IN ('pending', 'running', 'waiting', 'needs_attention');
CREATE INDEX runs_unfinished_by_agent ON runs (agent)
    WHERE status IN ('pending', 'running', 'waiting', 'needs_attention');
CREATE INDEX runs_by_timer ON runs (wake_at) WHERE status = 'waiting' AND wake_at > 0;

-- A message that was taken out stays, without its value: it is not put in a second time.
CREATE TABLE inbox (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    agent TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('start', 'signal', 'answer', 'cancel')),
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB,
    who TEXT NOT NULL,
    at INTEGER NOT NULL,
    consumed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run, kind, name, key)
) STRICT;

CREATE INDEX inbox_by_agent ON inbox (agent);
CREATE INDEX inbox_by_run ON inbox (run) WHERE consumed = 0;
CREATE INDEX inbox_by_kind ON inbox (kind) WHERE consumed = 0;

-- serves: the names of the agent functions that it runs for others, as a JSON array.
CREATE TABLE executors_2 (
    id TEXT PRIMARY KEY,
    expires INTEGER NOT NULL,
    serves TEXT NOT NULL DEFAULT '[]'
) STRICT, WITHOUT ROWID;

INSERT INTO executors_2 (id, expires) SELECT id, expires FROM executors;
DROP TABLE executors;
ALTER TABLE executors_2 RENAME TO executors;
