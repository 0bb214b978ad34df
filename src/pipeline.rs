//! The life of a tool call. Every call, whatever face it came in by and whatever kind of tool it
//! goes to, walks through [`Pipeline::run`] from top to bottom.
//!
//! Each stage hands on a proof that the next one needs; without a [`Permit`](crate::policy::Permit)
//! nothing can be executed. Whatever happens on the way, also when the caller hangs up or the tool
//! panics, the call is settled: metrics, log, trace, audit line, receipt.

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
use crate::call::{Arguments, CallContext, Stage};
use crate::error::CallError;
use crate::limits::Limits;
use crate::policy::Policy;
use crate::registry::{Accepted, Registry};

use self::idempotency::{Once, ReplyKey};

pub use self::execute::Retries;
pub use self::explain::Verdict;
pub use self::idempotency::Replies;
pub use self::receipt::{Answer, Answered, ErrorInfo, Receipt, Reply};
pub use self::settle::{Entry, Settlement};

/// The checkpoint: everything a call passes, put together by [`crate::gateway`].
#[derive(Debug)]
pub struct Pipeline {
    pub registry: Arc<Registry>,
    pub limits: Limits,
    pub policy: Policy,
    pub budget: Arc<Budgets>,
    pub breakers: Breakers,
    pub retries: Retries,
    pub replies: Replies<Reply>,
    pub settlement: Settlement,
}

impl Pipeline {
    /// Runs one call and settles it. Dropping the future cancels the work, and settles that too.
    ///
    /// A call with an idempotency key whose reply is already known gets that reply again.
    pub async fn call(&self, call: CallContext, arguments: Arguments) -> Answered {
        match &call.idempotency_key {
            None => Answered::anew(self.run_and_settle(&call, arguments).await),
            // In a box: a future has room for its rarest way, and is moved with all of it.
            Some(key) => match Box::pin(self.call_once(&call, key, arguments)).await {
                Ok(answered) => answered,
                Err(error) => Answered::anew(Reply::without_a_run(&call, error)),
            },
        }
    }

    async fn call_once(&self, call: &CallContext, key: &str, arguments: Arguments) -> Result<Answered, CallError> {
        let key = ReplyKey::new(&call.caller, &call.tool, key)?;
        let Ok(tool) = self.registry.find(&call.tool) else {
            return Ok(Answered::anew(self.run_and_settle(call, arguments).await));
        };
        let deadline = call.deadline(tool.timeout());
        let digest = idempotency::digest(call, &arguments);
        let run = || self.run_and_settle(call, arguments);
        Ok(match self.replies.once(key, digest, deadline, run, Reply::bytes_to_store).await? {
            Once::Ran(reply) => Answered { reply, replayed: false },
            Once::Replayed(reply) => {
                self.settlement.metrics.idempotent_replay();
                Answered { reply, replayed: true }
            }
        })
    }

    async fn run_and_settle(&self, call: &CallContext, arguments: Arguments) -> Reply {
        let mut entry = match self.settlement.open(call, &arguments) {
            Ok(entry) => entry,
            Err(error) => return Reply::without_a_run(call, error),
        };
        let span = entry.span().clone();
        let outcome = AssertUnwindSafe(self.run(call, arguments, &mut entry)).catch_unwind().instrument(span).await;
        let outcome = outcome.unwrap_or_else(|panic| Err(entry.broken_off(panic_message(&*panic))));
        entry.settle(outcome).await
    }

    async fn run(
        &self,
        call: &CallContext,
        arguments: Arguments,
        entry: &mut Entry<'_>,
    ) -> Result<Accepted, CallError> {
        let tool = entry.at(Stage::Find, self.registry.find(&call.tool))?;
        let _slots = entry.at(Stage::Limits, self.limits.admit(call, &tool).await)?;
        let arguments = entry.at(Stage::Validate, tool.input.validate(arguments))?;
        let permit = entry.at(Stage::Policy, self.policy.authorize(call, &tool, arguments))?;
        let hold = entry.at(Stage::Budget, self.budget.reserve(call, &tool))?;
        let trial = entry.at(Stage::Breaker, self.breakers.admit(tool.upstream_of(&permit)))?;
        if call.dry_run {
            return Ok(Accepted::not_run(&hold));
        }
        entry.keep(hold);
        let done = entry.at(Stage::Execute, self.retries.execute(call, &tool, &permit, trial).await)?;
        entry.accept(&tool, done.output)
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the call panicked: {}", text.unwrap_or("without a message"))
}
