-- The older messages of sessions that are longer than a model can read, in short. The last message that a summary stands for is
-- named by the number of its run and its position there.
CREATE TABLE session_summaries (
    conversation  TEXT   NOT NULL,
    session_id    TEXT   NOT NULL,
    last_number   BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    summary       TEXT   NOT NULL,
    PRIMARY KEY (conversation, session_id)
);
