//! A provider's answer as a sequence of events, in either framing and within the size limits.

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
}

/// The framing of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// `text/event-stream`
    Events,
    /// `application/vnd.amazon.eventstream`
    AwsEventDecoder,
    /// `application/json`: the body is one event.
    Whole,
}

impl Framing {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::AwsEventDecoder => "application/vnd.amazon.eventstream",
            Self::Whole => "application/json",
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
    Whole(Vec<u8>),
}

impl EventDecoder {
    pub(super) fn new(framing: Framing) -> Self {
        let reader = match framing {
            Framing::Events => Reader::Events(EventReader::new(MAX_EVENT)),
            Framing::AwsEventDecoder => Reader::AwsEventDecoder(AwsEventDecoder::default()),
            Framing::Whole => Reader::Whole(Vec::new()),
        };
        Self { reader, bytes: 0, outside: OutsideEvents::default() }
    }

    /// Errors: the answer is larger than [`MAX_ANSWER`].
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), Unreadable> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > MAX_ANSWER {
            return Err(Unreadable::LargeAnswer);
        }
        match &mut self.reader {
            Reader::Events(events) => {
                self.outside.feed(piece);
                events.feed(piece);
            }
            Reader::AwsEventDecoder(frames) => frames.feed(piece),
            Reader::Whole(body) if body.len() + piece.len() > MAX_EVENT => return Err(Unreadable::LargeEvent),
            Reader::Whole(body) => body.extend_from_slice(piece),
        }
        Ok(())
    }

    /// At the end of the body: the event that it is as a whole, or the one that was outside of the framing.
    pub(super) fn whole(&mut self) -> Option<Event> {
        match &mut self.reader {
            Reader::Whole(body) => Some(Event { data: std::mem::take(body), ..Event::default() }),
            Reader::Events(_) => self.outside.event(),
            Reader::AwsEventDecoder(_) => None,
        }
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
            Reader::Whole(_) => Ok(None),
        }
    }
}

impl OutsideEvents {
    fn feed(&mut self, piece: &[u8]) {
        let Some(is_json) = self.is_json.or_else(|| {
            let first = piece.iter().find(|byte| !byte.is_ascii_whitespace())?;
            Some(matches!(first, b'{' | b'['))
        }) else {
            return;
        };
        self.is_json = Some(is_json);
        if is_json {
            keep(&mut self.kept, piece, MAX_EVENT);
            return;
        }
        for (index, line) in piece.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            keep(&mut self.line, line, MAX_ERROR_LINE);
        }
    }

    fn end_line(&mut self) {
        if let Some(error) = self.line.strip_prefix(ERROR_LINE) {
            self.kept = error.to_vec();
        }
        self.line.clear();
    }

    fn event(&mut self) -> Option<Event> {
        self.end_line();
        let name = if self.is_json == Some(true) { "" } else { "error" };
        let data = std::mem::take(&mut self.kept);
        (!data.is_empty()).then(|| Event { name: name.to_owned(), data, failed: false })
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
        })
    }
}
