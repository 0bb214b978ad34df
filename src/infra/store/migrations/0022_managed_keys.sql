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
