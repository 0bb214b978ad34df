//! The end of a run: its title, and all that it leaves, stored in one transaction.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use super::context::Context;
use super::lock::HeldLock;
use super::outcome::Outcome;
use super::run_event::{RunEvent, SystemSubtype};
use super::{ConversationRuns, RunReply, RunRequest, add, first_line, recovery, stored, system};
use crate::agent::Message;
use crate::agent::message::UserMessage;
use crate::agent::usage::UsageByAgent;
use crate::core::error::CallError;
use crate::infra::store::{RunEnd, RunStatus};

/// How long the end of a run waits for its title; then it is the first line of what the user said.
const TITLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of a run waits for a store that is away; within that time its lock is not lost.
const END_WAIT: Duration = Duration::from_secs(10);

/// Interval of attempts to store it.
const END_PAUSE: Duration = Duration::from_millis(500);

/// A run whose end is stored.
pub(super) struct Ended {
    pub(super) reply: RunReply,
    /// Why the reply is an error, where it is one object.
    pub(super) failure: Option<CallError>,
}

impl ConversationRuns {
    /// Stores the end of a run (C29–C36).
    pub(super) async fn finish(
        &self,
        context: Context,
        mut outcome: Outcome,
        lock: &HeldLock,
    ) -> Result<Ended, CallError> {
        let Context { request, mut run, live, log, journal, answers, title, usage, .. } = context;
        (run.status, run.error) = outcome.status(&live);
        run.ended = Some(Timestamp::now());
        let mut added = outcome.messages.clone();
        if run.status != RunStatus::Succeeded {
            journal.settle().await;
            added = recovery::completed(self.store(), &run.id, added).await?;
        }
        let input = Message::User(UserMessage::from(run.user_input.as_str()));
        let messages = answers.into_iter().map(Message::Tool).chain([input]).chain(added);
        let messages: Vec<_> = messages.map(|message| stored::write(&message)).collect();
        journal.store_usage().await;
        let title = match title {
            None if run.status == RunStatus::Succeeded => {
                let title = timeout(TITLE_TIMEOUT, self.title(&request, &usage, &outcome.text));
                let title = live.stop.run_until_cancelled(title).await.and_then(Result::ok);
                title.flatten().or_else(|| first_line(&request.user_input))
            }
            title => title,
        };
        let usage = outcome.count(&usage, &run.agent, request.profile.model());
        let (lock, title_of_end) = (Some(&lock.lock), title.as_deref());
        let end =
            RunEnd { run: &run, lock, keeps_lock: false, messages: &messages, title: title_of_end, usage: &usage };
        if !self.store_end(&end).await? {
            return Err(CallError::internal("the run lost its conversation's lock, and its end was not stored"));
        }
        let failure = outcome.error.take();
        let reply = outcome.reply(&run, title);
        if let Some(failure) = &failure {
            add(&log, &RunEvent::error(failure));
        }
        add(&log, &reply.event());
        add(&log, &system(SystemSubtype::Finish, &run));
        let failure = failure.map(|failure| failure.with_output(reply.result.as_str().into()));
        Ok(Ended { reply, failure })
    }

    /// Stores the end of a run. While the store is away it is tried again: the answer would be lost.
    async fn store_end(&self, end: &RunEnd<'_>) -> Result<bool, CallError> {
        let until = Instant::now() + END_WAIT;
        loop {
            match self.store().end_conversation_run(end).await {
                Err(error) if error.is_outage() && Instant::now() < until => {
                    tracing::warn!(%error, run = end.run.id, "the end of a run could not be stored; it is tried again");
                    sleep(END_PAUSE).await;
                }
                ended => return ended.map_err(CallError::from),
            }
        }
    }

    /// A title by the model for summaries (C32).
    async fn title(&self, request: &RunRequest, usage: &UsageByAgent, reply: &str) -> Option<String> {
        let (payer, agent) = ((&request.caller, &request.scopes), request.agent.as_str().into());
        let exchange = [request.user_input.as_str(), reply];
        self.agents.title(payer, &request.profile, (&agent, usage), exchange).await
    }
}
