-- One short summary per thread. `caller_key` separates callers: a guessed thread id gives no access. `used` is a counter that
-- increases with every use, since a clock may stop or go back.
CREATE TABLE thread_summaries (
    caller_key TEXT   NOT NULL, -- tenant and id of the caller
    thread     TEXT   NOT NULL,
    summary    TEXT   NOT NULL,
    used       BIGINT NOT NULL,
    PRIMARY KEY (caller_key, thread)
);
CREATE INDEX thread_summaries_by_use ON thread_summaries (used);
