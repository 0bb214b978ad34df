-- As openapi_collections.
CREATE TABLE mcp_servers (
    name         TEXT NOT NULL PRIMARY KEY,
    registration TEXT NOT NULL
);
