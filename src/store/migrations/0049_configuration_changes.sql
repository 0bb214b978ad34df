-- Changes of the configuration that administrators proposed, and what became of them. Moments are microseconds since 1970 by the
-- database's clock.
CREATE TABLE configuration_changes (
    id          TEXT   NOT NULL PRIMARY KEY,
    patch       TEXT   NOT NULL, -- a JSON merge patch, without credentials
    comment     TEXT   NOT NULL,
    state       TEXT   NOT NULL, -- proposed, applied, undone
    proposed_by TEXT   NOT NULL,
    persons     TEXT   NOT NULL, -- a JSON list: everybody who may have proposed it
    decided_by  TEXT   NOT NULL, -- who applied or undid it; empty before
    proposed    BIGINT NOT NULL,
    changed     BIGINT NOT NULL,
    version     BIGINT NOT NULL -- the order of those that are applied; 0 before
);
CREATE INDEX configuration_changes_by_state ON configuration_changes (state, version);
CREATE INDEX configuration_changes_by_moment ON configuration_changes (proposed, id);
