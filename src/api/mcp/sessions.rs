//! Sessions of the revisions that have them: bound to the caller who started them, limited in number, and ended when
//! idle.

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
    max_total: usize,
    max_per_caller: usize,
}

#[derive(Debug)]
struct Session {
    /// Key of its caller.
    owner: Arc<str>,
    entry: Arc<SessionEntry>,
}

/// The parts of one session.
#[derive(Debug)]
struct SessionEntry {
    /// rmcp stores the events of all sessions of a manager together. With one manager for each session, an event id
    /// cannot open another session's stream.
    manager: LocalSessionManager,
    state: Arc<SessionState>,
}

/// The state of a session's client.
#[derive(Debug)]
pub(super) struct SessionState {
    /// `ClientCapabilities`, once the client has initialized.
    pub(super) capabilities: OnceLock<Value>,
    /// Messages to the client outside its requests.
    pub(super) client: SessionClient,
    pub(super) cancelled: Cancelled,
    /// The client has sent `notifications/initialized`.
    ready: AtomicBool,
    /// The level set by `logging/setLevel`.
    log_level: Mutex<LogLevel>,
    /// When rmcp last served a request of the session, and how often it must: it ends sessions that it considers
    /// idle.
    last_keepalive: Mutex<Instant>,
    every: Duration,
}

impl SessionState {
    /// `idle` is the session's idle timeout.
    pub(super) fn new(idle: Duration) -> Self {
        Self {
            capabilities: OnceLock::new(),
            client: SessionClient::default(),
            cancelled: Cancelled::default(),
            ready: AtomicBool::new(false),
            // The protocol lets the server choose the level until the client sets one.
            log_level: Mutex::new(LogLevel::Info),
            last_keepalive: Mutex::new(Instant::now()),
            every: idle / 4,
        }
    }

    /// Whether a call may bypass rmcp. One call in each interval may not.
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

/// The sessions of one caller: those of others do not exist here.
#[derive(Debug)]
pub(super) struct CallerSessions {
    all: Arc<Sessions>,
    caller: Arc<str>,
    /// The session of this request, after its lookup.
    own: OnceLock<(SessionId, Arc<SessionEntry>)>,
    /// The caller requested a session, and there are too many.
    full: AtomicBool,
    /// The state of the session that this request may start.
    begun: OnceLock<Arc<SessionState>>,
}

#[derive(Debug, Error)]
pub(super) enum SessionError {
    #[error("there are too many MCP sessions")]
    Full,
    #[error("no session has this id")]
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
            max_total: config.max_sessions,
            max_per_caller: config.max_sessions_per_caller,
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
        sessions.len() < self.max_total && of_caller < self.max_per_caller
    }
}

impl CallerSessions {
    /// Whether a session was refused because there are too many.
    pub(super) fn were_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether the caller started this session and it has not ended.
    pub(super) fn own(&self, id: &str) -> bool {
        self.get(id).is_ok()
    }

    /// The state of the caller's own session.
    pub(super) fn state(&self, id: &str) -> Option<Arc<SessionState>> {
        self.entry(id).ok().map(|entry| Arc::clone(&entry.state))
    }

    /// The state of the session that this request may start.
    pub(super) fn begun(&self) -> Arc<SessionState> {
        let idle = self.all.config.keep_alive.unwrap_or(Duration::MAX);
        Arc::clone(self.begun.get_or_init(|| Arc::new(SessionState::new(idle))))
    }

    fn entry(&self, id: &str) -> Result<&SessionEntry, SessionError> {
        if self.own.get().is_none()
            && let Some((id, session)) = self.all.by_id().get_key_value(id)
            && session.owner == self.caller
        {
            // Nothing else sets the request's session.
            _ = self.own.set((id.clone(), Arc::clone(&session.entry)));
        }
        match self.own.get() {
            Some((own, session)) if **own == *id => Ok(session),
            _ => Err(SessionError::Unknown),
        }
    }

    fn get(&self, id: &str) -> Result<&LocalSessionManager, SessionError> {
        Ok(&self.entry(id)?.manager)
    }

    fn add(&self, id: SessionId, entry: SessionEntry) -> Result<(), SessionError> {
        let mut sessions = self.all.by_id();
        if !self.all.has_capacity(&sessions, &self.caller) {
            return Err(self.too_many_sessions());
        }
        sessions.insert(id, Session { owner: Arc::clone(&self.caller), entry: Arc::new(entry) });
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
        // Another session may have taken the last slot; the transport's worker then ends when it is dropped.
        self.add(id.clone(), SessionEntry { manager, state: self.begun() })?;
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        let SessionEntry { manager, state } = self.entry(id)?;
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
        let SessionEntry { manager, state } = self.entry(id)?;
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let stream = manager.create_stream(id, message).await?;
        // A later cancellation finds the request by its id.
        if let Some(request) = request.filter(|request| state.cancelled.take(request)) {
            let again = CancelledNotification::new(CancelledNotificationParam::new(Some(request), None));
            manager.accept_message(id, ClientJsonRpcMessage::notification(again.into())).await?;
        }
        Ok(stream)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        let SessionEntry { manager, state } = self.entry(id)?;
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
    async fn one_call_in_each_interval_keeps_its_session_alive() {
        let state = SessionState::new(Duration::from_secs(40));
        assert!(!state.allows_fast_path(), "the client is not ready");
        state.is_ready();
        assert!(state.allows_fast_path());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!state.allows_fast_path(), "rmcp must see a request");
        assert!(state.allows_fast_path());
    }
}
