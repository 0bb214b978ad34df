//! The life of a tool call. Every call, from every API and to every kind of tool, takes the four steps of [`Pipeline::call`]:
//! [`resume`] finds the run of a program that it resumes, [`once`] the reply that it has already; [`settle`] records it, also
//! when it is refused, the caller disconnects or the tool panics; and [`Pipeline::run`] has the stages, from top to bottom.
//!
//! Each stage returns a proof that a later stage requires: without a [`Permit`](crate::policy::Permit)
//! no tool can be executed.

mod accept;
mod charging;
mod contents;
mod effects;
mod execute;
mod explain;
mod guarded;
mod idempotency;
mod large_result;
mod messages;
mod once;
mod permit;
mod proposed;
mod receipt;
mod recorded;
mod refusals;
mod rejections;
mod resume;
mod session_values;
mod sessions;
mod settle;
mod settlement;
mod start;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::approval::Approvals;
use crate::breaker::Breakers;
use crate::budget::Budgets;
use crate::flow::Flow;
use crate::guards::GuardServices;
use crate::journals::Journals;
use crate::limits::Limits;
use crate::policy::{CallerTools, Policy};
use crate::registry::Registry;
use crate::results::Results;
use sekisho_core::call::{Arguments, CallContext, Caller, Stage};
use sekisho_core::error::CallError;

use self::accept::Accepted;
use self::charging::Charging;
use self::recorded::{Entered, Recorded};

pub use self::contents::{Contents, WaitingContents};
pub use self::execute::Retries;
pub use self::explain::StageVerdict;
pub use self::idempotency::{Effect, EffectState, EnteredTurn, KeyedTurn, Replies, Resolution, TurnGuard};
pub use self::receipt::{Answer, Answered, AnsweredBy, ErrorInfo, Receipt, Reply};
pub use self::refusals::WINDOW as REFUSALS_WINDOW;
pub use self::sessions::{EvictedSession, Sessions};
pub use self::settlement::{CallScope, Settlement};

/// Everything that a call passes through. The gateway builds it (`src/gateway/parts.rs`).
#[derive(Debug)]
pub struct Pipeline {
    pub registry: Arc<Registry>,
    pub limits: Limits,
    pub policy: Policy,
    pub guards: GuardServices,
    pub flow: Arc<Flow>,
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
    /// Makes one call. Dropping the future cancels the call and settles it as cancelled. A call with an idempotency key or an
    /// approval is not cancelled: it runs to its end, and a client that sends it again gets its reply.
    ///
    /// `call`: in a box where it comes from a request. It takes about a kilobyte, which each function on its way would copy.
    pub fn call(
        self: &Arc<Self>,
        call: impl Into<Box<CallContext>>,
        arguments: Arguments,
    ) -> impl Future<Output = Answered> {
        self.call_boxed(call.into(), arguments)
    }

    async fn call_boxed(self: &Arc<Self>, mut call: Box<CallContext>, arguments: Arguments) -> Answered {
        self.transform_messages(&mut call);
        let resumed = self.resume(&mut call, &arguments).await;
        let answered = match self.once(&call, &arguments).await {
            Entered::Answered(answered) => answered,
            // Boxed, to keep this rare branch out of the size of the future.
            Entered::First(recorded) => Box::pin(self.settle_recorded(call, arguments, *recorded)).await,
            Entered::Unrecorded(_held) => Answered::first(self.settle(&call, arguments, None).await),
        };
        if let Some(resumed) = resumed {
            Box::pin(self.await_approval(&resumed, &answered)).await;
        }
        answered
    }

    /// The stages, each of which returns the proof that a later one requires. A dry run ends before the call starts.
    async fn run(
        &self,
        call: &CallContext,
        arguments: Arguments,
        scope: &mut CallScope<'_>,
        mut recorded: Option<&mut Recorded>,
    ) -> Result<Accepted, CallError> {
        let tool = scope.find(&self.registry, &arguments)?;
        let _slots = scope.record(Stage::Limits, self.limits.admit(call, &tool).await)?;
        let arguments = scope.validated(&tool, arguments, recorded.as_deref_mut())?;
        let arguments = scope.judged(self.flow.judged(call, &tool, arguments, self.policy.reads_flow()).await);
        self.guard_arguments(call, &tool, &arguments, scope).await?;
        let permit = scope.record(Stage::Policy, self.permit(call, &tool, arguments, recorded.as_deref()).await)?;
        let hold = scope.record(Stage::Budget, self.budget.reserve(call, &tool).await)?;
        let breaker = scope.record(Stage::Breaker, self.admit_upstream(call, &tool, &permit))?;
        let Some(start) = self.start(call, &tool, &permit, recorded).await? else {
            return Ok(Accepted::not_run(&hold));
        };
        let charging = Charging::begin(start, call, hold, scope).await?;
        let executed = scope.executed(&tool, self.retries.execute(call, &tool, &permit, breaker, &charging).await);
        let executed = self.guard_failure(call, &tool, executed, scope).await?;
        self.accept(call, &tool, executed, (&permit, &charging), scope).await
    }

    /// The tools registered now, limited to the tools that the caller may use.
    pub fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools {
        self.policy.tools_for(&self.registry.snapshot(), caller)
    }
}
