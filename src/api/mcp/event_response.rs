//! Responses that are event streams.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};

use super::event_log::Event;

/// How long a client should wait before it reconnects to a stream.
const RECONNECT_AFTER: Duration = Duration::from_secs(3);

/// A response with a stream of events.
pub(super) fn event_response(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let events = events.map(|Event { id, message }| {
        let event = sse::Event::default();
        let event = match id {
            Some(id) => event.id(id.to_string()),
            None => event,
        };
        Ok::<_, Infallible>(match message {
            Some(message) => event.data(message),
            None => event.retry(RECONNECT_AFTER).data(""),
        })
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
    // nginx would collect the events.
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
