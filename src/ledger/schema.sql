-- The ledger's tables as they are now, for a new file; an old one comes to them by the steps beside this one.
-- Times are microseconds since 1970, ids the bytes of UUIDv7, digests those of SHA-256.
-- What the six stages and the outside make of their JSON is theirs; what is looked for has a column.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

-- Each combination of what history is filtered by, so that one index serves every such filter.
CREATE TABLE facets (
    facet INTEGER PRIMARY KEY,
    -- NULL stands for every tool that was new when there were too many names already.
    tool TEXT,
    status TEXT NOT NULL,
    caller_uid INTEGER NOT NULL
) STRICT;

CREATE TABLE executions (
    -- created_at made unique: history's order, the range of a time filter and the row of the text index in one.
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    facet INTEGER NOT NULL,
    tool TEXT NOT NULL,
    status TEXT NOT NULL,
    caller_uid INTEGER NOT NULL,
    caller_gid INTEGER NOT NULL,
    asynchronous INTEGER NOT NULL,
    call TEXT NOT NULL,
    working_dir TEXT,
    tool_use_id TEXT,
    trace_id TEXT,
    replay_of BLOB,
    idempotency_key TEXT,
    body_digest BLOB,
    verdict TEXT,
    rule TEXT,
    rule_source TEXT,
    approval_id BLOB,
    approver_uid INTEGER,
    ending TEXT,
    problem TEXT,
    usage TEXT,
    -- [[stage, beginning, end], …], or what older versions wrote: words.
    stages TEXT,
    content_sha256 BLOB,
    stdout_bytes INTEGER,
    stdout_sha256 BLOB,
    stderr_bytes INTEGER,
    stderr_sha256 BLOB,
    -- What it takes here and in the spool, for retention by bytes.
    kept_bytes INTEGER NOT NULL DEFAULT 0,
    kept TEXT,
    content TEXT,
    stdout BLOB,
    stderr BLOB,
    -- The number that its first event can have at the least.
    first_event INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    -- The execution that called for it, and how many there are above it.
    parent_id BLOB,
    depth INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX executions_by_facet ON executions (facet);
CREATE UNIQUE INDEX executions_by_key ON executions (caller_uid, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX executions_by_parent ON executions (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX executions_by_trace ON executions (trace_id) WHERE trace_id IS NOT NULL;

-- Numbers are given out when an event is queued, and never twice. Events that follow one another and are about the same
-- share a row: an execution has some fourteen, which as rows of their own cost more than all else of it together.
CREATE TABLE events (
    -- The number of its last event: what follows a number is then one range.
    last INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    execution_id BLOB,
    tool TEXT,
    caller_uid INTEGER,
    -- [[time, {"type": …, …}], …], and of stages as numbers: [time, stage] when one is entered, [time, stage,
    -- microseconds] when it is left.
    events TEXT NOT NULL
) STRICT;

CREATE TABLE approvals (
    id BLOB PRIMARY KEY,
    execution_id BLOB NOT NULL,
    tool TEXT NOT NULL,
    input TEXT NOT NULL,
    working_dir TEXT,
    env_names TEXT NOT NULL,
    caller_uid INTEGER NOT NULL,
    digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    decided_by INTEGER,
    decided_at INTEGER,
    reason TEXT,
    remember TEXT,
    remember_rules TEXT NOT NULL,
    -- The tools that led to the call.
    chain TEXT NOT NULL DEFAULT '[]',
    stdin TEXT,
    timeout_micros INTEGER,
    keeps_background INTEGER NOT NULL DEFAULT 0,
    tool_version TEXT NOT NULL DEFAULT '',
    risk_level TEXT NOT NULL DEFAULT 'trusted',
    -- The directory of the host's that it could use in a sandbox.
    workspace TEXT,
    -- The values that a skill would find.
    context TEXT NOT NULL DEFAULT '{}'
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
CREATE INDEX approvals_by_execution ON approvals (execution_id);

CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    execution_id BLOB,
    body TEXT NOT NULL,
    previous BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- The words of calls and answers (words.rs); filled behind the commits, and only ever asked for rows.
CREATE VIRTUAL TABLE search USING fts5 (facet, call, content, content = '');
