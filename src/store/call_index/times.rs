//! How long calls took, counted in buckets of which four are between a duration and its double.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use sekisho_core::record::CallSummary;

/// Buckets for 1 µs to 268 s; longer calls are in the last one.
const BUCKETS: u8 = 112;

/// Counts of durations, by the number of their bucket. A quantile of them is off by an eighth at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Times(BTreeMap<u8, u64>);

impl Times {
    /// Of calls that took so long.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut times = Self::default();
        durations.into_iter().for_each(|took| times.add(took, 1));
        times
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts calls, if they were executed.
    pub(super) fn add_executed(&mut self, call: &CallSummary, calls: u64) {
        if call.was_executed() {
            self.add(call.duration, calls);
        }
    }

    fn add(&mut self, took: Duration, calls: u64) {
        let count = self.0.entry(bucket(took)).or_default();
        *count = count.saturating_add(calls);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (bucket, more) in &other.0 {
            let count = self.0.entry(*bucket).or_default();
            *count = count.saturating_add(*more);
        }
    }

    /// The duration that this share of the calls does not exceed; `None` without calls.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.0.values().fold(0, |total, count| total.saturating_add(*count));
        if total == 0 {
            return None;
        }
        let rank = (total as f64 * share).max(1.0);
        let mut below = 0.0;
        for (bucket, count) in &self.0 {
            let count = *count as f64;
            if below + count >= rank {
                // Calls are taken to be spread evenly within their bucket.
                let (start, end) = (start_micros(*bucket), start_micros(bucket.saturating_add(1)));
                return Some(Duration::from_secs_f64((start + (end - start) * (rank - below) / count) / 1e6));
            }
            below += count;
        }
        Some(Duration::from_secs_f64(start_micros(BUCKETS) / 1e6))
    }
}

fn bucket(took: Duration) -> u8 {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = micros.ilog2();
    let quarter = ((u128::from(micros) << 2) >> power) & 3;
    let bucket = u128::from(power) * 4 + quarter;
    u8::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

fn start_micros(bucket: u8) -> f64 {
    let (power, quarter) = (bucket / 4, bucket % 4);
    (1_u64 << power.min(63)) as f64 * (1.0 + f64::from(quarter) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_off_by_an_eighth_at_most() {
        assert_eq!(Times::default().quantile(0.5), None);
        let times = Times::of((1..=1_000).map(Duration::from_millis));
        for (share, millis) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0)] {
            let found = times.quantile(share).unwrap().as_secs_f64() * 1e3;
            assert!((found / millis - 1.0).abs() <= 0.125, "{share}: {found}");
        }
        let mut both = times.clone();
        both.add_all(&times);
        assert_eq!(both.quantile(0.5), times.quantile(0.5));
    }

    #[test]
    fn every_duration_has_a_bucket() {
        for (took, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1_999), 0),
            (Duration::from_micros(2), 4),
            (Duration::from_micros(3), 6),
            (Duration::from_micros(1_024), 40),
            (Duration::from_secs(200), 109),
            (Duration::MAX, BUCKETS - 1),
        ] {
            assert_eq!(bucket(took), expected, "{took:?}");
        }
        // For shorter durations only whole microseconds count.
        for at in 8..BUCKETS {
            assert_eq!(bucket(Duration::from_secs_f64(start_micros(at).ceil() / 1e6)), at);
        }
    }
}
