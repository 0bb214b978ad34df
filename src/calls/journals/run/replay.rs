//! A run that is played again: nothing is written, and no request is made that is not on record.

use std::sync::Arc;

use rust_decimal::Decimal;

use super::super::entry::{Part, Past};
use super::super::unwritten::Unwritten;
use super::super::{Journals, Owner, Running};
use super::{Inner, RunJournal, Written};
use sekisho_core::error::CallError;

/// A run that is played again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The digest of its result; none where the file was changed.
    pub expected: Option<String>,
}

impl RunJournal {
    /// `expected`: as in [`Replay`].
    pub(in super::super) fn replaying(
        journals: &Arc<Journals>,
        id: Arc<str>,
        (owner, digest): (Owner, String),
        past: &Past,
        expected: Option<String>,
    ) -> Self {
        journals.running.lock().insert(Arc::clone(&id));
        let running = Running { journals: Arc::clone(journals), id };
        let unwritten = Unwritten::new(0, None, past.requests.clone());
        let written = Written { held: None, next: 0, start: None, is_over: false, is_given_up: false };
        let inner = Inner::new(running, owner, digest, (unwritten, written), Decimal::ZERO);
        Self(Arc::new(Inner { replay: Some(Replay { expected }), ..inner }))
    }

    /// Whether it is played again, and with which result.
    pub fn replay(&self) -> Option<&Replay> {
        self.0.replay.as_ref()
    }

    /// Whether it is recorded when it ends.
    pub fn is_recorded(&self) -> bool {
        self.0.replay.is_none() && self.journals().recordings.are_kept()
    }

    pub(in super::super) fn journals(&self) -> &Arc<Journals> {
        &self.0.running.journals
    }

    /// The parts of the journal, with the entries that are not stored yet.
    pub(in super::super) async fn parts(&self) -> Result<Vec<Part>, CallError> {
        let Running { journals, id } = &self.0.running;
        {
            let written = self.0.written.lock().await;
            if written.held.is_none() {
                let (start, entries) = (written.start.clone(), self.0.unwritten.lock().entries.clone());
                return Ok(vec![Part { start, entries }]);
            }
        }
        self.write().await.map_err(CallError::internal)?;
        journals.parts(id, &self.0.owner).await
    }
}
