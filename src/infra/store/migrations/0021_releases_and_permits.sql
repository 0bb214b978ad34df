-- How often an administrator released what a replica leases: it has nothing of what it leased before.
ALTER TABLE replicas ADD COLUMN releases BIGINT NOT NULL DEFAULT 0;
ALTER TABLE budget_leases ADD COLUMN releases BIGINT NOT NULL DEFAULT 0;
