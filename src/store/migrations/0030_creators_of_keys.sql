-- The persons who have had a token of the key, or of a key by which it was made, as JSON: for approvals each counts as its holder. NULL for
-- keys of older programs, of which `created_by` says it.
ALTER TABLE managed_keys ADD COLUMN creators TEXT;
