//! The database's time, by which replicas agree, between the answers that tell it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::boot_clock;

/// Goes on by the time since the machine was started: where the machine's wall clock is set anew, the database's time stays.
#[derive(Debug)]
pub struct DatabaseClock {
    /// The database's time since 1970 less the time since the machine was started, in microseconds.
    offset: AtomicI64,
}

impl DatabaseClock {
    /// By this machine's wall clock, until the database's time is known.
    pub fn new() -> Self {
        let clock = Self { offset: AtomicI64::default() };
        clock.set(Timestamp::now());
        clock
    }

    /// The database said that it is `now`.
    pub fn set(&self, now: Timestamp) {
        self.offset.store(now.as_microsecond().saturating_sub(micros(boot_clock::now())), Ordering::Relaxed);
    }

    pub fn now(&self) -> Timestamp {
        let since_start = SignedDuration::from_micros(micros(boot_clock::now()));
        let offset = SignedDuration::from_micros(self.offset.load(Ordering::Relaxed));
        Timestamp::UNIX_EPOCH.checked_add(since_start.saturating_add(offset)).unwrap_or(Timestamp::MAX)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_the_database_said() {
        let clock = DatabaseClock::new();
        assert!(clock.now().duration_since(Timestamp::now()).abs() < SignedDuration::from_secs(60));
        let told: Timestamp = "2126-03-04T23:59:00Z".parse().unwrap();
        clock.set(told);
        let (first, second) = (clock.now(), clock.now());
        assert!(told <= first && first <= second, "{first} {second}");
        assert!(second.duration_since(told) < SignedDuration::from_secs(50), "{second}");
    }
}
