//! Forwards messages between a client at standard input and output and the `/mcp` of another gateway.
//!
//! Messages keep the form and the ids that their senders gave them. Each request is posted, and its answer is passed on,
//! by a future of its own; everything else is posted in the order in which it came.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, HeaderValue, StatusCode};
use rmcp::model::{ErrorData, RequestId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::io::{AsyncWriteExt, Stdout};
use tokio::sync::Mutex;
use url::Url;

use super::transport::authorized_http::{AuthorizedHttp, Tokens};
use super::transport::event_source::{EventSource, StandingSource};
use super::transport::http::{EVENT_STREAM, Heading, HttpChannel, REVISION, Refusal, is, session_of};
use super::transport::lines::{Line, LineError, Lines};
use super::transport::message::Failure;
use super::transport::request_headers::{self, MarkedArguments};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_outbound::{DomainList, Outbound, OutboundStream, Trust};

/// Maximum size of a forwarded message in either direction, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Timeout to end the session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a request says which revision it is of, since 2026-07-28.
const REVISION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// Why forwarding ended.
#[derive(Debug, Error)]
pub enum BridgeError {
    #[error("{0}")]
    Unreachable(String),
    /// Refused by the gateway, with its message.
    #[error("{0}")]
    Refused(String),
    #[error("standard output cannot be written: {0}")]
    Output(String),
}

/// Forwards messages until the input ends. `headers` contain the credentials. A message of the client with more than
/// `max_bytes` is refused.
/// Errors: [`BridgeError`]: the gateway refused the first message, or the connection to it ended.
pub async fn bridge(outbound: Outbound, url: Url, headers: HeaderMap, max_bytes: usize) -> Result<(), BridgeError> {
    let access = AuthorizedHttp {
        outbound,
        allowed: Arc::new(DomainList::any().clone()),
        url,
        headers,
        tokens: Tokens::None,
        last_token: Arc::default(),
        trust: Trust::Operator,
        max_message_bytes: MAX_MESSAGE_BYTES,
    };
    let bridge = Bridge {
        gateway: HttpChannel::new(Arc::new(access)),
        initialize: Mutex::default(),
        marked: Mutex::default(),
        output: Mutex::new(tokio::io::stdout()),
        has_answered: AtomicBool::new(false),
    };
    let outcome = tokio::select! {
        outcome = Box::pin(bridge.pass_on_requests(max_bytes)) => outcome,
        outcome = Box::pin(bridge.pass_on_standing_streams()) => outcome,
    };
    // Ends the session at the gateway too, but does not wait long for an answer.
    let _ended = tokio::time::timeout(CLOSE_TIMEOUT, bridge.gateway.end_session()).await;
    outcome
}

struct Bridge {
    gateway: HttpChannel,
    /// The client's `initialize`, for a session in place of one that the gateway no longer knows.
    initialize: Mutex<Option<Bytes>>,
    /// The arguments that headers repeat, by tool.
    marked: Mutex<HashMap<String, MarkedArguments>>,
    output: Mutex<Stdout>,
    /// Whether the gateway has answered anything.
    has_answered: AtomicBool,
}

/// The members of a message that matter here.
#[derive(Deserialize)]
struct Envelope {
    id: Option<RequestId>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Value,
}

impl Envelope {
    fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

impl From<CallError> for BridgeError {
    fn from(error: CallError) -> Self {
        match error.blame() == Blame::Network || error.code() == ErrorCode::Timeout {
            true => Self::Unreachable(error.message().to_owned()),
            false => Self::Refused(error.message().to_owned()),
        }
    }
}

impl From<Failure> for BridgeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Call(error) => error.into(),
            Failure::Refused(error) => Self::Refused(error.message.into_owned()),
            Failure::Lost | Failure::Invalid => Self::Unreachable("the gateway gave no valid answer".to_owned()),
        }
    }
}

impl Bridge {
    async fn pass_on_requests(&self, max_bytes: usize) -> Result<(), BridgeError> {
        let mut client = Lines::new(tokio::io::stdin(), max_bytes);
        let mut requests = FuturesUnordered::new();
        let mut handles: HashMap<RequestId, AbortHandle> = HashMap::new();
        loop {
            let line = tokio::select! {
                biased;
                Some(forwarded) = requests.next() => {
                    if let Ok((id, outcome)) = forwarded {
                        handles.remove(&id);
                        let () = outcome?;
                    }
                    continue;
                }
                line = client.next() => line,
            };
            let line = match line {
                Ok(Some(Line::Text(line))) => line,
                Ok(Some(Line::TooLong(message))) => {
                    let problem = format!("the message has more than {max_bytes} bytes");
                    self.refuse(message.requested().cloned(), ErrorData::invalid_request(problem, None)).await?;
                    continue;
                }
                Err(LineError::Endless(max)) => {
                    let problem = format!("a message has more than {max} bytes");
                    return self.refuse(None, ErrorData::invalid_request(problem, None)).await;
                }
                Ok(None) | Err(LineError::Unreadable(_)) => return Ok(()),
            };
            let Ok(message) = serde_json::from_slice::<Envelope>(&line) else {
                if !line.is_empty() {
                    self.refuse(None, ErrorData::parse_error("it is not a message of the protocol", None)).await?;
                }
                continue;
            };
            if message.is("notifications/cancelled") && !self.gateway.heading().has_session {
                // Without a session, the closed connection cancels the request.
                let id = serde_json::from_value(message.params["requestId"].clone()).ok();
                id.and_then(|id| handles.remove(&id)).iter().for_each(AbortHandle::abort);
                continue;
            }
            match &message.id {
                // Nothing may overtake the message that begins the session.
                Some(id) if message.method.is_some() && !message.is("initialize") => {
                    let (handle, registration) = AbortHandle::new_pair();
                    let id = id.clone();
                    handles.insert(id.clone(), handle);
                    let forwarding = async move { (id, self.forward(message, line.into()).await) };
                    requests.push(Abortable::new(forwarding, registration));
                }
                _ => self.forward(message, line.into()).await?,
            }
        }
    }

    /// Posts a message and passes on the answers. A request that gets no answer gets an error. It ends the bridge if the
    /// gateway has never answered.
    async fn forward(&self, message: Envelope, line: Bytes) -> Result<(), BridgeError> {
        let Err(problem) = self.exchange(&message, line).await else { return Ok(()) };
        if message.method.is_some() && message.id.is_some() {
            self.refuse(message.id, ErrorData::internal_error(problem.to_string(), None)).await?;
        }
        match problem {
            BridgeError::Unreachable(_) | BridgeError::Refused(_) if self.has_answered.load(Ordering::Relaxed) => {
                Ok(())
            }
            problem => Err(problem),
        }
    }

    async fn exchange(&self, message: &Envelope, line: Bytes) -> Result<(), BridgeError> {
        let heading = self.gateway.heading();
        let mut answer = self.post(message, line.clone()).await?;
        if answer.status == StatusCode::NOT_FOUND && heading.has_session {
            self.replace_session(&heading).await?;
            answer = self.post(message, line.clone()).await?;
        }
        if message.is("initialize") {
            *self.initialize.lock().await = Some(line);
        }
        self.read(message, answer, true).await
    }

    async fn post(&self, message: &Envelope, line: Bytes) -> Result<OutboundStream, CallError> {
        let mut heading = Heading::clone(&self.gateway.heading());
        let revision =
            message.params["_meta"][REVISION_META].as_str().and_then(|text| HeaderValue::from_str(text).ok());
        if message.is("initialize") {
            heading = Heading::first();
        } else if let (Some(revision), Some(method)) = (revision, &message.method) {
            heading.headers.insert(REVISION, revision);
            let marked = self.marked.lock().await;
            let marked = message.params["name"].as_str().and_then(|name| marked.get(name));
            let no_params = Map::new();
            let params = message.params.as_object().unwrap_or(&no_params);
            request_headers::add(&mut heading.headers, method, params, marked);
        }
        self.gateway.post(heading.headers, line, None).await
    }

    /// Reads the answers to a message up to the one to its request, and passes them on if they are wanted.
    async fn read(&self, message: &Envelope, answer: OutboundStream, is_wanted: bool) -> Result<(), BridgeError> {
        let is_request = message.method.is_some() && message.id.is_some();
        if !answer.status.is_success() {
            return match self.gateway.refusal(answer).await {
                Refusal::JsonRpc(error) if is_request && is_wanted => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    self.refuse(message.id.clone(), error).await
                }
                Refusal::JsonRpc(error) => Err(Failure::Refused(error).into()),
                Refusal::Status(error) => Err(error.into()),
            };
        }
        if !is_request {
            return Ok(());
        }
        let session = session_of(&answer);
        if !is(&answer.headers, EVENT_STREAM) {
            let body = answer.whole().await?;
            return self.passed_on(message, session, &body, is_wanted).await.map(drop);
        }
        let mut events = EventSource::answering(&self.gateway, answer);
        loop {
            let data = events.data().await?;
            if self.passed_on(message, session.clone(), &data, is_wanted).await? {
                events.drain();
                return Ok(());
            }
        }
    }

    /// Passes a message of the gateway on. Whether it is the answer to the request.
    async fn passed_on(
        &self,
        request: &Envelope,
        session: Option<HeaderValue>,
        text: &[u8],
        is_wanted: bool,
    ) -> Result<bool, BridgeError> {
        let reply: Envelope = serde_json::from_slice(text).map_err(|_| Failure::Invalid)?;
        let is_answer = reply.method.is_none();
        if is_answer
            && request.is("initialize")
            && let Some(revision) = reply.result.get("protocolVersion")
        {
            let revision = serde_json::from_value(revision.clone()).map_err(|_| Failure::Invalid)?;
            self.gateway.agree(Heading::of(session, &revision));
        }
        if is_answer && request.is("tools/list") {
            let tools = reply.result["tools"].as_array().into_iter().flatten();
            let marked = tools.filter_map(|tool| {
                Some((tool["name"].as_str()?.to_owned(), MarkedArguments::of(&tool["inputSchema"]).ok()?))
            });
            self.marked.lock().await.extend(marked);
        }
        if is_wanted {
            self.write(text).await?;
            self.has_answered.store(true, Ordering::Relaxed);
        }
        Ok(is_answer)
    }

    /// Begins a session as the client did, unless another message has done so meanwhile.
    async fn replace_session(&self, lost: &Arc<Heading>) -> Result<(), BridgeError> {
        let initialize = self.initialize.lock().await;
        let Some(line) = initialize.clone().filter(|_| Arc::ptr_eq(&self.gateway.heading(), lost)) else {
            return Ok(());
        };
        let message = serde_json::from_slice(&line).map_err(|_| Failure::Invalid)?;
        let answer = self.post(&message, line).await?;
        self.read(&message, answer, false).await?;
        let initialized = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self.gateway.post(self.gateway.heading().headers.clone(), initialized, None).await?;
        Ok(())
    }

    /// Ends only if the output cannot be written.
    async fn pass_on_standing_streams(&self) -> Result<(), BridgeError> {
        let mut standing = StandingSource::new(&self.gateway);
        loop {
            self.write(&standing.data().await).await?;
        }
    }

    /// Sends the client an error for a request that gets no answer.
    async fn refuse(&self, id: Option<RequestId>, error: ErrorData) -> Result<(), BridgeError> {
        self.write(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().as_bytes()).await
    }

    /// Writes a message as one line. JSON has line breaks only between its tokens.
    async fn write(&self, text: &[u8]) -> Result<(), BridgeError> {
        let mut line: Vec<_> = text.iter().filter(|byte| !matches!(byte, b'\n' | b'\r')).copied().collect();
        line.push(b'\n');
        let mut output = self.output.lock().await;
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        written.await.map_err(|error| BridgeError::Output(error.to_string()))
    }
}
