//! The arguments and results of calls that `recording.content` names, on their way to the store: kept by the call, written by the
//! writer of the index.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::receipt::Answer;
use crate::tool::Tool;
use sekisho_config::ContentConfig;
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::error::CallError;
use sekisho_core::record::{CallContent, CallSummary, KeptValue};

/// Maximum bytes that wait.
const MAX_WAITING: usize = 16 << 20;

/// Bytes of an entry beside its values.
const ENTRY: usize = 1 << 10;

/// The contents that wait for the store.
#[derive(Debug)]
pub struct Contents {
    settings: ContentConfig,
    waiting: Mutex<WaitingContents>,
}

/// Contents in the order in which their calls ended.
#[derive(Debug, Default)]
pub struct WaitingContents {
    pub entries: Vec<(Arc<CallSummary>, CallContent)>,
    bytes: usize,
    /// The contents that found no room.
    pub dropped: u64,
}

impl Contents {
    /// `None` where the content of no call is kept.
    pub(super) fn of(settings: &ContentConfig) -> Option<Self> {
        settings.is_on().then(|| Self { settings: settings.clone(), waiting: Mutex::default() })
    }

    pub fn settings(&self) -> &ContentConfig {
        &self.settings
    }

    /// The content of a call that begins, if it is kept. Arguments that rules may change are kept after the change.
    pub(super) fn begun(&self, call: &CallContext, tool: &Tool, arguments: &Arguments) -> Option<Box<CallContent>> {
        self.settings.keeps(tool.name(), &call.caller.tenant).then(|| {
            let arguments = if tool.changes_arguments() { KeptValue::Absent } else { self.arguments(arguments) };
            Box::new(CallContent { arguments, result: KeptValue::Absent })
        })
    }

    pub(super) fn arguments(&self, arguments: &Arguments) -> KeptValue {
        KeptValue::of(arguments, self.settings.max_bytes)
    }

    /// The answer of a call, or the output of a tool that failed.
    pub(super) fn result(&self, outcome: Result<&Answer, &CallError>) -> KeptValue {
        let output = match outcome {
            Ok(answer) => Some(&answer.output),
            Err(error) => error.output(),
        };
        let output = output.filter(|output| !output.is_null());
        output.map_or(KeptValue::Absent, |output| KeptValue::of(output, self.settings.max_bytes))
    }

    /// Hands the content of a call over that has ended. It is dropped, and counted, where too many wait.
    pub(super) fn put(&self, call: &Arc<CallSummary>, content: CallContent) {
        let bytes = content.bytes() + ENTRY;
        let mut waiting = self.waiting.lock();
        if waiting.bytes + bytes > MAX_WAITING {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += bytes;
        waiting.entries.push((Arc::clone(call), content));
    }

    /// All that wait.
    pub fn take(&self) -> WaitingContents {
        mem::take(&mut self.waiting.lock())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_core::call::{Caller, Via};

    #[test]
    fn contents_wait_within_a_bound_and_the_others_are_counted() {
        assert!(Contents::of(&ContentConfig::default()).is_none());
        let settings = ContentConfig { tools: vec!["*".to_owned()], max_bytes: 2 << 20, ..ContentConfig::default() };
        let contents = Contents::of(&settings).unwrap();
        let context = CallContext::new("echo", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
        let call = Arc::new(CallSummary::new(&context, None, None, String::new()));
        let large = || CallContent {
            arguments: KeptValue::of(&json!("x".repeat(1 << 20)), settings.max_bytes),
            result: KeptValue::Absent,
        };
        (0..20).for_each(|_| contents.put(&call, large()));
        let waiting = contents.take();
        assert_eq!((waiting.entries.len(), waiting.dropped), (15, 5));
        contents.put(&call, large());
        assert_eq!((contents.take().entries.len(), contents.take().dropped), (1, 0));
    }
}
