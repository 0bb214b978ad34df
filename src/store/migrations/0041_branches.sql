-- Of a conversation that was branched from a run, JSON: the run, and the model and the prompt in place of the profile's.
ALTER TABLE conversations ADD COLUMN branch TEXT;
