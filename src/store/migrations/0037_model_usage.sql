-- What models used for each caller on each day. The cost is a whole number of the smallest price (1/1000000000000 USD), so
-- that one statement adds to it exactly.
CREATE TABLE model_usage (
    day                TEXT   NOT NULL, -- UTC, YYYY-MM-DD
    caller_key         TEXT   NOT NULL,
    agent              TEXT   NOT NULL, -- the name of the profile, or the type of a sub-agent
    provider           TEXT   NOT NULL,
    model              TEXT   NOT NULL,
    turns              BIGINT NOT NULL,
    prompt_tokens      BIGINT NOT NULL,
    cached_tokens      BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    completion_tokens  BIGINT NOT NULL,
    reasoning_tokens   BIGINT NOT NULL,
    cost               BIGINT NOT NULL,
    PRIMARY KEY (day, caller_key, agent, provider, model)
);
-- Of a model's turn; NULL: of an earlier version.
ALTER TABLE reserved_charges ADD COLUMN provider TEXT;
-- Empty: of an earlier version.
ALTER TABLE usage_logs ADD COLUMN provider TEXT NOT NULL DEFAULT '';
