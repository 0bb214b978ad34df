//! The end of a run: all that it leaves, stored in one transaction.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::context::Context;
use super::history::OpenCall;
use super::lock::HeldLock;
use super::outcome::Outcome;
use super::run_event::{RunEvent, SystemSubtype};
use super::title::{Untitled, first_line};
use super::{ConversationRuns, RunReply, add, recovery, resume, stored, system};
use crate::event_log::EventLog;
use crate::message::{ToolMessage, UserMessage};
use crate::{Message, RunUsage, plan};
use sekisho_calls::budget::TakenCharges;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_store::{ConversationRun, RunEnd, RunStatus, StoreError, Used};

/// How long the end of a run waits for a store that is away; within that time its lock is not lost.
const END_WAIT: Duration = Duration::from_secs(10);

/// Interval of attempts to store it.
const END_PAUSE: Duration = Duration::from_millis(500);

/// A run whose end is stored.
pub(super) struct Ended {
    pub(super) reply: RunReply,
    /// Why the reply is an error, where it is one object.
    pub(super) failure: Option<CallError>,
    /// Its conversation, where the model is to make the title now.
    pub(super) untitled: Option<Untitled>,
}

impl ConversationRuns {
    /// Stores the end of a run (C29–C36).
    pub(super) async fn finish(
        &self,
        context: Context,
        mut outcome: Outcome,
        lock: &HeldLock,
    ) -> Result<Ended, CallError> {
        failpoint::reach("run.ended");
        let Context { request, mut run, live, log, journal, mut answers, paused, title, usage, kept_usage, .. } =
            context;
        (run.status, run.error) = outcome.status(&live);
        run.end_at(self.store().now());
        let mut added = outcome.messages.clone();
        // The loop has reported all messages of a run that pauses.
        if !matches!(run.status, RunStatus::Succeeded | RunStatus::Paused) {
            journal.settle().await;
            added = recovery::completed(self.store(), &run.id, added).await?;
        }
        answers.append(&mut outcome.answers);
        let is_open = |open: &OpenCall| !answers.iter().any(|answer| answer.call_id == open.call.id);
        let open: Vec<_> = paused.iter().filter(|open| is_open(open)).cloned().collect();
        answers.extend(resume::known_answers(self.store(), &open, request.user_input.is_some()).await?);
        resume::end_calls_not_made(self.store(), &paused, &answers).await?;
        let messages = written(&run, answers, &added, usage.take_turns());
        let is_untitled = title.is_none() && run.status == RunStatus::Succeeded;
        let title = match run.status {
            RunStatus::Succeeded | RunStatus::Paused => title.or_else(|| first_line(&run.user_input)),
            _ => title,
        };
        kept_usage.stop().await;
        let (rows, charges) = usage.take_charges();
        let model = (request.profile.provider().as_str(), request.profile.model());
        let rows = outcome.count(rows, &run.agent, model);
        let used = Used { rows: &rows, charges: charges.as_ref().map(TakenCharges::charges).unwrap_or_default() };
        let (lock, title_of_end) = (Some(&lock.lock), title.as_deref());
        let end = RunEnd { run: &run, lock, keeps_lock: false, messages: &messages, title: title_of_end, used };
        let runs = self.store().conversation_runs();
        let Some(totals) = until_stored(&run.id, || runs.end(&end)).await? else {
            return Err(lock_lost());
        };
        if let Some(charges) = charges {
            charges.stored(&totals);
        }
        failpoint::reach("run.stored");
        let untitled = is_untitled.then(|| Untitled {
            run: run.id.clone(),
            conversation: run.conversation.clone(),
            user_input: Arc::clone(&run.user_input),
            reply: outcome.text.clone(),
            agent: request.agent,
            profile: request.profile,
            caller: request.caller,
            scopes: request.scopes,
            usage,
        });
        Ok(Ended { untitled, ..Ended::reported(outcome, &run, title, &log) })
    }
}

impl Ended {
    /// Adds the last events.
    fn reported(mut outcome: Outcome, run: &ConversationRun, title: Option<String>, log: &EventLog) -> Self {
        let failure = outcome.error.take();
        let reply = outcome.reply(run, title);
        if let Some(failure) = &failure {
            add(log, &RunEvent::error(failure));
        }
        add(log, &reply.event());
        add(log, &system(SystemSubtype::Finish, run));
        let failure = failure.map(|failure| failure.with_output(reply.result.as_str().into()));
        Self { reply, failure, untitled: None }
    }
}

fn lock_lost() -> CallError {
    let message = "the run lost the lock of its conversation, which another gateway may run by now, so its end was not stored; \
                   read the conversation for what became of the request before you send it again";
    CallError::new(ErrorCode::ConversationLocked, message)
}

/// The messages that the run adds to its conversation: answers to calls of the run before, the user's message, and the
/// messages after it, of which the turns have their usage.
fn written(
    run: &ConversationRun,
    answers: Vec<ToolMessage>,
    added: &[Message],
    turns: Vec<Option<RunUsage>>,
) -> Vec<String> {
    let mut turns = turns.into_iter();
    let before = answers.into_iter().map(Message::Tool).chain(said(run));
    let added = added.iter().map(|message| {
        let used = message.as_assistant().and_then(|_| turns.next().flatten());
        stored::write_turn(message, used.map(|used| plan::Used::from(&used)).as_ref())
    });
    before.map(|message| stored::write(&message)).chain(added).collect()
}

/// The user's message; nothing where the run went on with calls of the one before.
pub(super) fn said(run: &ConversationRun) -> Option<Message> {
    let input = Some(&run.user_input).filter(|input| !input.is_empty());
    input.map(|input| Message::User(UserMessage::from(Arc::clone(input))))
}

/// Asks the store for the end of a run. While it is away it is tried again: the answer would be lost.
async fn until_stored<T, F>(run: &str, store: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + END_WAIT;
    loop {
        match store().await {
            Err(error) if error.is_outage() && Instant::now() < until => {
                tracing::warn!(%error, run, "the end of a run could not be stored; it is tried again");
                sleep(END_PAUSE).await;
            }
            ended => return ended.map_err(CallError::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn full() -> StoreError {
        StoreError::Full { place: "sekisho.db".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_run_is_stored_once_the_store_is_back() {
        let (attempts, begun) = (AtomicU32::new(0), Instant::now());
        let store = || async {
            match attempts.fetch_add(1, Ordering::Relaxed) {
                0..6 => Err(full()),
                _ => Ok("stored"),
            }
        };
        assert_eq!(until_stored("r", store).await.unwrap(), "stored");
        assert_eq!((attempts.load(Ordering::Relaxed), begun.elapsed()), (7, 6 * END_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_run_is_given_up_after_a_time_or_where_waiting_does_not_help() {
        let begun = Instant::now();
        let away = until_stored("r", || async { Err::<(), _>(full()) }).await.unwrap_err();
        assert_eq!((away.code(), begun.elapsed()), (ErrorCode::Overloaded, END_WAIT));
        let newer = || async { Err::<(), _>(StoreError::Newer { place: "sekisho.db".into(), found: 9, known: 8 }) };
        let begun = Instant::now();
        assert_eq!(until_stored("r", newer).await.unwrap_err().code(), ErrorCode::Internal);
        assert!(begun.elapsed().is_zero());
    }
}
