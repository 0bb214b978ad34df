//! The work of a run that is not in the store yet.

use std::collections::HashMap;

use tokio::time::Instant;

use super::entry::{Entry, PastRequest};
use super::{MAX_JOURNAL_BYTES, TOO_LARGE};

#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) entries: Vec<Entry>,
    /// The bytes of the whole journal.
    pub(super) bytes: usize,
    /// The earlier work of the run that it has not done again.
    pub(super) past: HashMap<u32, PastRequest>,
    /// Why the run cannot be resumed.
    pub(super) lost: Option<&'static str>,
    pub(super) written_at: Instant,
}

impl Unwritten {
    pub(super) fn new(bytes: usize, lost: Option<&'static str>, past: HashMap<u32, PastRequest>) -> Self {
        Self { entries: Vec::new(), bytes, past, lost, written_at: Instant::now() }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        if self.lost.is_some() {
            return;
        }
        self.bytes = self.bytes.saturating_add(entry.bytes());
        self.entries.push(entry);
        if self.bytes > MAX_JOURNAL_BYTES {
            self.lose(TOO_LARGE);
        }
    }

    pub(super) fn lose(&mut self, reason: &'static str) {
        self.lost.get_or_insert(reason);
        self.entries = Vec::new();
    }
}
