-- What replicas lease of the budgets of a day: it counts as spent until its replica gives it back. Money as in daily_usage.
CREATE TABLE budget_leases (
    day       TEXT   NOT NULL,
    scope     TEXT   NOT NULL,
    scope_key TEXT   NOT NULL,
    replica   TEXT   NOT NULL,
    sequence  BIGINT NOT NULL, -- of the replica's last request: an older one changes nothing
    cost_usd  TEXT   NOT NULL,
    tokens    BIGINT NOT NULL,
    PRIMARY KEY (day, scope, scope_key, replica)
);
-- Rate limits over all replicas: a bucket holds `capacity` and is full again at `full_at`, by the database's clock.
CREATE TABLE rate_buckets (
    bucket   TEXT   NOT NULL PRIMARY KEY,
    refill   BIGINT NOT NULL, -- nanoseconds a call
    capacity BIGINT NOT NULL, -- nanoseconds
    full_at  BIGINT NOT NULL, -- nanoseconds since 1970
    taken    BIGINT NOT NULL  -- calls, by the last statement
);
