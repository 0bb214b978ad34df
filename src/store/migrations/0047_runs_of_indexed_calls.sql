-- The run of an agent or program that made a call, the digest of the program that made it, and its approval. NULL in entries of
-- earlier versions.
ALTER TABLE indexed_calls ADD COLUMN run TEXT;
ALTER TABLE indexed_calls ADD COLUMN program TEXT;
ALTER TABLE indexed_calls ADD COLUMN approval TEXT;
