-- Runs of conversations that go on without a client. Who works on each is in `work`. Moments are microseconds since 1970 by the
-- database's clock.
CREATE TABLE background_runs (
    id           TEXT   NOT NULL PRIMARY KEY, -- of a kind, in the order of creation
    tenant       TEXT   NOT NULL,
    caller_key   TEXT   NOT NULL,
    conversation TEXT   NOT NULL,
    kind         TEXT   NOT NULL, -- run, response, covered (of a client, while its process lives), recovered (that process ended)
    state        TEXT   NOT NULL, -- queued, running, paused, ended
    status       TEXT,            -- of one that ended, as in conversation_runs
    error_code   TEXT,
    error        TEXT,
    runs         TEXT   NOT NULL, -- ids of its runs of the conversation, each stored before it begins
    request      TEXT   NOT NULL, -- sealed
    attempts     BIGINT NOT NULL, -- of its runs since a person decided, and once it ended of its webhook
    stopped      BIGINT NOT NULL, -- 1: its caller has cancelled it
    notice_error TEXT,            -- why its webhook was not taken the last time
    due          BIGINT,          -- when a process takes it next; NULL: nothing is left to do
    created      BIGINT NOT NULL,
    changed      BIGINT NOT NULL
);
CREATE INDEX background_runs_by_due ON background_runs (due);
CREATE INDEX background_runs_by_caller ON background_runs (caller_key, id);
CREATE INDEX background_runs_by_tenant ON background_runs (tenant, state);
