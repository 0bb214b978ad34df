-- Where a replica takes the requests that others forward to it; NULL if it takes none.
ALTER TABLE replicas ADD COLUMN address TEXT;
