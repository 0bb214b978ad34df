//! The processor time of a thread. On a busy machine a thread waits for a processor, so that real time says little about its work.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time that the current thread has used.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
