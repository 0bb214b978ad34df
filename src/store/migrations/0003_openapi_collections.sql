-- `registration` is JSON; where a credential belongs it has the name of one.
CREATE TABLE openapi_collections (
    name         TEXT NOT NULL PRIMARY KEY,
    registration TEXT NOT NULL
);
