//! The client of a session outside its requests: messages and questions of a server behind the gateway that belong to
//! no call are sent on the session's standalone stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::service::Peer;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::client::is_answered_by;
use super::running_request::ask_all;
use super::sessions::SessionState;
use crate::core::call::OpenTime;
use crate::core::peer::{
    ANSWER_TIMEOUT, Answers, ClientPeer, ClientSession, LogLevel, LogMessage, Progress, Questions, Unanswered,
};

/// Log messages that may queue for a slow client; further ones are dropped.
const MAX_PENDING_LOGS: usize = 64;

/// The part of [`SessionState`] that sends to the client.
#[derive(Debug)]
pub(super) struct SessionClient {
    id: u64,
    ended: CancellationToken,
    /// Set when the client is ready.
    peer: OnceLock<Peer<RoleServer>>,
    asking: OpenTime,
    logs: mpsc::Sender<LogMessage>,
    /// Taken by the task that forwards them.
    pending_logs: Mutex<Option<mpsc::Receiver<LogMessage>>>,
}

impl Default for SessionClient {
    fn default() -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let (logs, pending_logs) = mpsc::channel(MAX_PENDING_LOGS);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            ended: CancellationToken::new(),
            peer: OnceLock::new(),
            asking: OpenTime::default(),
            logs,
            pending_logs: Mutex::new(Some(pending_logs)),
        }
    }
}

impl SessionClient {
    /// Sends to the client through `peer` from now on. Returns the log messages to forward; `None` if they were taken
    /// before.
    pub(super) fn connect(&self, peer: &Peer<RoleServer>) -> Option<mpsc::Receiver<LogMessage>> {
        _ = self.peer.set(peer.clone());
        self.pending_logs.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientSession for SessionState {
    fn id(&self) -> u64 {
        self.client.id
    }

    fn is_initialized(&self) -> bool {
        self.capabilities.get().is_some()
    }

    fn ended(&self) -> &CancellationToken {
        &self.client.ended
    }
}

impl ClientPeer for SessionState {
    fn capabilities(&self) -> &Value {
        self.capabilities.get().unwrap_or(&Value::Null)
    }

    /// Progress belongs to a call.
    fn wants_progress(&self) -> bool {
        false
    }

    fn log_level(&self) -> Option<LogLevel> {
        Some(Self::log_level(self))
    }

    fn time_asking(&self) -> Duration {
        self.client.asking.total()
    }

    fn progress(&self, _progress: Progress) {}

    fn log(&self, message: LogMessage) {
        if message.level >= Self::log_level(self) {
            // A client that is too slow misses some of them.
            _ = self.client.logs.try_send(message);
        }
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
        let asking = async move {
            if questions.values().any(|question| !is_answered_by(ClientPeer::capabilities(self), question)) {
                return Err(Unanswered::Unsupported);
            }
            let peer = self.client.peer.get().ok_or(Unanswered::Gone)?;
            let _open = self.client.asking.open();
            tokio::select! {
                answers = tokio::time::timeout(ANSWER_TIMEOUT, ask_all(peer, questions)) => {
                    answers.unwrap_or(Err(Unanswered::TimedOut))
                }
                () = self.client.ended.cancelled() => Err(Unanswered::Gone),
            }
        };
        asking.boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::peer::{Question, QuestionMethod};

    #[tokio::test]
    async fn a_session_has_its_own_log_level_and_asks_only_supported_questions() {
        let (quiet, other) = (SessionState::new(Duration::MAX), SessionState::new(Duration::MAX));
        assert_ne!(quiet.id(), other.id());
        quiet.set_log_level(LogLevel::Error);
        for session in [&quiet, &other] {
            session.log(LogMessage { level: LogLevel::Warning, logger: None, data: json!("text") });
        }
        let received = |session: &SessionState| {
            let mut logs = session.client.pending_logs.lock().unwrap().take().unwrap();
            logs.try_recv().is_ok()
        };
        assert_eq!((received(&quiet), received(&other)), (false, true));

        let roots = || Questions::from([("k".into(), Question { method: QuestionMethod::Roots, params: json!({}) })]);
        assert!(!quiet.is_initialized());
        assert_eq!(quiet.ask(roots()).await, Err(Unanswered::Unsupported));
        quiet.introduced(&serde_json::from_value(json!({"roots": {}})).unwrap());
        assert!(quiet.is_initialized());
        assert_eq!(quiet.ask(roots()).await, Err(Unanswered::Gone), "it is not ready");
    }
}
