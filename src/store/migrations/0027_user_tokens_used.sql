-- When a token of a caller was sent last, to about a day: what nobody uses is revoked after some time. NULL where it was not sent since it
-- changed, or by an earlier program.
ALTER TABLE user_tokens ADD COLUMN used BIGINT;
