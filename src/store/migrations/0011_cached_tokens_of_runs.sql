-- Of the prompt's tokens: read from the provider's cache, and written to it.
ALTER TABLE agent_runs ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agent_runs ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0;
