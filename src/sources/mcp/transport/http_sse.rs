//! HTTP with SSE, the transport of revision 2024-11-05: servers send all messages over one event stream, and receive
//! messages by POST at the URL in the stream's first event.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, Method, header};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Sse, SseStream};
use url::Url;

use super::authorized_http::AuthorizedHttp;
use super::event_bound::bounded;
use super::http::sent_flag;
use super::stdio::Ending;
use crate::core::error::{Blame, CallError, ErrorCode};
use crate::sources::mcp::server::large_numbers;

/// An open stream, and where messages go.
pub(crate) struct EventStream {
    access: Arc<AuthorizedHttp>,
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    endpoint: Url,
    ending: Ending,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EventStream").field("endpoint", &self.endpoint.path()).finish_non_exhaustive()
    }
}

impl EventStream {
    /// # Errors
    /// `upstream_error`: no stream, or one that does not begin with an address of the same origin.
    pub(crate) async fn open(access: Arc<AuthorizedHttp>, ending: Ending) -> Result<Self, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let answer = access.open(Method::GET, &access.url, headers, None).await?;
        if !answer.status.is_success() {
            return Err(no_stream(&format!("it answered {}", answer.status)));
        }
        let pieces = bounded(answer.pieces(), access.max_message_bytes);
        let mut events = SseStream::from_bytes_stream(pieces).boxed();
        let first = events.next().await.and_then(Result::ok).ok_or_else(|| no_stream("it ended at once"))?;
        let endpoint = (first.event.as_deref() == Some("endpoint")).then_some(first.data).flatten();
        let endpoint = endpoint.ok_or_else(|| no_stream("it sends no endpoint"))?;
        let endpoint = access.url.join(endpoint.trim()).map_err(|_| no_stream("its endpoint is not a valid URL"))?;
        // The credentials are sent to this URL, so it must be on the same server.
        if endpoint.origin() != access.url.origin() {
            return Err(no_stream("its endpoint is on another server"));
        }
        Ok(Self { access, events, endpoint, ending })
    }
}

fn no_stream(why: &str) -> CallError {
    let problem = format!("the MCP server opens no event stream: {why}");
    CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Upstream)
}

impl Transport<RoleClient> for EventStream {
    type Error = CallError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (access, endpoint) = (Arc::clone(&self.access), self.endpoint.clone());
        async move {
            let body = serde_json::to_vec(&message).map_err(CallError::internal)?;
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let (body, sent) = (Some(body.into()), sent_flag(&message));
            let answer = access.open_noting(Method::POST, &endpoint, headers, body, sent).await?;
            if answer.status.is_success() {
                return Ok(());
            }
            let problem = format!("the MCP server answered {}", answer.status);
            Err(CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Upstream))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let event = match self.events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    self.ending.set_reason(format!("its event stream broke: {error}"));
                    return None;
                }
                None => {
                    self.ending.set_reason("its event stream ended");
                    return None;
                }
            };
            let data = event.data.unwrap_or_default();
            if let Ok(message) = serde_json::from_slice(&large_numbers::exact(data.as_bytes())) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.events = futures_util::stream::empty().boxed();
        Ok(())
    }
}
