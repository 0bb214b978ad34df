-- Tokens of callers for upstreams to which each of them signs in on its own. Moments are microseconds since 1970 by the database's clock.
CREATE TABLE user_tokens (
    caller_key     TEXT   NOT NULL,
    source         TEXT   NOT NULL, -- mcp:SERVER or openapi:COLLECTION
    tenant         TEXT   NOT NULL,
    caller_id      TEXT   NOT NULL,
    sealed         TEXT   NOT NULL, -- the tokens, and by which client they are renewed
    scopes         TEXT   NOT NULL, -- with a space between them
    expires        BIGINT,          -- of the access token; NULL where that is not known
    revision       BIGINT NOT NULL, -- grows with each change
    renewing_until BIGINT NOT NULL, -- until when somebody alone may renew it
    created        BIGINT NOT NULL, -- the sign-in
    changed        BIGINT NOT NULL,
    PRIMARY KEY (caller_key, source)
);
CREATE INDEX user_tokens_by_source ON user_tokens (source, created);
-- Sign-ins that have not ended.
CREATE TABLE user_sign_ins (
    caller_key   TEXT   NOT NULL,
    source       TEXT   NOT NULL,
    tenant       TEXT   NOT NULL,
    caller_id    TEXT   NOT NULL,
    id           TEXT   NOT NULL UNIQUE, -- random; in the address of its page
    sealed       TEXT   NOT NULL, -- the one-time code, and what the authorization server was asked
    tries        BIGINT NOT NULL, -- codes that were tried
    browser      TEXT,            -- digest of the cookie of the browser that was sent to the authorization server
    state_digest TEXT,            -- of the `state` that it comes back with
    expires      BIGINT NOT NULL,
    PRIMARY KEY (caller_key, source)
);
CREATE INDEX user_sign_ins_by_state ON user_sign_ins (state_digest);
CREATE INDEX user_sign_ins_by_expiry ON user_sign_ins (expires);
