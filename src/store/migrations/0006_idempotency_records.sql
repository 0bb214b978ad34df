-- Calls with an idempotency key. A record without `answered` is that of a call that runs, or ran when its process ended.
CREATE TABLE idempotency_records (
    id         TEXT   NOT NULL PRIMARY KEY, -- SHA-256 of the caller, the tool and the key
    tenant     TEXT   NOT NULL,
    caller_key TEXT   NOT NULL, -- tenant and id of the caller
    request    TEXT   NOT NULL, -- SHA-256 of what was asked
    answered   BIGINT NOT NULL, -- 0, 1
    reply      TEXT,            -- as it was sent; NULL when it was too large or was evicted
    bytes      BIGINT NOT NULL, -- of the reply
    kept_since BIGINT NOT NULL, -- microseconds since 1970
    last_used  BIGINT NOT NULL
);
CREATE INDEX idempotency_records_by_owner ON idempotency_records (tenant, caller_key, last_used);
CREATE INDEX idempotency_records_by_age ON idempotency_records (kept_since);
