//! Records refusals that are repeated many times a second together: a caller over its rate must not fill the disk.
//!
//! For one caller, tool and code, [`MAX_LINES`] refusals in [`WINDOW`] have lines of their own in the audit trail and
//! the log. Further refusals are counted, and have one line when the window ends. Metrics count each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use sekisho_audit::{AuditSlot, RepeatedLine};
use sekisho_core::caller::Caller;
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, KeptArguments};

/// How often repeated refusals are written.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Lines of one caller, tool and code in one window.
const MAX_LINES: usize = 10;

/// Maximum windows at once; beyond it each refusal has a line.
const MAX_WINDOWS: usize = 10_000;

/// The refusals of the last moments.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    /// By caller and code, then by tool. None of these is empty: each window counts.
    by_caller: HashMap<(Arc<str>, ErrorCode), HashMap<Box<str>, Window>>,
    count: usize,
}

#[derive(Debug)]
struct Window {
    ends: Instant,
    lines: usize,
    repeated: Option<RepeatedLine>,
}

impl Refusals {
    /// Returns the slot if the call has a line of its own. Otherwise it is counted, and its line with others may take its
    /// arguments.
    pub(super) fn count(
        &self,
        slot: AuditSlot,
        caller: &Caller,
        call: &Arc<CallSummary>,
        arguments: &mut Option<KeptArguments>,
    ) -> Option<AuditSlot> {
        let Some(code) = call.code.filter(|code| is_counted(*code)) else {
            return Some(slot);
        };
        let (now, tool) = (Instant::now(), &*call.tool);
        let mut windows = self.windows.lock();
        let Windows { by_caller, count } = &mut *windows;
        let whose = (Arc::clone(&caller.key), code);
        match by_caller.get_mut(&whose).and_then(|of_caller| of_caller.get_mut(tool)) {
            Some(window) if window.ends > now => window.count(slot, call, arguments),
            Some(window) => {
                window.write();
                *window = Window::starting(now);
                Some(slot)
            }
            None if *count < MAX_WINDOWS => {
                by_caller.entry(whose).or_default().insert(tool.into(), Window::starting(now));
                *count += 1;
                Some(slot)
            }
            None => Some(slot),
        }
    }

    /// Writes the lines of the windows that have ended, or of all.
    pub(super) fn write(&self, all: bool) {
        let now = Instant::now();
        let mut windows = self.windows.lock();
        windows.by_caller.retain(|_, of_caller| {
            of_caller.retain(|_, window| {
                let ended = all || window.ends <= now;
                if ended {
                    window.write();
                }
                !ended
            });
            !of_caller.is_empty()
        });
        windows.count = windows.by_caller.values().map(HashMap::len).sum();
    }
}

impl Window {
    /// With one line.
    fn starting(now: Instant) -> Self {
        Self { ends: now + WINDOW, lines: 1, repeated: None }
    }

    fn count(
        &mut self,
        slot: AuditSlot,
        call: &Arc<CallSummary>,
        arguments: &mut Option<KeptArguments>,
    ) -> Option<AuditSlot> {
        if self.lines < MAX_LINES {
            self.lines += 1;
            return Some(slot);
        }
        match &mut self.repeated {
            Some(repeated) => repeated.add(call.id),
            None => self.repeated = Some(RepeatedLine::new(slot, Arc::clone(call), arguments.take())),
        }
        None
    }

    fn write(&mut self) {
        if let Some(repeated) = self.repeated.take() {
            repeated.log();
            repeated.write();
        }
    }
}

/// Refusals that cost the caller nothing. Refusals that an operator wants to see one by one have their own lines:
/// denied, for approval, out of budget.
fn is_counted(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::RateLimited | ErrorCode::Unauthenticated | ErrorCode::Overloaded | ErrorCode::CircuitOpen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_audit::Audit;
    use sekisho_config::AuditConfig;
    use sekisho_core::call::{CallContext, Via};
    use sekisho_core::error::CallError;

    #[tokio::test(start_paused = true)]
    async fn callers_beyond_the_maximum_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path().join("audit.jsonl"), &AuditConfig::default(), Arc::default()).unwrap();
        let (refusals, error) = (Refusals::default(), CallError::new(ErrorCode::RateLimited, "too many"));
        let count = |number: usize| {
            let caller = Arc::new(Caller::new(&format!("caller {number}"), "acme", Vec::new()));
            let call = CallContext::new("tool", caller, Via::Rest);
            let refused = CallSummary::new(&call, None, Some(&error), String::new()).into();
            refusals.count(audit.reserve().unwrap(), &call.caller, &refused, &mut None).is_some()
        };
        assert!((0..2 * MAX_WINDOWS).all(count), "each has a line");
        {
            let windows = refusals.windows.lock();
            assert_eq!((windows.count, windows.by_caller.len()), (MAX_WINDOWS, MAX_WINDOWS));
        }
        tokio::time::advance(WINDOW).await;
        refusals.write(false);
        assert!(refusals.windows.lock().by_caller.is_empty() && count(0));
    }
}
