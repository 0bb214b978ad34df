//! The stages of a tool call. Every call, from every API and to every kind of tool, runs through
//! [`Pipeline::run`] from top to bottom.
//!
//! Each stage returns a proof that a later stage requires: without a [`Permit`](crate::policy::Permit)
//! no tool can be executed. Every call is settled (metrics, log, trace, audit line, receipt), also when
//! it is refused, the caller disconnects or the tool panics.

mod accept;
mod approved;
mod execute;
mod explain;
mod idempotency;
mod large_result;
mod messages;
mod permit;
mod receipt;
mod recorded;
mod refusals;
mod rejections;
mod sessions;
mod settle;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tracing::Instrument;

use crate::approval::Approvals;
use crate::breaker::Breakers;
use crate::budget::Budgets;
use crate::journals::Journals;
use crate::limits::Limits;
use crate::policy::{CallerTools, Policy};
use crate::registry::Registry;
use crate::results::Results;
use sekisho_core::call::{Arguments, CallContext, Caller, Stage};
use sekisho_core::error::CallError;

use self::accept::Accepted;
use self::execute::upstream_of;
use self::recorded::{Entered, Recorded};

pub use self::execute::Retries;
pub use self::explain::StageVerdict;
pub use self::idempotency::{EnteredTurn, KeyedTurn, Replies, TurnGuard};
pub use self::receipt::{Answer, Answered, ErrorInfo, Reply};
pub use self::refusals::WINDOW as REFUSALS_WINDOW;
pub use self::sessions::{EvictedSession, Sessions};
pub use self::settle::{CallScope, Settlement};

/// Everything that a call passes through. The gateway builds it (`src/gateway/parts.rs`).
#[derive(Debug)]
pub struct Pipeline {
    pub registry: Arc<Registry>,
    pub limits: Limits,
    pub policy: Policy,
    pub approvals: Arc<Approvals>,
    pub budget: Arc<Budgets>,
    pub breakers: Breakers,
    pub retries: Retries,
    pub replies: Arc<Replies>,
    pub results: Arc<Results>,
    pub journals: Arc<Journals>,
    pub sessions: Sessions,
    pub settlement: Settlement,
}

impl Pipeline {
    /// Runs one call and settles it. Dropping the future cancels the call and settles it as cancelled. A call with an
    /// idempotency key or an approval is not cancelled: it runs to its end, and a client that sends it again gets its reply.
    pub async fn call(self: &Arc<Self>, mut call: CallContext, arguments: Arguments) -> Answered {
        self.transform_messages(&mut call);
        if call.approval.is_some() || call.resumed_run.is_some() {
            // Boxed, to keep this rare branch out of the size of the future.
            return Box::pin(self.call_of_run(call, arguments)).await;
        }
        self.make_call(call, arguments).await
    }

    async fn make_call(self: &Arc<Self>, call: CallContext, arguments: Arguments) -> Answered {
        match (&call.idempotency_key, &call.approval) {
            (None, None) => Answered::first(self.run_and_settle(&call, arguments, None).await),
            // Boxed, to keep this rare branch out of the size of the future.
            _ => Box::pin(self.call_once(call, arguments)).await,
        }
    }

    /// The tools registered now, limited to those the caller may use.
    pub fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools {
        self.policy.tools_for(&self.registry.snapshot(), caller)
    }

    async fn call_once(self: &Arc<Self>, call: CallContext, arguments: Arguments) -> Answered {
        match self.enter(&call, &arguments).await {
            Err(error) => Answered::first(self.refuse_key(&call, &arguments, error).await),
            Ok(Entered::Answered(reply)) => {
                self.settlement.metrics.idempotent_replay();
                Answered { reply, replayed: true }
            }
            Ok(Entered::First(recorded)) if !call.dry_run && !recorded.is_empty() => {
                self.run_recorded(call, arguments, *recorded).await
            }
            // Dry runs, calls to tools that do not exist, and those by an approval of several are not recorded.
            Ok(_) => Answered::first(self.run_and_settle(&call, arguments, None).await),
        }
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

    async fn run_recorded(
        self: &Arc<Self>,
        call: CallContext,
        arguments: Arguments,
        mut recorded: Recorded,
    ) -> Answered {
        let (pipeline, call) = (Arc::clone(self), Arc::new(call));
        let running = {
            let call = Arc::clone(&call);
            Box::pin(async move {
                let reply = Arc::new(pipeline.run_and_settle(&call, arguments, Some(&mut recorded)).await);
                let elsewhere = recorded.take_elsewhere();
                recorded.end(&reply, call.sending.state()).await;
                (elsewhere.is_some(), elsewhere.unwrap_or(reply))
            })
        };
        match self.replies.run(running).await {
            Some((replayed, reply)) => {
                if replayed {
                    self.settlement.metrics.idempotent_replay();
                }
                Answered { reply, replayed }
            }
            None => Answered::first(Reply::without_a_run(&call, CallError::internal("the call was aborted"))),
        }
    }

    async fn run_and_settle(&self, call: &CallContext, arguments: Arguments, recorded: Option<&mut Recorded>) -> Reply {
        let mut scope = match self.settlement.open(call, &arguments) {
            Ok(scope) => scope,
            Err(error) => return Reply::without_a_run(call, error),
        };
        let span = scope.span().clone();
        let outcome =
            AssertUnwindSafe(self.run(call, arguments, &mut scope, recorded)).catch_unwind().instrument(span).await;
        let outcome = outcome.unwrap_or_else(|panic| Err(scope.internal_failure(panic_message(&*panic))));
        scope.settle(outcome).await
    }

    async fn run(
        &self,
        call: &CallContext,
        arguments: Arguments,
        scope: &mut CallScope<'_>,
        recorded: Option<&mut Recorded>,
    ) -> Result<Accepted, CallError> {
        let tool = scope.find(&self.registry, &arguments)?;
        call.limit_queueing(tool.timeout());
        let _slots = scope.record_stage(Stage::Limits, self.limits.admit(call, &tool).await)?;
        let arguments = scope.validated(&tool, tool.valid_arguments(arguments, &call.prompt_params))?;
        let permit = self.permit(call, &tool, arguments, recorded.as_deref()).await;
        let permit = scope.record_stage(Stage::Policy, permit)?;
        let mut hold = scope.record_stage(Stage::Budget, self.budget.reserve(call, &tool).await)?;
        let upstream = upstream_of(call, &tool, &permit);
        let breaker = scope.record_stage(Stage::Breaker, self.breakers.admit(upstream, &call.caller.tenant))?;
        if call.dry_run {
            return Ok(Accepted::not_run(&hold));
        }
        if let Some(recorded) = recorded {
            // Boxed, because few calls have a key.
            Box::pin(recorded.start(call, call.deadline(tool.timeout()))).await?;
        }
        if let Some(grant) = permit.grant() {
            Box::pin(self.approvals.use_grant(grant, call)).await?;
        }
        self.sessions.open_for(call)?;
        if call.charges.is_some() {
            Box::pin(hold.store(None)).await.map_err(|error| error.at_stage(Stage::Budget))?;
        }
        scope.keep(hold);
        let done = scope.executed(&tool, self.retries.execute(call, &tool, &permit, breaker).await)?;
        let checked = scope.checked(&tool, done.output);
        let shortened = self.shortened(call, &tool, checked, scope.max_text_tokens()).await;
        scope.accept(&tool, shortened)
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the call panicked: {}", text.unwrap_or("no message"))
}
