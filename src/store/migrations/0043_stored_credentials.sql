-- Of a credential that a caller stored itself, how it is sent: key, basic, header. NULL for the tokens of a sign-in.
ALTER TABLE user_tokens ADD COLUMN kind TEXT;
