//! The records of the calls that ended last: their memory is used again, and their number says that calls have ended.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use sekisho_core::bounded::Ring;
use sekisho_core::record::{
    AttemptNote, CallSummary, FailureNotes, MAX_ATTEMPTS, MAX_REASON, MAX_RULES, MAX_TEXT, MAX_VIOLATIONS, Violation,
};

/// Records whose memory is used again once there are more.
const MAX_CALLS: usize = 2_000;

/// Maximum records, with older ones that the audit trail or the index has not written yet.
const MAX_HELD: usize = 3_000;

/// All calls together take at most 24 MiB, besides the texts that they share with others.
const _: () = assert!(MAX_HELD * (size_of::<CallSummary>() + TEXTS) <= 24 << 20);

/// Bytes of the texts of a call: why it failed is a reason, or words.
const TEXTS: usize = 8 * MAX_TEXT + MAX_REASON + MAX_VIOLATIONS * (size_of::<Violation>() + 2 * MAX_TEXT) + NOTES;

/// Bytes of what else is known about a call that did not succeed; none of others.
const NOTES: usize = size_of::<FailureNotes>()
    + MAX_ATTEMPTS * size_of::<AttemptNote>()
    + MAX_RULES * (size_of::<String>() + MAX_TEXT)
    + MAX_TEXT;

/// The records, oldest first. A later call takes over the memory of the oldest, once nobody else has it: memory that is freed
/// long after it was taken, and on another thread, costs more than all else here.
#[derive(Debug, Default)]
pub struct CallRecords {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    calls: Ring<Arc<CallSummary>>,
    ended: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self { calls: Ring::with_room(MAX_HELD), ended: 0 }
    }
}

impl Kept {
    /// The oldest call, if it makes room for the next one and nobody else has it.
    fn take_unused(&mut self) -> Option<Arc<CallSummary>> {
        let is_unused = |oldest: &Arc<CallSummary>| Arc::strong_count(oldest) == 1;
        let is_full = self.calls.len() >= MAX_CALLS;
        (is_full && self.calls.oldest().is_some_and(is_unused)).then(|| self.calls.pop_oldest()).flatten()
    }
}

impl CallRecords {
    /// Keeps the call that `summarize` makes, with memory for its request id.
    pub fn keep(&self, summarize: impl FnOnce(String) -> CallSummary) -> Arc<CallSummary> {
        let mut kept = self.kept.lock();
        let mut unused = kept.take_unused();
        // While others had the oldest, the list became longer. Afterwards each call removes two, until it is as long as before.
        let surplus = kept.take_unused();
        drop(kept);
        drop(surplus);
        let memory = unused.as_mut().and_then(Arc::get_mut).map(|oldest| mem::take(&mut oldest.request_id));
        let summary = summarize(memory.unwrap_or_default());
        let call = match unused {
            Some(mut oldest) => {
                *Arc::make_mut(&mut oldest) = summary;
                oldest
            }
            None => Arc::new(summary),
        };
        let mut kept = self.kept.lock();
        kept.ended += 1;
        let gone = kept.calls.push(Arc::clone(&call));
        // Memory is freed without the lock.
        drop(kept);
        drop(gone);
        call
    }

    /// The calls that have ended in this process.
    pub fn ended(&self) -> u64 {
        self.kept.lock().ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use sekisho_core::call::{CallBody, CallContext, Caller, Stage, Via};
    use sekisho_core::error::{CallError, ErrorCode};

    fn call(tool: &str) -> CallContext {
        CallContext::new(tool, Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
    }

    fn keep(recent: &CallRecords, call: &CallContext, error: Option<&CallError>) -> Arc<CallSummary> {
        recent.keep(|memory| CallSummary::new(call, None, error, memory))
    }

    #[test]
    fn the_oldest_calls_make_room_and_texts_are_bounded() {
        let records = CallRecords::default();
        for n in 0..MAX_CALLS + 10 {
            keep(&records, &call(&format!("tool_{n}")), None);
        }
        assert_eq!((records.ended(), records.kept.lock().calls.len()), (2_010, MAX_CALLS));
        let long = CallError::new(ErrorCode::Denied, "é".repeat(10_000)).at_stage(Stage::Policy);
        let call = CallContext {
            body: CallBody { agent_call: Some("y".repeat(257).into()), ..CallBody::default() },
            ..call(&"x".repeat(100_000))
        };
        let last = keep(&records, &call, Some(&long));
        assert_eq!((last.tool.len(), last.reason.as_ref().unwrap().len()), (MAX_TEXT, MAX_REASON));
        assert_eq!(last.agent_call, None);
    }

    /// As the audit trail does until it has written them.
    #[test]
    fn calls_that_others_have_are_not_overwritten() {
        let recent = CallRecords::default();
        let held: Vec<_> = (0..MAX_HELD + 10).map(|n| keep(&recent, &call(&format!("tool_{n}")), None)).collect();
        assert!(held.iter().enumerate().all(|(n, call)| *call.tool == *format!("tool_{n}")));
        assert_eq!(recent.kept.lock().calls.len(), MAX_HELD);
    }

    /// As the index has all of them until it has written them.
    #[test]
    fn calls_that_others_had_go_once_nobody_has_them() {
        let recent = CallRecords::default();
        let later = |calls: usize| (0..calls).for_each(|_| drop(keep(&recent, &call("tool"), None)));
        later(MAX_CALLS);
        let listed: Vec<_> = recent.kept.lock().calls.iter().cloned().collect();
        later(10);
        drop(listed);
        assert_eq!(recent.kept.lock().calls.len(), MAX_CALLS + 10);
        later(10);
        assert_eq!(recent.kept.lock().calls.len(), MAX_CALLS);
        later(10);
        assert_eq!(recent.kept.lock().calls.len(), MAX_CALLS);
    }

    /// Calls of many threads end at once, before the list is full and while it is.
    #[test]
    fn calls_that_end_at_once_never_pass_the_maximum() {
        const THREADS: usize = 8;
        const CALLS: usize = 2_000;
        let (recent, ended) = (CallRecords::default(), AtomicBool::new(false));
        let kept = || recent.kept.lock().calls.len();
        thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert!(kept() <= MAX_HELD);
                }
            });
            let keep = || {
                let call = call("tool");
                (0..CALLS).for_each(|_| drop(keep(&recent, &call, None)));
            };
            let ending: Vec<_> = (0..THREADS).map(|_| scope.spawn(keep)).collect();
            ending.into_iter().for_each(|thread| thread.join().unwrap());
            ended.store(true, Ordering::Relaxed);
            watching.join().unwrap();
        });
        assert_eq!(recent.ended(), (THREADS * CALLS) as u64);
    }

    #[test]
    fn a_text_with_arguments_or_output_is_no_reason() {
        let recent = CallRecords::default();
        let error = |code, stage| CallError::new(code, "a text").at_stage(stage);
        for (error, is_kept) in [
            (error(ErrorCode::Denied, Stage::Policy), true),
            (error(ErrorCode::RateLimited, Stage::Limits), true),
            (error(ErrorCode::InvalidArguments, Stage::Validate), false),
            (error(ErrorCode::ToolError, Stage::Execute), false),
            (error(ErrorCode::InvalidOutput, Stage::Accept), false),
        ] {
            let kept = keep(&recent, &call("t"), Some(&error));
            assert_eq!((kept.reason.is_some(), kept.words.is_none()), (is_kept, is_kept), "{error:?}");
        }
    }
}
