-- Embeddings of what plans remember. Each belongs to the entry whose text has this digest.
CREATE TABLE plan_vectors (
    plan   TEXT   NOT NULL,
    digest TEXT   NOT NULL, -- SHA-256 of the text, in hex
    model  TEXT   NOT NULL, -- the provider's name of the model that made it
    vector TEXT   NOT NULL, -- 32-bit floating-point numbers, little-endian, in base64
    PRIMARY KEY (plan, digest)
);
