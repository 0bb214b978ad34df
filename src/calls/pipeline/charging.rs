//! The money and tokens of a call while it is executed.

use super::settlement::CallScope;
use super::start::Start;
use crate::budget::Hold;
use sekisho_core::call::{CallContext, Stage};
use sekisho_core::error::CallError;

/// A call that is charged however it ends: its hold is stored, where that is needed, and kept by its scope.
#[derive(Debug)]
#[must_use]
pub(super) struct Charging {
    _start: Start,
    max_text_tokens: u64,
}

impl Charging {
    /// Stores the reserved amount of a call that has begun, where its charge is not written in the background, and has
    /// its scope keep it.
    /// Errors: the amount cannot be stored; the call must not be sent.
    pub(super) async fn begin(
        start: Start,
        call: &CallContext,
        mut hold: Hold,
        scope: &mut CallScope<'_>,
    ) -> Result<Self, CallError> {
        if call.charging.sink.is_some() {
            // Boxed, because few calls are charged so.
            Box::pin(hold.store(None)).await.map_err(|error| error.at_stage(Stage::Budget))?;
        }
        let max_text_tokens = hold.max_text_tokens();
        scope.keep(hold);
        Ok(Self { _start: start, max_text_tokens })
    }

    /// Tokens that the text of the output may have.
    pub(super) fn max_text_tokens(&self) -> u64 {
        self.max_text_tokens
    }
}
