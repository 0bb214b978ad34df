//! Handles the notifications and requests of a server: forwards them to the client of the related call.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{ErrorCode, ErrorData, GetMeta, ServerNotification, ServerRequest};
use serde_json::Value;
use tokio::sync::{Notify, broadcast};

use super::session_owner::{OwnerKey, SessionOwner};
use super::task::remove_task_id;
use crate::changes::{Change, ResourceOwner};
use crate::names::Names;
use crate::transport::in_flight::InFlight;
use crate::transport::inbound::Inbound;
use sekisho_core::peer::{
    ClientPeer, ClientSession, ELICITATION_COMPLETE, LogMessage, Progress, Question, Questions, Unanswered,
};
use sekisho_core::share::Share;

/// Maximum concurrent requests of one server that wait for an answer.
const MAX_QUESTIONS: u64 = 32;

/// The key in `_meta` of a request of an older revision under which a client of the newer one is asked. The older
/// protocol has no such keys.
const KEY_META: &str = "sekisho/key";

/// Handles the messages of one connection.
#[derive(Debug)]
pub(crate) struct Handler {
    events: Arc<ServerEvents>,
    /// The owner of the connection.
    owner: Option<OwnerKey>,
    client: Option<Arc<dyn ClientSession>>,
    is_one_caller: bool,
    questions: Arc<Share>,
}

/// The changes that a server has announced.
#[derive(Debug)]
pub(crate) struct ServerEvents {
    pub(crate) lists_changed: Notify,
    pub(crate) names: Names,
    pub(crate) changes: broadcast::Sender<Change>,
}

impl Handler {
    pub(crate) fn new(events: Arc<ServerEvents>, owner: &SessionOwner) -> Arc<Self> {
        Arc::new(Self {
            events,
            owner: owner.key.clone(),
            client: owner.client.clone(),
            is_one_caller: owner.is_one_caller(),
            questions: Share::new(MAX_QUESTIONS),
        })
    }

    async fn ask(&self, request: &ServerRequest, peer: Option<Arc<dyn ClientPeer>>) -> Result<Value, ErrorData> {
        let unknown = || refused(ErrorCode::METHOD_NOT_FOUND, "no such request");
        let question = serde_json::to_value(request).ok().and_then(|json| serde_json::from_value(json).ok());
        let mut question: Question = question.ok_or_else(unknown)?;
        remove_task_id(&mut question.params);
        let peer = peer.ok_or_else(|| {
            let why = "the request cannot be assigned to a client, or the client accepts no requests";
            refused(ErrorCode::INVALID_REQUEST, why)
        })?;
        let _place = self
            .questions
            .try_acquire(peer.owner(), 1)
            .ok_or_else(|| refused(ErrorCode::INTERNAL_ERROR, &Unanswered::TooMany.to_string()))?;
        let key = request.get_meta().get(KEY_META).and_then(Value::as_str).unwrap_or("question");
        match peer.ask(Questions::from([(key.to_owned(), question)])).await {
            Ok(mut answers) => match answers.remove(key) {
                Some(answer) => Ok(answer),
                None => Err(refused(ErrorCode::INTERNAL_ERROR, "the client gave no answer")),
            },
            Err(Unanswered::Refused { code, message }) => Err(ErrorData::new(ErrorCode(code), message, None)),
            Err(Unanswered::Unsupported) => Err(unknown()),
            Err(other) => Err(refused(ErrorCode::INTERNAL_ERROR, &other.to_string())),
        }
    }
}

impl Inbound for Handler {
    fn notification(&self, notification: ServerNotification, peer: Option<&dyn ClientPeer>) {
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
            ServerNotification::CustomNotification(other) if other.method == ELICITATION_COMPLETE => {
                let id = other.params.as_ref().and_then(|params| params.get("elicitationId"));
                if let (Some(peer), Some(id)) = (peer, id.and_then(Value::as_str)) {
                    peer.elicitation_complete(id);
                }
            }
            other => self.events.handle(&other, self.owner.as_ref()),
        }
    }

    fn answer<'a>(
        &'a self,
        request: &'a ServerRequest,
        peer: Option<Arc<dyn ClientPeer>>,
    ) -> BoxFuture<'a, Result<Value, ErrorData>> {
        self.ask(request, peer).boxed()
    }

    /// If the connection belongs to a client's session, it is that client: of its only call, if there is one. Otherwise
    /// the connection may serve several clients of its caller, and it is the client of the only call, unless a call was
    /// given up that the server may still work on. Over a connection of several callers it is nobody.
    fn client(&self, in_flight: &InFlight) -> Option<Arc<dyn ClientPeer>> {
        let client = self.client.as_ref().filter(|client| client.is_initialized());
        if client.is_none() && (!self.is_one_caller || in_flight.has_given_up()) {
            return None;
        }
        in_flight.single().or_else(|| Some(Arc::clone(client?) as Arc<dyn ClientPeer>))
    }
}

fn refused(code: ErrorCode, why: &str) -> ErrorData {
    ErrorData::new(code, why.to_owned(), None)
}

impl ServerEvents {
    /// Changed lists are recorded, not read: a server that sends many such notifications is listed no more often than
    /// any other. `owner` is the owner of the connection.
    fn handle(&self, notification: &ServerNotification, owner: Option<&OwnerKey>) {
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

fn log_message(mut reported: Value) -> Option<LogMessage> {
    Some(LogMessage {
        level: serde_json::from_value(reported.get_mut("level")?.take()).ok()?,
        logger: reported.get("logger").and_then(Value::as_str).map(str::to_owned),
        data: reported.get_mut("data").map(Value::take).unwrap_or_default(),
    })
}
