-- Destinations that calls of a tenant have reached, by hash. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE flow_destinations (
    tenant     TEXT   NOT NULL,
    caller_key TEXT   NOT NULL, -- empty: known for all callers of the tenant
    tool       TEXT   NOT NULL, -- empty: known for all tools
    member     TEXT   NOT NULL, -- of the arguments; empty with an empty hash: a call of the tool itself
    hash       TEXT   NOT NULL, -- of the tool, the member and the destination
    first_seen BIGINT NOT NULL,
    last_seen  BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    PRIMARY KEY (tenant, caller_key, tool, hash)
);
CREATE INDEX flow_destinations_by_expiry ON flow_destinations (expires);
CREATE INDEX flow_destinations_by_use ON flow_destinations (tenant, last_seen);

-- Sessions that have read text of strangers.
CREATE TABLE flow_sessions (
    caller_key TEXT   NOT NULL,
    digest     TEXT   NOT NULL, -- SHA-256 of the id
    expires    BIGINT NOT NULL,
    PRIMARY KEY (caller_key, digest)
);
CREATE INDEX flow_sessions_by_expiry ON flow_sessions (expires);
