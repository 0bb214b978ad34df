-- Results of tools that are too large for a model, each read by its handle. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE results (
    handle        TEXT   NOT NULL PRIMARY KEY, -- 128 random bits in hex
    tenant        TEXT   NOT NULL,
    caller_key    TEXT   NOT NULL,
    session       TEXT   NOT NULL, -- digest of the session that reads it; empty for a call without one
    content_type  TEXT   NOT NULL,
    bytes         BIGINT NOT NULL, -- of the result
    sealed        TEXT,            -- the result; NULL where an object has it
    object        TEXT,            -- in object storage, sealed
    object_sha256 TEXT,            -- in hex
    object_bytes  BIGINT,
    created       BIGINT NOT NULL,
    expires       BIGINT NOT NULL
);
CREATE INDEX results_by_caller ON results (tenant, caller_key, created);
CREATE INDEX results_by_expiry ON results (expires);
CREATE INDEX results_by_object ON results (object) WHERE object IS NOT NULL;
