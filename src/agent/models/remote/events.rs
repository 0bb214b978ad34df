//! Server-sent events, decoded from an answer's bytes as they arrive
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>).
//!
//! As the standard requires, and unlike stricter parsers: unknown fields are ignored, and of repeated fields the last
//! one counts. A chunk may end within a character.

use bytes::{Buf, BytesMut};

use super::event_decoder::{Event, MAX_EVENT, Unreadable};

/// The byte order mark that some servers send first.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The state of the decoder.
#[derive(Debug, Default)]
pub(super) struct Events {
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

/// The current event.
#[derive(Debug, Default)]
struct Draft {
    name: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next event with data; `None` until more bytes arrive.
    ///
    /// # Errors
    /// An event is larger than [`MAX_EVENT`].
    pub(super) fn next(&mut self) -> Result<Option<Event>, Unreadable> {
        while let Some(end) = self.end_of_line() {
            let line = self.buffer.get(self.line..end).unwrap_or_default();
            let event = if line.is_empty() { self.event.dispatch() } else { self.event.field(line)? };
            (self.line, self.searched) = (end + 1, end + 1);
            if event.is_some() {
                return Ok(event);
            }
        }
        self.buffer.advance(self.line);
        (self.line, self.searched) = (0, self.buffer.len());
        self.event.bound(self.buffer.len())?;
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
    /// The event that an empty line completes. Events without data are skipped: servers send them as keep-alives.
    fn dispatch(&mut self) -> Option<Event> {
        let Self { name, mut data } = std::mem::take(self);
        data.pop();
        let name = String::from_utf8_lossy(&name).into_owned();
        (!data.is_empty()).then_some(Event { name, data, failed: false })
    }

    /// A line that is not empty adds to the event.
    fn field(&mut self, line: &[u8]) -> Result<Option<Event>, Unreadable> {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.bound(value.len())?;
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => {
                self.bound(value.len())?;
                self.name = value.to_vec();
            }
            _ => {}
        }
        Ok(None)
    }

    fn bound(&self, more: usize) -> Result<(), Unreadable> {
        if self.data.len().saturating_add(more) > MAX_EVENT { Err(Unreadable::LargeEvent) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Vec<(String, String)>, Unreadable> {
        let (mut events, mut found) = (Events::default(), Vec::new());
        for piece in pieces {
            events.feed(piece.as_ref());
            while let Some(event) = events.next()? {
                found.push((event.name, String::from_utf8(event.data).unwrap()));
            }
        }
        Ok(found)
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
        assert_eq!(read(endless_line), Err(Unreadable::LargeEvent));
        assert_eq!(read((0..count).map(|_| format!("data: {line}\n"))), Err(Unreadable::LargeEvent));
        assert_eq!(read((0..count).map(|_| line.clone())), Err(Unreadable::LargeEvent), "no field's");
        let mut events = Events::default();
        for _ in 0..count {
            events.feed(format!(": {line}\n").as_bytes());
            assert_eq!(events.next(), Ok(None));
            assert!(events.buffer.len() + events.event.data.len() < 2_000, "comments are not kept");
        }
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_give_the_same_events(stream in "(data: ?[a-z関]{0,5}|event: [a-z]|:|[a-z]{0,3})?(\n|\r|\r\n)*(data: x(\n\n|\r\r|\r\n\r\n)){0,3}", size in 1..7_usize) {
            prop_assert_eq!(read([&stream]), read(stream.as_bytes().chunks(size)));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut events = Events::default();
            events.feed(&bytes);
            while let Ok(Some(event)) = events.next() {
                prop_assert!(!event.data.is_empty());
            }
        }
    }
}
