-- The run, conversation or session of a call: those of its calls that wait are one item, about which a person decides at once.
ALTER TABLE approvals ADD COLUMN group_digest TEXT; -- of the caller and that; NULL for a call without one
CREATE INDEX approvals_by_group ON approvals (group_digest, state);
