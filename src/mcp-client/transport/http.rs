//! Streamable HTTP: the common state of the requests of one connection, and how answers are classified.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rmcp::model::{ErrorData, ProtocolVersion, ServerJsonRpcMessage};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::authorized_http::AuthorizedHttp;
use super::event_stream::EventStream;
use sekisho_core::call::OnBehalf;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::{OutboundStream, check_status};

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

pub(crate) const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How long the first request of a session waits for the standing stream. Some servers answer that request only with
/// their first message.
const STANDING_TIMEOUT: Duration = Duration::from_millis(250);

/// One connection's way to its server.
#[derive(Debug)]
pub(crate) struct HttpChannel {
    pub(crate) access: Arc<AuthorizedHttp>,
    heading: ArcSwap<Heading>,
    /// A session has begun.
    pub(super) begun: Notify,
    /// Cancelled once the server has answered the request for the standing stream of the first session.
    pub(super) is_heard: CancellationToken,
    /// Held while a session is replaced that the server no longer knows.
    pub(super) replacing: Mutex<()>,
}

/// The headers of every message since the handshake.
#[derive(Debug, Clone)]
pub(crate) struct Heading {
    pub(crate) headers: HeaderMap,
    pub(crate) has_session: bool,
    /// Whether headers repeat parts of a request.
    pub(crate) is_repetitive: bool,
}

/// Why a server did not take a message.
pub(crate) enum Refusal {
    /// A JSON-RPC error.
    JsonRpc(ErrorData),
    /// The status of its answer.
    Status(CallError),
}

impl Refusal {
    /// Whether a refusal with 400 says that the server does not know the id of the session: many servers answer so, where
    /// the protocol says 404. No code says it, and the request is sent again: so the words of the SDKs are required. A tool
    /// may speak of another session, after it had an effect.
    pub(super) fn is_about_session(&self) -> bool {
        const WORDS: [&str; 5] =
            ["session id", "session-id", "session not found", "unknown session", "invalid session"];
        let message = match self {
            Self::JsonRpc(error) => &*error.message,
            Self::Status(error) => error.message(),
        };
        let message = message.to_ascii_lowercase();
        WORDS.iter().any(|words| message.contains(words))
    }
}

impl Heading {
    /// Before a handshake.
    pub(crate) fn first() -> Self {
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        let json = HeaderValue::from_static(JSON);
        let headers = [(header::ACCEPT, accept), (header::CONTENT_TYPE, json)].into_iter().collect();
        Self { headers, has_session: false, is_repetitive: false }
    }

    pub(crate) fn of(session: Option<HeaderValue>, revision: &ProtocolVersion) -> Self {
        let mut heading = Self::first();
        heading.headers.extend(HeaderValue::from_str(revision.as_str()).map(|value| (REVISION, value)));
        heading.has_session = session.is_some();
        heading.is_repetitive = *revision >= ProtocolVersion::STANDARD_HEADERS;
        if let Some(mut session) = session {
            // The session id is a credential, so it is redacted in logs.
            session.set_sensitive(true);
            heading.headers.insert(SESSION, session);
        }
        heading
    }
}

impl HttpChannel {
    pub(crate) fn new(access: Arc<AuthorizedHttp>) -> Self {
        Self {
            access,
            heading: ArcSwap::from_pointee(Heading::first()),
            begun: Notify::new(),
            is_heard: CancellationToken::new(),
            replacing: Mutex::default(),
        }
    }

    pub(crate) fn heading(&self) -> Arc<Heading> {
        self.heading.load_full()
    }

    pub(crate) fn agree(&self, heading: Heading) {
        let has_session = heading.has_session;
        self.heading.store(Arc::new(heading));
        if has_session {
            self.begun.notify_one();
        }
    }

    /// Waits until messages that belong to no request can arrive, at most [`STANDING_TIMEOUT`]: some servers send
    /// questions of a call there, and lose them if nobody listens yet.
    pub(crate) async fn heard(&self) {
        if self.heading().has_session {
            let _too_late = tokio::time::timeout(STANDING_TIMEOUT, self.is_heard.cancelled()).await;
        }
    }

    /// Errors: as [`AuthorizedHttp::open_for`].
    pub(crate) async fn post(
        &self,
        headers: HeaderMap,
        body: Bytes,
        on_behalf: Option<OnBehalf>,
    ) -> Result<OutboundStream, CallError> {
        self.access.open_for(Method::POST, &self.access.url, headers, Some(body), on_behalf).await
    }

    /// Opens the stream of messages that belong to no request, or continues a stream after an event. `None` if the
    /// server has no such stream; servers say so with any status.
    /// Errors: as [`AuthorizedHttp::open`], and for a status that may not be final.
    pub(super) async fn open_stream(&self, last_event: Option<&str>) -> Result<Option<EventStream>, CallError> {
        let mut headers = self.heading().headers.clone();
        headers.remove(header::CONTENT_TYPE);
        headers.insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Some(id) = last_event {
            let Ok(id) = HeaderValue::try_from(id) else { return Ok(None) };
            headers.insert(LAST_EVENT, id);
        }
        let answer = self.access.open(Method::GET, &self.access.url, headers, None).await?;
        let status = answer.status;
        if status.is_success() {
            return Ok(is(&answer.headers, EVENT_STREAM).then(|| self.events(answer)));
        }
        if status.is_client_error() && status != StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        Err(match self.refusal(answer).await {
            Refusal::JsonRpc(error) => CallError::new(ErrorCode::UpstreamError, error.message),
            Refusal::Status(error) => error,
        })
    }

    /// Ends the session, if there is one.
    pub(crate) async fn end_session(&self) {
        let heading = self.heading();
        if !heading.has_session {
            return;
        }
        let mut headers = heading.headers.clone();
        headers.remove(header::CONTENT_TYPE);
        if let Err(error) = self.access.open(Method::DELETE, &self.access.url, headers, None).await {
            tracing::debug!(%error, "a session with an MCP server could not be ended");
        }
    }

    /// The content of an answer without success.
    pub(crate) async fn refusal(&self, answer: OutboundStream) -> Refusal {
        let response = match self.access.whole(answer, &self.access.url).await {
            Ok(response) => response,
            Err(error) => return Refusal::Status(error),
        };
        let reported = serde_json::from_slice(&response.body);
        match (reported, check_status(&response)) {
            (Ok(ServerJsonRpcMessage::Error(error)), _) if !is_forbidden(response.status) => {
                Refusal::JsonRpc(error.error)
            }
            (_, Err(error)) => Refusal::Status(error),
            (_, Ok(())) => Refusal::Status(CallError::new(ErrorCode::UpstreamError, "a status that says nothing")),
        }
    }

    pub(super) fn events(&self, answer: OutboundStream) -> EventStream {
        EventStream::new(answer.pieces(), self.access.max_message_bytes)
    }
}

/// The session that an answer begins.
pub(crate) fn session_of(answer: &OutboundStream) -> Option<HeaderValue> {
    answer.headers.get(SESSION).filter(|id| id.to_str().is_ok()).cloned()
}

pub(crate) fn is(headers: &HeaderMap, media_type: &str) -> bool {
    let found = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    found.split(';').next().is_some_and(|found| found.trim().eq_ignore_ascii_case(media_type))
}

pub(super) fn is_forbidden(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_session_is_not_shown() {
        let id = HeaderValue::from_static("secret-id");
        let heading = Heading::of(Some(id), &ProtocolVersion::LATEST_WITH_INITIALIZE);
        assert_eq!(heading.headers[SESSION], "secret-id");
        assert!(!format!("{heading:?}").contains("secret-id"), "{heading:?}");
    }

    #[test]
    fn only_a_refusal_of_the_id_of_a_session_is_sent_again() {
        for (message, is_about_session) in [
            ("Bad Request: No valid session ID provided", true),
            ("Bad Request: Mcp-Session-Id header is required", true),
            ("Session not found", true),
            ("Invalid session", true),
            ("the session of the customer has ended after the payment", false),
            ("Bad Request", false),
        ] {
            let refusal = Refusal::Status(CallError::new(ErrorCode::ToolError, message));
            assert_eq!(refusal.is_about_session(), is_about_session, "{message}");
        }
    }
}
