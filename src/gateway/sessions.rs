//! The sessions of all callers, keyed by tenant, caller and id, so that a guessed id gives no access.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::config::SessionConfig;
use crate::core::call::Caller;
use crate::core::error::{CallError, ErrorCode};
use crate::core::session::Session;

/// Maximum length of a session id, in characters.
const MAX_ID_CHARS: usize = 128;

/// The sessions of all callers. A session whose `Arc` is held elsewhere is not evicted.
#[derive(Debug)]
pub struct Sessions {
    /// By [`Caller::key`], then by the session's id.
    by_caller: DashMap<Arc<str>, HashMap<Arc<str>, Arc<Session>>>,
    idle_seconds: AtomicU64,
    max_per_caller: AtomicUsize,
}

impl Sessions {
    pub fn new(config: &SessionConfig) -> Self {
        Self {
            by_caller: DashMap::new(),
            idle_seconds: config.idle_seconds.into(),
            max_per_caller: config.max_per_caller.into(),
        }
    }

    /// Applies new limits; open sessions stay, even if they exceed a smaller maximum.
    pub fn reconfigure(&self, config: &SessionConfig) {
        self.idle_seconds.store(config.idle_seconds, Ordering::Relaxed);
        self.max_per_caller.store(config.max_per_caller, Ordering::Relaxed);
    }

    /// For executing tools: opens the session if the caller has none with that id.
    ///
    /// # Errors
    /// `invalid_request` for an invalid id, and when the caller has the maximum number of sessions.
    pub fn open(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, CallError> {
        if let Some(session) = self.get(caller, id) {
            return Ok(session);
        }
        check_id(id)?;
        let mut sessions = self.by_caller.entry(Arc::clone(&caller.key)).or_default();
        if let Some(session) = sessions.get(id) {
            session.touch();
            return Ok(Arc::clone(session));
        }
        let max = self.max_per_caller.load(Ordering::Relaxed);
        if sessions.len() >= max {
            return Err(too_many(max, self.idle()));
        }
        let session = Arc::new(Session::new(caller, id));
        sessions.insert(Arc::clone(&session.id), Arc::clone(&session));
        Ok(session)
    }

    /// For other requests: the session, if the caller has one with that id.
    ///
    /// # Errors
    /// `unknown_session`, whether the id is unknown or belongs to another caller.
    pub fn find(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, CallError> {
        self.get(caller, id).ok_or_else(|| {
            let shown: String = id.chars().take(MAX_ID_CHARS).collect();
            let message = format!("you have no session {shown:?}; execute a tool with that `session_id` to open it");
            CallError::new(ErrorCode::UnknownSession, message)
        })
    }

    /// Removes sessions that are idle and not in use, and returns their workspaces, which must be deleted.
    pub fn evict_idle(&self) -> Vec<String> {
        let (now, idle) = (Instant::now(), self.idle());
        let mut workspaces = Vec::new();
        self.by_caller.retain(|_, sessions| {
            sessions.retain(|_, session| {
                // No caller can open it at the same time, because the map is locked for writing.
                let in_use = Arc::strong_count(session) > 1;
                let keep = in_use || now.duration_since(session.last_used()) < idle;
                if !keep {
                    workspaces.push(session.workspace_name().to_owned());
                }
                keep
            });
            !sessions.is_empty()
        });
        workspaces
    }

    /// The number of open sessions of all callers.
    pub fn len(&self) -> usize {
        self.by_caller.iter().map(|sessions| sessions.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, caller: &Caller, id: &str) -> Option<Arc<Session>> {
        let sessions = self.by_caller.get(&*caller.key)?;
        let session = sessions.get(id)?;
        session.touch();
        Some(Arc::clone(session))
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds.load(Ordering::Relaxed))
    }
}

fn check_id(id: &str) -> Result<(), CallError> {
    // A character has at most four bytes, so a long id is refused without counting its characters.
    let fits = !id.is_empty() && id.len() <= 4 * MAX_ID_CHARS && id.chars().count() <= MAX_ID_CHARS;
    if fits && !id.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("a session id must have 1 to {MAX_ID_CHARS} characters and no control characters");
    Err(CallError::new(ErrorCode::InvalidRequest, message))
}

fn too_many(max: usize, idle: Duration) -> CallError {
    let hours = idle.as_secs_f64() / 3_600.0;
    let message = format!(
        "you have {max} open sessions, the maximum; use one of them again, or wait: \
         a session is closed after {hours:.1} idle hours"
    );
    CallError::new(ErrorCode::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use rust_decimal::Decimal;

    use super::*;

    fn caller(tenant: &str, id: &str) -> Caller {
        Caller::new(id, tenant, Vec::new())
    }

    fn sessions(max_per_caller: usize) -> Sessions {
        Sessions::new(&SessionConfig { max_per_caller, idle_seconds: 60, ..SessionConfig::default() })
    }

    #[test]
    fn a_session_is_the_same_for_every_call_of_its_caller() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        let first = sessions.open(&ann, "s").unwrap();
        first.settle(Decimal::new(5, 2));
        first.add_label("untrusted");
        first.add_label("untrusted");
        for again in [sessions.open(&ann, "s").unwrap(), sessions.find(&ann, "s").unwrap()] {
            assert_eq!((again.calls(), again.cost_usd()), (1, Decimal::new(5, 2)));
            assert_eq!(again.labels(), ["untrusted"]);
        }
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn a_guessed_id_opens_nothing_of_another_caller_or_tenant() {
        let sessions = sessions(10);
        let ann = sessions.open(&caller("acme", "ann"), "secret").unwrap();
        ann.settle(Decimal::ONE);
        for other in [caller("acme", "bob"), caller("rival", "ann"), Caller::anonymous()] {
            let error = sessions.find(&other, "secret").unwrap_err();
            assert_eq!(error.code(), ErrorCode::UnknownSession);
            let own = sessions.open(&other, "secret").unwrap();
            assert_eq!(own.calls(), 0);
            assert_ne!(own.workspace_name(), ann.workspace_name());
        }
    }

    #[test]
    fn a_session_nobody_used_is_unknown_and_stays_so() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        for _ in 0..2 {
            assert_eq!(sessions.find(&ann, "s").unwrap_err().code(), ErrorCode::UnknownSession);
        }
        assert!(sessions.is_empty());
    }

    #[test]
    fn one_session_too_many_is_refused_and_the_others_go_on() {
        let (sessions, ann) = (sessions(2), caller("acme", "ann"));
        sessions.open(&ann, "one").unwrap();
        sessions.open(&ann, "two").unwrap();
        let error = sessions.open(&ann, "three").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.message().contains("2 open sessions"), "{error}");
        sessions.open(&ann, "one").unwrap();
        sessions.open(&caller("acme", "bob"), "three").unwrap();
    }

    #[test]
    fn ids_are_anything_that_can_be_printed() {
        let (sessions, ann) = (sessions(100), caller("acme", "ann"));
        let longest = "字".repeat(MAX_ID_CHARS);
        for id in ["1", "a b", "../../etc/passwd", "関所", longest.as_str()] {
            sessions.open(&ann, id).unwrap();
        }
        let (too_long, far_too_long) = ("x".repeat(MAX_ID_CHARS + 1), "x".repeat(1 << 20));
        for id in ["", "a\nb", "nul\0", "\u{1f}", "\u{85}", &too_long, &far_too_long] {
            assert_eq!(sessions.open(&ann, id).unwrap_err().code(), ErrorCode::InvalidRequest, "{id:.20?}");
        }
        let error = sessions.find(&ann, &far_too_long).unwrap_err();
        assert!(error.message().len() < 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_idle_session_that_nobody_uses_is_evicted() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        let in_use = sessions.open(&ann, "in use").unwrap();
        let idle = sessions.open(&ann, "idle").unwrap().workspace_name().to_owned();
        tokio::time::advance(Duration::from_secs(59)).await;
        sessions.open(&ann, "fresh").unwrap();
        assert!(sessions.evict_idle().is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sessions.evict_idle(), [idle]);
        assert!(sessions.find(&ann, "in use").is_ok());
        drop(in_use);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(sessions.evict_idle().len(), 2);
        assert!(sessions.is_empty() && sessions.by_caller.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_call_keeps_its_session_from_its_end_on() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        let session = sessions.open(&ann, "s").unwrap();
        tokio::time::advance(Duration::from_secs(600)).await;
        session.settle(Decimal::ZERO);
        drop(session);
        assert!(sessions.evict_idle().is_empty());
    }

    #[test]
    fn parallel_opens_make_one_session_and_keep_to_the_maximum() {
        let (sessions, ann) = (sessions(5), caller("acme", "ann"));
        let opened: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| (0..8).filter(|n| sessions.open(&ann, &n.to_string()).is_ok()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(sessions.len(), 5);
        assert!(opened >= 16);
    }
}
