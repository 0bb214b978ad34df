//! Waits of tests for the work of other tasks, threads or processes.

use std::time::{Duration, Instant};

use crate::slack::slack;

/// Longer than any of these waits takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Checks the condition again and again while other tasks run. The condition must stay true: a condition that is true
/// for a moment may be missed. Time is the time of the real clock, also where the runtime's clock is paused.
///
/// # Panics
/// When the condition is not met in time, so that the test fails instead of waiting for ever.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + slack(TIMEOUT);
    while !is_so().await {
        assert!(Instant::now() < end, "it did not come to be: {what}");
        tokio::task::yield_now().await;
    }
}
