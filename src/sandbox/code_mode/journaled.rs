//! The requests of a program and their answers, in the journal of its run.

use std::sync::Arc;

use super::ProgramTools;
use super::errors::is_of_tool;
use super::program_run::Stop;
use super::wanted::{Wanted, WantedCall};
use sekisho_calls::journals::{Found, JournalAnswer, NotRecordedError, TOO_LARGE, TOO_MANY_READINGS};
use sekisho_calls::pipeline::Answered;
use sekisho_guest_protocol::{ReadSoFar, ReadStanding};

impl ProgramTools<'_> {
    /// The journal's record of a request. `None`: the run is to end.
    pub(super) fn find(&self, number: u32, wanted: &Wanted, may_repeat: bool, read: ReadSoFar) -> Option<Found> {
        let Some(journal) = &self.journal else { return Some(Found::New { approval: None }) };
        match read.standing {
            ReadStanding::Recorded | ReadStanding::Behind => {}
            ReadStanding::TooManyReadings => journal.lose(TOO_MANY_READINGS),
            ReadStanding::TooManyBytes | ReadStanding::NotRecorded => journal.lose(TOO_LARGE),
            ReadStanding::Diverged => {
                let what = "it read another clock, or another number of random bytes".to_owned();
                return self.stop_run(Stop::Diverged(what));
            }
        }
        let is_behind = read.standing == ReadStanding::Behind;
        match journal.find(number, &wanted.question(), may_repeat, (read.readings, is_behind)) {
            Found::Diverged => self.stop_run(Stop::Diverged(wanted.described())),
            found => Some(found),
        }
    }

    /// Whether the request may be done a second time. Without a journal nobody does that.
    pub(super) fn may_repeat(&self, wanted: &Wanted) -> bool {
        match wanted {
            Wanted::Call(call) => self.journal.is_none() || self.pipeline.may_repeat(&call.tool, &self.call.caller),
            Wanted::Inquiry(_) => true,
        }
    }

    pub(super) fn stop_run<T>(&self, stop: Stop) -> Option<T> {
        self.stop.lock().get_or_insert(stop);
        None
    }

    /// The record is written, or the run is to end.
    pub(super) fn recorded(&self, written: Result<(), NotRecordedError>) -> Option<()> {
        match written {
            Ok(()) => Some(()),
            Err(error) => self.stop_run(Stop::NotRecorded(error)),
        }
    }

    /// Records a call that is about to be sent and must not be sent twice. `approval`: by which it is made.
    pub(super) async fn record_start(&self, number: u32, approval: Option<&Arc<str>>) -> Option<()> {
        let Some(journal) = &self.journal else { return Some(()) };
        if approval.is_some() {
            journal.make(number);
        }
        self.recorded(journal.write().await)
    }

    /// A reply that was on record was charged when the call was made.
    pub(super) fn record_charge(&self, answered: &Answered) {
        if let Some(journal) = self.journal.as_ref().filter(|_| !answered.replayed) {
            let reply = &answered.reply;
            journal.charge(reply.cost_usd.saturating_add(reply.receipt.nested.cost_usd()));
        }
    }

    pub(super) async fn record_answer(
        &self,
        number: u32,
        answer: &Result<String, String>,
        may_repeat: bool,
    ) -> Option<()> {
        let Some(journal) = &self.journal else { return Some(()) };
        let (is_ok, json) = match answer {
            Ok(json) => (true, json),
            Err(json) => (false, json),
        };
        journal.answer(number, is_ok, json);
        let written = if may_repeat { journal.write_if_due().await } else { journal.write().await };
        self.recorded(written)
    }

    /// A program gets a tool's earlier answer only if its caller may use the tool now. Refusals have nothing of the
    /// tool.
    pub(super) fn check_replayed(&self, wanted: &Wanted, answer: &JournalAnswer) -> Option<()> {
        // The answers of a run that is played again are its caller's own.
        let is_replay = self.journal.as_ref().is_some_and(|journal| journal.replay().is_some());
        let Wanted::Call(WantedCall { tool, .. }) = wanted else { return Some(()) };
        if is_replay {
            return Some(());
        }
        if !answer.is_ok && !is_of_tool(&answer.json) {
            return Some(());
        }
        match self.pipeline.check_access(tool, &self.call.caller) {
            Ok(()) => Some(()),
            Err(error) => self.stop_run(Stop::NoAccess { tool: tool.clone(), error }),
        }
    }

    /// Counts a call that was made in an earlier part of the run.
    pub(super) fn count_replayed(&self, wanted: &Wanted) {
        if let Wanted::Call(WantedCall { arguments: Ok(_), .. }) = wanted {
            // The program may make as many calls as before.
            let _ = self.parent.take_call();
            self.call.progress.nested.add_replayed();
        }
    }
}
