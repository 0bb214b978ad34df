//! The third step of a call: its stages run, and it is settled, however it ends.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use jiff::Timestamp;
use tracing::Instrument;

use super::Pipeline;
use super::receipt::Reply;
use super::recorded::Recorded;
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::guard_finding::is_labelled;

impl Pipeline {
    /// Runs a call, and records and answers it, also when the tool panics. `recorded`: the record of a call that is made once.
    pub(super) async fn settle(
        &self,
        call: &CallContext,
        arguments: Arguments,
        recorded: Option<&mut Recorded>,
    ) -> Reply {
        let mut scope = match self.settlement.open(call, &arguments) {
            Ok(scope) => scope,
            Err(error) => return Reply::without_a_run(call, error),
        };
        let span = scope.span().clone();
        let outcome =
            AssertUnwindSafe(self.run(call, arguments, &mut scope, recorded)).catch_unwind().instrument(span).await;
        let outcome = outcome.unwrap_or_else(|panic| Err(scope.internal_failure(panic_message(&*panic))));
        if let Some((tool, judged)) = scope.judged_tool() {
            let outcome = outcome.as_ref().map(|accepted| &accepted.answer);
            self.add_to_session(call, tool, judged, (outcome, is_labelled(scope.guard_findings())));
            self.policy.used_tools().called(call, outcome.err(), Timestamp::now());
        }
        scope.settle(outcome).await
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the call panicked: {}", text.unwrap_or("no message"))
}
