//! HTTP with SSE, the transport of revision 2024-11-05: servers send all messages over one event stream, and receive
//! messages by POST at the URL in the stream's first event.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, header};
use url::Url;

use super::authorized_http::AuthorizedHttp;
use super::ending::Ending;
use super::event_stream::EventStream;
use super::http::{EVENT_STREAM, JSON};
use super::inbound::Source;
use super::message::{Failure, Message};
use sekisho_core::call::OnBehalf;
use sekisho_core::error::{Blame, CallError, ErrorCode};

/// Where messages are sent.
pub(super) struct SseInput {
    access: Arc<AuthorizedHttp>,
    endpoint: Url,
}

/// Where messages come from.
pub(super) struct SseOutput {
    events: EventStream,
    ending: Ending,
}

/// Opens the stream.
/// Errors: `upstream_error`: there is no stream, or it does not begin with a URL of the same origin.
pub(super) async fn open(access: Arc<AuthorizedHttp>, ending: Ending) -> Result<(SseInput, SseOutput), CallError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
    let answer = access.open(Method::GET, &access.url, headers, None).await?;
    if !answer.status.is_success() {
        return Err(no_stream(&format!("it answered {}", answer.status)));
    }
    let mut events = EventStream::new(answer.pieces(), access.max_message_bytes);
    let first = events.next().await?.ok_or_else(|| no_stream("it ended at once"))?;
    if first.name != "endpoint" {
        return Err(no_stream("it sends no endpoint"));
    }
    let endpoint = str::from_utf8(&first.data).ok().and_then(|text| access.url.join(text.trim()).ok());
    let endpoint = endpoint.ok_or_else(|| no_stream("its endpoint is not a valid URL"))?;
    // The credentials are sent to this URL, so it must be on the same server.
    if endpoint.origin() != access.url.origin() {
        return Err(no_stream("its endpoint is on another server"));
    }
    Ok((SseInput { access, endpoint }, SseOutput { events, ending }))
}

fn no_stream(why: &str) -> CallError {
    let problem = format!("the MCP server opens no event stream: {why}");
    CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Upstream)
}

impl SseInput {
    /// Errors: as [`AuthorizedHttp::open_for`], and `upstream_error` for an answer without success.
    pub(super) async fn write(&self, body: Vec<u8>, on_behalf: Option<OnBehalf>) -> Result<(), CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        let posted = self.access.open_for(Method::POST, &self.endpoint, headers, Some(body.into()), on_behalf);
        let answer = posted.await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let problem = format!("the MCP server answered {}", answer.status);
        Err(CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Upstream))
    }
}

impl Source for SseOutput {
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            let event = match self.events.next().await {
                Ok(Some(event)) => event,
                Err(error) => {
                    self.ending.set_reason(format!("its event stream broke: {error}"));
                    return Err(Failure::Lost);
                }
                Ok(None) => {
                    self.ending.set_reason("its event stream ended");
                    return Err(Failure::Lost);
                }
            };
            if let Some(message) = Message::of(&event.data) {
                return Ok(message);
            }
        }
    }
}
