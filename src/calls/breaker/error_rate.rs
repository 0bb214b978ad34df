//! The fraction of failures in a sliding window, as a policy for failsafe.

use std::time::Duration;

use failsafe::FailurePolicy;
use tokio::time::Instant;

use sekisho_config::BreakerConfig;

/// Opens when too large a fraction of the calls in a sliding window failed (E52), once there are enough of them
/// (E54).
///
/// The window (E53) is counted in slices: a call counts until it is as old as the window, or up to one slice, a
/// tenth, less.
#[derive(Debug)]
pub(super) struct ErrorRate {
    threshold: f64,
    min_requests: u64,
    pause: Duration,
    slice: Duration,
    started: Instant,
    counts: [Counts; SLICES as usize],
    /// Slices since the start, up to the one being counted.
    current: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    calls: u64,
    failures: u64,
}

const SLICES: u32 = 10;

/// For a window of zero seconds: short, but time still passes.
const SHORTEST_SLICE: Duration = Duration::from_millis(1);

impl ErrorRate {
    /// `pause`: how long the upstream is not called.
    pub(super) fn new(rules: &BreakerConfig, pause: Duration) -> Self {
        Self {
            threshold: rules.error_threshold,
            min_requests: rules.min_requests.into(),
            pause,
            slice: (Duration::from_secs(rules.window_seconds) / SLICES).max(SHORTEST_SLICE),
            started: Instant::now(),
            counts: [Counts::default(); SLICES as usize],
            current: 0,
        }
    }

    fn count(&mut self, failures: u64) {
        self.drop_old_slices();
        let counts = &mut self.counts[place(self.current)];
        counts.calls += 1;
        counts.failures += failures;
    }

    fn drop_old_slices(&mut self) {
        let nanos = self.started.elapsed().as_nanos() / self.slice.as_nanos();
        let now = u64::try_from(nanos).unwrap_or(u64::MAX);
        let passed = now.saturating_sub(self.current).min(SLICES.into());
        for slice in 0..passed {
            self.counts[place(now - slice)] = Counts::default();
        }
        self.current = now;
    }

    fn in_window(&self) -> Counts {
        self.counts.iter().fold(Counts::default(), |sum, counts| Counts {
            calls: sum.calls + counts.calls,
            failures: sum.failures + counts.failures,
        })
    }
}

impl FailurePolicy for ErrorRate {
    fn record_success(&mut self) {
        self.count(0);
    }

    fn mark_dead_on_failure(&mut self) -> Option<Duration> {
        self.count(1);
        let Counts { calls, failures } = self.in_window();
        #[expect(clippy::cast_precision_loss, reason = "a window never counts 2^53 calls")]
        let share = failures as f64 / calls as f64;
        (calls >= self.min_requests && share >= self.threshold).then_some(self.pause)
    }

    fn revived(&mut self) {
        self.counts = [Counts::default(); SLICES as usize];
    }
}

fn place(slice: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "smaller than SLICES")]
    let place = (slice % u64::from(SLICES)) as usize;
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(60);

    fn rules(window_seconds: u64) -> BreakerConfig {
        BreakerConfig { window_seconds, min_requests: 4, error_threshold: 0.5, ..BreakerConfig::default() }
    }

    fn error_rate() -> ErrorRate {
        ErrorRate::new(&rules(30), PAUSE)
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_calls_failing_is_too_many_once_there_are_enough() {
        let mut policy = error_rate();
        assert_eq!(policy.mark_dead_on_failure(), None, "1 of 1 failed, but 4 are the least that count");
        policy.record_success();
        policy.record_success();
        assert_eq!(policy.mark_dead_on_failure(), Some(PAUSE), "2 of 4");
        policy.record_success();
        policy.record_success();
        assert_eq!(policy.mark_dead_on_failure(), None, "3 of 7");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_within_a_millisecond_counts_in_full() {
        let mut policy = error_rate();
        let answers: Vec<_> = (0..4).map(|_| policy.mark_dead_on_failure()).collect();
        assert_eq!(answers, [None, None, None, Some(PAUSE)]);
    }

    #[tokio::test(start_paused = true)]
    async fn old_calls_do_not_count() {
        for idle in [30, 31, 300, 1_000_000] {
            let mut policy = error_rate();
            (0..3).for_each(|_| policy.record_success());
            assert_eq!(policy.mark_dead_on_failure(), None);
            advance(Duration::from_secs(idle)).await;
            assert_eq!(policy.mark_dead_on_failure(), None, "after {idle} s");
            assert_eq!(policy.in_window(), Counts { calls: 1, failures: 1 }, "after {idle} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_of_zero_seconds_divides_nothing_by_zero() {
        let mut policy = ErrorRate::new(&rules(0), PAUSE);
        policy.record_success();
        assert_eq!(policy.in_window().calls, 1);
    }

    #[derive(Default)]
    struct Naive {
        calls: Vec<(Instant, bool)>,
    }

    impl Naive {
        fn younger_than(&self, age: Duration) -> Counts {
            let in_window = self.calls.iter().filter(|(at, _)| at.elapsed() < age);
            in_window.fold(Counts::default(), |sum, (_, failed)| Counts {
                calls: sum.calls + 1,
                failures: sum.failures + u64::from(*failed),
            })
        }
    }

    proptest! {
        #[test]
        fn the_window_counts_what_is_young_enough_and_nothing_older(
            window_seconds in 1_u64..100,
            calls in prop::collection::vec((0_u64..20_000, any::<bool>()), 1..120),
        ) {
            crate::limits::in_paused_time(async {
                let mut policy = ErrorRate::new(&rules(window_seconds), PAUSE);
                let (mut naive, window) = (Naive::default(), Duration::from_secs(window_seconds));
                for (pause, failed) in calls {
                    advance(Duration::from_millis(pause)).await;
                    naive.calls.push((Instant::now(), failed));
                    let tripped = match failed {
                        true => policy.mark_dead_on_failure().is_some(),
                        false => { policy.record_success(); false }
                    };
                    let counted = policy.in_window();
                    let (least, most) = (naive.younger_than(window - window / 10), naive.younger_than(window));
                    prop_assert!(least.calls <= counted.calls && counted.calls <= most.calls);
                    prop_assert!(least.failures <= counted.failures && counted.failures <= most.failures);
                    prop_assert_eq!(tripped, failed && counted.calls >= 4 && 2 * counted.failures >= counted.calls);
                }
                Ok(())
            })?;
        }
    }
}
