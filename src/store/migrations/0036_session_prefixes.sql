-- The beginning of each request of an agent in a session, and the news of later runs: the same bytes are sent again.
CREATE TABLE session_prefixes (
    conversation TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    agent        TEXT NOT NULL,
    first_run    BIGINT NOT NULL, -- the number of the run that began it
    prefix       TEXT NOT NULL, -- JSON: the system prompt, the tools, and the state of what they name
    news         TEXT NOT NULL, -- JSON: a list in the order of the runs, of the number of each run and its news, JSON
    PRIMARY KEY (conversation, session_id, agent)
);
-- The session that a session continues, and the last messages of that one (JSON), with which it begins after the summary.
ALTER TABLE session_summaries ADD COLUMN earlier TEXT;
ALTER TABLE session_summaries ADD COLUMN kept TEXT;
