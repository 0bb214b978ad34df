-- Runs of programs that call tools, each with its journal, until it ends or 24 hours after it was last written. Moments are microseconds
-- since 1970 by the database's clock.
CREATE TABLE program_runs (
    id         TEXT   NOT NULL PRIMARY KEY, -- that of the call that began it
    tenant     TEXT   NOT NULL,
    caller_key TEXT   NOT NULL,
    endpoint   TEXT   NOT NULL, -- digest of the tools that are left to the caller
    arguments  TEXT   NOT NULL, -- SHA-256 of those of the call that runs it, in hex
    state      TEXT   NOT NULL, -- running, stopped or unusable
    approval   TEXT,            -- what a stopped one waits for
    reason     TEXT,            -- why an unusable one cannot be resumed
    runner     TEXT   NOT NULL, -- the process that runs it, or ran it last
    fence      BIGINT NOT NULL, -- grows each time it is resumed
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL
);
CREATE INDEX program_runs_by_caller ON program_runs (tenant, caller_key, created);
CREATE INDEX program_runs_by_approval ON program_runs (approval) WHERE approval IS NOT NULL;
CREATE INDEX program_runs_by_expiry ON program_runs (expires);
-- What was written of a journal at a time, sealed.
CREATE TABLE program_run_parts (
    run    TEXT   NOT NULL,
    number BIGINT NOT NULL, -- from 0
    sealed TEXT   NOT NULL,
    PRIMARY KEY (run, number)
);
