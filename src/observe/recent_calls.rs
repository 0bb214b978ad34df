//! The calls that ended last, for the console: their receipts, without arguments and outputs.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rust_decimal::Decimal;

use sekisho_core::bounded::Ring;
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{CallId, RateState, Stage, StageTimes, Via};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallRecord, Status};

/// Maximum calls.
const MAX_CALLS: usize = 2_000;

/// Maximum calls whose memory waits for the next ones: about as many calls end at once.
const MAX_SPARES: usize = 16;

/// Maximum bytes of a name or id.
const MAX_NAME: usize = 256;

/// Maximum bytes of the text that says why a call was refused.
const MAX_REASON: usize = 1_024;

/// All calls together take at most 8 MiB, besides memory that they share with others.
const _: () = assert!((MAX_CALLS + MAX_SPARES) * (size_of::<RecentCall>() + 3 * MAX_NAME + MAX_REASON) <= 8 << 20);

/// One call that has ended. A later call takes over its memory when it has been the oldest: memory that is freed long after
/// it was taken, and on another thread, costs more than all else here.
#[derive(Debug, Clone)]
pub struct RecentCall {
    /// Counts up; no two calls of this process have the same.
    pub sequence: u64,
    pub time: SystemTime,
    pub id: CallId,
    /// The id that an agent's run has for it; `None` where a model's provider chose a very long one.
    pub agent_call: Option<Box<str>>,
    /// The caller's id.
    pub caller: Arc<str>,
    pub tenant: Arc<str>,
    pub owner: Owner,
    /// The id of the request that it came with; empty where there was none.
    pub request_id: String,
    pub via: Via,
    pub depth: u32,
    /// The call whose tool made it.
    pub parent: Option<CallId>,
    /// How many calls its own tool made.
    pub nested: usize,
    pub dry_run: bool,
    /// The registered name, or the name as the caller wrote it.
    pub tool: String,
    pub status: Status,
    pub code: Option<ErrorCode>,
    /// The stage that refused the call or failed.
    pub stage: Option<Stage>,
    /// The reason of the refusal; `None` where the text could contain arguments or output of the tool.
    pub reason: Option<Box<str>>,
    pub stages: StageTimes,
    pub duration: Duration,
    pub cost_usd: Decimal,
    pub tokens: u64,
    pub attempts: u32,
    pub rate: Option<RateState>,
    pub policy_version: Option<Arc<str>>,
    /// The upstream and the state of its circuit breaker.
    pub breaker: Option<(Arc<str>, BreakerState)>,
}

/// The latest calls, oldest first.
#[derive(Debug, Default)]
pub struct RecentCalls {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    calls: Ring<Arc<RecentCall>>,
    /// Calls that have been the oldest, for their memory.
    spares: Ring<Arc<RecentCall>>,
    last: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self { calls: Ring::with_room(MAX_CALLS), spares: Ring::with_room(MAX_SPARES), last: 0 }
    }
}

impl RecentCalls {
    pub fn keep(&self, record: &CallRecord<'_>, ended: SystemTime, breaker: Option<(Arc<str>, BreakerState)>) {
        let spare = self.kept.lock().spares.pop_newest();
        let mut call = match spare {
            Some(mut spare) => {
                // A copy only while somebody reads it.
                Arc::make_mut(&mut spare).overwrite(record, ended, breaker);
                spare
            }
            None => Arc::new(RecentCall::new(record, ended, breaker)),
        };
        let mut kept = self.kept.lock();
        kept.last += 1;
        Arc::make_mut(&mut call).sequence = kept.last;
        let gone = kept.calls.push(call).and_then(|oldest| kept.spares.push(oldest));
        // Memory is freed without the lock.
        drop(kept);
        drop(gone);
    }

    /// The calls that `wanted` accepts, newest first.
    pub fn newest(&self, wanted: impl Fn(&RecentCall) -> bool) -> Vec<Arc<RecentCall>> {
        self.newest_after(0, wanted)
    }

    /// The same, of those that ended after the call with this number.
    pub fn newest_after(&self, sequence: u64, wanted: impl Fn(&RecentCall) -> bool) -> Vec<Arc<RecentCall>> {
        // Copied first: no call waits for a search.
        let calls: Vec<_> = {
            let kept = self.kept.lock();
            kept.calls.iter().rev().take_while(|call| call.sequence > sequence).cloned().collect()
        };
        calls.into_iter().filter(|call| wanted(call)).collect()
    }

    /// When the oldest call ended that is still there; `None` while none has been dropped.
    pub fn begins(&self) -> Option<SystemTime> {
        let kept = self.kept.lock();
        let has_dropped = kept.last > kept.calls.len() as u64;
        kept.calls.oldest().filter(|_| has_dropped).map(|oldest| oldest.time)
    }

    /// The number of the call that ended last; zero before the first.
    pub fn last_sequence(&self) -> u64 {
        self.kept.lock().last
    }
}

impl RecentCall {
    fn new(record: &CallRecord<'_>, ended: SystemTime, breaker: Option<(Arc<str>, BreakerState)>) -> Self {
        let (request_id, tool) = (String::new(), String::new());
        Self::with_texts(record, ended, breaker, request_id, tool)
    }

    /// Becomes another call.
    fn overwrite(&mut self, record: &CallRecord<'_>, ended: SystemTime, breaker: Option<(Arc<str>, BreakerState)>) {
        let (request_id, tool) = (mem::take(&mut self.request_id), mem::take(&mut self.tool));
        *self = Self::with_texts(record, ended, breaker, request_id, tool);
    }

    /// `request_id` and `tool` are memory for these texts.
    fn with_texts(
        record: &CallRecord<'_>,
        ended: SystemTime,
        breaker: Option<(Arc<str>, BreakerState)>,
        mut request_id: String,
        mut tool: String,
    ) -> Self {
        let call = record.call;
        replace(&mut request_id, call.origin.request.as_ref().map_or("", |request| &request.id));
        replace(&mut tool, record.tool.unwrap_or(&call.tool));
        Self {
            sequence: 0,
            time: ended,
            id: call.id,
            agent_call: call.body.agent_call.as_ref().filter(|id| id.len() <= MAX_NAME).cloned(),
            caller: Arc::clone(&call.caller.id),
            tenant: Arc::clone(&call.caller.tenant),
            owner: call.caller.owner.clone(),
            request_id,
            via: call.via,
            depth: call.nesting.depth,
            parent: call.nesting.parent.as_ref().map(|parent| parent.id),
            nested: call.progress.nested.count(),
            dry_run: call.dry_run,
            tool,
            status: record.status,
            code: record.error.map(CallError::code),
            stage: record.error.and_then(CallError::stage),
            reason: record.error.and_then(reason),
            stages: record.stages.iter().copied().collect(),
            duration: record.duration,
            cost_usd: record.cost_usd,
            tokens: record.tokens,
            attempts: record.attempts,
            rate: record.rate,
            policy_version: record.policy_version.cloned(),
            breaker,
        }
    }
}

/// Writes a name or id in place of another, as far as there is space for it.
fn replace(text: &mut String, with: &str) {
    text.clear();
    text.push_str(&with[..with.floor_char_boundary(MAX_NAME)]);
}

/// The text of a refusal. The text of a violated schema quotes arguments, and the text of a failure quotes the tool.
fn reason(error: &CallError) -> Option<Box<str>> {
    let quotes = matches!(error.stage(), None | Some(Stage::Validate | Stage::Execute | Stage::Accept));
    let text = error.message();
    (!quotes).then(|| text[..text.floor_char_boundary(MAX_REASON)].into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use sekisho_core::call::{CallBody, CallContext, Caller};

    const STAGES: [(Stage, Duration); 1] = [(Stage::Find, Duration::from_micros(1))];

    fn record<'a>(call: &'a CallContext, error: Option<&'a CallError>) -> CallRecord<'a> {
        CallRecord {
            call,
            tool: None,
            category: None,
            status: if error.is_some() { Status::Refused } else { Status::Success },
            error,
            duration: Duration::from_micros(12),
            stages: &STAGES,
            cost_usd: Decimal::ZERO,
            tokens: 0,
            attempts: 0,
            rate: None,
            arguments_digest: [0; 32],
            arguments: None,
            trace_id: None,
            flags: &[],
            registry_version: None,
            policy_version: None,
            output_schema_violation: false,
            transforms: &[],
        }
    }

    fn call(tool: &str) -> CallContext {
        CallContext::new(tool, Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
    }

    #[test]
    fn the_oldest_calls_make_room_and_texts_are_bounded() {
        let recent = RecentCalls::default();
        assert_eq!(recent.begins(), None);
        for n in 0..MAX_CALLS + 10 {
            recent.keep(&record(&call(&format!("tool_{n}")), None), SystemTime::now(), None);
        }
        let calls = recent.newest(|_| true);
        assert_eq!((calls.len(), &*calls[0].tool), (MAX_CALLS, "tool_2009"));
        assert_eq!(recent.last_sequence(), 2_010);
        assert_eq!(recent.begins(), Some(calls[MAX_CALLS - 1].time));
        let long = CallError::new(ErrorCode::Denied, "é".repeat(10_000)).at_stage(Stage::Policy);
        let call = CallContext {
            body: CallBody { agent_call: Some("y".repeat(257).into()), ..CallBody::default() },
            ..call(&"x".repeat(100_000))
        };
        recent.keep(&record(&call, Some(&long)), SystemTime::now(), None);
        let last = &recent.newest(|_| true)[0];
        assert_eq!((last.tool.len(), last.reason.as_ref().unwrap().len()), (MAX_NAME, MAX_REASON));
        assert_eq!(last.agent_call, None);
    }

    /// Calls of many threads end at once, before the list is full and while it is.
    #[test]
    fn calls_that_end_at_once_never_pass_the_maximum() {
        const THREADS: usize = 8;
        const CALLS: usize = 2_000;
        let (recent, ended) = (RecentCalls::default(), AtomicBool::new(false));
        let kept = || recent.kept.lock().calls.len();
        thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert!(kept() <= MAX_CALLS);
                }
            });
            let keep = || {
                let call = call("tool");
                (0..CALLS).for_each(|_| recent.keep(&record(&call, None), SystemTime::UNIX_EPOCH, None));
            };
            let ending: Vec<_> = (0..THREADS).map(|_| scope.spawn(keep)).collect();
            ending.into_iter().for_each(|thread| thread.join().unwrap());
            ended.store(true, Ordering::Relaxed);
            watching.join().unwrap();
        });
        let sequences: Vec<_> = recent.newest(|_| true).iter().map(|call| call.sequence).collect();
        assert_eq!(recent.last_sequence(), (THREADS * CALLS) as u64);
        assert!(sequences.iter().copied().eq((0..MAX_CALLS as u64).map(|ago| recent.last_sequence() - ago)));
    }

    #[test]
    fn no_text_with_arguments_or_output_is_kept() {
        let recent = RecentCalls::default();
        let error = |code, stage| CallError::new(code, "a text").at_stage(stage);
        for (error, is_kept) in [
            (error(ErrorCode::Denied, Stage::Policy), true),
            (error(ErrorCode::RateLimited, Stage::Limits), true),
            (error(ErrorCode::InvalidArguments, Stage::Validate), false),
            (error(ErrorCode::ToolError, Stage::Execute), false),
            (error(ErrorCode::InvalidOutput, Stage::Accept), false),
        ] {
            recent.keep(&record(&call("t"), Some(&error)), SystemTime::now(), None);
            assert_eq!(recent.newest(|_| true)[0].reason.is_some(), is_kept, "{error:?}");
        }
    }
}
