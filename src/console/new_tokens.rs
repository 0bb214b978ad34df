//! Tokens of new keys, on their way from the form that made them to the page that shows them: once, to the session that made
//! them, so that a page that is loaded again makes no other key.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::sessions::{SecretHash, SessionSecret};
use sekisho_config::Secret;
use sekisho_core::bounded::Ring;

/// How long a token waits for its page.
const LIFETIME: Duration = Duration::from_secs(60);

/// Maximum tokens at once; a further one takes the place of the oldest.
const MAX_TOKENS: usize = 64;

pub(super) struct NewTokens(Mutex<Ring<NewToken>>);

struct NewToken {
    session: SecretHash,
    /// The id of its key.
    key: String,
    token: Secret,
    until: Instant,
}

impl Default for NewTokens {
    fn default() -> Self {
        Self(Mutex::new(Ring::new(MAX_TOKENS)))
    }
}

impl fmt::Debug for NewTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NewTokens")
    }
}

impl NewTokens {
    pub(super) fn keep(&self, session: &SessionSecret, key: &str, token: String) {
        let mut tokens = self.0.lock();
        tokens.retain(|kept| kept.until > Instant::now());
        let (session, until) = (session.hash(), Instant::now() + LIFETIME);
        tokens.push(NewToken { session, key: key.to_owned(), token: Secret::new(token), until });
    }

    pub(super) fn take(&self, session: &SessionSecret, key: &str) -> Option<Secret> {
        let session = session.hash();
        let mut tokens = self.0.lock();
        tokens.retain(|kept| kept.until > Instant::now());
        tokens.take_first(|kept| kept.session == session && kept.key == key).map(|kept| kept.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_shown_once_in_time_to_its_session() {
        let tokens = NewTokens::default();
        let (own, other) = (SessionSecret::random(), SessionSecret::random());
        let keep = || tokens.keep(&own, "k", "sk_k_1".to_owned());
        keep();
        assert!(tokens.take(&other, "k").is_none() && tokens.take(&own, "j").is_none());
        assert_eq!(tokens.take(&own, "k").unwrap().expose(), "sk_k_1");
        assert!(tokens.take(&own, "k").is_none());
        keep();
        tokio::time::advance(LIFETIME).await;
        assert!(tokens.take(&own, "k").is_none());
        for _ in 0..=MAX_TOKENS {
            keep();
        }
        assert_eq!(tokens.0.lock().len(), MAX_TOKENS);
    }
}
