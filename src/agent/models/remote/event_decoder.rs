//! A provider's answer as a sequence of events, in either framing and within the size limits.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::aws_events::AwsEventDecoder;
use crate::models::ModelError;
use sekisho_outbound::sse::{self, EventReader, LargeEvent};

/// Maximum bytes of one event. A valid one holds a few words, or a whole call if the server sends no fragments.
pub(super) const MAX_EVENT: usize = 1 << 20;

/// How llama.cpp begins the line of an error in place of an event.
const ERROR_LINE: &[u8] = b"error:";

/// Maximum bytes of such a line.
const MAX_ERROR_LINE: usize = 16 << 10;

/// Maximum bytes of an answer: 128 000 tokens in an event each take about 45 MB.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// One event of an answer.
#[derive(Debug, Default, PartialEq)]
pub(in crate::models) struct Event {
    /// The event's type, if the framing has one.
    pub(in crate::models) name: String,
    pub(in crate::models) data: Vec<u8>,
    /// The framing marks the event as a failure; `name` is the failure's name.
    pub(in crate::models) failed: bool,
}

/// Why the bytes of an answer are not events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    LargeEvent,
    LargeAnswer,
    Malformed,
    /// A page of HTML or XML.
    Page,
}

/// The framing of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// `text/event-stream`
    Events,
    /// `application/vnd.amazon.eventstream`
    AwsEventDecoder,
}

impl Framing {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::AwsEventDecoder => "application/vnd.amazon.eventstream",
        }
    }
}

/// The decoder of one answer.
#[derive(Debug)]
pub(super) struct EventDecoder {
    reader: Reader,
    bytes: usize,
    /// Of an answer in events.
    outside: OutsideEvents,
}

/// The part of an answer in events that is in none of them: a JSON body in place of events, or an error's line.
#[derive(Debug, Default)]
struct OutsideEvents {
    /// Whether the body is one of JSON, once its first byte has arrived.
    is_json: Option<bool>,
    /// The beginning of the line that has not ended yet.
    line: Vec<u8>,
    /// The body, or the error.
    kept: Vec<u8>,
}

#[derive(Debug)]
enum Reader {
    Events(EventReader),
    AwsEventDecoder(AwsEventDecoder),
}

impl EventDecoder {
    pub(super) fn new(framing: Framing) -> Self {
        let reader = match framing {
            Framing::Events => Reader::Events(EventReader::new(MAX_EVENT)),
            Framing::AwsEventDecoder => Reader::AwsEventDecoder(AwsEventDecoder::default()),
        };
        Self { reader, bytes: 0, outside: OutsideEvents::default() }
    }

    /// Errors: the answer is larger than [`MAX_ANSWER`], or a page.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), Unreadable> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > MAX_ANSWER {
            return Err(Unreadable::LargeAnswer);
        }
        match &mut self.reader {
            Reader::Events(events) => {
                self.outside.feed(piece)?;
                events.feed(piece);
            }
            Reader::AwsEventDecoder(frames) => frames.feed(piece),
        }
        Ok(())
    }

    /// At the end of the body: the events that were outside of the framing, or the last one, if its end is missing.
    pub(super) fn rest(&mut self) -> Vec<Event> {
        let Reader::Events(events) = &mut self.reader else { return Vec::new() };
        let outside = self.outside.events();
        if !outside.is_empty() {
            return outside;
        }
        events.feed(b"\n\n");
        let last = events.next().ok().flatten().map(Event::from);
        // An event that was cut off is no JSON.
        let is_complete =
            |event: &Event| event.data == b"[DONE]" || serde_json::from_slice::<IgnoredAny>(&event.data).is_ok();
        last.filter(is_complete).into_iter().collect()
    }

    /// Errors: an event is too large or malformed.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Unreadable> {
        match &mut self.reader {
            Reader::Events(events) => loop {
                match events.next()? {
                    Some(event) if event.data.is_empty() => {}
                    event => break Ok(event.map(Event::from)),
                }
            },
            Reader::AwsEventDecoder(frames) => frames.next(),
        }
    }
}

impl OutsideEvents {
    fn feed(&mut self, piece: &[u8]) -> Result<(), Unreadable> {
        if self.is_json.is_none() {
            let Some(first) = piece.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            if *first == b'<' {
                return Err(Unreadable::Page);
            }
            self.is_json = Some(matches!(first, b'{' | b'['));
        }
        if self.is_json == Some(true) {
            keep(&mut self.kept, piece, MAX_EVENT);
            return Ok(());
        }
        for (index, line) in piece.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            keep(&mut self.line, line, MAX_ERROR_LINE);
        }
        Ok(())
    }

    fn end_line(&mut self) {
        if let Some(error) = self.line.strip_prefix(ERROR_LINE) {
            self.kept = error.to_vec();
        }
        self.line.clear();
    }

    /// The items of a list are events, as Gemini's API sends them without `alt=sse`.
    fn events(&mut self) -> Vec<Event> {
        self.end_line();
        let name = if self.is_json == Some(true) { "" } else { "error" };
        let event = |data| Event { name: name.to_owned(), data, failed: false };
        let data = std::mem::take(&mut self.kept);
        match serde_json::from_slice::<Vec<Value>>(&data) {
            _ if data.is_empty() => Vec::new(),
            Ok(items) => items.iter().map(|item| event(item.to_string().into_bytes())).collect(),
            Err(_) => vec![event(data)],
        }
    }
}

/// Appends the beginning of a piece, as far as there is room.
fn keep(kept: &mut Vec<u8>, piece: &[u8], room: usize) {
    let free = room.saturating_sub(kept.len());
    kept.extend_from_slice(piece.get(..free).unwrap_or(piece));
}

impl From<sse::Event> for Event {
    fn from(sse::Event { name, data, .. }: sse::Event) -> Self {
        Self { name, data, failed: false }
    }
}

impl From<LargeEvent> for Unreadable {
    fn from(_: LargeEvent) -> Self {
        Self::LargeEvent
    }
}

impl From<Unreadable> for ModelError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Garbled(match unreadable {
            Unreadable::LargeEvent => format!("an event is larger than {MAX_EVENT} bytes"),
            Unreadable::LargeAnswer => format!("it is larger than {MAX_ANSWER} bytes"),
            Unreadable::Malformed => "a frame has a wrong length or checksum".into(),
            Unreadable::Page => format!("it is not of the type {}", Framing::Events.media_type()),
        })
    }
}
