//! Streamable HTTP, for rmcp and for calls on the fast path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::HEADER_LAST_EVENT_ID;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::authorized_http::AuthorizedHttp;
use super::event_bound::bounded;
use crate::core::call::SentFlag;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::outbound::{OutboundStream, check_status};
use crate::sources::mcp::server::large_numbers;

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The client that the protocol's library drives. Clones are of one connection.
#[derive(Debug, Clone)]
pub(crate) struct HttpClient {
    pub(crate) access: Arc<AuthorizedHttp>,
    heading: Arc<ArcSwapOption<HeaderMap>>,
}

/// Why a server did not take a message.
pub(crate) enum Refusal {
    /// In the words of the protocol.
    Said(ErrorData),
    /// By the status of its answer.
    Status(CallError),
}

type Failure = StreamableHttpError<CallError>;
pub(crate) type Events = BoxStream<'static, Result<Sse, SseError>>;

impl StreamableHttpClient for HttpClient {
    type Error = CallError;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut headers: HeaderMap = headers.into_iter().collect();
        headers.extend(of_messages());
        name_session(&mut headers, session.as_deref())?;
        if !is_handshake(&message) {
            self.record_heading(&headers);
        }
        let body = serde_json::to_vec(&message)?;
        let (body, sent) = (Some(body.into()), sent_flag(&message));
        let answer = self.access.open_noting(Method::POST, &self.access.url, headers, body, sent).await;
        let answer = answer.map_err(StreamableHttpError::Client)?;
        self.read(answer, &message, session.is_some()).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let mut headers: HeaderMap = headers.into_iter().collect();
        name_session(&mut headers, Some(&session))?;
        let answer = self.access.open(Method::DELETE, &self.access.url, headers, None).await;
        answer.map(drop).map_err(StreamableHttpError::Client)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failure> {
        let mut headers: HeaderMap = headers.into_iter().collect();
        name_session(&mut headers, session.as_deref())?;
        self.open_stream(headers, last_event_id.as_deref()).await
    }
}

impl HttpClient {
    pub(crate) fn new(access: Arc<AuthorizedHttp>) -> Self {
        Self { access, heading: Arc::default() }
    }

    /// The headers of a message since the handshake: the session is among them, and the revision.
    pub(crate) fn heading(&self, revision: &ProtocolVersion) -> HeaderMap {
        self.heading.load().as_deref().cloned().unwrap_or_else(|| {
            let mut headers = of_messages();
            headers.extend(HeaderValue::from_str(revision.as_str()).map(|value| (REVISION, value)));
            headers
        })
    }

    /// Opens a stream again that has broken after an event.
    ///
    /// # Errors
    /// As [`StreamableHttpClient::get_stream`].
    pub(crate) async fn resume(&self, revision: &ProtocolVersion, last_event: &str) -> Result<Events, Failure> {
        self.open_stream(self.heading(revision), Some(last_event)).await
    }

    async fn open_stream(&self, mut headers: HeaderMap, last_event: Option<&str>) -> Result<Events, Failure> {
        headers.insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Some(id) = last_event {
            let value =
                HeaderValue::try_from(id).map_err(|_| unexpected("an event id that is not valid in a header"))?;
            headers.insert(HEADER_LAST_EVENT_ID, value);
        }
        let answer = self.access.open(Method::GET, &self.access.url, headers, None).await;
        let answer = answer.map_err(StreamableHttpError::Client)?;
        if !answer.status.is_success() {
            // Servers that have no such stream say so in many ways.
            return Err(if answer.status.is_client_error() && answer.status != StatusCode::UNAUTHORIZED {
                StreamableHttpError::ServerDoesNotSupportSse
            } else {
                match self.refusal(answer).await {
                    Refusal::Said(error) => unexpected(error.message),
                    Refusal::Status(error) => StreamableHttpError::Client(error),
                }
            });
        }
        if !is(&answer.headers, EVENT_STREAM) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(self.events(answer))
    }

    fn record_heading(&self, headers: &HeaderMap) {
        let lasting = [header::ACCEPT, header::CONTENT_TYPE, REVISION, SESSION].into_iter();
        let lasting = lasting.filter_map(|name| headers.get(&name).cloned().map(|value| (name, value)));
        self.heading.store(Some(Arc::new(lasting.collect())));
    }

    async fn read(
        &self,
        answer: OutboundStream,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        if matches!(answer.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if answer.status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !answer.status.is_success() {
            return self.read_refusal(answer, message, in_session).await;
        }
        let session = answer.headers.get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if is(&answer.headers, EVENT_STREAM) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(answer), session));
        }
        let is_json = is(&answer.headers, JSON);
        let body = answer.whole().await.map_err(StreamableHttpError::Client)?;
        if !matches!(message, ClientJsonRpcMessage::Request(_)) {
            // Nothing is awaited; some servers answer 200 with something or other.
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !is_json {
            return Err(unexpected("something that is neither JSON nor an event stream"));
        }
        let parsed = serde_json::from_slice(&large_numbers::exact(&body));
        let parsed = parsed.map_err(|_| unexpected("a body that is not a JSON-RPC message"))?;
        Ok(StreamableHttpPostResponse::Json(parsed, session))
    }

    /// A server of an older revision refuses `server/discover` as it likes: that is an answer. A JSON-RPC error
    /// in the body is one too, whatever the status.
    async fn read_refusal(
        &self,
        answer: OutboundStream,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = answer.status;
        let error = match (self.refusal(answer).await, message) {
            (Refusal::Said(error), _) => error,
            (Refusal::Status(_), ClientJsonRpcMessage::Request(request))
                if matches!(request.request, ClientRequest::DiscoverRequest(_))
                    && !in_session
                    && !is_forbidden(status)
                    && status.is_client_error() =>
            {
                ErrorData::invalid_request(format!("the server answered {status}"), None)
            }
            (Refusal::Status(error), _) => return Err(StreamableHttpError::Client(error)),
        };
        let asked = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, asked), None))
    }

    /// What an answer says that is no success.
    pub(crate) async fn refusal(&self, answer: OutboundStream) -> Refusal {
        let response = match self.access.whole(answer, &self.access.url).await {
            Ok(response) => response,
            Err(error) => return Refusal::Status(error),
        };
        let said = serde_json::from_slice(&response.body);
        match (said, check_status(&response)) {
            (Ok(ServerJsonRpcMessage::Error(error)), _) if !is_forbidden(response.status) => Refusal::Said(error.error),
            (_, Err(error)) => Refusal::Status(error),
            (_, Ok(())) => Refusal::Status(CallError::new(ErrorCode::UpstreamError, "a status that says nothing")),
        }
    }

    pub(crate) fn events(&self, answer: OutboundStream) -> Events {
        let events = SseStream::from_bytes_stream(bounded(answer.pieces(), self.access.max_message_bytes));
        events.map(|event| event.map(with_exact_numbers)).boxed()
    }
}

fn with_exact_numbers(mut event: Sse) -> Sse {
    let exact = match event.data.as_deref().map(|data| large_numbers::exact(data.as_bytes())) {
        Some(Cow::Owned(exact)) => String::from_utf8(exact).ok(),
        _ => None,
    };
    event.data = exact.or(event.data);
    event
}

fn name_session(headers: &mut HeaderMap, session: Option<&str>) -> Result<(), Failure> {
    if let Some(session) = session {
        let mut value =
            HeaderValue::try_from(session).map_err(|_| unexpected("a session id that is not valid in a header"))?;
        // The session id is a credential, so it is redacted in logs.
        value.set_sensitive(true);
        headers.insert(SESSION, value);
    }
    Ok(())
}

pub(crate) fn is(headers: &HeaderMap, media_type: &str) -> bool {
    let found = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    found.split(';').next().is_some_and(|found| found.trim().eq_ignore_ascii_case(media_type))
}

/// What is to be set when the message is handed over, where it belongs to a call.
pub(crate) fn sent_flag(message: &ClientJsonRpcMessage) -> Option<SentFlag> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    request.request.extensions().get::<SentFlag>().cloned()
}

fn is_handshake(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_))
}

fn is_forbidden(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// What heads each message.
fn of_messages() -> HeaderMap {
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    [(header::ACCEPT, accept), (header::CONTENT_TYPE, HeaderValue::from_static(JSON))].into_iter().collect()
}

fn unexpected(what: impl Into<Cow<'static, str>>) -> Failure {
    StreamableHttpError::UnexpectedServerResponse(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_session_is_not_shown() {
        let mut headers = HeaderMap::new();
        assert!(name_session(&mut headers, Some("secret-id")).is_ok());
        assert_eq!(headers[SESSION], "secret-id");
        assert!(!format!("{headers:?}").contains("secret-id"), "{headers:?}");
    }
}
