-- Requests of callers for sources of the catalogue, and what administrators decided. Moments are microseconds since 1970 by the
-- database's clock.
CREATE TABLE source_requests (
    tenant     TEXT   NOT NULL,
    source     TEXT   NOT NULL, -- mcp:SERVER or openapi:COLLECTION
    caller_key TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    caller_id  TEXT   NOT NULL,
    key_id     TEXT   NOT NULL, -- the managed key by which it was asked; empty without one
    reason     TEXT   NOT NULL,
    state      TEXT   NOT NULL, -- asked, approved, refused, withdrawn
    audience   TEXT   NOT NULL, -- of an approved one: user, key, tenant; empty before
    decided_by TEXT   NOT NULL, -- empty while nobody has decided
    asked      BIGINT NOT NULL,
    changed    BIGINT NOT NULL,
    PRIMARY KEY (tenant, source, caller_key, key_id)
);
CREATE INDEX source_requests_by_id ON source_requests (id);
CREATE INDEX source_requests_by_state ON source_requests (state, asked);
