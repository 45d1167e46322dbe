-- The first format. Rows of commits, snapshots and leaves are specified in docs/format.md.
-- The id of a commit or snapshot is (agent number << 36) | seq: one b-tree, clustered by agent,
-- in which the log's next place is a key that can be taken only once.

CREATE TABLE agents (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, incarnation)
) STRICT;

CREATE TABLE commits (
    id INTEGER PRIMARY KEY,
    header BLOB NOT NULL,
    payload BLOB NOT NULL
) STRICT;

CREATE TABLE refs (
    agent_no INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('branch', 'checkpoint')),
    seq INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    held INTEGER,
    holder TEXT,
    checkpoint BLOB,
    PRIMARY KEY (agent_no, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    agent_no INTEGER NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    asked BLOB NOT NULL,
    PRIMARY KEY (agent_no, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY,
    manifest BLOB NOT NULL,
    leaf_ids BLOB NOT NULL
) STRICT;

CREATE TABLE leaves (
    id INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE runs (
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
    problem TEXT
) STRICT;

CREATE INDEX runs_by_agent ON runs (agent, status);
CREATE INDEX runs_unfinished ON runs (status)
    WHERE status IN ('pending', 'running', 'needs_attention');

-- What holds for the store as a whole; "unsynced": it was written to without syncing each commit.
CREATE TABLE marks (
    name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE executors (
    id TEXT PRIMARY KEY,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
