-- Who works on a thing: one row for each thing of a kind that somebody has taken. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE work (
    kind       TEXT   NOT NULL, -- such as workspace
    id         TEXT   NOT NULL, -- of the thing
    holder     TEXT,            -- random, another one each time it is taken; NULL while nobody has it
    replica    TEXT,            -- of the holder; NULL: a process that is no replica
    fence      BIGINT NOT NULL, -- grows each time it is taken
    held_until BIGINT NOT NULL,
    stop_fence BIGINT NOT NULL, -- the holder with this fence is asked to stop
    expires    BIGINT NOT NULL, -- the row
    PRIMARY KEY (kind, id)
);
CREATE INDEX work_by_expiry ON work (expires);
