-- Calls that a person must approve before they run, and what became of each. Moments are microseconds since 1970 by the
-- database's clock.
CREATE TABLE approvals (
    id             TEXT   NOT NULL PRIMARY KEY,
    tenant         TEXT   NOT NULL,
    caller_key     TEXT   NOT NULL,
    caller_id      TEXT   NOT NULL,
    tool           TEXT   NOT NULL,
    state          TEXT   NOT NULL, -- pending, approved, executing, done, unknown, denied or expired
    -- Digest of all that is bound and of the reasons, while it is pending: equal requests are one.
    pending_digest TEXT   UNIQUE,
    call_digest    TEXT   NOT NULL, -- of all that is bound but the reasons
    tool_digest    TEXT   NOT NULL, -- of caller, endpoint, tool and its version
    session_digest TEXT,            -- of these and the session; NULL for a call without one
    details        TEXT   NOT NULL, -- JSON: what approvers see, but for the arguments
    arguments      TEXT   NOT NULL, -- sealed
    decisions      TEXT   NOT NULL, -- JSON: who decided what, and why
    scope          TEXT,            -- once, minutes or session; NULL until it is approved
    uses           BIGINT NOT NULL, -- calls that it let through
    fence          BIGINT NOT NULL, -- grows each time a call is about to be sent
    runner         TEXT,            -- the process of that call
    revision       BIGINT NOT NULL, -- grows with each change
    created        BIGINT NOT NULL,
    expires        BIGINT NOT NULL,
    changed        BIGINT NOT NULL
);
CREATE INDEX approvals_by_call ON approvals (call_digest, state);
CREATE INDEX approvals_by_session ON approvals (session_digest, state);
CREATE INDEX approvals_by_tool ON approvals (tool_digest, uses);
CREATE INDEX approvals_by_state ON approvals (state, caller_key);
CREATE INDEX approvals_by_tenant ON approvals (tenant, created);
