//! Stores the recent events of a session's streams: a client that reconnects sends the id of the last event it
//! received (`Last-Event-ID`), and gets all later events of that stream.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::{Stream, stream};
use rmcp::model::JsonRpcMessage;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::{EventId, EventStore, EventStoreError, EventStream, StreamId};
use thiserror::Error;
use tokio::sync::watch;

use super::catalogue::size;

/// Maximum bytes of stored events of one session, as JSON. The oldest are dropped first; a larger event is not
/// stored.
const MAX_BYTES: usize = 512 * 1024;
const MAX_EVENTS: usize = 1_000;

/// Open streams of one session; each open request has one.
const MAX_STREAMS: usize = 256;

/// Suffix of the name that rmcp gives to the stream without a request, which never ends.
const OF_NO_REQUEST: &str = ":common";

/// The events of one session.
#[derive(Debug, Default)]
pub(super) struct Events {
    log: Arc<Mutex<Log>>,
    /// Notified of new events; closed with the session.
    grown: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Log {
    events: VecDeque<StoredEvent>,
    bytes: usize,
    open: HashMap<StreamId, Open>,
    /// Number of streams so far.
    streams: u64,
}

/// An open stream.
#[derive(Debug)]
struct Open {
    number: u64,
    /// Index of its next event.
    next: u64,
}

#[derive(Debug)]
struct StoredEvent {
    at: Position,
    event: ServerSseMessage,
    bytes: usize,
    is_last: bool,
}

/// The position of an event: its id, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    stream: u64,
    index: u64,
}

#[derive(Debug, Error)]
#[error("the id belongs to no event of the session")]
struct InvalidEventId;

/// What follows an event.
enum Next {
    Event {
        event: ServerSseMessage,
        is_last: bool,
    },
    NotYet,
    /// The stream has ended, or the next event is no longer stored.
    Nothing,
}

impl Events {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with the stream, or with the session.
    fn follow(&self, last: Position) -> impl Stream<Item = ServerSseMessage> + Send + Sync + use<> {
        let begin = (Arc::clone(&self.log), self.grown.subscribe(), Some(last));
        stream::unfold(begin, async |(log, mut grown, last)| {
            let last = last?;
            loop {
                grown.mark_unchanged();
                let next = log.lock().unwrap_or_else(PoisonError::into_inner).after(last);
                match next {
                    Next::Event { event, is_last } => {
                        let last = (!is_last).then_some(last.next());
                        return Some((event, (log, grown, last)));
                    }
                    Next::NotYet => grown.changed().await.ok()?,
                    Next::Nothing => return None,
                }
            }
        })
    }
}

#[async_trait]
impl EventStore for Events {
    async fn store_event(&self, stream_id: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        let at = self.log().add(stream_id, event);
        // There may be no receiver.
        self.grown.send_replace(());
        Ok(at.to_string())
    }

    async fn replay_events_after(&self, last_event_id: &str) -> Result<EventStream, EventStoreError> {
        Ok(Box::pin(self.follow(last_event_id.parse()?)))
    }
}

impl Log {
    fn add(&mut self, stream_id: &str, event: &ServerSseMessage) -> Position {
        let open = match self.open.get_mut(stream_id) {
            Some(open) => open,
            None => {
                self.evict_for_a_stream();
                self.streams += 1;
                self.open.entry(stream_id.to_owned()).or_insert(Open { number: self.streams, next: 0 })
            }
        };
        let at = Position { stream: open.number, index: open.next };
        open.next += 1;
        let is_answer =
            matches!(event.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)));
        let is_last = is_answer && !stream_id.ends_with(OF_NO_REQUEST);
        if is_last {
            self.open.remove(stream_id);
        }
        let bytes = event.message.as_deref().map_or(0, size);
        if bytes <= MAX_BYTES {
            let mut event = event.clone();
            event.event_id = Some(at.to_string());
            self.bytes += bytes;
            self.events.push_back(StoredEvent { at, event, bytes, is_last });
            self.drop_the_oldest();
        }
        at
    }

    fn after(&self, last: Position) -> Next {
        let next = last.next();
        if let Some(kept) = self.events.iter().find(|kept| kept.at == next) {
            return Next::Event { event: kept.event.clone(), is_last: kept.is_last };
        }
        let goes_on = self.open.values().any(|open| open.number == next.stream && open.next == next.index);
        if goes_on { Next::NotYet } else { Next::Nothing }
    }

    fn drop_the_oldest(&mut self) {
        while self.bytes > MAX_BYTES || self.events.len() > MAX_EVENTS {
            let Some(dropped) = self.events.pop_front() else { return };
            self.bytes -= dropped.bytes;
        }
    }

    /// The stream of a cancelled request never ends, so the oldest stream is evicted.
    fn evict_for_a_stream(&mut self) {
        if self.open.len() < MAX_STREAMS {
            return;
        }
        let oldest = self.open.values().map(|open| open.number).min();
        self.open.retain(|_, open| Some(open.number) != oldest);
    }
}

impl Position {
    fn next(self) -> Self {
        Self { index: self.index.saturating_add(1), ..self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.stream, self.index)
    }
}

impl FromStr for Position {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let (stream, index) = text.split_once('-').ok_or(InvalidEventId)?;
        let number = |text: &str| text.parse().map_err(|_not_a_number| InvalidEventId);
        Ok(Self { stream: number(stream)?, index: number(index)? })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use rmcp::model::ServerJsonRpcMessage;
    use serde_json::{Value, json};

    use super::*;

    fn event(message: Value) -> ServerSseMessage {
        let message: ServerJsonRpcMessage = serde_json::from_value(message).expect("a message");
        ServerSseMessage::from_message(message)
    }

    fn log(text: &str) -> ServerSseMessage {
        let params = json!({"level": "info", "data": text});
        event(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
    }

    fn answer() -> ServerSseMessage {
        event(json!({"jsonrpc": "2.0", "id": 1, "result": {}}))
    }

    async fn ids(events: &Events, after: &str) -> Vec<String> {
        let stream = events.replay_events_after(after).await.expect("a stream");
        stream.map(|event| event.event_id.expect("an id")).collect().await
    }

    #[tokio::test]
    async fn missed_events_are_replayed_only_from_their_own_stream() {
        let events = Events::default();
        let first = events.store_event("a", &log("1")).await.expect("an id");
        let other = events.store_event("b", &log("other")).await.expect("an id");
        let second = events.store_event("a", &log("2")).await.expect("an id");
        let last = events.store_event("a", &answer()).await.expect("an id");
        assert_eq!(ids(&events, &first).await, [second, last.clone()]);
        assert!(ids(&events, &last).await.is_empty(), "it had ended");
        events.store_event("b", &answer()).await.expect("an id");
        assert_eq!(ids(&events, &other).await.len(), 1);
    }

    #[tokio::test]
    async fn an_open_stream_is_followed_to_its_end_or_the_sessions() {
        let events = Events::default();
        let first = events.store_event("a", &log("1")).await.expect("an id");
        let mut stream = events.replay_events_after(&first).await.expect("a stream");
        assert!(stream.next().now_or_never().is_none(), "nothing yet");
        events.store_event("a", &log("2")).await.expect("an id");
        assert!(stream.next().await.is_some());
        drop(events);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn stored_events_are_bounded() {
        let events = Events::default();
        let first = events.store_event("a", &log("1")).await.expect("an id");
        events.store_event("a", &log(&"x".repeat(MAX_BYTES))).await.expect("an id");
        assert!(
            ids(&events, &first).await.is_empty(),
            "too large to be stored: the stream ends instead of skipping it"
        );
        for number in 0..2 * MAX_EVENTS {
            events.store_event(&format!("stream {number}"), &log("text")).await.expect("an id");
        }
        let log = events.log();
        assert!(log.events.len() <= MAX_EVENTS && log.open.len() <= MAX_STREAMS);
        assert_eq!(log.bytes, log.events.iter().map(|kept| kept.bytes).sum::<usize>());
    }

    #[tokio::test]
    async fn ids_of_unknown_events_are_refused() {
        for id in ["", "0", "1-", "-1", "1-x", "18446744073709551616-0"] {
            assert!(Events::default().replay_events_after(id).await.is_err(), "{id}");
        }
        assert!(ids(&Events::default(), "18446744073709551615-18446744073709551615").await.is_empty());
    }
}
