//! Sessions of the revisions that have them, each bound to the caller who began it, bounded in number, and
//! ended when they are idle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::server_side_http::{ServerSseMessage, SessionId};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use thiserror::Error;

use crate::config::McpFaceConfig;

/// All sessions of the process.
#[derive(Debug)]
pub(super) struct Sessions {
    local: LocalSessionManager,
    /// Session → key of its caller.
    owners: Mutex<HashMap<SessionId, Arc<str>>>,
    most: usize,
    most_of_a_caller: usize,
}

/// The sessions as one caller sees them: another's are not there.
#[derive(Debug)]
pub(super) struct OwnSessions {
    all: Arc<Sessions>,
    caller: Arc<str>,
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
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(Duration::from_secs(config.session_idle_seconds));
        Self {
            local,
            owners: Mutex::default(),
            most: config.max_sessions,
            most_of_a_caller: config.max_sessions_per_caller,
        }
    }

    pub(super) fn of(self: &Arc<Self>, caller: Arc<str>) -> OwnSessions {
        OwnSessions { all: Arc::clone(self), caller, full: AtomicBool::new(false) }
    }

    fn has_room(&self, caller: &str) -> bool {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.len() < self.most && owners.values().filter(|owner| ***owner == *caller).count() < self.most_of_a_caller
    }
}

impl OwnSessions {
    /// Whether a session was refused for want of room.
    pub(super) fn were_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether the caller began this session and it has not ended.
    pub(super) fn own(&self, id: &str) -> bool {
        let owners = self.all.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(id).is_some_and(|owner| *owner == self.caller)
    }

    fn check(&self, id: &SessionId) -> Result<(), SessionError> {
        if self.own(id) { Ok(()) } else { Err(SessionError::Unknown) }
    }
}

impl SessionManager for OwnSessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        if !self.all.has_room(&self.caller) {
            self.full.store(true, Ordering::Relaxed);
            return Err(SessionError::Full);
        }
        let (id, transport) = self.all.local.create_session().await?;
        let mut owners = self.all.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.insert(id.clone(), Arc::clone(&self.caller));
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        self.check(id)?;
        Ok(self.all.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.own(id) && self.all.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.check(id)?;
        self.all.owners.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        Ok(self.all.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.check(id)?;
        Ok(self.all.local.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        self.check(id)?;
        Ok(self.all.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.check(id)?;
        Ok(self.all.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.check(id)?;
        Ok(self.all.local.resume(id, last_event_id).await?)
    }
}
