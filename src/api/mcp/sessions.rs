//! The sessions over HTTP: bound to the caller who started them, limited in number, and ended when idle.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use super::session::McpSession;
use crate::config::McpServerConfig;
use crate::core::call::Caller;
use crate::core::error::{CallError, ErrorCode};
use crate::core::peer::ClientSession;

/// All sessions of the process.
#[derive(Debug)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<String, Entry>>,
    idle: Duration,
    max_total: usize,
    max_per_caller: usize,
}

#[derive(Debug)]
struct Entry {
    /// Key of its caller.
    owner: Arc<str>,
    session: Arc<McpSession>,
}

impl Sessions {
    pub(super) fn new(config: &McpServerConfig) -> Self {
        Self {
            by_id: Mutex::default(),
            idle: Duration::from_secs(config.session_idle_seconds),
            max_total: config.max_sessions,
            max_per_caller: config.max_sessions_per_caller,
        }
    }

    /// Starts a session of the caller, and returns its id.
    ///
    /// # Errors
    /// `overloaded`: there are too many sessions.
    pub(super) fn start(self: &Arc<Self>, caller: &Caller) -> Result<(String, Arc<McpSession>), CallError> {
        let (id, session) = (Uuid::new_v4().to_string(), McpSession::over_http());
        let mut by_id = self.by_id.lock();
        let of_caller = by_id.values().filter(|entry| entry.owner == caller.key).count();
        if by_id.len() >= self.max_total || of_caller >= self.max_per_caller {
            let message = "there are too many MCP sessions; end one, or try again later";
            return Err(CallError::new(ErrorCode::Overloaded, message));
        }
        by_id.insert(id.clone(), Entry { owner: Arc::clone(&caller.key), session: Arc::clone(&session) });
        drop(by_id);
        tokio::spawn(end_when_idle(Arc::downgrade(self), id.clone(), Arc::downgrade(&session), self.idle));
        Ok((id, session))
    }

    /// The caller's own session: those of others do not exist for it.
    pub(super) fn get(&self, caller: &Caller, id: &str) -> Option<Arc<McpSession>> {
        let by_id = self.by_id.lock();
        by_id.get(id).filter(|entry| entry.owner == caller.key).map(|entry| Arc::clone(&entry.session))
    }

    pub(super) fn end(&self, id: &str) {
        let ended = self.by_id.lock().remove(id);
        if let Some(ended) = ended {
            ended.session.end();
        }
    }
}

async fn end_when_idle(sessions: Weak<Sessions>, id: String, session: Weak<McpSession>, idle: Duration) {
    loop {
        let (left, ended) = match session.upgrade() {
            Some(session) => (session.time_left(idle), session.ended().clone()),
            None => return,
        };
        let Some(left) = left else { break };
        if ended.run_until_cancelled(tokio::time::sleep(left)).await.is_none() {
            return;
        }
    }
    if let Some(sessions) = sessions.upgrade() {
        sessions.end(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(key: &str) -> Caller {
        Caller::new(key, "tenant", Vec::new())
    }

    fn sessions() -> Arc<Sessions> {
        let config = McpServerConfig {
            max_sessions: 3,
            max_sessions_per_caller: 2,
            session_idle_seconds: 60,
            ..Default::default()
        };
        Arc::new(Sessions::new(&config))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_exists_for_its_caller_until_it_ends_or_is_idle() {
        let (sessions, owner) = (sessions(), caller("a"));
        let (id, session) = sessions.start(&owner).expect("a session");
        assert!(sessions.get(&owner, &id).is_some());
        assert!(sessions.get(&caller("b"), &id).is_none());
        let active = session.active();
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(sessions.get(&owner, &id).is_some(), "a request is being served");
        drop(active);
        tokio::time::sleep(Duration::from_secs(121)).await;
        assert!(sessions.get(&owner, &id).is_none() && session.ended().is_cancelled());

        let (id, session) = sessions.start(&owner).expect("a session");
        sessions.end(&id);
        assert!(sessions.get(&owner, &id).is_none() && session.ended().is_cancelled());
    }

    #[tokio::test]
    async fn sessions_are_limited_for_each_caller_and_in_all() {
        let sessions = sessions();
        for key in ["a", "a", "b"] {
            sessions.start(&caller(key)).expect("a session");
        }
        for key in ["a", "b"] {
            assert_eq!(sessions.start(&caller(key)).expect_err("too many").code(), ErrorCode::Overloaded);
        }
    }
}
