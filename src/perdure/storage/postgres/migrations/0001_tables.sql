-- The first format. Headers, payloads, snapshots and leaves are those of docs/format.md.
-- {schema} is the PostgreSQL schema that the store lives in; {by …} is where a store that was made
-- with ?partitions=N says that a table is split by hash. Every key starts with the agent.
-- Functions carry a number: a later format adds new ones and keeps these, for programs that still
-- call them.

CREATE TABLE {schema}.format (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    readable_by integer NOT NULL,
    partitions integer NOT NULL,
    store text NOT NULL
);

-- Domains, not CHECKs of the tables: each statement that changes a row in whatever column makes those
-- anew out of their text, a twelfth of what the server does to a commit beside its disk.
CREATE DOMAIN {schema}.ref_kind AS text COLLATE "C" CHECK (VALUE IN ('branch', 'checkpoint'));
CREATE DOMAIN {schema}.message_kind AS text COLLATE "C"
    CHECK (VALUE IN ('start', 'signal', 'answer', 'cancel'));

CREATE SEQUENCE {schema}.agent_numbers;
CREATE SEQUENCE {schema}.run_places;
CREATE SEQUENCE {schema}.message_numbers;

CREATE TABLE {schema}.agents (
    no bigint PRIMARY KEY DEFAULT nextval('{schema}.agent_numbers'),
    name text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    deleted boolean NOT NULL DEFAULT false,
    to_purge boolean NOT NULL DEFAULT false,
    purged boolean NOT NULL DEFAULT false,
    UNIQUE (name, incarnation)
);
CREATE INDEX agents_to_purge ON {schema}.agents (no) WHERE to_purge;

-- tx: the highest transaction that this commit or one before it in its log was written by; see
-- feed.py. It grows along each log.
CREATE TABLE {schema}.commits (
    agent_no bigint NOT NULL,
    seq bigint NOT NULL,
    tx xid8 NOT NULL,
    header bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (agent_no, seq)
) {by agent_no};
CREATE INDEX commits_by_tx ON {schema}.commits (tx, agent_no, seq);

CREATE TABLE {schema}.refs (
    agent_no bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind {schema}.ref_kind NOT NULL,
    seq bigint NOT NULL,
    deleted boolean NOT NULL DEFAULT false,
    epoch bigint NOT NULL DEFAULT 0,
    held bigint,
    holder text COLLATE "C",
    checkpoint bytea,
    PRIMARY KEY (agent_no, name)
) {by agent_no};

CREATE TABLE {schema}.keys (
    agent_no bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    asked bytea NOT NULL,
    PRIMARY KEY (agent_no, key)
) {by agent_no};

CREATE TABLE {schema}.snapshots (
    agent_no bigint NOT NULL,
    seq bigint NOT NULL,
    manifest bytea NOT NULL,
    leaf_ids bigint[] NOT NULL,
    PRIMARY KEY (agent_no, seq)
) {by agent_no};

CREATE TABLE {schema}.leaves (
    agent_no bigint NOT NULL,
    id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (agent_no, id)
) {by agent_no};

CREATE TABLE {schema}.runs (
    agent_no bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    place bigint NOT NULL DEFAULT nextval('{schema}.run_places'),
    agent text COLLATE "C" NOT NULL,
    branch text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    started bigint NOT NULL,
    ended bigint NOT NULL,
    args text COLLATE "C" NOT NULL,
    result bytea NOT NULL,
    problem text COLLATE "C",
    wake_at bigint NOT NULL,
    waits text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    turn_at bigint NOT NULL,
    version text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    parent text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    seen bigint NOT NULL,
    PRIMARY KEY (agent_no, id)
) {by agent_no};
CREATE INDEX runs_by_id ON {schema}.runs (id);
CREATE INDEX runs_by_place ON {schema}.runs (place);
CREATE INDEX runs_by_agent ON {schema}.runs (agent, place);
CREATE INDEX runs_unfinished ON {schema}.runs (place)
    WHERE status IN ('pending', 'running', 'waiting', 'needs_attention');
CREATE INDEX runs_unfinished_by_agent ON {schema}.runs (agent, place)
    WHERE status IN ('pending', 'running', 'waiting', 'needs_attention');
CREATE INDEX runs_pending ON {schema}.runs (place) WHERE status = 'pending';
CREATE INDEX runs_running ON {schema}.runs (place) WHERE status = 'running';
CREATE INDEX runs_by_timer ON {schema}.runs (wake_at) WHERE status = 'waiting' AND wake_at > 0;

-- A message that was taken out stays, without its value: it is not put in a second time.
-- token: whose attempt put it in, so that an attempt without an answer can be told later.
CREATE TABLE {schema}.inbox (
    agent text COLLATE "C" NOT NULL,
    no bigint NOT NULL DEFAULT nextval('{schema}.message_numbers'),
    run text COLLATE "C" NOT NULL,
    kind {schema}.message_kind NOT NULL,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea,
    who text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    token bigint NOT NULL,
    consumed boolean NOT NULL DEFAULT false,
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (agent, no),
    UNIQUE (agent, run, kind, name, key)
) {by agent};
CREATE INDEX inbox_by_number ON {schema}.inbox (no);
CREATE INDEX inbox_by_tx ON {schema}.inbox (tx, no);
CREATE INDEX inbox_waiting ON {schema}.inbox (no) WHERE NOT consumed;
CREATE INDEX inbox_by_run ON {schema}.inbox (run, no) WHERE NOT consumed;
CREATE INDEX inbox_by_kind ON {schema}.inbox (kind, no) WHERE NOT consumed;

-- proof: when the server began under which this executor holds its advisory lock; see line.py.
CREATE TABLE {schema}.executors (
    id text COLLATE "C" PRIMARY KEY,
    expires bigint NOT NULL,
    serves text NOT NULL DEFAULT '[]',
    proof text
);

-- What was said of the store (0) or of an agent: see Backend.stand. Whoever writes reads it in the
-- same transaction, and whoever changes what is closed locks it whole: so none slips past.
CREATE TABLE {schema}.standings (
    no bigint PRIMARY KEY,
    closed boolean NOT NULL,
    why text NOT NULL
);
