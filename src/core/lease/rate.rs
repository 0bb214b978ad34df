//! Rates: the ledger's bucket is the bucket of one gateway. It holds a minute's calls and is refilled evenly. A slice
//! that a replica takes has left the bucket: a lost slice delays calls, and never admits one.
//!
//! A replica takes at most its use of the last second, at most a second of the rate, and uses the slice before it ends
//! or gives it back. So at most one slice a replica is admitted over the bucket within any minute. The calls that a
//! replica admits while the ledger is away, it takes from the bucket afterwards, before any other call.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use super::use_window::UseWindow;

/// How long a slice lasts by the ledger's clock. A replica's clock may be slower: it counts a tenth less, from the instant at
/// which it asked.
pub const SLICE_TTL: Duration = Duration::from_secs(2);

/// The slowest rate with slices: 20 calls a second. With slower rates, each call asks.
const MIN_LEASED_RATE: u32 = 20 * 60;

/// A replica asks for more when it has less than this part of a second's use: time enough for an answer.
const LOW_DIVISOR: u64 = 4;

const NANOS_A_MINUTE: u64 = 60_000_000_000;
const MINUTE: Duration = Duration::from_nanos(NANOS_A_MINUTE);

/// Nanoseconds in which one call is refilled. Rounded up, so that no minute permits more calls.
pub fn refill_nanos(per_minute: NonZeroU32) -> u64 {
    NANOS_A_MINUTE.div_ceil(per_minute.get().into())
}

/// Takes as many calls as there are, at most `wanted`, from a bucket that is full again at `full_at`, in nanoseconds on the
/// ledger's clock. Gives back with a negative number. How many were taken, and when it is full again then.
pub fn take(full_at: i64, now: i64, per_minute: NonZeroU32, wanted: i64) -> (i64, i64) {
    let refill = i64::try_from(refill_nanos(per_minute)).unwrap_or(i64::MAX);
    let capacity = refill.saturating_mul(per_minute.get().into());
    let until_full = full_at.saturating_sub(now).max(0);
    let available = (capacity - until_full).max(0) / refill;
    let taken = wanted.min(available);
    (taken, now.max(full_at).saturating_add(taken.saturating_mul(refill)))
}

/// How long until the bucket has a call.
pub fn wait(full_at: i64, now: i64, per_minute: NonZeroU32) -> Duration {
    let refill = refill_nanos(per_minute);
    let until_full = u64::try_from(full_at.saturating_sub(now)).unwrap_or(0);
    Duration::from_nanos(until_full.saturating_sub(refill.saturating_mul(u64::from(per_minute.get()) - 1)))
}

/// The decision of a replica about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Granted,
    /// With the time until there may be a call.
    Refused(Duration),
    /// The ledger must be asked.
    Ask,
}

/// The request of a replica to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeRequest {
    /// Negative: given back.
    pub wanted: i64,
    /// So many of them were admitted before.
    pub unsettled: u64,
    pub sent: Duration,
}

/// A replica's share of one bucket.
#[derive(Debug)]
pub struct RateLease {
    per_minute: NonZeroU32,
    /// Calls that it may admit, and until when; slices that end first stand first.
    slices: VecDeque<(u64, Duration)>,
    /// Calls of slices that ended.
    ended: u64,
    /// Calls that were admitted while the ledger was away, and until when they matter.
    unsettled: u64,
    unsettled_until: Duration,
    asked_for: UseWindow<u64>,
    waiting: u64,
    is_asking: bool,
    refused_until: Duration,
}

impl RateLease {
    pub fn new(per_minute: NonZeroU32) -> Self {
        Self {
            per_minute,
            slices: VecDeque::new(),
            ended: 0,
            unsettled: 0,
            unsettled_until: Duration::ZERO,
            asked_for: UseWindow::default(),
            waiting: 0,
            is_asking: false,
            refused_until: Duration::ZERO,
        }
    }

    pub fn per_minute(&self) -> NonZeroU32 {
        self.per_minute
    }

    /// Applies another rate to calls taken from now on.
    pub fn set_rate(&mut self, per_minute: NonZeroU32) {
        self.per_minute = per_minute;
        self.refused_until = Duration::ZERO;
    }

    /// Admits a call, if there is one. `is_new`: it did not ask before.
    pub fn admit(&mut self, now: Duration, is_new: bool) -> Decision {
        if is_new {
            self.asked_for.add(now, 1);
        }
        self.end_slices(now);
        if let Some((calls, _)) = self.slices.front_mut() {
            *calls -= 1;
            if *calls == 0 {
                self.slices.pop_front();
            }
            return Decision::Granted;
        }
        if now < self.refused_until {
            return Decision::Refused(self.refused_until - now);
        }
        Decision::Ask
    }

    /// A call was admitted while the ledger was away. At most `most` of such calls are settled: meanwhile the bucket
    /// was refilled by no more.
    pub fn admit_unsettled(&mut self, now: Duration, most: u64) {
        self.unsettled = (self.unsettled + 1).min(most);
        self.unsettled_until = now + MINUTE;
    }

    /// How long the ledger's bucket has no call, as far as is known, and none can be admitted.
    pub fn refused_for(&mut self, now: Duration) -> Option<Duration> {
        let is_empty = self.available(now) == 0;
        self.refused_until.checked_sub(now).filter(|wait| is_empty && !wait.is_zero())
    }

    /// A call waits until the ledger was asked.
    pub fn await_call(&mut self) {
        self.waiting += 1;
    }

    /// Whether the replica has to ask the ledger before the next call waits for it.
    pub fn is_low(&mut self, now: Duration) -> bool {
        !self.is_asking && now >= self.refused_until && self.available(now) * LOW_DIVISOR < self.ahead(now)
    }

    /// Gives back a call that was admitted and did not run.
    pub fn give_back(&mut self) {
        self.ended += 1;
    }

    /// Calls that can be admitted now.
    pub fn available(&mut self, now: Duration) -> u64 {
        self.end_slices(now);
        self.slices.iter().map(|(calls, _)| calls).sum()
    }

    /// The request to the ledger now, if there is one.
    pub fn request(&mut self, now: Duration) -> Option<TakeRequest> {
        if self.is_asking {
            return None;
        }
        let available = self.available(now);
        let ahead = self.ahead(now);
        let mut unsettled = self.unsettled;
        let wanted = if self.waiting > 0 || self.is_low(now) {
            let most = self.waiting.max(self.most_at_once());
            // All calls that wait may have been served since: one is asked for, since an answer is waited for.
            i64::try_from(unsettled + (self.waiting + ahead).min(most).saturating_sub(available).max(1))
        } else if unsettled > 0 && now >= self.refused_until {
            i64::try_from(unsettled)
        } else if self.ended > 0 {
            unsettled = 0;
            i64::try_from(std::mem::take(&mut self.ended)).map(|ended| -ended)
        } else {
            return None;
        };
        self.waiting = 0;
        self.is_asking = true;
        Some(TakeRequest { wanted: wanted.unwrap_or_default(), unsettled, sent: now })
    }

    /// The ledger answered the last request; `wait`: how long until its bucket has a call then.
    pub fn answered(&mut self, now: Duration, request: TakeRequest, taken: i64, wait: Duration) {
        self.is_asking = false;
        if request.wanted <= 0 {
            return;
        }
        let taken_calls = u64::try_from(taken).unwrap_or_default();
        let settled = taken_calls.min(request.unsettled);
        self.unsettled -= settled;
        if taken_calls > settled {
            self.slices.push_back((taken_calls - settled, request.sent + SLICE_TTL * 9 / 10));
        }
        if taken < request.wanted {
            self.refused_until = now + wait;
        }
    }

    /// No answer came. Calls that were taken or given back, if any, are lost: nothing is asked twice.
    pub fn unanswered(&mut self) {
        self.is_asking = false;
    }

    /// Whether it can be forgotten without a difference.
    pub fn is_idle(&mut self, now: Duration) -> bool {
        let has_calls = self.waiting > 0 || self.ended > 0 || self.available(now) > 0;
        let is_settled = self.unsettled == 0 || now >= self.unsettled_until;
        !has_calls && is_settled && !self.is_asking && now >= self.refused_until && self.asked_for.per_second(now) == 0
    }

    /// How many calls it takes ahead of need: the calls of a second.
    fn ahead(&mut self, now: Duration) -> u64 {
        if self.per_minute.get() < MIN_LEASED_RATE {
            0
        } else {
            self.asked_for.per_second(now).min(self.most_at_once())
        }
    }

    fn most_at_once(&self) -> u64 {
        u64::from(self.per_minute.get() / 60)
    }

    fn end_slices(&mut self, now: Duration) {
        while let Some((calls, ends)) = self.slices.front()
            && now >= *ends
        {
            self.ended += calls;
            self.slices.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn rate(per_minute: u32) -> NonZeroU32 {
        NonZeroU32::new(per_minute).unwrap()
    }

    #[test]
    fn a_bucket_holds_a_minutes_calls_and_is_refilled_evenly() {
        for per_minute in [1, 7, 60, 1_200, 6_000, u32::MAX] {
            let (rate, now) = (rate(per_minute), 1_000_000_000_000_000_000);
            let (taken, full_at) = take(0, now, rate, i64::MAX);
            assert_eq!(taken, i64::from(per_minute));
            let refill = i64::try_from(refill_nanos(rate)).unwrap();
            assert_eq!(take(full_at, now, rate, 1).0, 0);
            assert_eq!(wait(full_at, now, rate), Duration::from_nanos(refill.unsigned_abs()));
            assert_eq!(take(full_at, now + refill - 1, rate, 1).0, 0);
            assert_eq!(take(full_at, now + refill, rate, 5), (1, full_at + refill));
            assert_eq!(take(take(full_at, now, rate, -1).1, now, rate, 5).0, 1, "given back");
        }
    }

    #[test]
    fn a_slow_rate_asks_for_each_call() {
        let mut lease = RateLease::new(rate(60));
        for _ in 0..3 {
            assert_eq!(lease.admit(START, true), Decision::Ask);
            lease.await_call();
        }
        let request = lease.request(START).unwrap();
        assert_eq!(request.wanted, 3, "those that are due, together");
        assert_eq!(lease.request(START), None);
        lease.answered(START, request, 2, Duration::from_millis(400));
        let decided = [(); 3].map(|()| lease.admit(START, false));
        let refused = Decision::Refused(Duration::from_millis(400));
        assert_eq!(decided, [Decision::Granted, Decision::Granted, refused]);
        assert_eq!(lease.admit(START + Duration::from_millis(400), true), Decision::Ask);
    }

    #[test]
    fn a_fast_rate_takes_what_it_used_in_a_second_ahead() {
        let mut lease = RateLease::new(rate(6_000));
        for _ in 0..30 {
            lease.admit(START, true);
            lease.await_call();
        }
        let request = lease.request(START).unwrap();
        assert_eq!(request.wanted, 60);
        lease.answered(START, request, 60, Duration::ZERO);
        assert_eq!([(); 30].map(|()| lease.admit(START, false)), [Decision::Granted; 30]);
        assert_eq!((lease.available(START), lease.request(START)), (30, None), "enough for now");
        assert_eq!([(); 20].map(|()| lease.admit(START, true)), [Decision::Granted; 20]);
        assert_eq!(lease.request(START).unwrap().wanted, 40, "ahead of need");
        for _ in 0..500 {
            if lease.admit(START, true) == Decision::Ask {
                lease.await_call();
            }
        }
        lease.unanswered();
        assert!(lease.request(START).unwrap().wanted <= 500, "those that wait, and no more than a second of the rate");
    }

    #[test]
    fn a_slice_is_not_used_after_its_end_and_given_back_once() {
        let mut lease = RateLease::new(rate(6_000));
        lease.admit(START, true);
        lease.await_call();
        let request = lease.request(START).unwrap();
        lease.answered(START + Duration::from_secs(1), request, 10, Duration::ZERO);
        let end = START + SLICE_TTL * 9 / 10;
        assert_eq!(lease.available(end - Duration::from_nanos(1)), 10);
        assert_eq!(lease.available(end), 0);
        let back = lease.request(end + Duration::from_secs(3)).unwrap();
        assert_eq!(back.wanted, -10);
        lease.unanswered();
        assert_eq!(lease.request(end + Duration::from_secs(9)), None, "an answer that is lost may have been one");
        assert!(lease.is_idle(end + Duration::from_secs(9)));
    }

    #[test]
    fn calls_that_were_admitted_without_the_ledger_are_settled_first() {
        let mut lease = RateLease::new(rate(60));
        for _ in 0..30 {
            lease.admit_unsettled(START, 20);
        }
        assert!(!lease.is_idle(START + Duration::from_secs(5)));
        let request = lease.request(START).unwrap();
        assert_eq!(request.wanted, 20, "the replica's part of a minute");
        lease.answered(START, request, 12, Duration::from_secs(1));
        assert_eq!(lease.request(START + Duration::from_millis(999)), None, "the bucket is empty");
        lease.await_call();
        let request = lease.request(START + Duration::from_secs(1)).unwrap();
        assert_eq!(request.wanted, 9, "the call that waits, beside the rest");
        lease.unanswered();
        let request = lease.request(START + Duration::from_secs(2)).unwrap();
        assert_eq!(request.wanted, 8, "what is not known to be settled is settled again");
        lease.await_call();
        lease.answered(START + Duration::from_secs(2), request, 8, Duration::ZERO);
        let request = lease.request(START + Duration::from_secs(3)).unwrap();
        lease.answered(START + Duration::from_secs(3), request, 1, Duration::ZERO);
        assert_eq!((request.wanted, lease.available(START + Duration::from_secs(3))), (1, 1));
    }

    #[test]
    fn a_call_that_did_not_run_is_given_back() {
        let mut lease = RateLease::new(rate(60));
        lease.admit(START, true);
        lease.await_call();
        let request = lease.request(START).unwrap();
        lease.answered(START, request, 1, Duration::ZERO);
        assert_eq!(lease.admit(START, false), Decision::Granted);
        lease.give_back();
        assert_eq!(lease.request(START).unwrap().wanted, -1);
    }
}
