//! The time of a run: its limit, and its use.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::{Ended, RunFuture};
use sekisho_core::call::OpenTime;
use sekisho_core::thread_clock::processor_time;
use sekisho_guest_protocol::Usage;

/// Returns when a program's time is over: its own, in which it does not wait for tools, or all of it.
pub(crate) async fn expire((wall_time, total_time, waited): (Duration, Duration, Arc<OpenTime>)) {
    /// Shortest interval between looks at the time of a program that waits.
    const LOOK_AGAIN: Duration = Duration::from_millis(10);
    let begun = tokio::time::Instant::now();
    let (mut end, last) = (begun + wall_time, begun + total_time);
    loop {
        sleep_until(end.min(last)).await;
        let later = begun + wall_time + waited.total();
        if end >= last || later <= end {
            return;
        }
        end = later.max(end + LOOK_AGAIN);
    }
}

/// Runs a program, and measures its use.
pub(crate) async fn measured_run(run: RunFuture) -> Ended {
    let begun = Instant::now();
    let mut usage = Usage::default();
    let mut ended = measured(run, &mut usage).await;
    let Usage { peak_memory_bytes, read_time_or_random, .. } = ended.outcome.usage;
    ended.outcome.usage = Usage { wall_time: begun.elapsed(), peak_memory_bytes, read_time_or_random, ..usage };
    ended
}

/// Measures the processor time of a future, and of its longest step.
async fn measured<F: Future + ?Sized>(mut future: Pin<Box<F>>, usage: &mut Usage) -> F::Output {
    poll_fn(|context| {
        let begun = processor_time();
        let polled = future.as_mut().poll(context);
        let step = processor_time().saturating_sub(begun);
        usage.cpu_time += step;
        usage.longest_step = usage.longest_step.max(step);
        polled
    })
    .await
}
