//! Connections of single callers, where a server is told who calls: nobody's is another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::call::Caller;
use crate::sources::mcp::session::Session;

/// Connections of single callers that one server has at once, and how long an unused one is kept.
pub(super) const MOST_CALLERS: usize = 256;
const CALLER_IDLE: Duration = Duration::from_secs(600);

/// By digests of who calls and with what.
#[derive(Debug, Default)]
pub(super) struct Callers(Mutex<HashMap<[u8; 32], CallerSession>>);

/// The place of one caller's connection, made by whoever needs it first.
pub(super) type Place = Arc<OnceCell<Arc<Session>>>;

/// The connection of one caller.
#[derive(Debug)]
struct CallerSession {
    session: Place,
    used: Instant,
}

impl Callers {
    /// The place of the caller's connection. Another token of the same caller is another connection. `None` where
    /// there are [`MOST_CALLERS`] others.
    pub(super) fn place(&self, caller: &Caller, headers: &HeaderMap) -> Option<Place> {
        let mut digest = Sha256::new().chain_update(&*caller.key);
        for (name, value) in headers {
            digest = digest.chain_update([0x1f]).chain_update(name).chain_update([0x1f]).chain_update(value.as_bytes());
        }
        let key = digest.finalize().into();
        let mut callers = self.lock();
        callers.retain(|_, known| !known.is_spent());
        if callers.len() >= MOST_CALLERS && !callers.contains_key(&key) {
            return None;
        }
        let known =
            callers.entry(key).or_insert_with(|| CallerSession { session: Arc::default(), used: Instant::now() });
        known.used = Instant::now();
        Some(Arc::clone(&known.session))
    }

    pub(super) fn forget_idle(&self) {
        self.lock().retain(|_, known| !known.is_spent());
    }

    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], CallerSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerSession {
    fn is_spent(&self) -> bool {
        self.used.elapsed() >= CALLER_IDLE || self.session.get().is_some_and(|session| session.ended.is_cancelled())
    }
}
