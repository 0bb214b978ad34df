//! Sessions of the revisions that have them, each bound to the caller who began it, bounded in number, and
//! ended when they are idle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::server_side_http::{ServerSseMessage, SessionId};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use thiserror::Error;

use super::cancelled::Cancelled;
use super::replay::Events;
use crate::config::McpFaceConfig;

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
    alone: Arc<Alone>,
}

/// What one session has for itself.
#[derive(Debug)]
struct Alone {
    /// rmcp keeps events for all sessions of a manager together. With one each, no event id opens another's stream.
    manager: LocalSessionManager,
    cancelled: Cancelled,
}

/// The sessions as one caller sees them: another's are not there.
#[derive(Debug)]
pub(super) struct OwnSessions {
    all: Arc<Sessions>,
    caller: Arc<str>,
    /// The session that this request belongs to, once it was looked up.
    own: OnceLock<(SessionId, Arc<Alone>)>,
    /// A session was asked for and there was no room.
    full: AtomicBool,
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
    pub(super) fn new(config: &McpFaceConfig) -> Self {
        let mut session = SessionConfig::default();
        session.keep_alive = Some(Duration::from_secs(config.session_idle_seconds));
        Self {
            by_id: Mutex::default(),
            config: session,
            most: config.max_sessions,
            most_of_a_caller: config.max_sessions_per_caller,
        }
    }

    pub(super) fn of(self: &Arc<Self>, caller: Arc<str>) -> OwnSessions {
        OwnSessions { all: Arc::clone(self), caller, own: OnceLock::new(), full: AtomicBool::new(false) }
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, sessions: &HashMap<SessionId, Session>, caller: &str) -> bool {
        let of_caller = sessions.values().filter(|session| *session.owner == *caller).count();
        sessions.len() < self.most && of_caller < self.most_of_a_caller
    }
}

impl OwnSessions {
    /// Whether a session was refused for want of room.
    pub(super) fn were_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether the caller began this session and it has not ended.
    pub(super) fn own(&self, id: &str) -> bool {
        self.get(id).is_ok()
    }

    fn alone(&self, id: &str) -> Result<&Alone, SessionError> {
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

    fn add(&self, id: SessionId, alone: Alone) -> Result<(), SessionError> {
        let mut sessions = self.all.by_id();
        if !self.all.has_room(&sessions, &self.caller) {
            return Err(self.no_room());
        }
        sessions.insert(id, Session { owner: Arc::clone(&self.caller), alone: Arc::new(alone) });
        Ok(())
    }

    fn no_room(&self) -> SessionError {
        self.full.store(true, Ordering::Relaxed);
        SessionError::Full
    }
}

impl SessionManager for OwnSessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        if !self.all.has_room(&self.all.by_id(), &self.caller) {
            return Err(self.no_room());
        }
        let mut manager = LocalSessionManager::default().with_event_store(Arc::new(Events::default()));
        manager.session_config = self.all.config.clone();
        let (id, transport) = manager.create_session().await?;
        // Another may have taken the room meanwhile; the transport's worker then ends when it is dropped.
        self.add(id.clone(), Alone { manager, cancelled: Cancelled::default() })?;
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.get(id)?.initialize_session(id, message).await?)
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
        let Alone { manager, cancelled } = self.alone(id)?;
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let stream = manager.create_stream(id, message).await?;
        // One that comes from now on finds the request where it looks for it.
        if let Some(request) = request.filter(|request| cancelled.take(request)) {
            let again = CancelledNotification::new(CancelledNotificationParam::new(Some(request), None));
            manager.accept_message(id, ClientJsonRpcMessage::notification(again.into())).await?;
        }
        Ok(stream)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        let Alone { manager, cancelled } = self.alone(id)?;
        cancelled.note(&message);
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
