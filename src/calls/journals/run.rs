//! The journal of one run while its program runs.
//!
//! Entries are kept in memory until one of them must be in the store, and then written together. Before a call that must
//! not be made twice is sent, its start is written, and before the program gets its answer, the answer. Other answers are
//! written with the next ones, at the latest with the first one after [`MAX_UNWRITTEN`].

mod replay;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rust_decimal::Decimal;
use thiserror::Error;
use tokio::time::Instant;

pub use self::replay::Replay;

use super::entry::{Entry, Part, Past, PastRequest, RunStart, Settled};
use super::held_run::HeldRun;
use super::unwritten::Unwritten;
use super::{JournalAnswer, JournalQuestion, Journals, MAX_JOURNAL_BYTES, Owner, Reading, Running};
use sekisho_core::failpoint;
use sekisho_store::NewProgramRun;

/// How old entries may be that a kill may lose.
const MAX_UNWRITTEN: Duration = Duration::from_millis(100);

/// Why a run cannot be resumed.
pub const TOO_LARGE: &str =
    "with its input and what it got from tools and random numbers, its journal would have more than 4 MiB";
pub const TOO_MANY_READINGS: &str = "it has read clocks, and waited for several calls at once, more than 10000 times";

/// The journal of a run under way. Dropped without an end, the run is stopped and can be resumed.
#[derive(Debug)]
pub struct RunJournal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    running: Running,
    owner: Owner,
    /// The digest of the arguments of the call that runs the program.
    digest: String,
    /// The charges of its calls before it was resumed.
    spent_before: Decimal,
    /// Where it is played again: nothing is written, and no request is made.
    replay: Option<Replay>,
    unwritten: Mutex<Unwritten>,
    /// Locked while a part is written.
    written: tokio::sync::Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    /// Once a first part is stored, and until the end of the run is.
    held: Option<HeldRun>,
    /// The number of the next one.
    next: i64,
    /// Until the first one is written.
    start: Option<RunStart>,
    /// Nothing more is written.
    is_over: bool,
    /// The written parts are removed: the run cannot be resumed.
    is_given_up: bool,
}

/// The journal's answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The program gets this answer.
    Answered(JournalAnswer),
    /// It was started and must not be made again: the run ends until somebody settles it.
    OutcomeUnknown,
    /// The same, and nobody can say more: the program gets the error.
    LeftUnknown,
    /// It is made now; by an approval that the run has waited for.
    New { approval: Option<Arc<str>> },
    /// It was started, and somebody said that it was not made: it is made now, whatever is on record about the earlier attempt.
    NotMade,
    /// The run did something else before.
    Diverged,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd<'a> {
    /// It is not resumed.
    Ended,
    /// It can be resumed; it may wait for an approval.
    Stopped { approval: Option<&'a str> },
}

/// An entry that was to be written before its effect is not written: the effect must not happen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotRecordedError {
    #[error("another process has resumed the run")]
    Taken,
    #[error("{0}")]
    Failed(String),
}

impl RunJournal {
    pub(super) fn new(
        journals: &Arc<Journals>,
        id: Arc<str>,
        owner: Owner,
        digest: String,
        start: Option<RunStart>,
    ) -> Self {
        journals.running.lock().insert(Arc::clone(&id));
        let running = Running { journals: Arc::clone(journals), id };
        let start = start.filter(|start| start.bytes() <= MAX_JOURNAL_BYTES);
        let bytes = start.as_ref().map_or(0, RunStart::bytes);
        let lost = start.is_none().then_some(TOO_LARGE);
        let unwritten = Unwritten::new(bytes, lost, HashMap::new());
        let written = Written { held: None, next: 0, start, is_over: false, is_given_up: false };
        Self(Arc::new(Inner::new(running, owner, digest, (unwritten, written), Decimal::ZERO)))
    }

    pub(super) fn resumed(
        running: Running,
        owner: Owner,
        digest: String,
        (held, parts): (HeldRun, i64),
        past: &Past,
    ) -> Self {
        // Everything written before counts: it is read again each time.
        let unwritten = Unwritten::new(past.bytes, None, past.requests.clone());
        let written = Written { held: Some(held), next: parts, start: None, is_over: false, is_given_up: false };
        Self(Arc::new(Inner::new(running, owner, digest, (unwritten, written), past.spent_usd)))
    }

    /// The run: the id of the call that began it.
    pub fn id(&self) -> &Arc<str> {
        &self.0.running.id
    }

    /// The charges of its calls before it was resumed, in USD.
    pub fn spent_before(&self) -> Decimal {
        self.0.spent_before
    }

    /// Why the run cannot be resumed; `None` if it can.
    pub fn lost(&self) -> Option<&'static str> {
        self.0.unwritten.lock().lost
    }

    /// It cannot be resumed, for this reason.
    pub fn lose(&self, reason: &'static str) {
        self.0.unwritten.lock().lose(reason);
    }

    /// The journal's answer to a request. A new request is added, with the program's readings before it; requests come
    /// in the order of their numbers. `is_behind`: whether the program has yet to read something that it read before.
    pub fn find(
        &self,
        number: u32,
        question: &JournalQuestion,
        may_repeat: bool,
        (readings, is_behind): (Vec<Reading>, bool),
    ) -> Found {
        let mut unwritten = self.0.unwritten.lock();
        let Some(past) = unwritten.past.remove(&number) else {
            if self.0.replay.is_some() || is_behind || !unwritten.past.is_empty() {
                return Found::Diverged;
            }
            unwritten.add(Entry::Asked { number, question: question.clone(), may_repeat, readings });
            return Found::New { approval: None };
        };
        if past.question != *question || !readings.is_empty() {
            return Found::Diverged;
        }
        match past {
            PastRequest { answer: Some(answer), .. } => Found::Answered(answer),
            PastRequest { approval: Some(approval), .. } => Found::New { approval: Some(approval) },
            PastRequest { settled: Some(Settled::Unknown), .. } => Found::LeftUnknown,
            PastRequest { settled: Some(Settled::NotMade), .. } => {
                // It is started now: without an answer, its outcome is not known again.
                unwritten.add(Entry::Made { number });
                Found::NotMade
            }
            // Also as its tool is described now.
            PastRequest { may_repeat: true, .. } if may_repeat => Found::New { approval: None },
            // Its tool is described in another way since.
            PastRequest { may_repeat: true, .. } => Found::LeftUnknown,
            PastRequest { .. } => Found::OutcomeUnknown,
        }
    }

    /// Whether somebody has said what became of an earlier request: its answer, if there is one, is not its tool's. Before it is found.
    pub fn is_settled(&self, number: u32) -> bool {
        self.0.unwritten.lock().past.get(&number).is_some_and(|past| past.settled.is_some())
    }

    /// Adds the answer that the program is about to get.
    pub fn answer(&self, number: u32, is_ok: bool, json: &str) {
        let mut unwritten = self.0.unwritten.lock();
        // Before it is copied.
        if unwritten.bytes.saturating_add(json.len()) > MAX_JOURNAL_BYTES {
            unwritten.lose(TOO_LARGE);
        }
        if unwritten.lost.is_none() {
            unwritten.add(Entry::Answered { number, answer: JournalAnswer { is_ok, json: json.to_owned() } });
        }
    }

    /// Adds the charge of a call.
    pub fn charge(&self, cost_usd: Decimal) {
        if !cost_usd.is_zero() {
            self.0.unwritten.lock().add(Entry::Charged { cost_usd: cost_usd.serialize() });
        }
    }

    /// Adds that a call which has waited for an approval is about to be made: if its answer is lost, its outcome is not known.
    pub fn make(&self, number: u32) {
        self.0.unwritten.lock().add(Entry::Made { number });
    }

    /// Adds that a call waits for an approval.
    pub fn pause(&self, number: u32, approval: &str) {
        self.0.unwritten.lock().add(Entry::Paused { number, approval: approval.to_owned() });
    }

    /// Whether the program has done all that it did before. A program that was never resumed has.
    pub fn is_caught_up(&self) -> bool {
        self.0.unwritten.lock().past.is_empty()
    }

    /// Writes the new entries.
    /// Errors: they are not written, and nothing is from now on.
    pub async fn write(&self) -> Result<(), NotRecordedError> {
        self.0.write().await
    }

    /// The same where something is older than [`MAX_UNWRITTEN`].
    /// Errors: as [`write`](Self::write).
    pub async fn write_if_due(&self) -> Result<(), NotRecordedError> {
        let is_due = self.0.unwritten.lock().written_at.elapsed() >= MAX_UNWRITTEN;
        if is_due { self.write().await } else { Ok(()) }
    }

    /// Ends the run here. Whether it can be resumed.
    pub async fn end(self, end: RunEnd<'_>) -> bool {
        self.0.end(end).await
    }
}

impl Drop for RunJournal {
    fn drop(&mut self) {
        // Nothing is stored, or its end is. Nobody else holds the lock for long: the writers were dropped before.
        if self.0.written.try_lock().is_ok_and(|written| written.held.is_none()) {
            return;
        }
        let inner = Arc::clone(&self.0);
        // As when the client has left. Without a runtime the process ends, which says the same.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { inner.end(RunEnd::Stopped { approval: None }).await });
        }
    }
}

impl Inner {
    fn new(
        running: Running,
        owner: Owner,
        digest: String,
        (unwritten, written): (Unwritten, Written),
        spent_before: Decimal,
    ) -> Self {
        let (unwritten, written) = (Mutex::new(unwritten), written.into());
        Self { running, owner, digest, spent_before, replay: None, unwritten, written }
    }

    async fn write(&self) -> Result<(), NotRecordedError> {
        if self.replay.is_some() {
            return Ok(());
        }
        let mut written = self.written.lock().await;
        if written.is_over {
            return Err(NotRecordedError::Failed("the journal of the run is not written any more".to_owned()));
        }
        let (entries, lost) = {
            let mut unwritten = self.unwritten.lock();
            unwritten.written_at = Instant::now();
            (std::mem::take(&mut unwritten.entries), unwritten.lost)
        };
        // A part after a part that was not written, or whose writing was cancelled, would have a gap before it.
        written.is_over = true;
        let outcome = match lost {
            Some(reason) => self.give_up(&mut written, reason).await,
            None if entries.is_empty() => Ok(()),
            None => self.write_part(&mut written, entries).await,
        };
        written.is_over = outcome.is_err();
        outcome
    }

    async fn write_part(&self, written: &mut Written, entries: Vec<Entry>) -> Result<(), NotRecordedError> {
        let Running { journals, id } = &self.running;
        let part = Part { start: written.start.take(), entries };
        let sealed = journals.sealed(&self.owner, id, written.next, &part).map_err(NotRecordedError::failed)?;
        failpoint::reach("journal.writing");
        let is_written = match &written.held {
            Some(held) => journals.store.add_part(held.lease(), written.next, &sealed).await,
            None => {
                let (owner, replica, asked) = (self.owner.of_store(), journals.replica(), Instant::now());
                let new = NewProgramRun { id, owner, arguments: &self.digest, replica, part: &sealed };
                let begun = journals.store.begin(new).await;
                begun.map(|lease| {
                    written.held = Some(HeldRun::new(journals.store.clone(), lease, asked));
                    true
                })
            }
        };
        if !is_written.map_err(NotRecordedError::failed)? {
            return Err(NotRecordedError::Taken);
        }
        written.next += 1;
        failpoint::reach("journal.written");
        Ok(())
    }

    /// A journal that is not complete must not be there: the run's work from now on would be done again.
    async fn give_up(&self, written: &mut Written, reason: &str) -> Result<(), NotRecordedError> {
        let Some(held) = written.held.as_ref().filter(|_| !written.is_given_up) else { return Ok(()) };
        let given_up = self.running.journals.store.give_up(held.lease(), reason).await;
        given_up.map_err(NotRecordedError::failed)?;
        written.is_given_up = true;
        Ok(())
    }

    /// Whether the run can be resumed.
    async fn end(&self, end: RunEnd<'_>) -> bool {
        if matches!(end, RunEnd::Stopped { .. }) && !self.written.lock().await.is_over {
            // A failure is logged, and leaves the store as it is.
            if let Err(error) = self.write().await {
                tracing::warn!(%error, "the journal of a program's run could not be written");
            }
        }
        let mut written = self.written.lock().await;
        written.is_over = true;
        let Some(held) = &written.held else { return false };
        let Running { journals, id } = &self.running;
        let ended = match end {
            RunEnd::Ended => journals.store.forget(held.lease()).await.map(|()| false),
            RunEnd::Stopped { approval } => journals.store.stop(held.lease(), approval).await,
        };
        written.held = None;
        ended.unwrap_or_else(|error| {
            tracing::warn!(%error, run = &**id, "the end of the run of a program could not be recorded");
            matches!(end, RunEnd::Stopped { .. })
        })
    }
}

impl NotRecordedError {
    fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}
