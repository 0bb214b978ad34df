//! The way to a client: a stream of events of its session.

use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc;

use super::event_log::{Event, EventLog};

/// Events that may queue for a slow client; further ones but the last are only in the log.
const MAX_QUEUED: usize = 64;

/// A stream of events of a session. The log keeps them for a client that reconnects.
#[derive(Debug)]
pub(super) struct EventStream {
    log: Arc<EventLog>,
    number: u64,
    /// The connected client.
    receiver: Mutex<Option<mpsc::Sender<Event>>>,
}

impl EventStream {
    pub(super) fn new(log: Arc<EventLog>, number: u64) -> Arc<Self> {
        Arc::new(Self { log, number, receiver: Mutex::default() })
    }

    /// Connects a client: it gets the events from now on. `None` if another is connected.
    pub(super) fn connect(&self) -> Option<impl Stream<Item = Event> + Send + use<>> {
        let mut receiver = self.receiver.lock();
        if receiver.as_ref().is_some_and(|receiver| !receiver.is_closed()) {
            return None;
        }
        // One place is kept for the last event.
        let (sender, events) = mpsc::channel(MAX_QUEUED + 1);
        *receiver = Some(sender);
        Some(stream::unfold(events, async |mut events| Some((events.recv().await?, events))))
    }

    /// Sends the event that gives a client an id to resume after.
    pub(super) fn begin(&self) {
        self.append(None, false);
    }

    /// Ends the stream without a last message.
    pub(super) fn close(&self) {
        self.log.close(self.number);
        *self.receiver.lock() = None;
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &impl Serialize) {
        if let Some(message) = encoded(message) {
            self.append(Some(message), false);
        }
    }

    /// Sends the last message of the request whose stream this is.
    pub(super) fn finish(&self, message: &impl Serialize) {
        if let Some(message) = encoded(message) {
            self.append(Some(message), true);
        }
    }

    /// Never waits: the resources that a call holds must not depend on a client that does not read.
    fn append(&self, message: Option<Arc<str>>, is_last: bool) {
        let event = self.log.append(self.number, message, is_last);
        let mut receiver = self.receiver.lock();
        if let Some(receiver) = receiver.as_ref().filter(|receiver| is_last || receiver.capacity() > 1)
            && receiver.try_send(event).is_err()
        {
            // A client that reconnects gets the event from the log.
            tracing::debug!("a client has disconnected from a stream");
        }
        if is_last {
            *receiver = None;
        }
    }
}

/// The message as JSON. Messages of the protocol have no keys that are not strings, so this cannot fail.
pub(super) fn encoded(message: &impl Serialize) -> Option<Arc<str>> {
    match serde_json::to_string(message) {
        Ok(message) => Some(message.into()),
        Err(error) => {
            tracing::error!(%error, "a message could not be serialized as JSON");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::super::event_log::STANDALONE;
    use super::*;

    #[tokio::test]
    async fn one_client_at_a_time_receives_the_events_of_a_stream() {
        let stream = EventStream::new(Arc::default(), STANDALONE);
        stream.send(&"nobody is connected");
        let mut first = Box::pin(stream.connect().expect("a stream"));
        assert!(stream.connect().is_none(), "another is connected");
        stream.send(&1);
        assert_eq!(first.next().await.and_then(|event| event.message).as_deref(), Some("1"));
        drop(first);
        let mut second = Box::pin(stream.connect().expect("a stream"));
        stream.finish(&2);
        assert_eq!(second.next().await.and_then(|event| event.message).as_deref(), Some("2"));
        assert_eq!(second.next().now_or_never(), Some(None), "it has ended");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_misses_events_but_not_the_last() {
        let stream = EventStream::new(Arc::default(), STANDALONE);
        let events = stream.connect().expect("a stream");
        for _ in 0..2 * MAX_QUEUED {
            stream.send(&"progress");
        }
        stream.finish(&"answer");
        let received: Vec<_> = events.filter_map(async |event| event.message).collect().await;
        assert_eq!(received.len(), MAX_QUEUED + 1);
        assert_eq!(received.last().map(|last| &**last), Some("\"answer\""));
    }
}
