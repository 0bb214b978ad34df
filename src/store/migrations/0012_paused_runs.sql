-- Runs that wait until their clients have run their own tools: what they did so far, found by the first of the calls.
CREATE TABLE paused_runs (
    caller_key TEXT   NOT NULL,
    call       TEXT   NOT NULL,
    run        TEXT   NOT NULL,
    bytes      BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    PRIMARY KEY (caller_key, call)
);
CREATE INDEX paused_runs_by_expiry ON paused_runs (expires);
