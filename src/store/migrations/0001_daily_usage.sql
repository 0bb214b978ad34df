-- What callers and tenants spent on each day. Money is an exact decimal in text: no SQL type of both SQLite and PostgreSQL
-- keeps it exact.
CREATE TABLE daily_usage (
    day       TEXT   NOT NULL, -- UTC, YYYY-MM-DD
    scope     TEXT   NOT NULL, -- caller, tenant
    scope_key TEXT   NOT NULL,
    cost_usd  TEXT   NOT NULL,
    tokens    BIGINT NOT NULL,
    PRIMARY KEY (day, scope, scope_key)
);
