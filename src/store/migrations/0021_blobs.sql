-- The object in object storage that has a large reply; NULL where the reply is in its row, or not kept.
ALTER TABLE idempotency_records ADD COLUMN object TEXT;
ALTER TABLE idempotency_records ADD COLUMN object_sha256 TEXT; -- in hex
ALTER TABLE idempotency_records ADD COLUMN object_bytes BIGINT;
-- Workspaces that replicas share: the files of each, and which replica works in it. Moments are the database's.
CREATE TABLE workspaces (
    name       TEXT   NOT NULL PRIMARY KEY,
    version    TEXT   NOT NULL, -- another one each time they are stored; empty before
    files      TEXT   NOT NULL, -- JSON: path to SHA-256 and length
    holder     TEXT,            -- NULL while no replica works in it
    fence      BIGINT NOT NULL, -- grows each time it is taken
    held_until BIGINT NOT NULL, -- microseconds since 1970
    last_used  BIGINT NOT NULL
);
