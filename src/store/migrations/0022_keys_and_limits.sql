-- Keys that administrators manage. Of a token there is only its SHA-256, in hex. Moments are microseconds since 1970.
CREATE TABLE managed_keys (
    id              TEXT   NOT NULL PRIMARY KEY, -- random; tokens have it in front of their secret
    tenant          TEXT   NOT NULL,
    person          TEXT   NOT NULL, -- the caller's id
    description     TEXT   NOT NULL,
    roles           TEXT   NOT NULL, -- JSON
    tools           TEXT,            -- JSON: patterns of names; NULL for all
    sha256          TEXT   NOT NULL,
    previous_sha256 TEXT,            -- of the token before the last rotation
    previous_until  BIGINT,          -- until when that one is accepted
    created         BIGINT NOT NULL,
    created_by      TEXT   NOT NULL, -- tenant and id of the caller
    expires         BIGINT,
    revoked         BIGINT,
    last_used       BIGINT           -- by the clock of the gateway that accepted it, some seconds later
);
-- What was spent by the rules of `limits.rules`. A table of its own: programs that do not know it could not read rows in `daily_usage`.
CREATE TABLE rule_usage (
    day     TEXT   NOT NULL,
    rule    TEXT   NOT NULL,
    subject TEXT   NOT NULL, -- a key, caller, tenant, tool or role
    cost    BIGINT NOT NULL, -- in 10^-12 USD
    tokens  BIGINT NOT NULL,
    PRIMARY KEY (day, rule, subject)
);
