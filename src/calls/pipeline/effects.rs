//! Finds out what became of a call whose outcome is not known, when it is sent again: by the upstream's own key, or by another tool
//! of the same source that reads. It is never made again because nobody knows: only a tool that the configuration names is trusted to show
//! all effects, so that one that it lacks was not made.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::SignedDuration;

use super::Pipeline;
use super::idempotency::{IdempotentOutcome, InFlightGuard, RecordKind, no_answer_yet, outcome_unknown};
use super::receipt::{Answered, AnsweredBy, Reply};
use crate::effects::{Found, PairedRead, found_in, paired_reads, readers};
use crate::tool::{Tool, ValidArguments};
use sekisho_core::call::{Arguments, CallClient, CallContext, CallResumption, SendingState, Stage};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::{Blame, CallError, ErrorCode};

/// The next step of a call with a record, once it is known.
#[derive(Debug)]
pub(super) enum KnownOutcome {
    /// It must be made.
    First(InFlightGuard),
    Answered(Arc<Reply>),
}

impl Pipeline {
    /// The outcome of a call; one that is not known is looked for.
    /// Errors: `unknown_outcome` where nothing shows what became of the call.
    pub(super) async fn known(
        self: &Arc<Self>,
        call: &CallContext,
        tool: &Arc<Tool>,
        valid: Option<&ValidArguments>,
        outcome: IdempotentOutcome,
    ) -> Result<KnownOutcome, CallError> {
        let outcome = match outcome {
            IdempotentOutcome::Unknown(guard, started) => self.resolve(call, tool, valid, guard, started).await?,
            known => known,
        };
        match outcome {
            IdempotentOutcome::First(guard) => Ok(KnownOutcome::First(guard)),
            IdempotentOutcome::Answered(reply) => Ok(KnownOutcome::Answered(reply)),
            IdempotentOutcome::Unknown(guard, _) => Err(outcome_unknown(guard.kind())),
        }
    }

    async fn resolve(
        self: &Arc<Self>,
        call: &CallContext,
        tool: &Arc<Tool>,
        valid: Option<&ValidArguments>,
        guard: InFlightGuard,
        started: DatabaseTime,
    ) -> Result<IdempotentOutcome, CallError> {
        let kind = guard.kind();
        let Some(valid) = valid else { return Err(outcome_unknown(kind)) };
        // An approval stands for one attempt.
        let may_begin_again = kind != RecordKind::Approval;
        if may_begin_again && tool.declares_idempotency_key() {
            return guard.not_made(started).await;
        }
        // Before the list is read: the effect may come after that.
        let age = guard.age(started);
        match self.look_for(call, tool, valid.as_map(), started).await {
            Found::Made(output) => {
                guard.made(started, Arc::new(Reply::resolved(call.id, output, AnsweredBy::Read))).await
            }
            Found::NotMade if may_begin_again => {
                // Until then its upstream may still work on it.
                let wait = SignedDuration::try_from(tool.timeout()).unwrap_or(SignedDuration::MAX);
                match wait.saturating_sub(age) {
                    left if left.is_positive() => Err(no_answer_yet(left.unsigned_abs())),
                    _ => guard.not_made(started).await,
                }
            }
            Found::NotMade | Found::Undecided => Err(outcome_unknown(kind)),
        }
    }

    /// The evidence of the tools that may find the effect of a call, asked as its caller.
    async fn look_for(
        self: &Arc<Self>,
        call: &CallContext,
        tool: &Arc<Tool>,
        arguments: &Arguments,
        started: DatabaseTime,
    ) -> Found {
        let is_declared = tool.metadata.found_by.is_some();
        for PairedRead { tool: read, arguments: of_read } in
            paired_reads(&self.registry.snapshot(), call, tool, arguments)
        {
            let answered = Arc::clone(self).read(reading(call, read.name()), of_read).await;
            let Ok(answer) = &answered.reply.outcome else { continue };
            match found_in(read.value_of(&answer.output), arguments, *started, is_declared) {
                Found::Undecided => {}
                found => return found,
            }
        }
        Found::Undecided
    }

    /// Makes a call within another one. Its future has a type of its own, which does not contain itself.
    fn read(self: Arc<Self>, call: CallContext, arguments: Arguments) -> BoxFuture<'static, Answered> {
        Box::pin(async move { Self::call(&self, call, arguments).await })
    }

    /// Whether a call ended without an answer that says what became of it, and there is a way to find it out.
    pub(super) fn loses_outcome(&self, call: &CallContext, kind: RecordKind, reply: &Reply) -> bool {
        let was_cut = |error: &CallError| {
            let has_no_answer = error.blame() == Blame::Network || error.code() == ErrorCode::Timeout;
            has_no_answer && error.stage() == Some(Stage::Execute)
        };
        let is_lost =
            call.progress.sending.state() != SendingState::Pending && reply.outcome.as_ref().err().is_some_and(was_cut);
        is_lost
            && match kind {
                RecordKind::Effect => true,
                RecordKind::IdempotencyKey => self.can_be_found(call),
                RecordKind::Approval => false,
            }
    }

    fn can_be_found(&self, call: &CallContext) -> bool {
        let Ok(tool) = self.registry.find_for(call) else { return false };
        tool.declares_idempotency_key() || !readers(&self.registry.snapshot(), call, &tool).is_empty()
    }
}

/// A call of another tool for the same caller, without the ids of the first.
fn reading(call: &CallContext, tool: &str) -> CallContext {
    let CallClient { peer, session, .. } = call.client.clone();
    CallContext {
        tool: tool.to_owned(),
        target: None,
        dry_run: false,
        resumption: CallResumption::default(),
        client: CallClient { peer, session, ..CallClient::default() },
        ..call.repeated()
    }
}

#[cfg(test)]
mod tests;
