CREATE TABLE agent_runs (
    begun             TEXT   NOT NULL, -- UTC, RFC 3339
    caller_key        TEXT   NOT NULL, -- tenant and id of the caller
    agent             TEXT   NOT NULL, -- the profile's name
    model             TEXT   NOT NULL,
    reason            TEXT   NOT NULL, -- how it ended
    turns             BIGINT NOT NULL,
    tool_calls        BIGINT NOT NULL,
    prompt_tokens     BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cost_usd          TEXT   NOT NULL,
    duration_ms       BIGINT NOT NULL
);
CREATE INDEX agent_runs_by_begin ON agent_runs (begun);
CREATE INDEX agent_runs_by_caller ON agent_runs (caller_key, begun);
