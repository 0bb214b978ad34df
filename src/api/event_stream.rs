//! Server-sent events (WHATWG HTML §9.2) that work through proxies: numbered, never silent for long, and not
//! buffered.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;

use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers::single;

/// Interval of keep-alives: load balancers close idle connections (A33).
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The last event of an OpenAI stream (A31).
const DONE: &str = "[DONE]";

/// Makes nginx pass events on as they arrive (A34).
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The header by which a client that comes back names its last event (WHATWG HTML §9.2.4).
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A comment, which clients skip.
pub const COMMENT: &str = ": keep-alive\n\n";

/// An event with a name, as OpenAI's Responses and Anthropic's Messages send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEvent {
    pub name: &'static str,
    pub data: String,
}

impl NamedEvent {
    pub fn new(name: &'static str, data: &impl Serialize) -> Self {
        // Never fails: no event has a map with keys that are not strings.
        Self { name, data: serde_json::to_string(data).unwrap_or_default() }
    }

    fn frame(&self) -> Bytes {
        format!("event: {}\ndata: {}\n\n", self.name, self.data).into()
    }
}

/// Sends each text as a numbered event (A35), `keep_alive` after each [`KEEP_ALIVE`] without one, and `[DONE]` at the
/// end. When the client disconnects, `data` is dropped.
pub fn respond(data: impl Stream<Item = String> + Send + 'static, keep_alive: String) -> Response {
    respond_with(frames(data, keep_alive))
}

/// Sends named events, and `keep_alive` as it is after each [`KEEP_ALIVE`] without one.
pub fn respond_named(events: impl Stream<Item = NamedEvent> + Send + 'static, keep_alive: &'static str) -> Response {
    let frames = events.map(|event| event.frame());
    respond_with(kept_alive(frames, Bytes::from_static(keep_alive.as_bytes())))
}

fn respond_with(frames: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(frames.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

fn frames(data: impl Stream<Item = String> + Send, keep_alive: String) -> impl Stream<Item = Bytes> + Send {
    let texts = kept_alive(data, keep_alive).chain(stream::once(async { DONE.to_owned() }));
    texts.enumerate().map(|(number, text)| frame(number, &text))
}

/// The items, and `keep_alive` after each [`KEEP_ALIVE`] without one.
fn kept_alive<T: Clone + Send>(items: impl Stream<Item = T> + Send, keep_alive: T) -> impl Stream<Item = T> + Send {
    async_stream::stream! {
        let mut items = std::pin::pin!(items);
        loop {
            match tokio::time::timeout(KEEP_ALIVE, items.next()).await {
                Ok(Some(item)) => yield item,
                Ok(None) => break,
                Err(_) => yield keep_alive.clone(),
            }
        }
    }
}

/// An event of a run, as it is sent.
#[derive(Debug)]
pub struct LoggedFrame {
    pub id: Option<u64>,
    pub name: &'static str,
    /// JSON on one line.
    pub data: String,
}

/// Sends the events of a run with their own ids, so that a client can come back with `Last-Event-ID`, and a comment after each
/// [`KEEP_ALIVE`] without one. When the client disconnects, `events` is dropped.
pub fn respond_logged(events: impl Stream<Item = LoggedFrame> + Send + 'static) -> Response {
    let frames = events.map(|LoggedFrame { id, name, data }| {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        Bytes::from(format!("{id}event: {name}\ndata: {data}\n\n"))
    });
    respond_with(kept_alive(frames, Bytes::from_static(COMMENT.as_bytes())))
}

/// The event after which a client goes on.
/// Errors: `invalid_request`: no number.
pub fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, CallError> {
    let invalid = || CallError::new(ErrorCode::InvalidRequest, "`Last-Event-ID` is not the id of an event, a number");
    let text = single(headers, &LAST_EVENT_ID).map_err(|_| invalid())?;
    text.filter(|text| !text.is_empty()).map(str::parse).transpose().map_err(|_| invalid())
}

/// `data` is JSON on one line, or `[DONE]`: it has no line breaks to escape.
fn frame(number: usize, data: &str) -> Bytes {
    format!("id: {number}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(frames: impl Stream<Item = Bytes>) -> String {
        let frames: Vec<_> = frames.collect().await;
        frames.iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect()
    }

    #[tokio::test]
    async fn events_are_numbered_and_end_with_done() {
        let sent = text(frames(stream::iter(["{}".to_owned(), "[]".to_owned()]), "alive".into())).await;
        assert_eq!(sent, "id: 0\ndata: {}\n\nid: 1\ndata: []\n\nid: 2\ndata: [DONE]\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_kept_alive_every_five_seconds() {
        let slow = stream::once(async {
            tokio::time::sleep(Duration::from_secs(12)).await;
            "late".to_owned()
        });
        let sent = text(frames(slow, "alive".into())).await;
        assert_eq!((sent.matches("data: alive").count(), sent.contains("id: 2\ndata: late")), (2, true), "{sent}");
    }

    #[tokio::test]
    async fn named_events_have_their_name_and_no_number() {
        let events = stream::iter([NamedEvent::new("ping", &serde_json::json!({"type": "ping"}))]);
        let response = respond_named(events, COMMENT);
        let sent = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
        assert_eq!(&sent[..], b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn logged_events_have_their_own_ids_and_names() {
        let slow = stream::once(async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            LoggedFrame { id: Some(9), name: "step", data: "{}".into() }
        });
        let body = respond_logged(slow).into_body();
        let sent = axum::body::to_bytes(body, 1_000).await.unwrap();
        assert_eq!(sent, ": keep-alive\n\nid: 9\nevent: step\ndata: {}\n\n");
        let id = |text: &'static str| {
            last_event_id(&HeaderMap::from_iter([("last-event-id".parse().unwrap(), HeaderValue::from_static(text))]))
        };
        assert_eq!(id("7").unwrap(), Some(7));
        assert!(id("x").is_err() && id("-1").is_err());
        assert_eq!(last_event_id(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn proxies_are_instructed_not_to_buffer() {
        let response = respond(stream::empty(), String::new());
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
    }
}
