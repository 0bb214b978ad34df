//! The pipeline, as programs reach it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rust_decimal::Decimal;

use sekisho_calls::approval::{Proposal, ProposedEffect};
use sekisho_calls::budget::price_of;
use sekisho_calls::journals::{Journals, RunContext};
use sekisho_calls::pipeline::{Answered, Pipeline};
use sekisho_calls::policy::CallerTools;
use sekisho_calls::tool::Effects;
use sekisho_core::call::{Arguments, CallContext, Caller};
use sekisho_core::error::CallError;

/// The pipeline for the calls of programs.
pub trait ToolPipeline: Send + Sync {
    fn call(self: Arc<Self>, call: CallContext, arguments: Arguments) -> BoxFuture<'static, Answered>;

    /// The tools registered now, with the caller's access to each.
    fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools;

    /// The price of a call.
    fn price(&self, call: &CallContext) -> Decimal;

    /// Whether the caller may use a tool now, whatever its arguments.
    fn check_access(&self, tool: &str, caller: &Arc<Caller>) -> Result<(), CallError>;

    /// Whether a call of a tool may be made a second time.
    fn may_repeat(&self, tool: &str, caller: &Arc<Caller>) -> bool;

    /// Whether a call of a tool changes nothing, so that it is made for a program that proposes its effects.
    fn changes_nothing(&self, tool: &str, caller: &Arc<Caller>) -> bool;

    /// A call as an effect that a program proposes. It is not made.
    fn proposed(
        self: Arc<Self>,
        call: CallContext,
        arguments: Arguments,
    ) -> BoxFuture<'static, Result<ProposedEffect, CallError>>;

    /// The effects that an approval of the caller was asked for, and the list with those that an approver has struck out.
    fn effects_of(
        self: Arc<Self>,
        approval: Arc<str>,
        caller: Arc<Caller>,
    ) -> BoxFuture<'static, Result<(Proposal, Option<Proposal>), CallError>>;

    /// Where runs are kept that can be resumed; none where they cannot be sealed.
    fn journals(&self) -> Option<Arc<Journals>>;

    /// Hash of the policy set in force.
    fn policy_version(&self) -> Arc<str>;

    /// A call goes on with a run that began so. What another session has read for it, this one gets from its journal.
    fn resumed(&self, _call: &CallContext, _begun_by: &RunContext) {}
}

impl ToolPipeline for Pipeline {
    fn call(self: Arc<Self>, call: CallContext, arguments: Arguments) -> BoxFuture<'static, Answered> {
        Box::pin(async move { Self::call(&self, call, arguments).await })
    }

    fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools {
        self.policy.tools_for(&self.registry.snapshot(), caller)
    }

    fn price(&self, call: &CallContext) -> Decimal {
        self.registry.find_for(call).map_or(Decimal::ZERO, |tool| price_of(&tool.metadata))
    }

    fn check_access(&self, tool: &str, caller: &Arc<Caller>) -> Result<(), CallError> {
        let tool = self.registry.find(tool, caller)?;
        self.policy.check_access(&tool, caller)
    }

    fn may_repeat(&self, tool: &str, caller: &Arc<Caller>) -> bool {
        let changes_nothing = |effects: Effects| effects.read_only;
        // A tool that is not there may be when the call is made.
        self.registry
            .find(tool, caller)
            .is_ok_and(|tool| tool.metadata.idempotent || tool.metadata.effects.is_some_and(changes_nothing))
    }

    fn changes_nothing(&self, tool: &str, caller: &Arc<Caller>) -> bool {
        self.registry.find(tool, caller).is_ok_and(|tool| tool.metadata.changes_nothing())
    }

    fn proposed(
        self: Arc<Self>,
        call: CallContext,
        arguments: Arguments,
    ) -> BoxFuture<'static, Result<ProposedEffect, CallError>> {
        Box::pin(async move { Self::proposed(&self, &call, arguments).await })
    }

    fn effects_of(
        self: Arc<Self>,
        approval: Arc<str>,
        caller: Arc<Caller>,
    ) -> BoxFuture<'static, Result<(Proposal, Option<Proposal>), CallError>> {
        Box::pin(async move { self.approvals.effects_of(&approval, &caller).await })
    }

    fn policy_version(&self) -> Arc<str> {
        self.policy.version()
    }

    fn journals(&self) -> Option<Arc<Journals>> {
        self.journals.can_keep().then(|| Arc::clone(&self.journals))
    }

    fn resumed(&self, call: &CallContext, begun_by: &RunContext) {
        self.flow.resumed(call, begun_by.session_of_values());
    }
}
