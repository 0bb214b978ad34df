//! A provider's answer as a row of events, whichever way it is framed; nothing is kept beyond its bound.

use super::aws_events::AwsEventDecoder;
use super::events::Events;
use crate::agent::models::ModelError;

/// Most bytes of one event. An honest one holds some words, or where servers do not send fragments a whole call.
pub(super) const MAX_EVENT: usize = 1 << 20;

/// Most bytes of an answer: 128 000 tokens, each in an event of its own, come to some 45 MB.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// One event of an answer.
#[derive(Debug, Default, PartialEq)]
pub(in crate::agent::models) struct Event {
    /// The event's type, where the framing has one.
    pub(in crate::agent::models) name: String,
    pub(in crate::agent::models) data: Vec<u8>,
    /// The framing itself says that it tells of a failure; the name is the failure's.
    pub(in crate::agent::models) failed: bool,
}

/// Why an answer's bytes are no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    LargeEvent,
    LargeAnswer,
    Malformed,
}

/// How events are framed.
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

/// The reader of one answer.
#[derive(Debug)]
pub(super) struct EventDecoder {
    reader: Reader,
    bytes: usize,
}

#[derive(Debug)]
enum Reader {
    Events(Events),
    AwsEventDecoder(AwsEventDecoder),
}

impl EventDecoder {
    pub(super) fn new(framing: Framing) -> Self {
        let reader = match framing {
            Framing::Events => Reader::Events(Events::default()),
            Framing::AwsEventDecoder => Reader::AwsEventDecoder(AwsEventDecoder::default()),
        };
        Self { reader, bytes: 0 }
    }

    /// # Errors
    /// The answer is larger than [`MAX_ANSWER`].
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), Unreadable> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > MAX_ANSWER {
            return Err(Unreadable::LargeAnswer);
        }
        match &mut self.reader {
            Reader::Events(events) => events.feed(piece),
            Reader::AwsEventDecoder(frames) => frames.feed(piece),
        }
        Ok(())
    }

    /// # Errors
    /// An event that is too large, or none.
    pub(super) fn next(&mut self) -> Result<Option<Event>, Unreadable> {
        match &mut self.reader {
            Reader::Events(events) => events.next(),
            Reader::AwsEventDecoder(frames) => frames.next(),
        }
    }
}

impl From<Unreadable> for ModelError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Garbled(match unreadable {
            Unreadable::LargeEvent => format!("one event of it has more than {MAX_EVENT} bytes"),
            Unreadable::LargeAnswer => format!("it has more than {MAX_ANSWER} bytes"),
            Unreadable::Malformed => "its frames do not add up".into(),
        })
    }
}
