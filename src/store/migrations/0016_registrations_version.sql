-- Grows with each change of registrations and of tenants, models and skills, which replicas look at.
CREATE TABLE shared_versions (
    subject TEXT   NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);
