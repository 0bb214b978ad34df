-- What calls may cost that were about to be sent and are not charged yet. What a killed process leaves is charged by the next
-- one. Moments are microseconds since 1970, money an exact decimal in text.
CREATE TABLE reserved_charges (
    id                TEXT   NOT NULL PRIMARY KEY,
    owner             TEXT   NOT NULL, -- the run or plan
    caller_key        TEXT   NOT NULL,
    tenant            TEXT   NOT NULL,
    day               TEXT   NOT NULL, -- UTC, YYYY-MM-DD
    cost_usd          TEXT   NOT NULL,
    agent             TEXT,            -- of a model's turn; NULL: a tool's call
    model             TEXT,
    prompt_tokens     BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    reserved          BIGINT NOT NULL
);
CREATE INDEX reserved_charges_by_owner ON reserved_charges (owner);

-- Charges that must not be stored a second time: those whose commit may have lost its answer, and those of calls of killed
-- processes, which may be sent again.
CREATE TABLE stored_charges (
    id     TEXT   NOT NULL PRIMARY KEY,
    stored BIGINT NOT NULL
);
