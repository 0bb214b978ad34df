//! The lines of a trail about itself: the beginning of a segment or a new chain, and missing lines. Lines of calls have
//! no field `event`.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::chain::{Chain, Hash, Micros};

/// A line about the trail.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Mark {
    /// The first line of a segment. `prev` is the hash of the last line of the previous one.
    Segment,
    /// The first line of a segment whose previous lines are damaged or missing.
    NewChain(NewChain),
    /// The trail was opened without its head: lines that were missing at its end could not be noticed.
    HeadMissing,
    SegmentsRemoved(SegmentsRemoved),
}

/// Old segments were removed (`audit.retention_days`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentsRemoved {
    /// The last line of them.
    pub(super) through_line: u64,
}

impl SegmentsRemoved {
    /// `None` for any other line.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        const EVENT: &[u8] = br#""event":"segments_removed""#;
        // Most lines are of calls, and are not parsed for this. The event is behind number and time.
        let beginning = &line[..line.len().min(100)];
        beginning.windows(EVENT.len()).any(|part| part == EVENT).then(|| serde_json::from_slice(line).ok())?
    }
}

/// The start of a new chain after damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewChain {
    /// The problem that was found.
    pub reason: String,
    /// The number of the last line that is known to have been written. The new chain begins with the next one.
    pub last_line: u64,
    /// The hash of that line, in hex.
    pub last_hash: String,
    /// The name of the file that was found at the path of the trail.
    pub kept_as: Option<String>,
}

impl NewChain {
    pub(super) fn after(last: &Chain, reason: &str, kept_as: Option<String>) -> Self {
        Self { reason: reason.into(), last_line: last.lines, last_hash: last.hash.as_str().to_owned(), kept_as }
    }

    /// `None` for any other line.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Event<'a> {
            event: Option<&'a str>,
        }
        let event: Event<'_> = serde_json::from_slice(line).ok()?;
        (event.event? == "new_chain").then(|| serde_json::from_slice(line).ok())?
    }
}

/// The fields of a line about the trail, in their order.
#[derive(Serialize)]
pub(super) struct MarkLine<'a> {
    seq: u64,
    time: Micros,
    #[serde(flatten)]
    mark: &'a Mark,
    prev: Hash,
}

impl<'a> MarkLine<'a> {
    pub(super) fn after(chain: &Chain, mark: &'a Mark) -> Self {
        Self { seq: chain.lines + 1, time: Micros(SystemTime::now()), mark, prev: chain.hash }
    }
}

/// The fields of a segment's first line about its place in the trail.
#[derive(Debug, Deserialize)]
pub(super) struct FirstLine {
    seq: u64,
    prev: Hash,
    time: String,
    event: Option<String>,
}

impl FirstLine {
    /// `None` when it is not a line of a trail.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    pub(super) fn number(&self) -> u64 {
        self.seq
    }

    /// When the segment began.
    pub(super) fn time(&self) -> Option<SystemTime> {
        self.time.parse::<Timestamp>().ok().map(Into::into)
    }

    /// Whether the line says only where the segment belongs.
    pub(super) fn is_header(&self) -> bool {
        matches!(self.event.as_deref(), Some("segment" | "new_chain"))
    }

    pub(super) fn starts_chain(&self) -> bool {
        self.event.as_deref() == Some("new_chain")
    }

    /// The end of the chain before the line.
    pub(super) fn before(&self) -> Chain {
        Chain { lines: self.seq.saturating_sub(1), bytes: 0, hash: self.prev }
    }
}
