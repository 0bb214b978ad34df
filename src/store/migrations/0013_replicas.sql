-- The gateways that share this database as replicas. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE replicas (
    id            TEXT   NOT NULL PRIMARY KEY, -- of one process: a restart has another
    host          TEXT   NOT NULL,
    version       TEXT   NOT NULL, -- of the program
    configuration TEXT   NOT NULL, -- digest
    policies      TEXT   NOT NULL, -- version of the policy set
    started       BIGINT NOT NULL,
    heartbeat     BIGINT NOT NULL
);
