//! The second step of a call: one with a key or an approval is made once. It runs in a task of its own, to its end, and a client
//! that sends it again gets its reply.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::Pipeline;
use super::effects::KnownOutcome;
use super::idempotency::{InFlightGuard, POLL, RecordKind, RequestDigest};
use super::receipt::{Answered, Reply};
use super::recorded::{Entered, Recorded};
use crate::approval::Standing;
use crate::tool::{Tool, ValidArguments};
use sekisho_core::call::{Arguments, CallContext, Deadline, Stage};
use sekisho_core::error::{CallError, ErrorCode};

impl Pipeline {
    /// Whether a call must be run, or has a reply already: the reply of the same call before, or a refusal of its key
    /// or approval.
    pub(super) async fn once(self: &Arc<Self>, call: &CallContext, arguments: &Arguments) -> Entered {
        let has_id = call.resumption.idempotency_key.is_some() || call.resumption.approval.is_some();
        if !has_id && !self.replies.records_effects() {
            return Entered::Unrecorded(None);
        }
        // Boxed, to keep this rare branch out of the size of the future.
        let entered = Box::pin(async {
            match self.enter(call, arguments).await {
                Ok(entered) => entered,
                Err(error) => Entered::Answered(Answered::first(self.refuse_key(call, arguments, error).await)),
            }
        });
        entered.await
    }

    /// Runs and settles a call that is recorded, in a task of its own.
    pub(super) async fn settle_recorded(
        self: &Arc<Self>,
        mut call: Box<CallContext>,
        arguments: Arguments,
        mut recorded: Recorded,
    ) -> Answered {
        call.resumption.upstream_key = call.resumption.upstream_key.take().or_else(|| recorded.upstream_key.take());
        // Gone with this future, when the client leaves.
        let client = recorded.guard().and_then(InFlightGuard::take_client);
        let (pipeline, call) = (Arc::clone(self), Arc::<CallContext>::from(call));
        let running = {
            let call = Arc::clone(&call);
            Box::pin(async move {
                let reply = Arc::new(pipeline.settle(&call, arguments, Some(&mut recorded)).await);
                let elsewhere = recorded.take_elsewhere();
                let is_lost = recorded.guard().is_some_and(|guard| pipeline.loses_outcome(&call, guard.kind(), &reply));
                let to_forget = recorded.end(&reply, call.progress.sending.state(), is_lost).await;
                (elsewhere.is_some(), elsewhere.unwrap_or(reply), to_forget)
            })
        };
        match self.replies.run(running).await {
            Some((is_elsewhere, reply, to_forget)) => {
                if let Some(guard) = to_forget {
                    self.replies.forget_delivered(guard, client);
                }
                if is_elsewhere { self.replayed(&call, reply) } else { Answered { reply, replayed: false } }
            }
            None => Answered::first(Reply::without_a_run(&call, CallError::internal("the call was aborted"))),
        }
    }

    /// The reply of the same call before.
    fn replayed(&self, call: &CallContext, reply: Arc<Reply>) -> Answered {
        self.settlement.metrics.idempotent_replay();
        self.add_replayed(call, &reply);
        Answered { reply, replayed: true }
    }

    /// Settles a call whose key or approval was refused.
    async fn refuse_key(&self, call: &CallContext, arguments: &Arguments, error: CallError) -> Reply {
        match self.settlement.open(call, arguments) {
            Ok(mut scope) => {
                // For the records: the call was refused because of these, whether the tool is there or not.
                let _tool = scope.find(&self.registry, arguments);
                scope.settle(Err(error)).await
            }
            Err(error) => Reply::without_a_run(call, error),
        }
    }

    /// Whether a call with a key or an approval, or one that is recorded for its effect, must be run, or already has a reply. Dry
    /// runs, calls to tools that do not exist, and calls by an approval of several are not recorded.
    /// Errors: `unauthenticated` or `denied` for a caller who may not use the tool; the errors of the key and of the
    /// approval.
    async fn enter(self: &Arc<Self>, call: &CallContext, arguments: &Arguments) -> Result<Entered, CallError> {
        let Ok(tool) = self.registry.find_for(call) else { return Ok(Entered::Unrecorded(None)) };
        let kind = RecordKind::of(call);
        if kind == RecordKind::Effect && !may_record(call, &tool) {
            return Ok(Entered::Unrecorded(None));
        }
        let access = self.policy.check_access(&tool, &call.caller);
        if kind == RecordKind::Effect && access.is_err() {
            return Ok(Entered::Unrecorded(None));
        }
        // A narrower key of the same person, or a token with fewer scopes, gets no reply of a call that was made with more.
        access.map_err(|error| error.at_stage(Stage::Policy))?;
        let (mut recorded, deadline) = (Recorded::default(), call.deadline(tool.timeout()));
        let valid = tool.valid_arguments(arguments.clone(), &call.origin.prompt_params);
        let request = || RequestDigest::new(call, &tool, arguments, valid.as_ref().ok());
        let outcome = match (&call.resumption.idempotency_key, kind) {
            // A tool that reads stored results has no effect, and is checked each time: its reply is the reply of another
            // tool.
            (Some(_), _) if tool.metadata.reads_results() => None,
            (Some(key), _) => Some(self.replies.enter(call, key, request(), deadline).await?),
            // A refused call is not recorded.
            (None, RecordKind::Effect) if valid.is_ok() => {
                Some(self.replies.enter_effect(call, request(), deadline).await?)
            }
            (None, _) => None,
        };
        if let Some(outcome) = outcome {
            match self.known(call, &tool, valid.as_ref().ok(), outcome).await? {
                KnownOutcome::Answered(reply) => return Ok(Entered::Answered(self.replayed(call, reply))),
                KnownOutcome::First(guard) => recorded.add_key(&tool, call, guard),
            }
        }
        match &call.resumption.approval {
            None => {
                recorded.valid = valid.ok().map(|valid| (tool.id, valid));
                Ok(Entered::new(call, recorded))
            }
            Some(id) => self.enter_approved(call, &tool, (id, valid?), deadline, recorded).await,
        }
    }

    /// The approval is checked before a reply is given: only the call that was approved gets it.
    async fn enter_approved(
        self: &Arc<Self>,
        call: &CallContext,
        tool: &Arc<Tool>,
        (id, valid): (&Arc<str>, ValidArguments),
        deadline: Deadline,
        recorded: Recorded,
    ) -> Result<Entered, CallError> {
        let binding = self.approvals.check_binding(id, call, tool, &valid).await?;
        let mut was_made = false;
        loop {
            let outcome = self.replies.enter_approved(call, id, &binding, deadline).await?;
            let mut guard = match self.known(call, tool, Some(&valid), outcome).await? {
                KnownOutcome::Answered(reply) => return Ok(Entered::Answered(self.replayed(call, reply))),
                KnownOutcome::First(guard) => guard,
            };
            guard.name(call);
            match self.approvals.standing(id, call, tool, &valid).await? {
                Standing::Open => {
                    return Ok(Entered::new(call, Recorded { valid: Some((tool.id, valid)), ..recorded }));
                }
                Standing::Once(approved) => {
                    let (approved, valid) = (Some((approved, guard)), Some((tool.id, valid)));
                    let recorded = Recorded { approved, valid, ..recorded };
                    return Ok(Entered::new(call, recorded));
                }
                // It was made at another replica after its reply was looked up here: look once more.
                Standing::Made(refusal) if was_made => return Err(refusal),
                Standing::Made(_) => was_made = true,
                Standing::RunsElsewhere if deadline.has_passed() => return Err(still_running()),
                Standing::RunsElsewhere => {
                    drop(guard);
                    sleep_until(deadline.0.min(Instant::now() + POLL)).await;
                }
            }
        }
    }
}

/// Whether a call without a key is recorded for its effect. A call of an agent or a program has a record of its own.
fn may_record(call: &CallContext, tool: &Tool) -> bool {
    !call.dry_run && call.resumption.upstream_key.is_none() && tool.metadata.has_effects()
}

fn still_running() -> CallError {
    let message = "the call of this approval is still running at another replica; send it again later for its reply";
    CallError::new(ErrorCode::Timeout, message)
}

#[cfg(test)]
mod tests;
