//! The signed-in sessions. A session is found by the hash of the secret in the browser's cookie, and is in memory only:
//! a restart of the gateway ends all.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use sekisho_auth::{Authenticator, SignedIn};
use sekisho_core::call::Caller;

/// A session without a request for this long ends.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);

/// A session ends this long after the sign-in.
const MAX_AGE: Duration = Duration::from_secs(8 * 3_600);

/// Maximum sessions of one caller; a further one ends the oldest.
const MAX_OF_A_CALLER: usize = 20;

/// Maximum sessions at once; a further one ends the oldest.
const MAX_SESSIONS: usize = 10_000;

/// The secret of a session, as the cookie has it: 256 random bits.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SessionSecret(String);

/// The hash of a secret.
pub(super) type SecretHash = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct Sessions {
    kept: Mutex<HashMap<SecretHash, Session>>,
}

#[derive(Debug)]
struct Session {
    signed_in: SignedIn,
    started: Instant,
    used: Instant,
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionSecret")
    }
}

impl SessionSecret {
    pub(super) fn random() -> Self {
        Self(hex::encode(rand::random::<[u8; 32]>()))
    }

    /// `None` for a text that is none.
    pub(super) fn read(text: &str) -> Option<Self> {
        (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn hash(&self) -> SecretHash {
        Sha256::digest(&self.0).into()
    }

    /// The token of this session's forms. It says nothing about the secret.
    pub(super) fn form_token(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(b"sekisho console form ");
        hasher.update(&self.0);
        hex::encode(hasher.finalize())
    }
}

impl Sessions {
    /// Starts a session, with a secret of its own, and ends the one that the browser had.
    pub(super) fn start(&self, signed_in: SignedIn, before: Option<&SessionSecret>) -> SessionSecret {
        let secret = SessionSecret::random();
        let now = Instant::now();
        let mut kept = self.kept.lock();
        if let Some(before) = before {
            kept.remove(&before.hash());
        }
        kept.retain(|_, session| session.is_alive(now));
        let key = Arc::clone(&signed_in.caller().key);
        make_room(&mut kept, MAX_OF_A_CALLER, |session| session.signed_in.caller().key == key);
        make_room(&mut kept, MAX_SESSIONS, |_| true);
        kept.insert(secret.hash(), Session { signed_in, started: now, used: now });
        secret
    }

    /// The caller of a session that goes on. The question does not count as a use of it.
    pub(super) fn watcher(&self, secret: &SessionSecret, authenticator: &Authenticator) -> Option<Arc<Caller>> {
        let kept = self.kept.lock();
        let session = kept.get(&secret.hash()).filter(|session| session.is_alive(Instant::now()))?;
        authenticator.still_signed_in(&session.signed_in)
    }

    /// Whether the session was begun by a link for this machine's user. The question does not count as a use of it.
    pub(super) fn is_of_local_user(&self, secret: &SessionSecret) -> bool {
        let kept = self.kept.lock();
        let session = kept.get(&secret.hash()).filter(|session| session.is_alive(Instant::now()));
        session.is_some_and(|session| session.signed_in.is_local_user())
    }

    /// The caller of a session. Ends the session when its key is no longer accepted.
    pub(super) fn caller(&self, secret: &SessionSecret, authenticator: &Authenticator) -> Option<Arc<Caller>> {
        let (now, hash) = (Instant::now(), secret.hash());
        let mut kept = self.kept.lock();
        let session = kept.get_mut(&hash)?;
        let accepted = || authenticator.still_signed_in(&session.signed_in);
        let caller = session.is_alive(now).then(accepted).flatten();
        match caller {
            Some(caller) => {
                session.used = now;
                Some(caller)
            }
            None => {
                kept.remove(&hash);
                None
            }
        }
    }

    pub(super) fn end(&self, secret: &SessionSecret) {
        self.kept.lock().remove(&secret.hash());
    }
}

impl Session {
    fn is_alive(&self, now: Instant) -> bool {
        now.duration_since(self.used) < MAX_IDLE && now.duration_since(self.started) < MAX_AGE
    }
}

/// Ends the oldest of the sessions that count, until there is room for one more.
fn make_room(kept: &mut HashMap<SecretHash, Session>, max: usize, counts: impl Fn(&Session) -> bool) {
    let mut counted: Vec<_> =
        kept.iter().filter(|(_, session)| counts(session)).map(|(hash, session)| (session.started, *hash)).collect();
    if counted.len() < max {
        return;
    }
    counted.sort_by_key(|(started, _)| *started);
    for (_, hash) in counted.iter().take(counted.len() + 1 - max) {
        kept.remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{ApiKeyConfig, AuthConfig, Secret};
    use sekisho_core::caller::Owner;

    async fn authenticator(keys: &[(&str, &str)]) -> Authenticator {
        let key = |(id, key): &(&str, &str)| ApiKeyConfig {
            id: (*id).to_owned(),
            key: Some(Secret::new(*key)),
            key_sha256: None,
            tenant: "acme".into(),
            roles: Vec::new(),
            person: None,
        };
        let config = AuthConfig { api_keys: keys.iter().map(key).collect(), ..AuthConfig::default() };
        Authenticator::new(&config, None).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_is_idle_or_old_or_its_key_is_revoked() {
        let accepts = authenticator(&[("ann", "key-of-ann"), ("bob", "key-of-bob")]).await;
        let sessions = Sessions::default();
        let ann = || async { accepts.sign_in("key-of-ann", Owner::gateway()).await.unwrap() };
        let id = |secret: &SessionSecret| sessions.caller(secret, &accepts).map(|caller| caller.id.to_string());

        let secret = sessions.start(ann().await, None);
        for _ in 0..16 {
            tokio::time::advance(MAX_IDLE - Duration::from_secs(60)).await;
            assert_eq!(id(&secret).as_deref(), Some("ann"));
        }
        tokio::time::advance(MAX_IDLE - Duration::from_secs(60)).await;
        assert_eq!(id(&secret), None, "it is older than eight hours");

        let secret = sessions.start(ann().await, None);
        tokio::time::advance(MAX_IDLE - Duration::from_secs(1)).await;
        assert!(sessions.watcher(&secret, &accepts).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(sessions.watcher(&secret, &accepts).is_none());
        assert_eq!(id(&secret), None, "it was idle, though a page asked by itself");

        let secret = sessions.start(ann().await, None);
        assert!(sessions.caller(&secret, &authenticator(&[("bob", "key-of-bob")]).await).is_none());
        assert_eq!(id(&secret), None, "it ended with the key, and does not begin again");
    }

    #[tokio::test]
    async fn a_sign_in_has_a_secret_of_its_own_and_ends_the_session_before() {
        let accepts = authenticator(&[("ann", "key-of-ann")]).await;
        let sessions = Sessions::default();
        let ann = accepts.sign_in("key-of-ann", Owner::gateway()).await.unwrap();
        let planted = SessionSecret::random();
        let first = sessions.start(ann.clone(), Some(&planted));
        assert!(first != planted && sessions.caller(&planted, &accepts).is_none());
        let second = sessions.start(ann.clone(), Some(&first));
        assert!(sessions.caller(&first, &accepts).is_none() && sessions.caller(&second, &accepts).is_some());
        assert_ne!(second.form_token(), SessionSecret::random().form_token());
        let more: Vec<_> = (0..MAX_OF_A_CALLER).map(|_| sessions.start(ann.clone(), None)).collect();
        assert!(sessions.caller(&second, &accepts).is_none(), "the oldest made room");
        assert!(more.iter().all(|secret| sessions.caller(secret, &accepts).is_some()));
        assert!(
            accepts.sign_in("other", Owner::gateway()).await.is_err()
                && accepts.sign_in("", Owner::gateway()).await.is_err()
        );
    }
}
