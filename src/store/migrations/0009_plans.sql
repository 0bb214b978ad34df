-- Plans of agents.
CREATE TABLE plans (
    id         TEXT   NOT NULL PRIMARY KEY,
    caller_key TEXT   NOT NULL, -- tenant and id of the caller
    agent      TEXT   NOT NULL, -- the profile's name
    session    TEXT   NOT NULL, -- of its tool calls; empty: none
    status     TEXT   NOT NULL,
    wish       TEXT   NOT NULL, -- what a caller wants of the process that runs it: '', pause, cancel
    holder     TEXT   NOT NULL, -- the process that runs it, or ran it last
    seen       BIGINT NOT NULL, -- when that process last said so, in milliseconds since 1970
    created    TEXT   NOT NULL, -- UTC, RFC 3339
    changed    TEXT   NOT NULL,
    state      TEXT   NOT NULL  -- JSON
);
CREATE INDEX plans_by_caller ON plans (caller_key, created);
CREATE INDEX plans_by_change ON plans (changed);
