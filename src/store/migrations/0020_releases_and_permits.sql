-- How often an administrator released what a replica leases: it has nothing of what it leased before.
ALTER TABLE replicas ADD COLUMN releases BIGINT NOT NULL DEFAULT 0;
-- Since when its heartbeats are without a gap, which a database that was away leaves with all replicas.
ALTER TABLE replicas ADD COLUMN live_since BIGINT NOT NULL DEFAULT 0;
-- JSON: the names of what does not work there, for all to show.
ALTER TABLE replicas ADD COLUMN degraded TEXT NOT NULL DEFAULT '[]';
ALTER TABLE budget_leases ADD COLUMN releases BIGINT NOT NULL DEFAULT 0;
-- Of a tool whose concurrency limit is counted over all replicas, the slots that calls have.
CREATE TABLE tool_permits (
    tool    TEXT   NOT NULL,
    slot    BIGINT NOT NULL, -- 1 to the limit
    holder  TEXT   NOT NULL, -- of the statement that took it
    replica TEXT   NOT NULL, -- the slot is free once that is lost
    taken   BIGINT NOT NULL, -- microseconds since 1970 by the database's clock
    PRIMARY KEY (tool, slot)
);
