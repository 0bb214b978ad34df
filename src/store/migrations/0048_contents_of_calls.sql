-- The arguments and results of calls, where `recording.content` wants them. With a SQLite store they are in the file of the index.
CREATE TABLE call_contents (
    time    BIGINT NOT NULL, -- when the call ended, in microseconds since 1970
    call_id TEXT   NOT NULL,
    tenant  TEXT   NOT NULL,
    bytes   BIGINT NOT NULL, -- of the content
    content TEXT   NOT NULL, -- JSON, sealed for the tenant and owner of the call
    PRIMARY KEY (time, call_id)
);
CREATE INDEX call_contents_by_time ON call_contents (time, bytes);
