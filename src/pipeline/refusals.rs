//! Records refusals that are repeated many times a second together: a caller over its rate must not fill the disk.
//!
//! Of one caller, tool and code, [`MAX_LINES`] refusals in [`WINDOW`] have lines of their own in the audit trail and
//! the log. Those that follow are counted, and have one line when the window ends. Metrics count each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::core::error::{CallError, ErrorCode};
use crate::core::record::CallRecord;
use crate::infra::audit::{AuditSlot, RepeatedLine};

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
    /// By caller and code, then by tool.
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
    /// Returns the slot if the call has a line of its own. Otherwise it is counted.
    pub(super) fn count(&self, slot: AuditSlot, record: &CallRecord<'_>) -> Option<AuditSlot> {
        let Some(code) = record.error.map(CallError::code).filter(|code| is_counted(*code)) else {
            return Some(slot);
        };
        let (now, tool) = (Instant::now(), record.tool.unwrap_or(&record.call.tool));
        let mut windows = self.windows.lock();
        let Windows { by_caller, count } = &mut *windows;
        let of_caller = by_caller.entry((Arc::clone(&record.call.caller.key), code)).or_default();
        match of_caller.get_mut(tool) {
            Some(window) if window.ends > now => window.count(slot, record),
            Some(window) => {
                window.write();
                *window = Window::starting(now);
                Some(slot)
            }
            None if *count < MAX_WINDOWS => {
                of_caller.insert(tool.into(), Window::starting(now));
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

    fn count(&mut self, slot: AuditSlot, record: &CallRecord<'_>) -> Option<AuditSlot> {
        if self.lines < MAX_LINES {
            self.lines += 1;
            return Some(slot);
        }
        match &mut self.repeated {
            Some(repeated) => repeated.add(record),
            None => self.repeated = Some(RepeatedLine::new(slot, record)),
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

/// Refusals that cost the caller nothing. Those that an operator wants to see one by one have their own lines: denied,
/// for approval, out of budget.
fn is_counted(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::RateLimited | ErrorCode::Unauthenticated | ErrorCode::Overloaded | ErrorCode::CircuitOpen)
}
