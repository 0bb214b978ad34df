//! The time that a call waits for resources of the gateway itself: slots, places in queues, look-ups of names. The time
//! of its tool begins later, when the request is sent.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Deadline;
use super::open_time::{OpenGuard, OpenTime};

/// Part of each [`CallContext`](super::CallContext).
#[derive(Debug, Default)]
pub struct QueueTime {
    waited: OpenTime,
    ends: OnceLock<Ends>,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    begin_by: Instant,
    must_end_by: Option<Instant>,
}

impl QueueTime {
    /// From now on, waits end at `begin_by`, and the waited time moves deadlines, at most to `must_end_by`. Only the
    /// first call of this function has an effect.
    pub fn set_ends(&self, begin_by: Instant, must_end_by: Option<Instant>) {
        self.ends.get_or_init(|| Ends { begin_by, must_end_by });
    }

    /// A wait, which ends when this is dropped.
    pub fn begin(&self) -> OpenGuard<'_> {
        self.waited.open()
    }

    /// Waited until now.
    pub fn total(&self) -> Duration {
        self.waited.total()
    }

    /// By when a wait ends, for a request with this deadline.
    pub(super) fn until(&self, deadline: Deadline) -> Deadline {
        Deadline(self.ends.get().map_or(deadline.0, |ends| ends.begin_by.min(deadline.0)))
    }

    /// The deadline after a wait of this length.
    pub(super) fn later(&self, deadline: Deadline, waited: Duration) -> Deadline {
        let Some(ends) = self.ends.get() else { return deadline };
        let later = deadline.0 + waited;
        // Never earlier: a deadline beyond the outer one is not moved.
        Deadline(ends.must_end_by.map_or(later, |end| later.min(end)).max(deadline.0))
    }

    /// Waits for `work` until the deadline, which the time spent in queues makes later. `None`: `work` was not done by
    /// then.
    pub async fn within<T>(&self, deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let (before, mut end) = (self.total(), deadline.0);
        loop {
            if let Ok(done) = timeout_at(end, work.as_mut()).await {
                return Some(done);
            }
            let later = self.later(deadline, self.total().saturating_sub(before)).0;
            if later <= end {
                return None;
            }
            end = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_was_waited_moves_the_deadline_up_to_the_outer_one() {
        for (must_end_by, takes) in [(None, 14), (Some(20), 14), (Some(12), 12), (Some(10), 10)] {
            let (began, queueing) = (Instant::now(), QueueTime::default());
            let at = |seconds: u32| began + SECOND * seconds;
            queueing.set_ends(at(10), must_end_by.map(at));
            let work = async {
                let waiting = queueing.begin();
                sleep(SECOND * 4).await;
                drop(waiting);
                pending::<()>().await;
            };
            assert_eq!(queueing.within(Deadline(at(10)), work).await, None);
            assert_eq!(began.elapsed(), SECOND * takes, "{must_end_by:?}");
            assert_eq!(queueing.total(), SECOND * 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_work_must_begin_and_without_an_end_at_the_deadline() {
        let (queueing, now) = (QueueTime::default(), Instant::now());
        let deadline = Deadline(now + SECOND * 9);
        assert_eq!((queueing.until(deadline), queueing.later(deadline, SECOND)), (deadline, deadline));
        queueing.set_ends(now + SECOND * 4, None);
        queueing.set_ends(now + SECOND * 5, None);
        assert_eq!(queueing.until(deadline), Deadline(now + SECOND * 4), "what is set first counts");
        assert_eq!(queueing.until(Deadline(now)), Deadline(now));
        assert_eq!(queueing.later(deadline, SECOND), Deadline(now + SECOND * 10));
    }
}
