-- Sessions of interpreters: which process has each, and the images of those that can go on without it. Moments are microseconds since 1970 by
-- the database's clock.
CREATE TABLE interpreter_sessions (
    caller_key    TEXT   NOT NULL, -- of the owner: callers without credentials have one for each address
    name          TEXT   NOT NULL,
    tenant        TEXT   NOT NULL,
    generation    BIGINT NOT NULL, -- of the interpreter, which grows when the session begins anew; 0 before it has begun
    fence         BIGINT NOT NULL, -- grows with each process that takes it
    runner        TEXT,            -- the process that has it
    asked         TEXT,            -- what another one wants of that process: release or delete; kept when it cannot release it
    ended         TEXT,            -- why it has ended
    every_call    BIGINT NOT NULL, -- 1 when it is stored after each call
    calls         BIGINT NOT NULL,
    profile       TEXT,            -- of the image, as are the next four
    interpreter   TEXT,            -- digest
    snapshot      TEXT,            -- digest
    rights        TEXT,            -- digest of what its programs may call
    programs      TEXT,            -- digest of those that it has run
    object        TEXT,            -- the image, sealed, in object storage
    object_sha256 TEXT,            -- in hex
    object_bytes  BIGINT,
    began         BIGINT NOT NULL,
    used          BIGINT NOT NULL,
    ends          BIGINT NOT NULL,
    expires       BIGINT NOT NULL, -- the row
    PRIMARY KEY (caller_key, name)
);
CREATE INDEX interpreter_sessions_by_tenant ON interpreter_sessions (tenant, used);
CREATE INDEX interpreter_sessions_by_runner ON interpreter_sessions (runner) WHERE asked IS NOT NULL;
CREATE INDEX interpreter_sessions_by_object ON interpreter_sessions (object) WHERE object IS NOT NULL;
CREATE INDEX interpreter_sessions_by_expiry ON interpreter_sessions (expires);
