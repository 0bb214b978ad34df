-- The replica that runs a call with an idempotency key; NULL where gateways are no replicas.
ALTER TABLE idempotency_records ADD COLUMN runner TEXT;
