-- Conversations with agents, their runs, and what the runs did. Moments are microseconds since 1970, money an exact decimal in
-- text, and `labels`, `message`, `tool_input` and `images` JSON.
CREATE TABLE conversations (
    id         TEXT   NOT NULL PRIMARY KEY, -- in the order of creation
    caller_key TEXT   NOT NULL, -- tenant and id of the caller
    title      TEXT,            -- NULL: the first run that succeeds sets it
    status     TEXT   NOT NULL, -- active, inactive
    agent      TEXT   NOT NULL, -- the profile's name
    session_id TEXT,            -- NULL: the next run begins without what was said before
    workspace  BIGINT NOT NULL, -- 0, 1
    labels     TEXT   NOT NULL,
    created    BIGINT NOT NULL,
    changed    BIGINT NOT NULL,
    holder     TEXT,            -- the process whose run holds the lock; NULL: none
    fence      BIGINT NOT NULL, -- grows each time the lock is taken
    held_until BIGINT NOT NULL,
    stop_fence BIGINT NOT NULL  -- the holder with this fence is asked to stop
);
CREATE INDEX conversations_by_caller ON conversations (caller_key, id);

CREATE TABLE conversation_runs (
    id               TEXT   NOT NULL PRIMARY KEY,
    conversation     TEXT   NOT NULL,
    number           BIGINT NOT NULL, -- of the conversation's runs, from 1
    session_id       TEXT   NOT NULL,
    agent            TEXT   NOT NULL,
    claimed_executor TEXT,            -- as the request says; not an identity
    user_input       TEXT   NOT NULL,
    status           TEXT   NOT NULL, -- running, succeeded, failed, cancelled, timed_out, interrupted
    error_code       TEXT,
    error            TEXT,
    begun            BIGINT NOT NULL,
    ended            BIGINT,
    UNIQUE (conversation, number)
);

-- What agents and users said. The messages of a session, in this order, are what its next run begins with.
CREATE TABLE message_logs (
    run        TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    session_id TEXT   NOT NULL,
    message    TEXT   NOT NULL,
    incomplete BIGINT NOT NULL, -- 1: of a run that did not end with an answer
    PRIMARY KEY (run, position)
);

-- The turns whose tool calls were begun, as the model wrote them: what is known of a run whose process ended.
CREATE TABLE turn_journal (
    run     TEXT   NOT NULL,
    turn    BIGINT NOT NULL,
    message TEXT   NOT NULL,
    PRIMARY KEY (run, turn)
);

-- A row is written before its call is sent, and completed by the answer.
CREATE TABLE tool_execution_logs (
    run         TEXT   NOT NULL,
    tool_use_id TEXT   NOT NULL,
    position    BIGINT NOT NULL,
    turn        BIGINT NOT NULL,
    tool_name   TEXT   NOT NULL,
    tool_input  TEXT   NOT NULL,
    output      TEXT,            -- NULL: no answer is known
    images      TEXT,
    is_error    BIGINT,
    begun       BIGINT NOT NULL,
    ended       BIGINT,
    PRIMARY KEY (run, tool_use_id)
);

-- One row for each model of a run.
CREATE TABLE usage_logs (
    run               TEXT   NOT NULL,
    position          BIGINT NOT NULL,
    agent             TEXT   NOT NULL,
    model             TEXT   NOT NULL,
    turns             BIGINT NOT NULL,
    tool_calls        BIGINT NOT NULL,
    prompt_tokens     BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cached_tokens     BIGINT NOT NULL, -- of the prompt's: read from the provider's cache, and written to it
    cache_write_tokens BIGINT NOT NULL,
    cost_usd          TEXT   NOT NULL,
    duration_ms       BIGINT NOT NULL,
    PRIMARY KEY (run, position)
);
