-- Tenants, models and skills that administrators store. `value` is JSON in the form of the configuration.
CREATE TABLE resources (
    kind  TEXT NOT NULL, -- tenant, model, skill
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);
