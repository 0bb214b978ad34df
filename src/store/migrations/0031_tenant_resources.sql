-- What administrators of a tenant registered or stored for that tenant alone. Programs of the version before know `mcp_servers`,
-- `openapi_collections` and `resources`, and offer all that is there to all tenants: so this is a table of its own, which they do not read.
-- No name is there twice for a kind, and none that the shared table of the kind has.
CREATE TABLE tenant_resources (
    tenant TEXT NOT NULL,
    kind   TEXT NOT NULL, -- mcp_server, openapi_collection, model, skill
    name   TEXT NOT NULL,
    value  TEXT NOT NULL, -- as in the shared table of the kind
    PRIMARY KEY (tenant, kind, name)
);
CREATE INDEX tenant_resources_by_name ON tenant_resources (kind, name);
