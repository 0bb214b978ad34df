-- The values that went into sessions of REST and MCP, with their labels. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE flow_values (
    caller_key TEXT   NOT NULL,
    digest     TEXT   NOT NULL, -- SHA-256 of the id of the session
    revision   BIGINT NOT NULL, -- another one with each change
    sealed     TEXT   NOT NULL,
    expires    BIGINT NOT NULL,
    PRIMARY KEY (caller_key, digest)
);
CREATE INDEX flow_values_by_expiry ON flow_values (expires);
