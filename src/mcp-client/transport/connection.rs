//! One connection to one server: it numbers the requests, knows which of them wait for answers, and handles the
//! messages that the server sends by itself. There is one for every transport:
//!
//! - Over streamable HTTP (`http_requests`) the task that makes a request also posts it and reads its answer, which is
//!   JSON or an event stream (`event_source`). No other task is involved, because waking one takes longer than all
//!   checks of a call. Only the standing stream of a session has a task, which ends the session too.
//! - Over standard input and output (`stdio`) and over HTTP with SSE (`http_sse`) all answers come in one stream. A task
//!   reads it and passes each answer to the task that waits for it.
//!
//! [`Connection::serve`] reads all streams. Its other methods are in `handshake`, which begins a connection, in
//! `request`, and for requests over HTTP in `http_requests`. The types of messages are rmcp's.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{ErrorData, JsonRpcRequest, RequestId, ServerNotification, ServerPeerInfo, ServerRequest};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::authorized_http::AuthorizedHttp;
use super::ending::Ending;
use super::http::HttpChannel;
use super::http_sse::{self, SseInput};
use super::in_flight::InFlight;
use super::inbound::{Inbound, PendingAnswers, Source};
use super::message::{self, Failure, Message};
use super::stdio::{self, Started, StdioInput};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::peer::ClientPeer;

/// Timeout to send a server a notification or a client's answer.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// See the module's description. Closed by `close`.
pub(crate) struct Connection {
    pub(super) channel: Channel,
    inbound: Arc<dyn Inbound>,
    pub(super) in_flight: InFlight,
    next_id: AtomicI64,
    /// Cancellations of requests and tasks that are being sent.
    pub(super) cancellations: TaskTracker,
    /// The parameters of `initialize`, also for a session that replaces another.
    pub(super) introduction: OnceLock<Map<String, Value>>,
    pub(super) handshake: OnceLock<HandshakeResult>,
    /// The server has said that its tools are others, and they were not listed since.
    pub(crate) has_other_tools: AtomicBool,
    /// Why it ended by itself.
    pub(crate) ending: Ending,
    /// Cancelled to close it, and when it has ended by itself.
    pub(crate) close: CancellationToken,
    /// Cancelled when its session or process has ended too.
    pub(crate) ended: CancellationToken,
}

/// How requests and notifications are sent.
pub(super) enum Channel {
    Http(HttpChannel),
    Stdio(StdioInput),
    Sse(SseInput),
}

/// The result of the handshake.
pub(super) struct HandshakeResult {
    info: Arc<ServerPeerInfo>,
    /// The metadata about the gateway in each request, in revisions without sessions.
    pub(super) client_meta: Map<String, Value>,
}

/// The request that a stream belongs to.
#[derive(Clone, Copy)]
pub(super) struct Answering<'a> {
    pub(super) id: i64,
    pub(super) peer: Option<&'a Arc<dyn ClientPeer>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("info", &self.info()).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn http(access: Arc<AuthorizedHttp>, inbound: Arc<dyn Inbound>) -> Arc<Self> {
        let connection = Self::new(Channel::Http(HttpChannel::new(access)), inbound, Lifetime::default());
        tokio::spawn(Arc::clone(&connection).keep_session());
        connection
    }

    /// `max`: bytes of one message.
    pub(crate) fn stdio(started: Started, max: usize, inbound: Arc<dyn Inbound>) -> Arc<Self> {
        let lifetime = Lifetime::default();
        let (input, mut output) = stdio::split(started, max, &lifetime.ending, &lifetime.close);
        let connection = Self::new(Channel::Stdio(input), inbound, lifetime);
        let task = Arc::clone(&connection);
        tokio::spawn(async move {
            task.read_until_closed(&mut output).await;
            task.finish_cancellations().await;
            if let Channel::Stdio(input) = &task.channel {
                input.close();
            }
            output.end().await;
            task.ended.cancel();
        });
        connection
    }

    /// Errors: as [`http_sse::open`].
    pub(crate) async fn sse(access: Arc<AuthorizedHttp>, inbound: Arc<dyn Inbound>) -> Result<Arc<Self>, CallError> {
        let lifetime = Lifetime::default();
        let (input, mut events) = http_sse::open(access, lifetime.ending.clone()).await?;
        let connection = Self::new(Channel::Sse(input), inbound, lifetime);
        let task = Arc::clone(&connection);
        tokio::spawn(async move {
            task.read_until_closed(&mut events).await;
            task.finish_cancellations().await;
            task.ended.cancel();
        });
        Ok(connection)
    }

    fn new(channel: Channel, inbound: Arc<dyn Inbound>, lifetime: Lifetime) -> Arc<Self> {
        let Lifetime { ending, close } = lifetime;
        Arc::new(Self {
            channel,
            inbound,
            in_flight: InFlight::default(),
            next_id: AtomicI64::new(0),
            cancellations: TaskTracker::new(),
            introduction: OnceLock::new(),
            handshake: OnceLock::new(),
            has_other_tools: AtomicBool::new(false),
            ending,
            close,
            ended: CancellationToken::new(),
        })
    }

    /// Waits until messages can arrive that belong to no request.
    pub(crate) async fn heard(&self) {
        if let Channel::Http(http) = &self.channel {
            http.heard().await;
        }
    }

    /// `None` before the handshake.
    pub(crate) fn info(&self) -> Option<&Arc<ServerPeerInfo>> {
        self.handshake.get().map(|handshake| &handshake.info)
    }

    /// `client_meta` is added to the metadata of each request.
    pub(super) fn agree(&self, info: ServerPeerInfo, client_meta: Map<String, Value>) {
        // A session that replaces another does not change the agreement.
        let _ = self.handshake.set(HandshakeResult { info: Arc::new(info), client_meta });
    }

    pub(super) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_streamable_http(&self) -> bool {
        matches!(self.channel, Channel::Http(_))
    }

    /// Whether the server speaks a revision without sessions.
    pub(super) fn is_modern(&self) -> bool {
        self.info().is_some_and(|info| !info.protocol_version.has_initialize())
    }

    /// Handles the messages of a stream until it has the answer to its request, or until it ends.
    /// Errors: [`Failure`], among them why the stream ended.
    pub(super) async fn serve(
        &self,
        source: &mut impl Source,
        request: Option<Answering<'_>>,
    ) -> Result<Value, Failure> {
        let mut pending = PendingAnswers::new();
        loop {
            let message = {
                let mut next = std::pin::pin!(source.next());
                loop {
                    tokio::select! {
                        message = &mut next, if pending.has_room() => break message?,
                        () = pending.progress() => {}
                    }
                }
            };
            match message {
                Message::Answer(answer) => match request {
                    Some(request) if answer.is_to(request.id) => return answer.outcome,
                    _ => self.in_flight.settle(answer),
                },
                Message::Notification(ServerNotification::CancelledNotification(cancelled)) => {
                    cancelled.params.request_id.iter().for_each(|id| pending.withdraw(id));
                }
                Message::Notification(notification) => self.notified(notification, request),
                Message::Request(question) => {
                    let (id, answer) = (question.id.clone(), self.answer(question, request).boxed());
                    if let Err(id) = pending.push(id, answer) {
                        let refused = ErrorData::internal_error("too many requests wait for their answers", None);
                        self.send(message::reply(&id, Err(refused))).await;
                    }
                }
            }
        }
    }

    fn notified(&self, notification: ServerNotification, request: Option<Answering<'_>>) {
        if let ServerNotification::ToolListChangedNotification(_) = &notification {
            self.has_other_tools.store(true, Ordering::Relaxed);
        }
        let peer = match (request, &notification) {
            (Some(request), _) => request.peer.cloned(),
            (None, ServerNotification::ProgressNotification(progress)) => {
                self.in_flight.by_token(&progress.params.progress_token)
            }
            (None, ServerNotification::LoggingMessageNotification(_) | ServerNotification::CustomNotification(_)) => {
                self.inbound.client(&self.in_flight)
            }
            _ => None,
        };
        self.inbound.notification(notification, peer.as_deref());
    }

    /// Answers a request of the server; gives the request's id.
    fn answer(
        &self,
        received: JsonRpcRequest<ServerRequest>,
        request: Option<Answering<'_>>,
    ) -> impl Future<Output = RequestId> + Send + use<'_> {
        let JsonRpcRequest { id, request: received, .. } = received;
        let peer = match request {
            Some(request) => request.peer.cloned(),
            None => self.inbound.client(&self.in_flight),
        };
        // Since 2026-07-28 a server may ask only while it works on a request (SEP-2260).
        let is_unrelated = request.is_none() && self.is_modern() && self.in_flight.is_empty();
        async move {
            let answer = match &received {
                ServerRequest::PingRequest(_) => Ok(json!({})),
                _ if is_unrelated => {
                    Err(ErrorData::invalid_params("the request belongs to no request of the client", None))
                }
                question => self.inbound.answer(question, peer).await,
            };
            self.send(message::reply(&id, answer)).await;
            id
        }
    }

    /// Sends a notification or an answer. A failure is only logged.
    pub(super) async fn send(&self, body: Vec<u8>) {
        let sending = async {
            match &self.channel {
                Channel::Stdio(input) => input.write(body, None).await,
                Channel::Sse(input) => timely(input.write(body, None)).await,
                Channel::Http(http) => {
                    let headers = http.heading().headers.clone();
                    let answer = timely(http.post(headers, body.into(), None)).await?;
                    if !answer.status.is_success() {
                        tracing::debug!(status = %answer.status, "an MCP server refused a notification");
                    }
                    Ok(())
                }
            }
        };
        if let Err(error) = sending.await {
            tracing::debug!(%error, "a notification to an MCP server could not be sent");
        }
    }

    /// Waits until the server knows which requests are cancelled: afterwards the connection ends.
    pub(super) async fn finish_cancellations(&self) {
        self.cancellations.close();
        let _ = tokio::time::timeout(SEND_TIMEOUT, self.cancellations.wait()).await;
    }

    async fn read_until_closed(&self, source: &mut impl Source) {
        tokio::select! {
            biased;
            _ended = self.serve(source, None) => {}
            () = self.close.cancelled() => {}
        }
        self.close.cancel();
    }
}

async fn timely<T>(sending: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    let timeout = |_| Err(CallError::new(ErrorCode::Timeout, "the MCP server does not take the message in time"));
    tokio::time::timeout(SEND_TIMEOUT, sending).await.unwrap_or_else(timeout)
}

/// The state that a connection and the two ends of its stream share.
#[derive(Default)]
struct Lifetime {
    ending: Ending,
    close: CancellationToken,
}
