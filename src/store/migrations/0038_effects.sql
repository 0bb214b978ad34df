-- The call of a record, whose effect may be looked for. NULL: of a turn of an agent, or of an earlier version.
ALTER TABLE idempotency_records ADD COLUMN tool TEXT;
ALTER TABLE idempotency_records ADD COLUMN call_id TEXT;
CREATE INDEX idempotency_records_by_request ON idempotency_records (caller_key, request);
