-- The index of calls and events, by which they are found. The audit trail is the proof, and the index is rebuilt from it.
-- With a SQLite store these tables are in a file of their own. Moments are microseconds since 1970, the cost is a whole number
-- of the smallest price (1/1000000000000 USD).
CREATE TABLE indexed_calls (
    time        BIGINT NOT NULL, -- when it ended
    call_id     TEXT   NOT NULL,
    tenant      TEXT   NOT NULL,
    owner       TEXT   NOT NULL, -- who sees it without a role of the console; empty after a rebuild
    caller      TEXT   NOT NULL,
    key_id      TEXT,
    tool        TEXT   NOT NULL,
    server      TEXT,            -- the part of the tool's name before two underscores
    via         TEXT   NOT NULL,
    dry_run     BIGINT NOT NULL, -- 1: nothing was sent
    status      TEXT   NOT NULL,
    code        TEXT,
    stage       TEXT,
    upstream    TEXT,
    http_status BIGINT,
    session     TEXT,
    agent_call  TEXT,
    parent      TEXT,
    request_id  TEXT,
    duration    BIGINT NOT NULL, -- microseconds
    cost        BIGINT NOT NULL,
    calls       BIGINT NOT NULL, -- calls that were refused alike and are one entry
    message     TEXT,            -- why it was refused
    words       TEXT,            -- why it failed, which may quote the upstream: sealed
    record      TEXT   NOT NULL, -- JSON
    PRIMARY KEY (time, call_id)
);
-- About four thousand calls each, in the order of time.
CREATE TABLE indexed_chunks (
    chunk      BIGINT NOT NULL PRIMARY KEY, -- random
    first_time BIGINT NOT NULL,
    last_time  BIGINT NOT NULL,
    value_bits TEXT   NOT NULL -- a Bloom filter of the values of its calls, in base64
);
CREATE INDEX indexed_chunks_by_time ON indexed_chunks (last_time, chunk);
CREATE TABLE indexed_events (
    time       BIGINT NOT NULL,
    event_id   TEXT   NOT NULL, -- a digest of its fields
    event      TEXT   NOT NULL,
    success    BIGINT NOT NULL, -- 1: it was done
    tenant     TEXT,
    caller     TEXT,
    key_id     TEXT,
    subject    TEXT,
    detail     TEXT,
    client     TEXT,
    request_id TEXT,
    count      BIGINT NOT NULL, -- equal events that are one entry
    PRIMARY KEY (time, event_id)
);
