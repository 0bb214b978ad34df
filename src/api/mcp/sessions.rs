//! The sessions over HTTP: bound to the caller who started them, limited in number, and ended when idle.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::event_log::EventMemory;
use super::replica_ids::ReplicaIds;
use super::session::McpSession;
use sekisho_config::McpServerConfig;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::peer::ClientSession;
use sekisho_core::per_owner::{NotAdded, PerOwner};
use sekisho_core::tool_scope::ToolScope;

/// All sessions of the process.
#[derive(Debug)]
pub(super) struct Sessions {
    by_id: PerOwner<String, Entry>,
    ids: ReplicaIds,
    idle: Duration,
    /// The memory for events that their clients may have missed.
    events: EventMemory,
}

#[derive(Debug)]
struct Entry {
    /// Key of its caller.
    owner: Arc<str>,
    /// The tools that its caller's key and its endpoint leave: the session is not used elsewhere.
    tools: ToolScope,
    session: Arc<McpSession>,
}

impl Sessions {
    pub(super) fn new(config: &McpServerConfig, ids: ReplicaIds) -> Self {
        Self {
            ids,
            by_id: PerOwner::new(config.max_sessions, config.max_sessions_per_caller),
            idle: Duration::from_secs(config.session_idle_seconds),
            events: EventMemory::default(),
        }
    }

    /// Starts a session of the caller, and returns its id. If there are too many, another one ends: the least recently
    /// used one of this caller or of a caller with more sessions, if possible one that serves no request.
    /// Errors: `overloaded`: every caller has as few sessions.
    pub(super) fn start(self: &Arc<Self>, caller: &Caller) -> Result<(String, Arc<McpSession>), CallError> {
        let (id, session) = (self.ids.create(), McpSession::new(&caller.owner, self.events.log_of(&caller.owner)));
        let (owner, tools) = (Arc::clone(&caller.key), caller.tools.clone());
        let entry = Entry { owner, tools, session: Arc::clone(&session) };
        let insert = |entry, may_go: fn(&Entry) -> bool| {
            self.by_id.insert(&caller.owner, id.clone(), entry, |_, entry| may_go(entry))
        };
        let mut ended = Vec::new();
        let mut added = insert(entry, |entry| entry.session.is_idle());
        if let Err(NotAdded { value, gone }) = added {
            ended.extend(gone);
            added = insert(value, |_| true);
        }
        let is_added = added.is_ok();
        ended.extend(added.unwrap_or_else(|NotAdded { gone, .. }| gone));
        for (_, entry) in ended {
            entry.session.end();
        }
        if !is_added {
            let message = "there are too many MCP sessions; end one, or try again later";
            return Err(CallError::new(ErrorCode::Overloaded, message));
        }
        tokio::spawn(end_when_idle(Arc::downgrade(self), id.clone(), Arc::downgrade(&session), self.idle));
        Ok((id, session))
    }

    /// The caller's own session: sessions of others do not exist for it.
    pub(super) fn get(&self, caller: &Caller, id: &str) -> Option<Arc<McpSession>> {
        let is_own = |entry: &Entry| entry.owner == caller.key && entry.tools == caller.tools;
        let own = |entry: &mut Entry| is_own(entry).then(|| Arc::clone(&entry.session));
        self.by_id.with(&id.to_owned(), own)?
    }

    pub(super) fn end(&self, id: &str) {
        if let Some(ended) = self.by_id.remove(&id.to_owned()) {
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
        Arc::new(Sessions::new(&config, ReplicaIds::new(None)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_exists_for_its_caller_until_it_ends_or_is_idle() {
        let (sessions, owner) = (sessions(), caller("a"));
        let (id, session) = sessions.start(&owner).expect("a session");
        assert!(sessions.get(&owner, &id).is_some());
        assert!(sessions.get(&caller("b"), &id).is_none());
        let narrowed = Caller { tools: ToolScope::default().narrowed(["x".to_owned()]), ..caller("a") };
        assert!(sessions.get(&narrowed, &id).is_none(), "at another endpoint, or with another key");
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
    async fn one_too_many_ends_the_least_recently_used_of_those_who_have_most() {
        let (sessions, ann, bob) = (sessions(), caller("ann"), caller("bob"));
        let [(first, kept), (second, gone)] = [0, 1].map(|_| sessions.start(&ann).expect("a session"));
        assert!(sessions.get(&ann, &first).is_some());
        let (third, _) = sessions.start(&ann).expect("a session");
        assert!(gone.ended().is_cancelled() && sessions.get(&ann, &second).is_none());
        assert!(sessions.get(&ann, &first).is_some());

        let (of_bob, _) = sessions.start(&bob).expect("a session");
        let active = kept.active();
        sessions.start(&bob).expect("a session");
        assert!(sessions.get(&bob, &of_bob).is_none(), "ann has not more than one of his");
        let rival = Caller::new("eve", "rival", Vec::new());
        sessions.start(&rival).expect("a session");
        assert!(sessions.get(&ann, &third).is_none(), "the other one of hers serves a request");
        assert!(sessions.get(&ann, &first).is_some());
        drop(active);
    }
}
