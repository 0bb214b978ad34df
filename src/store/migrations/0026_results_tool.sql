-- The tool whose result it is, for lists. Empty for results that were stored before.
ALTER TABLE results ADD COLUMN tool TEXT NOT NULL DEFAULT '';
