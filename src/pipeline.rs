//! The life of a tool call. Every call, whatever face it came in by and whatever kind of tool it
//! goes to, walks through [`Pipeline::run`] from top to bottom.
//!
//! Each stage hands on a proof that the next one needs; without a [`Permit`](crate::policy::Permit)
//! nothing can be executed. Whatever happens on the way, also when the caller hangs up or the tool
//! panics, the call is settled: metrics, log, trace, audit line, receipt.

mod accept;
mod execute;
mod explain;
mod idempotency;
mod receipt;
mod settle;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tracing::Instrument;

use crate::breaker::Breakers;
use crate::budget::Budgets;
use crate::core::call::{Arguments, CallContext, Caller, Stage};
use crate::core::error::CallError;
use crate::limits::Limits;
use crate::policy::{CallerTools, Policy};
use crate::registry::Registry;

use self::accept::Accepted;
use self::execute::upstream_of;
use self::idempotency::{IdempotentOutcome, InFlightGuard};

pub use self::execute::Retries;
pub use self::explain::Verdict;
pub use self::idempotency::Replies;
pub use self::receipt::{Answer, Answered, ErrorInfo, Receipt, Reply};
pub use self::settle::{CallScope, Settlement};

/// The checkpoint: everything a call passes, put together by [`crate::gateway`].
#[derive(Debug)]
pub struct Pipeline {
    pub registry: Arc<Registry>,
    pub limits: Limits,
    pub policy: Policy,
    pub budget: Arc<Budgets>,
    pub breakers: Breakers,
    pub retries: Retries,
    pub replies: Arc<Replies>,
    pub settlement: Settlement,
}

impl Pipeline {
    /// Runs one call and settles it. Dropping the future cancels the work, and settles that too, but for a call with an
    /// idempotency key: that goes on, and whoever sends it again gets its reply.
    pub async fn call(self: &Arc<Self>, call: CallContext, arguments: Arguments) -> Answered {
        match &call.idempotency_key {
            None => Answered::anew(self.run_and_settle(&call, arguments, None).await),
            // In a box: a future has room for its rarest way, and is moved with all of it.
            Some(_) => Box::pin(self.call_once(call, arguments)).await,
        }
    }

    /// The tools there are now, as the caller may use them.
    pub fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools {
        self.policy.tools_for(&self.registry.snapshot(), caller)
    }

    async fn call_once(self: &Arc<Self>, call: CallContext, arguments: Arguments) -> Answered {
        match self.enter(&call, &arguments).await {
            Err(error) => Answered::anew(Reply::without_a_run(&call, error)),
            Ok(Some(IdempotentOutcome::Answered(reply))) => {
                self.settlement.metrics.idempotent_replay();
                Answered { reply, replayed: true }
            }
            Ok(Some(IdempotentOutcome::First(turn))) if !call.dry_run => self.run_recorded(call, arguments, turn).await,
            // A dry run is not kept, and there is nothing to keep of a tool that does not exist.
            Ok(_) => Answered::anew(self.run_and_settle(&call, arguments, None).await),
        }
    }

    /// Whether a call with a key is to be run, or was answered; `None` where there is no such tool.
    async fn enter(&self, call: &CallContext, arguments: &Arguments) -> Result<Option<IdempotentOutcome>, CallError> {
        let key = call.idempotency_key.as_deref().unwrap_or_default();
        let Ok(tool) = self.registry.find_for(call) else { return Ok(None) };
        self.replies.enter(call, key, arguments, call.deadline(tool.timeout())).await.map(Some)
    }

    async fn run_recorded(
        self: &Arc<Self>,
        call: CallContext,
        arguments: Arguments,
        mut turn: InFlightGuard,
    ) -> Answered {
        let (pipeline, call) = (Arc::clone(self), Arc::new(call));
        let running = {
            let call = Arc::clone(&call);
            Box::pin(async move {
                let reply = Arc::new(pipeline.run_and_settle(&call, arguments, Some(&mut turn)).await);
                turn.end(&reply, call.sending.state()).await;
                reply
            })
        };
        match self.replies.run(running).await {
            Some(reply) => Answered { reply, replayed: false },
            None => Answered::anew(Reply::without_a_run(&call, CallError::internal("the call was cut off"))),
        }
    }

    async fn run_and_settle(
        &self,
        call: &CallContext,
        arguments: Arguments,
        turn: Option<&mut InFlightGuard>,
    ) -> Reply {
        let mut scope = match self.settlement.open(call, &arguments) {
            Ok(scope) => scope,
            Err(error) => return Reply::without_a_run(call, error),
        };
        let span = scope.span().clone();
        let outcome =
            AssertUnwindSafe(self.run(call, arguments, &mut scope, turn)).catch_unwind().instrument(span).await;
        let outcome = outcome.unwrap_or_else(|panic| Err(scope.internal_failure(panic_message(&*panic))));
        scope.settle(outcome).await
    }

    async fn run(
        &self,
        call: &CallContext,
        arguments: Arguments,
        scope: &mut CallScope<'_>,
        turn: Option<&mut InFlightGuard>,
    ) -> Result<Accepted, CallError> {
        let tool = scope.find(&self.registry)?;
        let _slots = scope.record_stage(Stage::Limits, self.limits.admit(call, &tool).await)?;
        let arguments = scope.record_stage(Stage::Validate, tool.input.validate(arguments))?;
        let permit = scope.record_stage(Stage::Policy, self.policy.authorize(call, &tool, arguments))?;
        let hold = scope.record_stage(Stage::Budget, self.budget.reserve(call, &tool))?;
        let trial = scope.record_stage(Stage::Breaker, self.breakers.admit(upstream_of(&tool, &permit)))?;
        if call.dry_run {
            return Ok(Accepted::not_run(&hold));
        }
        if let Some(turn) = turn {
            // In a box: few calls have a key.
            Box::pin(turn.record(call.deadline(tool.timeout()))).await?;
        }
        scope.keep(hold);
        let done = scope.record_stage(Stage::Execute, self.retries.execute(call, &tool, &permit, trial).await)?;
        scope.accept(&tool, done.output)
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the call panicked: {}", text.unwrap_or("without a message"))
}
