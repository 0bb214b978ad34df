//! Handles the notifications and requests of a server: forwards them to the client of the related call.

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, CustomResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion, RequestMetaObject, ServerNotification, ServerRequest,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, Service};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, broadcast};

use super::session::InFlight;
use super::{Owner, OwnerKey};
use crate::core::peer::{ClientPeer, ClientSession, LogMessage, Progress, Question, Questions, Unanswered};
use crate::sources::mcp::names::Names;
use crate::sources::mcp::{Change, ResourceOwner};

/// Maximum concurrent requests of one server that wait for an answer.
const MAX_QUESTIONS: usize = 32;

/// `_meta` of a question of an older revision: the key it wants to be asked under where the client speaks the newer
/// one. The older protocol has no such keys.
const KEY_META: &str = "sekisho/key";

/// Hears one connection.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) news: Arc<ServerEvents>,
    /// Whose the connection is.
    owner: Option<OwnerKey>,
    client: Option<Arc<dyn ClientSession>>,
    is_one_caller: bool,
    questions: Arc<Semaphore>,
}

/// What a server has announced and the one who tends it should look at.
#[derive(Debug)]
pub(crate) struct ServerEvents {
    pub(crate) lists_changed: Notify,
    pub(crate) names: Names,
    pub(crate) changes: broadcast::Sender<Change>,
}

impl Handler {
    pub(crate) fn new(in_flight: Arc<InFlight>, news: Arc<ServerEvents>, owner: &Owner) -> Self {
        Self {
            in_flight,
            news,
            owner: owner.key.clone(),
            client: owner.client.clone(),
            is_one_caller: owner.is_one_caller(),
            questions: Arc::new(Semaphore::new(MAX_QUESTIONS)),
        }
    }

    fn peer_of(&self, context: &RequestContext<RoleClient>) -> Option<Arc<dyn ClientPeer>> {
        match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => self.in_flight.by_id(id),
            _ => self.unnamed(),
        }
    }

    /// The client that is meant where no call is named: that of the session which the connection belongs to, and of
    /// its calls the only one. A connection without such a session may serve several clients of its caller: there it is
    /// the client of the only call, unless one was given up that the server may still work on. Over a connection of
    /// several callers nobody is meant.
    fn unnamed(&self) -> Option<Arc<dyn ClientPeer>> {
        let client = self.client.as_ref().filter(|client| client.is_initialized());
        if client.is_none() && (!self.is_one_caller || self.in_flight.has_given_up()) {
            return None;
        }
        self.in_flight.single().or_else(|| Some(Arc::clone(client?) as Arc<dyn ClientPeer>))
    }

    /// Has the call's client answer what its server asks, under the key that `meta` names. Dropping the future
    /// withdraws the question.
    ///
    /// # Errors
    /// What the server is told instead.
    pub(crate) async fn answer(
        &self,
        request: &ServerRequest,
        meta: &RequestMetaObject,
        peer: Option<Arc<dyn ClientPeer>>,
    ) -> Result<ClientResult, ErrorData> {
        let unknown = || refused(ErrorCode::METHOD_NOT_FOUND, "no such request");
        let question = serde_json::to_value(request).ok().and_then(|json| serde_json::from_value(json).ok());
        let question: Question = question.ok_or_else(unknown)?;
        let _room = self
            .questions
            .try_acquire()
            .map_err(|_| refused(ErrorCode::INTERNAL_ERROR, &Unanswered::TooMany.to_string()))?;
        let peer = peer.ok_or_else(|| {
            let why = "the request cannot be assigned to a client, or the client accepts no requests";
            refused(ErrorCode::INVALID_REQUEST, why)
        })?;
        let key = meta.get(KEY_META).and_then(Value::as_str).unwrap_or("question");
        match peer.ask(Questions::from([(key.to_owned(), question)])).await {
            Ok(mut answers) => match answers.remove(key) {
                Some(answer) => Ok(ClientResult::CustomResult(CustomResult(answer))),
                None => Err(refused(ErrorCode::INTERNAL_ERROR, "the client gave no answer")),
            },
            Err(Unanswered::Refused { code, message }) => Err(ErrorData::new(ErrorCode(code), message, None)),
            Err(Unanswered::Unsupported) => Err(unknown()),
            Err(other) => Err(refused(ErrorCode::INTERNAL_ERROR, &other.to_string())),
        }
    }

    /// Passes on what a server says: to `peer` what is said of its call, to everybody what is news of the server.
    pub(crate) fn pass_on(&self, notification: ServerNotification, peer: Option<&dyn ClientPeer>) {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                if let Some(peer) = peer {
                    let rmcp::model::ProgressNotificationParam { progress, total, message, .. } = progress.params;
                    peer.progress(Progress { progress, total, message });
                }
            }
            ServerNotification::LoggingMessageNotification(message) => {
                if let Some(peer) = peer
                    && let Some(message) = log_message(serde_json::to_value(message.params).unwrap_or_default())
                {
                    peer.log(message);
                }
            }
            other => self.news.handle(&other, self.owner.as_ref()),
        }
    }

    /// The client behind the call that a message of no call's own stream is about.
    async fn meant_by(&self, notification: &ServerNotification) -> Option<Arc<dyn ClientPeer>> {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                // Whoever sends the call has noted it down by the time this is free.
                drop(self.in_flight.sending.write().await);
                self.in_flight.by_token(&progress.params.progress_token)
            }
            ServerNotification::LoggingMessageNotification(_) => self.unnamed(),
            _ => None,
        }
    }
}

fn refused(code: ErrorCode, why: &str) -> ErrorData {
    ErrorData::new(code, why.to_owned(), None)
}

impl ServerEvents {
    /// Changed lists are noted, not read: a server that floods us with such news is listed no more often than
    /// any other. `owner` is whose connection tells it.
    pub(crate) fn handle(&self, notification: &ServerNotification, owner: Option<&OwnerKey>) {
        match notification {
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_) => self.lists_changed.notify_one(),
            ServerNotification::ResourceUpdatedNotification(update) => {
                // It is not an error if there is no receiver.
                let owner = ResourceOwner(owner.cloned());
                let _ = self.changes.send(Change::Resource { uri: self.names.uri(&update.params.uri), owner });
            }
            _ => {}
        }
    }
}

fn log_message(mut said: Value) -> Option<LogMessage> {
    Some(LogMessage {
        level: serde_json::from_value(said.get_mut("level")?.take()).ok()?,
        logger: said.get("logger").and_then(Value::as_str).map(str::to_owned),
        data: said.get_mut("data").map(Value::take).unwrap_or_default(),
    })
}

impl Service<RoleClient> for Handler {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            request => {
                let peer = self.peer_of(&context);
                tokio::select! {
                    answer = self.answer(&request, &context.meta, peer) => answer,
                    () = context.ct.cancelled() => Err(refused(ErrorCode::INTERNAL_ERROR, "taken back")),
                }
            }
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        let peer = self.meant_by(&notification).await;
        self.pass_on(notification, peer.as_deref());
        Ok(())
    }

    /// A connection serves many clients: what one of them cannot do is refused when it is asked for.
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}});
        let capabilities = serde_json::from_value::<ClientCapabilities>(capabilities).unwrap_or_default();
        ClientConfig::new(capabilities, Implementation::new("sekisho", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
