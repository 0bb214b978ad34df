-- What calls came to, by the minute, the hour and the day: figures read these rows instead of calls. They are beside the index of
-- calls. Moments are microseconds since 1970.
CREATE TABLE call_sums (
    kind   TEXT   NOT NULL, -- all, tool, server, caller, key, owner (its own calls), use (of a tool by an owner),
                            -- removed: the last call that left the index, with period 0
    tenant TEXT   NOT NULL, -- empty: of all tenants
    value  TEXT   NOT NULL, -- of the kind, such as the name of a tool; empty for all
    period BIGINT NOT NULL, -- seconds
    time   BIGINT NOT NULL, -- where the period begins
    sums   TEXT   NOT NULL, -- JSON
    PRIMARY KEY (kind, tenant, period, time, value)
);
CREATE INDEX call_sums_by_time ON call_sums (period, time, kind, value);
