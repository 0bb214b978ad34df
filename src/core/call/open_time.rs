//! Measures how long something was open.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The total time in which one or more things of a kind were open. Overlaps count once.
#[derive(Debug, Default)]
pub struct OpenTime(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: usize,
    since: Option<Instant>,
    before: Duration,
}

/// Open until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct OpenGuard<'a>(&'a OpenTime);

impl OpenTime {
    pub fn open(&self) -> OpenGuard<'_> {
        let mut state = self.0.lock();
        state.open += 1;
        state.since.get_or_insert_with(Instant::now);
        OpenGuard(self)
    }

    /// Until now.
    pub fn total(&self) -> Duration {
        let state = self.0.lock();
        state.before + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open -= 1;
        if state.open == 0
            && let Some(since) = state.since.take()
        {
            state.before += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn overlapping_times_count_once() {
        let (second, time) = (Duration::from_secs(1), OpenTime::default());
        let first = time.open();
        tokio::time::advance(second).await;
        let other = time.open();
        tokio::time::advance(second).await;
        drop(first);
        tokio::time::advance(second).await;
        assert_eq!(time.total(), 3 * second);
        drop(other);
        tokio::time::advance(second).await;
        assert_eq!(time.total(), 3 * second);
        let _again = time.open();
        tokio::time::advance(second).await;
        assert_eq!(time.total(), 4 * second);
    }
}
