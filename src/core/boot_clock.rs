//! A clock that goes on while the machine is suspended, so that a lease for a time ends then, too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
