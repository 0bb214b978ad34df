//! Server-sent events, decoded from an answer's bytes as they arrive
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>).
//!
//! As the standard requires, and unlike stricter parsers: unknown fields are ignored, and of repeated fields the last
//! one counts. A chunk may end within a character. An event beyond the reader's bound is an error, so that an endless one
//! is not kept.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use thiserror::Error;

/// The byte order mark that some servers send first.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's type; empty if it has none.
    pub name: String,
    /// Lines end with LF, without one at the end. Empty if the event only sets `id` or `retry`.
    pub data: Vec<u8>,
    /// Where the stream continues after this event.
    pub id: Option<String>,
    /// The delay before a new connection.
    pub retry: Option<Duration>,
}

/// An event is larger than the reader's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an event is larger than {0} bytes")]
pub struct LargeEvent(pub usize);

/// Decodes the events of one stream.
#[derive(Debug)]
pub struct EventReader {
    /// Maximum bytes of one event.
    max_event: usize,
    /// Bytes that have arrived, including those consumed since the last read.
    buffer: BytesMut,
    /// Where the current line begins.
    line: usize,
    /// No line end before this index: no byte is searched twice.
    searched: usize,
    /// The last line ended with CR, so that an LF directly after it belongs to the same line end.
    after_carriage_return: bool,
    begun: bool,
    event: Draft,
}

/// The event whose end has not arrived yet. Each line of its data ends with LF.
#[derive(Debug, Default)]
struct Draft(Event);

impl EventReader {
    pub fn new(max_event: usize) -> Self {
        Self {
            max_event,
            buffer: BytesMut::new(),
            line: 0,
            searched: 0,
            after_carriage_return: false,
            begun: false,
            event: Draft::default(),
        }
    }

    pub fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next event that has data or sets something; `None` until more bytes arrive.
    /// Errors: an event is larger than the bound.
    pub fn next(&mut self) -> Result<Option<Event>, LargeEvent> {
        while let Some(end) = self.end_of_line() {
            let line = self.buffer.get(self.line..end).unwrap_or_default();
            let event = if line.is_empty() { self.event.dispatch() } else { self.event.field(line, self.max_event)? };
            (self.line, self.searched) = (end + 1, end + 1);
            if event.is_some() {
                return Ok(event);
            }
        }
        self.buffer.advance(self.line);
        (self.line, self.searched) = (0, self.buffer.len());
        self.event.bound(self.buffer.len(), self.max_event)?;
        Ok(None)
    }

    /// The end of the current line, once it has arrived.
    fn end_of_line(&mut self) -> Option<usize> {
        if self.after_carriage_return
            && let Some(next) = self.buffer.get(self.line)
        {
            self.after_carriage_return = false;
            self.line += usize::from(*next == b'\n');
            self.searched = self.searched.max(self.line);
        }
        let fresh = self.buffer.get(self.searched..)?;
        let end = self.searched + fresh.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        self.after_carriage_return = self.buffer.get(end) == Some(&b'\r');
        if !std::mem::replace(&mut self.begun, true) && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.line += BYTE_ORDER_MARK.len();
        }
        Some(end)
    }
}

impl Draft {
    /// The event that an empty line completes. Others are skipped: servers send them as keep-alives.
    fn dispatch(&mut self) -> Option<Event> {
        let Self(mut event) = std::mem::take(self);
        event.data.pop();
        (!event.data.is_empty() || event.id.is_some() || event.retry.is_some()).then_some(event)
    }

    /// A line that is not empty adds to the event.
    fn field(&mut self, line: &[u8], max_event: usize) -> Result<Option<Event>, LargeEvent> {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if !matches!(field, b"data" | b"event" | b"id" | b"retry") {
            return Ok(None);
        }
        self.bound(value.len(), max_event)?;
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => {
                self.0.data.extend_from_slice(value);
                self.0.data.push(b'\n');
            }
            b"event" => self.0.name = text(),
            b"id" if !value.contains(&0) => self.0.id = Some(text()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.0.retry = text().parse().ok().map(Duration::from_millis).or(self.0.retry);
            }
            _ => {}
        }
        Ok(None)
    }

    fn bound(&self, more: usize, max_event: usize) -> Result<(), LargeEvent> {
        let Event { name, data, id, .. } = &self.0;
        let kept = name.len() + data.len() + id.as_ref().map_or(0, String::len);
        if kept.saturating_add(more) > max_event { Err(LargeEvent(max_event)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_EVENT: usize = 1 << 16;

    fn events(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Vec<Event>, LargeEvent> {
        let (mut reader, mut found) = (EventReader::new(MAX_EVENT), Vec::new());
        for piece in pieces {
            reader.feed(piece.as_ref());
            while let Some(event) = reader.next()? {
                found.push(event);
            }
        }
        Ok(found)
    }

    fn read(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Vec<(String, String)>, LargeEvent> {
        let found = events(pieces)?.into_iter().filter(|event| !event.data.is_empty());
        Ok(found.map(|event| (event.name, String::from_utf8(event.data).unwrap())).collect())
    }

    #[test]
    fn ids_and_delays_are_decoded_by_the_standard() {
        let id = |id: &str| Event { id: Some(id.to_owned()), ..Event::default() };
        let retry = |millis| Event { retry: Some(Duration::from_millis(millis)), ..Event::default() };
        for (stream, expected) in [
            ("id: 1\ndata: a\n\n", vec![Event { data: b"a".to_vec(), ..id("1") }]),
            ("id: 7\ndata:\n\n", vec![id("7")]),
            ("id\n\n", vec![id("")]),
            ("id: a\0b\n\n", vec![]),
            ("retry: 1500\n\n", vec![retry(1_500)]),
            ("retry: 5\nretry: -6\nretry: soon\nretry\nretry: 99999999999999999999\n\n", vec![retry(5)]),
        ] {
            assert_eq!(events([stream]).unwrap(), expected, "{stream:?}");
        }
    }

    #[test]
    fn events_are_decoded_by_the_standard() {
        for (stream, expected) in [
            ("data: a\n\n", vec![("", "a")]),
            ("\u{feff}data:a\r\n\r\n", vec![("", "a")]),
            ("event: x\rdata:  a\rdata\rdata: b\r\r", vec![("x", " a\n\nb")]),
            (": ping\n\nevent: gone\n\ndata: b\n\n", vec![("", "b")]),
            ("data:\n\ndata: c\n\n", vec![("", "c")]),
            ("id: 1\nretry: never\nunknown: x\nno colon\nevent: y\nevent: z\ndata: d\n\n", vec![("z", "d")]),
            ("data: 関所\n\ndata: cut off\n", vec![("", "関所")]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(name, data)| (name.to_owned(), data.to_owned())).collect();
            assert_eq!(read([stream]).unwrap(), expected, "{stream:?}");
            assert_eq!(read(stream.as_bytes().chunks(1)).unwrap(), expected, "{stream:?} byte by byte");
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_buffered_without_limit() {
        let count = MAX_EVENT / 1_000 + 2;
        let line = "x".repeat(1_000);
        let endless_line = (0..count).map(|piece| if piece == 0 { format!("data: {line}") } else { line.clone() });
        assert_eq!(read(endless_line), Err(LargeEvent(MAX_EVENT)));
        assert_eq!(read((0..count).map(|_| format!("data: {line}\n"))), Err(LargeEvent(MAX_EVENT)));
        assert_eq!(read((0..count).map(|_| line.clone())), Err(LargeEvent(MAX_EVENT)), "no field's");
        let half = "x".repeat(MAX_EVENT / 2 + 1);
        let split = format!("id: {half}\ndata: {half}\n");
        assert_eq!(read([split]), Err(LargeEvent(MAX_EVENT)), "all fields count together");
        let mut reader = EventReader::new(MAX_EVENT);
        for _ in 0..count {
            reader.feed(format!(": {line}\n").as_bytes());
            assert_eq!(reader.next(), Ok(None));
            assert!(reader.buffer.len() + reader.event.0.data.len() < 2_000, "comments are not kept");
        }
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_give_the_same_events(stream in "(data: ?[a-z関]{0,5}|event: [a-z]|:|[a-z]{0,3})?(\n|\r|\r\n)*(data: x(\n\n|\r\r|\r\n\r\n)){0,3}", size in 1..7_usize) {
            prop_assert_eq!(read([&stream]), read(stream.as_bytes().chunks(size)));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = EventReader::new(MAX_EVENT);
            reader.feed(&bytes);
            while let Ok(Some(event)) = reader.next() {
                prop_assert_ne!(event, Event::default());
            }
        }
    }
}
