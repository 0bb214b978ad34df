//! Requests: from their number to their answer, or to their cancellation.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::connection::{Channel, Connection, SEND_TIMEOUT};
use super::in_flight::{RequestKind, Waiting};
use super::message::{self, Failure};
use super::request_headers::MarkedArguments;
use sekisho_core::call::OnBehalf;
use sekisho_core::peer::ClientPeer;

/// Waits for notifications, in revisions without sessions.
pub(crate) const LISTEN: &str = "subscriptions/listen";

/// The reason that a server receives for a cancellation.
const REASON: &str = "the caller no longer waits for it";

/// A request.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: &'a Map<String, Value>,
    /// Metadata in addition to the connection's.
    pub(crate) meta: Map<String, Value>,
    /// The arguments that headers repeat.
    pub(crate) marked: Option<&'a MarkedArguments>,
    /// The client behind the request.
    pub(crate) peer: Option<&'a Arc<dyn ClientPeer>>,
    /// The call that it is sent for; `None` for a request of the gateway itself.
    pub(crate) on_behalf: Option<OnBehalf>,
}

impl<'a> Outgoing<'a> {
    /// A request of the gateway itself.
    pub(crate) fn of(method: &'a str, params: &'a Map<String, Value>) -> Self {
        Self { method, params, meta: Map::new(), marked: None, peer: None, on_behalf: None }
    }
}

impl Connection {
    /// Sends a request and waits for its answer, without a timeout. Dropping the future cancels the request.
    pub(crate) async fn request(self: &Arc<Self>, mut request: Outgoing<'_>) -> Result<Value, Failure> {
        let id = self.next_id();
        let meta = self.meta(id, &mut request);
        let body = message::request(id, request.method, request.params, meta);
        let (sender, answer) = match self.is_streamable_http() {
            true => (None, None),
            false => Some(oneshot::channel()).unzip(),
        };
        let kind = match request.method {
            LISTEN => RequestKind::Subscription,
            _ if self.info().is_none() => RequestKind::Handshake,
            _ => RequestKind::Call,
        };
        self.in_flight.record(id, Waiting { peer: request.peer.cloned(), answer: sender, kind });
        let mut running = Running { connection: self, id, is_answered: false };
        let outcome = tokio::select! {
            biased;
            outcome = self.exchange(id, body, &request, answer) => outcome,
            () = self.close.cancelled() => Err(self.ending.failure()),
        };
        running.is_answered = true;
        outcome
    }

    /// Sends a request whose answer nobody waits for, if the connection still exists.
    pub(crate) fn ask_later(
        self: &Arc<Self>,
        method: &'static str,
        params: Map<String, Value>,
        meta: Map<String, Value>,
    ) {
        // Without a runtime, nothing can be sent.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let connection = Arc::clone(self);
        let asking = async move {
            let request = Outgoing { meta, ..Outgoing::of(method, &params) };
            if let Ok(Err(failure)) = tokio::time::timeout(SEND_TIMEOUT, connection.request(request)).await {
                tracing::debug!(method, ?failure, "an MCP server refused a request");
            }
        };
        self.cancellations.spawn_on(asking, &runtime);
    }

    fn meta(&self, id: i64, request: &mut Outgoing<'_>) -> Map<String, Value> {
        let mut meta = self.handshake.get().map(|handshake| handshake.client_meta.clone()).unwrap_or_default();
        meta.extend(std::mem::take(&mut request.meta));
        if request.peer.is_some_and(|peer| peer.wants_progress()) {
            meta.insert("progressToken".to_owned(), id.into());
        }
        meta
    }

    async fn exchange(
        &self,
        id: i64,
        body: Vec<u8>,
        request: &Outgoing<'_>,
        answer: Option<oneshot::Receiver<Result<Value, Failure>>>,
    ) -> Result<Value, Failure> {
        let on_behalf = request.on_behalf.clone();
        let written = match &self.channel {
            Channel::Http(http) => return self.exchange_over_http(http, id, body.into(), request).await,
            Channel::Stdio(input) => input.write(body, on_behalf.map(|call| call.sent)).await,
            Channel::Sse(input) => Box::pin(input.write(body, on_behalf)).await,
        };
        written.map_err(Failure::Call)?;
        answer.ok_or(Failure::Lost)?.await.map_err(|_| Failure::Lost)?
    }
}

/// A running request. Dropping it before the answer cancels it: the server receives a cancellation or, over HTTP in
/// revisions without sessions, sees that the connection closed.
struct Running<'a> {
    connection: &'a Arc<Connection>,
    id: i64,
    is_answered: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Self { connection, id, is_answered } = self;
        if *is_answered {
            return connection.in_flight.forget(*id);
        }
        connection.in_flight.give_up(*id);
        // A handshake cannot be cancelled.
        if connection.info().is_none() || (connection.is_streamable_http() && connection.is_modern()) {
            return;
        }
        // Without a runtime, no notification can be sent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let params = json!({"requestId": id, "reason": REASON});
            let body = message::notification("notifications/cancelled", Some(params));
            let sender = Arc::clone(connection);
            connection.cancellations.spawn_on(async move { sender.send(body).await }, &runtime);
        }
    }
}
