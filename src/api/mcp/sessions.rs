//! Sessions of the revisions that have them, each bound to the caller who began it, bounded in number, and
//! ended when they are idle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientJsonRpcMessage, ClientRequest,
    ServerJsonRpcMessage,
};
use rmcp::transport::common::server_side_http::{ServerSseMessage, SessionId};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::Instant;

use super::cancelled::Cancelled;
use super::event_log::Events;
use super::session_client::SessionClient;
use crate::config::McpServerConfig;
use crate::core::peer::LogLevel;

/// All sessions of the process.
#[derive(Debug)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<SessionId, Session>>,
    config: SessionConfig,
    most: usize,
    most_of_a_caller: usize,
}

#[derive(Debug)]
struct Session {
    /// Key of its caller.
    owner: Arc<str>,
    alone: Arc<SessionEntry>,
}

/// What one session has for itself.
#[derive(Debug)]
struct SessionEntry {
    /// rmcp keeps events for all sessions of a manager together. With one each, no event id opens another's stream.
    manager: LocalSessionManager,
    state: Arc<SessionState>,
}

/// What is known of the client of one session.
#[derive(Debug)]
pub(super) struct SessionState {
    /// `ClientCapabilities`, once it has introduced itself.
    pub(super) capabilities: OnceLock<Value>,
    /// What is put to the client beside its requests.
    pub(super) client: SessionClient,
    pub(super) cancelled: Cancelled,
    /// It has said that it is ready.
    ready: AtomicBool,
    /// What `logging/setLevel` asked for.
    log_level: Mutex<LogLevel>,
    /// When rmcp last heard of the session for certain, and how often it has to: it ends what it does not hear of.
    last_keepalive: Mutex<Instant>,
    every: Duration,
}

impl SessionState {
    /// `idle` is how long the session lives unused.
    pub(super) fn new(idle: Duration) -> Self {
        Self {
            capabilities: OnceLock::new(),
            client: SessionClient::default(),
            cancelled: Cancelled::default(),
            ready: AtomicBool::new(false),
            // The protocol leaves it to the server until the client says.
            log_level: Mutex::new(LogLevel::Info),
            last_keepalive: Mutex::new(Instant::now()),
            every: idle / 4,
        }
    }

    /// Whether a call may go past rmcp. Now and then one may not.
    pub(super) fn allows_fast_path(&self) -> bool {
        if !self.ready.load(Ordering::Relaxed) {
            return false;
        }
        let mut last_keepalive = self.last_keepalive.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last_keepalive.elapsed() >= self.every;
        if is_due {
            *last_keepalive = Instant::now();
        }
        !is_due
    }

    pub(super) fn introduced(&self, capabilities: &ClientCapabilities) {
        _ = self.capabilities.set(json!(capabilities));
    }

    pub(super) fn capabilities(&self) -> Value {
        self.capabilities.get().cloned().unwrap_or_else(|| json!({}))
    }

    pub(super) fn is_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    pub(super) fn log_level(&self) -> LogLevel {
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_log_level(&self, level: LogLevel) {
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = level;
    }
}

/// The sessions as one caller sees them: another's are not there.
#[derive(Debug)]
pub(super) struct CallerSessions {
    all: Arc<Sessions>,
    caller: Arc<str>,
    /// The session that this request belongs to, once it was looked up.
    own: OnceLock<(SessionId, Arc<SessionEntry>)>,
    /// A session was asked for and there was no room.
    full: AtomicBool,
    /// Of the session that this request begins, should it begin one.
    begun: OnceLock<Arc<SessionState>>,
}

#[derive(Debug, Error)]
pub(super) enum SessionError {
    #[error("there are too many MCP sessions")]
    Full,
    #[error("there is no such session")]
    Unknown,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

impl Sessions {
    pub(super) fn new(config: &McpServerConfig) -> Self {
        let mut session = SessionConfig::default();
        session.keep_alive = Some(Duration::from_secs(config.session_idle_seconds));
        Self {
            by_id: Mutex::default(),
            config: session,
            most: config.max_sessions,
            most_of_a_caller: config.max_sessions_per_caller,
        }
    }

    pub(super) fn of(self: &Arc<Self>, caller: Arc<str>) -> CallerSessions {
        CallerSessions {
            all: Arc::clone(self),
            caller,
            own: OnceLock::new(),
            full: AtomicBool::new(false),
            begun: OnceLock::new(),
        }
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_capacity(&self, sessions: &HashMap<SessionId, Session>, caller: &str) -> bool {
        let of_caller = sessions.values().filter(|session| *session.owner == *caller).count();
        sessions.len() < self.most && of_caller < self.most_of_a_caller
    }
}

impl CallerSessions {
    /// Whether a session was refused for want of room.
    pub(super) fn were_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether the caller began this session and it has not ended.
    pub(super) fn own(&self, id: &str) -> bool {
        self.get(id).is_ok()
    }

    /// What is known of the caller's own session.
    pub(super) fn state(&self, id: &str) -> Option<Arc<SessionState>> {
        self.alone(id).ok().map(|alone| Arc::clone(&alone.state))
    }

    /// What will be known of the session that this request begins.
    pub(super) fn begun(&self) -> Arc<SessionState> {
        let idle = self.all.config.keep_alive.unwrap_or(Duration::MAX);
        Arc::clone(self.begun.get_or_init(|| Arc::new(SessionState::new(idle))))
    }

    fn alone(&self, id: &str) -> Result<&SessionEntry, SessionError> {
        if self.own.get().is_none()
            && let Some((id, session)) = self.all.by_id().get_key_value(id)
            && session.owner == self.caller
        {
            // A request has one id: nobody else sets another.
            _ = self.own.set((id.clone(), Arc::clone(&session.alone)));
        }
        match self.own.get() {
            Some((own, session)) if **own == *id => Ok(session),
            _ => Err(SessionError::Unknown),
        }
    }

    fn get(&self, id: &str) -> Result<&LocalSessionManager, SessionError> {
        Ok(&self.alone(id)?.manager)
    }

    fn add(&self, id: SessionId, alone: SessionEntry) -> Result<(), SessionError> {
        let mut sessions = self.all.by_id();
        if !self.all.has_capacity(&sessions, &self.caller) {
            return Err(self.too_many_sessions());
        }
        sessions.insert(id, Session { owner: Arc::clone(&self.caller), alone: Arc::new(alone) });
        Ok(())
    }

    fn too_many_sessions(&self) -> SessionError {
        self.full.store(true, Ordering::Relaxed);
        SessionError::Full
    }
}

impl SessionManager for CallerSessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        if !self.all.has_capacity(&self.all.by_id(), &self.caller) {
            return Err(self.too_many_sessions());
        }
        let mut manager = LocalSessionManager::default().with_event_store(Arc::new(Events::default()));
        manager.session_config = self.all.config.clone();
        let (id, transport) = manager.create_session().await?;
        // Another may have taken the room meanwhile; the transport's worker then ends when it is dropped.
        self.add(id.clone(), SessionEntry { manager, state: self.begun() })?;
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        let SessionEntry { manager, state } = self.alone(id)?;
        if let ClientJsonRpcMessage::Request(request) = &message
            && let ClientRequest::InitializeRequest(initialize) = &request.request
        {
            state.introduced(&initialize.params.capabilities);
        }
        Ok(manager.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        match self.get(id) {
            Ok(session) => Ok(session.has_session(id).await?),
            Err(_) => Ok(false),
        }
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        let session = self.get(id)?;
        self.all.by_id().remove(id);
        Ok(session.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let SessionEntry { manager, state } = self.alone(id)?;
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let stream = manager.create_stream(id, message).await?;
        // One that comes from now on finds the request where it looks for it.
        if let Some(request) = request.filter(|request| state.cancelled.take(request)) {
            let again = CancelledNotification::new(CancelledNotificationParam::new(Some(request), None));
            manager.accept_message(id, ClientJsonRpcMessage::notification(again.into())).await?;
        }
        Ok(stream)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        let SessionEntry { manager, state } = self.alone(id)?;
        state.cancelled.record(&message);
        Ok(manager.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.get(id)?.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.get(id)?.resume(id, last_event_id).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn now_and_then_a_call_keeps_its_session_alive() {
        let state = SessionState::new(Duration::from_secs(40));
        assert!(!state.allows_fast_path(), "the client is not ready");
        state.is_ready();
        assert!(state.allows_fast_path());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!state.allows_fast_path(), "rmcp must hear of it");
        assert!(state.allows_fast_path());
    }
}
