//! How tests wait for what other tasks, threads or processes bring about.

use std::time::{Duration, Instant};

use crate::slack::slack;

/// Longer than anything takes that tests wait for so.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Looks again and again whether it is so, while other tasks run. It must stay so: what is so for a moment may be missed.
/// Time is that of the real clock, also where the runtime's is paused.
///
/// # Panics
/// When it does not come to be, so that a test fails that would not end.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + slack(TIMEOUT);
    while !is_so().await {
        assert!(Instant::now() < end, "it did not come to be: {what}");
        tokio::task::yield_now().await;
    }
}
