//! The database's time, by which replicas agree, between the answers that tell it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::boot_clock;

/// A moment of the clock by which all processes of a store agree. Only [`DatabaseClock`] and the store make one, so
/// that no moment of a machine's own clock can be stored, or compared with a stored moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatabaseTime(Timestamp);

impl DatabaseTime {
    /// As the database said or has it.
    pub fn of_database(moment: Timestamp) -> Self {
        Self(moment)
    }

    /// So much earlier; the first moment of all, if there is none.
    pub fn earlier(self, by: SignedDuration) -> Self {
        Self(self.0.checked_sub(by).unwrap_or(Timestamp::MIN))
    }

    /// So much later; the last moment of all, if there is none.
    pub fn later(self, by: SignedDuration) -> Self {
        Self(self.0.checked_add(by).unwrap_or(Timestamp::MAX))
    }
}

impl Deref for DatabaseTime {
    type Target = Timestamp;

    fn deref(&self) -> &Timestamp {
        &self.0
    }
}

impl fmt::Display for DatabaseTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(any(test, feature = "test-support"))]
impl From<Timestamp> for DatabaseTime {
    fn from(moment: Timestamp) -> Self {
        Self(moment)
    }
}

/// Goes on by the time since the machine was started: where the machine's wall clock is set anew, the database's time stays.
#[derive(Debug)]
pub struct DatabaseClock {
    /// The database's time since 1970 less the time since the machine was started, in microseconds. `None`: the database is
    /// a file of this machine, and has its wall clock.
    offset: Option<AtomicI64>,
}

impl DatabaseClock {
    /// By this machine's wall clock, until the database's time is known.
    pub fn new() -> Self {
        let clock = Self { offset: Some(AtomicI64::default()) };
        clock.set(Timestamp::now());
        clock
    }

    /// This machine's wall clock, always.
    pub fn of_this_machine() -> Self {
        Self { offset: None }
    }

    /// The database said that it is `now`.
    pub fn set(&self, now: Timestamp) {
        if let Some(offset) = &self.offset {
            offset.store(now.as_microsecond().saturating_sub(micros(boot_clock::now())), Ordering::Relaxed);
        }
    }

    pub fn now(&self) -> DatabaseTime {
        let Some(offset) = &self.offset else { return DatabaseTime(Timestamp::now()) };
        let since_start = SignedDuration::from_micros(micros(boot_clock::now()));
        let offset = SignedDuration::from_micros(offset.load(Ordering::Relaxed));
        DatabaseTime(Timestamp::UNIX_EPOCH.checked_add(since_start.saturating_add(offset)).unwrap_or(Timestamp::MAX))
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
        assert!(told <= *first && first <= second, "{first} {second}");
        assert!(second.duration_since(told) < SignedDuration::from_secs(50), "{second}");
    }

    #[test]
    fn that_of_a_file_is_the_clock_of_the_machine() {
        let clock = DatabaseClock::of_this_machine();
        clock.set("2126-03-04T23:59:00Z".parse().unwrap());
        assert!(clock.now().duration_since(Timestamp::now()).abs() < SignedDuration::from_secs(60));
    }

    #[test]
    fn a_moment_earlier_or_later_is_in_the_range_of_moments() {
        let at = |second| DatabaseTime::from(Timestamp::from_second(second).unwrap());
        let minute = SignedDuration::from_secs(60);
        assert_eq!((at(100).earlier(minute), at(100).later(minute)), (at(40), at(160)));
        assert_eq!(*at(100).earlier(SignedDuration::MAX), Timestamp::MIN);
        assert_eq!(*at(100).later(SignedDuration::MAX), Timestamp::MAX);
    }
}
