//! The calls of a program in the receipt of the call that runs it.

use std::time::Duration;

use rust_decimal::Decimal;
use tokio::time::Instant;

use sekisho_core::call::{CallContext, NestedCall, NestedCallList};
use sekisho_core::error::ErrorCode;

/// A call under way, for the receipt of the outer one: it is cancelled unless it ends.
pub(super) struct Listed<'a> {
    outer: &'a CallContext,
    call: Option<NestedCall>,
    begun: Instant,
}

impl<'a> Listed<'a> {
    pub(super) fn new(outer: &'a CallContext, call: &CallContext) -> Self {
        let call = NestedCall {
            call_id: call.id,
            tool: call.tool.clone(),
            code: Some(ErrorCode::Cancelled),
            cost_usd: Decimal::ZERO,
            duration: Duration::ZERO,
            nested: NestedCallList::default(),
        };
        Self { outer, call: Some(call), begun: Instant::now() }
    }

    pub(super) fn end(&mut self, ended: NestedCall) {
        if let Some(call) = self.call.take() {
            self.outer.progress.nested.add(NestedCall { tool: call.tool, ..ended });
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.outer.progress.nested.add(NestedCall { duration: self.begun.elapsed(), ..call });
        }
    }
}
