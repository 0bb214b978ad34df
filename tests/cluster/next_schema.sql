-- What a next version may add while programs of this one use the tables: columns of tables that every call writes, and a table.
ALTER TABLE idempotency_records ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE budget_leases ADD COLUMN note TEXT;
ALTER TABLE replicas ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN note TEXT;
CREATE TABLE next_notes (
    tenant TEXT NOT NULL,
    note   TEXT NOT NULL,
    PRIMARY KEY (tenant, note)
);
CREATE INDEX budget_leases_by_replica ON budget_leases (replica);
