//! The pipeline, as programs reach it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rust_decimal::Decimal;

use crate::budget::price_of;
use crate::core::call::{Arguments, CallContext, Caller};
use crate::pipeline::{Answered, Pipeline};
use crate::policy::CallerTools;

/// What calls of programs pass.
pub trait ToolPipeline: Send + Sync {
    fn call(self: Arc<Self>, call: CallContext, arguments: Arguments) -> BoxFuture<'static, Answered>;

    /// The tools registered now, with the caller's access to each.
    fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools;

    /// What a call costs.
    fn price(&self, call: &CallContext) -> Decimal;
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
}
