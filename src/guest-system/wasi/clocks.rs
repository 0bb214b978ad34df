use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::errno::Errno;

/// Clocks of the guest are rounded down to this tick: too coarse to time a cache line.
pub(super) const TICK: Duration = Duration::from_micros(100);

/// Clock ids of preview 1.
const REAL: u32 = 0;
const MONOTONIC: u32 = 1;
const PROCESS: u32 = 2;
const THREAD: u32 = 3;

/// The clocks of one run.
#[derive(Debug)]
pub(super) struct Clocks {
    /// Monotonic time counts from the run's start, so that it reveals nothing about the machine.
    start: Instant,
    /// The time that it had counted before, in another process.
    before: Duration,
    /// Files have no times of their own: all show this one.
    pub(super) start_nanoseconds: u64,
}

/// Clocks in the image of a session: its monotonic time stands still meanwhile, and never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoppedClocks {
    elapsed: Duration,
    start_nanoseconds: u64,
}

impl Clocks {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), before: Duration::ZERO, start_nanoseconds: in_ticks(since_1970()) }
    }

    pub(super) fn stopped(&self) -> StoppedClocks {
        StoppedClocks { elapsed: self.elapsed(), start_nanoseconds: self.start_nanoseconds }
    }

    pub(super) fn going_on(StoppedClocks { elapsed, start_nanoseconds }: StoppedClocks) -> Self {
        Self { start: Instant::now(), before: elapsed, start_nanoseconds }
    }

    /// Nanoseconds. Process time is reported as elapsed time, its upper bound.
    pub(super) fn now(&self, clock: u32) -> Result<u64, Errno> {
        match clock {
            REAL => Ok(in_ticks(since_1970())),
            MONOTONIC | PROCESS | THREAD => Ok(in_ticks(self.elapsed())),
            _ => Err(Errno::Invalid),
        }
    }

    fn elapsed(&self) -> Duration {
        self.before.saturating_add(self.start.elapsed())
    }
}

/// Whether a clock has the time of day.
pub(super) fn is_real(clock: u32) -> bool {
    clock == REAL
}

fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

#[expect(clippy::cast_possible_truncation, reason = "2^64 ns since 1970 last until 2554")]
fn in_ticks(time: Duration) -> u64 {
    let tick = TICK.as_nanos();
    (time.as_nanos() / tick * tick) as u64
}
