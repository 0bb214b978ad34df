-- The authorization server in front of an identity provider (auth.broker): the keys that sign its tokens, the clients that registered or were
-- found at their address, codes until they have expired, and the sessions of those who signed in. Moments are microseconds since 1970.
CREATE TABLE broker_keys (
    id TEXT NOT NULL PRIMARY KEY,
    public_key TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created BIGINT NOT NULL
);
CREATE TABLE broker_clients (
    id TEXT NOT NULL PRIMARY KEY,
    client TEXT NOT NULL,
    -- A digest of the network that it registered from.
    source TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- When somebody last signed in with it.
    used BIGINT
);
CREATE INDEX broker_clients_by_source ON broker_clients (source, created);
CREATE TABLE broker_codes (
    digest TEXT NOT NULL PRIMARY KEY,
    session TEXT NOT NULL,
    sealed TEXT NOT NULL,
    valid_until BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    -- How often it was presented.
    presented BIGINT NOT NULL
);
CREATE INDEX broker_codes_by_session ON broker_codes (session);
CREATE TABLE broker_sessions (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    -- The subject at the provider, and the name by which its user knows it.
    subject TEXT NOT NULL,
    login TEXT NOT NULL,
    client TEXT NOT NULL,
    client_name TEXT NOT NULL,
    -- Digests of the two parts of the refresh token in force.
    family TEXT NOT NULL,
    token TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE INDEX broker_sessions_by_family ON broker_sessions (family);
CREATE INDEX broker_sessions_by_subject ON broker_sessions (subject, created);
