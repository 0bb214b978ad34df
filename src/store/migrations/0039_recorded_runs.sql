-- Runs that were recorded to be exported and played again, sealed. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE recorded_runs (
    id         TEXT   NOT NULL,
    tenant     TEXT   NOT NULL,
    caller_key TEXT   NOT NULL,
    kind       TEXT   NOT NULL, -- agent or program
    name       TEXT   NOT NULL, -- the agent, or the tool that ran the program
    bytes      BIGINT NOT NULL, -- before it was sealed
    sealed     TEXT   NOT NULL,
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    PRIMARY KEY (caller_key, id)
);
CREATE INDEX recorded_runs_by_expiry ON recorded_runs (expires);
