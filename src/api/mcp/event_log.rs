//! The recent events of a session's streams: a client that reconnects sends the id of the last event it received
//! (`Last-Event-ID`), and gets all later events of that stream.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;

use sekisho_core::caller::Owner;
use sekisho_core::share::{HeldBytes, Share};

/// Maximum bytes of stored events of one session. The oldest are dropped first; a larger event is not stored.
const MAX_BYTES: usize = 512 * 1024;
const MAX_EVENTS: usize = 1_000;

/// Bytes that a session takes at once of the memory for the events of all sessions.
const UNIT_BYTES: usize = 4 * 1024;

/// Units for the events of all sessions together, whose callers share them fairly: 64 MiB.
const UNITS: u64 = 16_384;

/// Open streams of one session; each open request has one.
const MAX_STREAMS: usize = 256;

/// The number of the stream without a request, which is always open.
pub(super) const STANDALONE: u64 = 0;

/// The events of one session.
#[derive(Debug)]
pub(super) struct EventLog {
    log: Arc<Mutex<Log>>,
    /// Notified of new events; closed with the session.
    grown: watch::Sender<()>,
}

/// An event as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// `None` for an event that a client cannot resume after.
    pub id: Option<Position>,
    /// A message. `None` for the first event of a stream, which only gives the client an id to resume after.
    pub message: Option<Arc<str>>,
}

/// The position of an event: its id, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    stream: u64,
    index: u64,
}

#[derive(Debug)]
struct Log {
    events: VecDeque<StoredEvent>,
    bytes: usize,
    /// Their share of the memory for all sessions; `None` outside of them.
    memory: Option<HeldBytes>,
    /// Open stream → index of its next event.
    open: BTreeMap<u64, u64>,
    /// Number of streams so far.
    streams: u64,
}

#[derive(Debug)]
struct StoredEvent {
    at: Position,
    event: Event,
    is_last: bool,
}

#[derive(Debug, Error)]
#[error("the id belongs to no event of the session")]
pub(super) struct InvalidEventId;

/// The next step after an event.
enum Next {
    Event {
        event: Event,
        is_last: bool,
    },
    NotYet,
    /// The stream has ended, or the next event is no longer stored.
    Nothing,
}

impl Default for EventLog {
    fn default() -> Self {
        let log = Log {
            events: VecDeque::new(),
            bytes: 0,
            memory: None,
            open: BTreeMap::from([(STANDALONE, 0)]),
            streams: STANDALONE,
        };
        Self { log: Arc::new(Mutex::new(log)), grown: watch::Sender::new(()) }
    }
}

/// The memory for the events of all sessions.
#[derive(Debug)]
pub(super) struct EventMemory(Arc<Share>);

impl Default for EventMemory {
    fn default() -> Self {
        Self(Share::new(UNITS))
    }
}

impl EventMemory {
    /// The events of a session of this owner.
    pub(super) fn log_of(&self, owner: &Owner) -> EventLog {
        let log = EventLog::default();
        log.log.lock().memory = Some(HeldBytes::new(&self.0, owner, UNIT_BYTES));
        log
    }
}

impl EventLog {
    /// Opens a stream, and returns its number.
    pub(super) fn open(&self) -> u64 {
        self.log.lock().open()
    }

    /// Stores an event of a stream. `is_last` closes the stream.
    pub(super) fn append(&self, stream: u64, message: Option<Arc<str>>, is_last: bool) -> Event {
        let event = self.log.lock().append(stream, message, is_last);
        // There may be no receiver.
        self.grown.send_replace(());
        event
    }

    /// Closes a stream that has no last event.
    pub(super) fn close(&self, stream: u64) {
        self.log.lock().open.remove(&stream);
        self.grown.send_replace(());
    }

    /// The events after the one with this id, also those still to come. Ends with the stream, or with the session.
    /// Errors: no event of a session has such an id.
    pub(super) fn replay_after(&self, id: &str) -> Result<impl Stream<Item = Event> + Send + use<>, InvalidEventId> {
        let begin = (Arc::clone(&self.log), self.grown.subscribe(), Some(id.parse()?));
        Ok(stream::unfold(begin, async |(log, mut grown, last): (_, _, Option<Position>)| {
            let last = last?;
            loop {
                grown.mark_unchanged();
                let next = log.lock().after(last);
                match next {
                    Next::Event { event, is_last } => {
                        let last = (!is_last).then_some(last.next());
                        return Some((event, (log, grown, last)));
                    }
                    Next::NotYet => grown.changed().await.ok()?,
                    Next::Nothing => return None,
                }
            }
        }))
    }
}

impl Log {
    fn open(&mut self) -> u64 {
        if self.open.len() >= MAX_STREAMS {
            // Requests end; a request that takes longer than 255 later ones cannot be resumed any more.
            let oldest = self.open.range(STANDALONE + 1..).next().map(|(number, _)| *number);
            oldest.map(|oldest| self.open.remove(&oldest));
        }
        self.streams += 1;
        self.open.insert(self.streams, 0);
        self.streams
    }

    fn append(&mut self, stream: u64, message: Option<Arc<str>>, is_last: bool) -> Event {
        let Some(next) = self.open.get_mut(&stream) else { return Event { id: None, message } };
        let at = Position { stream, index: *next };
        *next += 1;
        if is_last {
            self.open.remove(&stream);
        }
        let event = Event { id: Some(at), message };
        if event.bytes() <= MAX_BYTES {
            self.bytes += event.bytes();
            self.events.push_back(StoredEvent { at, event: event.clone(), is_last });
            self.drop_the_oldest();
        }
        event
    }

    fn after(&self, last: Position) -> Next {
        let next = last.next();
        if let Some(kept) = self.events.iter().find(|kept| kept.at == next) {
            return Next::Event { event: kept.event.clone(), is_last: kept.is_last };
        }
        let goes_on = self.open.get(&next.stream) == Some(&next.index);
        if goes_on { Next::NotYet } else { Next::Nothing }
    }

    fn drop_the_oldest(&mut self) {
        while self.bytes > MAX_BYTES || self.events.len() > MAX_EVENTS || !self.has_memory() {
            let Some(dropped) = self.events.pop_front() else { return };
            self.bytes -= dropped.event.bytes();
        }
    }
}

impl Log {
    /// Whether the memory for all sessions has room for the events.
    fn has_memory(&mut self) -> bool {
        let bytes = self.bytes;
        self.memory.as_mut().is_none_or(|memory| memory.hold(bytes))
    }
}

impl Event {
    fn bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.len())
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

    use super::*;

    fn message(text: &str) -> Option<Arc<str>> {
        Some(text.into())
    }

    fn append(events: &EventLog, stream: u64, text: &str, is_last: bool) -> String {
        events.append(stream, message(text), is_last).id.expect("an id").to_string()
    }

    async fn ids(events: &EventLog, after: &str) -> Vec<String> {
        let stream = events.replay_after(after).expect("a stream");
        stream.map(|event| event.id.expect("an id").to_string()).collect().await
    }

    #[tokio::test]
    async fn missed_events_are_replayed_only_from_their_own_stream() {
        let events = EventLog::default();
        let (a, b) = (events.open(), events.open());
        let first = append(&events, a, "1", false);
        let other = append(&events, b, "other", false);
        let second = append(&events, a, "2", false);
        let last = append(&events, a, "answer", true);
        assert_eq!(ids(&events, &first).await, [second, last.clone()]);
        assert!(ids(&events, &last).await.is_empty(), "it had ended");
        append(&events, b, "answer", true);
        assert_eq!(ids(&events, &other).await.len(), 1);
    }

    #[tokio::test]
    async fn an_open_stream_is_followed_to_its_end_or_the_sessions() {
        let events = EventLog::default();
        let (open, closed) = (events.open(), events.open());
        let first = append(&events, open, "1", false);
        let other = append(&events, closed, "1", false);
        let mut stream = Box::pin(events.replay_after(&first).expect("a stream"));
        let mut of_closed = Box::pin(events.replay_after(&other).expect("a stream"));
        assert!(stream.next().now_or_never().is_none(), "nothing yet");
        assert!(of_closed.next().now_or_never().is_none(), "nothing yet");
        append(&events, open, "2", false);
        assert!(stream.next().await.is_some());
        events.close(closed);
        assert!(of_closed.next().await.is_none());
        drop(events);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn stored_events_are_bounded() {
        let events = EventLog::default();
        let first = append(&events, STANDALONE, "1", false);
        append(&events, STANDALONE, &"x".repeat(MAX_BYTES + 1), false);
        assert!(
            ids(&events, &first).await.is_empty(),
            "too large to be stored: the stream ends instead of skipping it"
        );
        for _ in 0..2 * MAX_EVENTS {
            append(&events, events.open(), "text", false);
        }
        append(&events, STANDALONE, "still open", false);
        let log = events.log.lock();
        assert!(log.events.len() <= MAX_EVENTS && log.open.len() <= MAX_STREAMS);
        assert_eq!(log.bytes, log.events.iter().map(|kept| kept.event.bytes()).sum::<usize>());
    }

    #[tokio::test]
    async fn the_events_of_all_sessions_are_bounded_and_shared_by_callers() {
        let memory = EventMemory::default();
        let of = |caller: &str| Owner { tenant: caller.into(), caller: caller.into() };
        let text = "x".repeat(MAX_BYTES / 2);
        let fill = |caller: &str| {
            let log = memory.log_of(&of(caller));
            append(&log, STANDALONE, &text, false);
            append(&log, STANDALONE, &text, false);
            log
        };
        let bytes = |logs: &[EventLog]| logs.iter().map(|log| log.log.lock().bytes).sum::<usize>();
        let modest = fill("bob");
        let logs: Vec<_> = (0..200).map(|_| fill("ann")).collect();
        let all = usize::try_from(UNITS).expect("a number") * UNIT_BYTES;
        assert!(bytes(&logs) + MAX_BYTES <= all && bytes(&logs) > all / 2, "{}", bytes(&logs));
        assert_eq!(bytes(&[modest, fill("bob")]), 2 * MAX_BYTES, "another caller has a part of its own");
        // An event for which there is no memory is sent, and ends resumption: the log is empty then.
        let full = &logs[199];
        let last = append(full, STANDALONE, &text, false);
        assert!(
            full.log.lock().events.is_empty() && ids(full, &last).now_or_never().is_none(),
            "it goes on from there"
        );
        drop(logs);
        assert_eq!(memory.0.used(), 0);
    }

    #[tokio::test]
    async fn an_evicted_stream_is_still_sent_but_not_stored() {
        let events = EventLog::default();
        let evicted = events.open();
        for _ in 0..MAX_STREAMS {
            events.open();
        }
        let event = events.append(evicted, message("answer"), true);
        assert_eq!(event, Event { id: None, message: message("answer") });
    }

    #[tokio::test]
    async fn ids_of_unknown_events_are_refused() {
        for id in ["", "0", "1-", "-1", "1-x", "18446744073709551616-0"] {
            assert!(EventLog::default().replay_after(id).is_err(), "{id}");
        }
        assert!(ids(&EventLog::default(), "18446744073709551615-18446744073709551615").await.is_empty());
    }
}
