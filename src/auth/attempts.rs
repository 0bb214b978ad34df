//! Slows down who guesses keys: the failed attempts of each address spend a budget.
//!
//! Credentials that were accepted before are never slowed, whatever others send from their address. While the budget of an
//! address is spent, further credentials are checked after [`SLOWED`], and few at a time: a right one still works, and a
//! thousand guesses take minutes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::SecretDigest;
use sekisho_core::bounded::{BoundedCache, BoundedMap};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};

/// Failed attempts of one address that are not slowed.
const MAX_FAILURES: u32 = 20;

/// After so long there is one more of them.
const REFILL: Duration = Duration::from_secs(1);

/// How long a credential waits for its check while the budget of its address is spent.
const SLOWED: Duration = Duration::from_secs(1);

/// Maximum credentials of one address that wait so; further ones are refused unseen.
const MAX_SLOWED: u32 = 4;

/// Maximum addresses with failed attempts; the one that failed longest ago is forgotten.
const MAX_ADDRESSES: usize = 4_096;

/// Maximum credentials that were accepted, by their digest, and how long one is remembered after its first use.
const MAX_ACCEPTED: usize = 10_000;
const REMEMBERED: Duration = Duration::from_secs(24 * 3_600);

/// The attempts of all addresses.
#[derive(Debug)]
pub(super) struct Attempts {
    addresses: Mutex<BoundedMap<Arc<str>, Budget>>,
    accepted: BoundedCache<SecretDigest, Instant>,
}

/// The budget of one address.
#[derive(Debug)]
struct Budget {
    left: u32,
    /// Since when `left` is this number.
    since: Instant,
    slowed: u32,
}

/// The check of a credential that may be wrong.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    attempts: &'a Attempts,
    address: Arc<str>,
    is_slowed: bool,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { addresses: Mutex::new(BoundedMap::new(MAX_ADDRESSES)), accepted: BoundedCache::new(MAX_ACCEPTED) }
    }
}

impl Attempts {
    /// Begins the check of a credential. `None`: it was accepted before.
    /// Errors: `rate_limited`: the address has sent too many wrong ones, and too many of its others wait.
    pub(super) async fn begin(&self, client: &Owner, digest: &SecretDigest) -> Result<Option<Attempt<'_>>, CallError> {
        if self.accepted.get(digest, |since| (since.elapsed() < REMEMBERED).then_some(())).is_some() {
            return Ok(None);
        }
        let attempt = Attempt { attempts: self, address: Arc::clone(&client.caller), is_slowed: self.slow(client)? };
        if attempt.is_slowed {
            sleep(SLOWED).await;
        }
        Ok(Some(attempt))
    }

    /// The credential was accepted.
    pub(super) fn accept(&self, digest: &SecretDigest) {
        self.accepted.insert(*digest, Instant::now(), |since| since.elapsed() >= REMEMBERED);
    }

    /// Whether a credential must wait, for which it takes a place.
    fn slow(&self, client: &Owner) -> Result<bool, CallError> {
        let mut addresses = self.addresses.lock();
        let Some(budget) = addresses.get_mut(&client.caller) else { return Ok(false) };
        budget.refill();
        match (budget.left, budget.slowed) {
            (0, MAX_SLOWED..) => Err(too_many()),
            (0, _) => {
                budget.slowed += 1;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn count_failure(&self, address: &Arc<str>) {
        let mut addresses = self.addresses.lock();
        addresses.evict_for(address, |_, budget| (budget.slowed == 0).then_some(budget.since));
        let new = || Budget { left: MAX_FAILURES, since: Instant::now(), slowed: 0 };
        // It is full only if the credentials of all addresses wait.
        if let Some(budget) = addresses.get_or_try_insert_with(Arc::clone(address), new) {
            budget.refill();
            budget.left = budget.left.saturating_sub(1);
        }
    }
}

impl Budget {
    fn refill(&mut self) {
        let (elapsed, step) = (self.since.elapsed().as_millis(), REFILL.as_millis());
        let more = u32::try_from(elapsed / step).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = MAX_FAILURES.min(self.left.saturating_add(more));
            self.since = Instant::now();
        }
    }
}

impl Attempt<'_> {
    /// The credential is wrong.
    pub(super) fn fail(self, refusal: CallError) -> CallError {
        self.attempts.count_failure(&self.address);
        if self.is_slowed { too_many() } else { refusal }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_slowed
            && let Some(budget) = self.attempts.addresses.lock().get_mut(&self.address)
        {
            budget.slowed = budget.slowed.saturating_sub(1);
        }
    }
}

fn too_many() -> CallError {
    let message = "this address has sent too many wrong keys or tokens; send the right one in 1 s";
    CallError::new(ErrorCode::RateLimited, message).retry_after(REFILL)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::time::advance;

    use super::*;

    fn client(last: u8) -> Owner {
        Owner::of_address([192, 0, 2, last].into())
    }

    fn digest(number: u32) -> SecretDigest {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&number.to_be_bytes());
        digest
    }

    fn wrong() -> CallError {
        CallError::new(ErrorCode::Unauthenticated, "as the test says")
    }

    async fn guess(attempts: &Attempts, client: &Owner, number: u32) -> ErrorCode {
        match attempts.begin(client, &digest(number)).await {
            Ok(attempt) => attempt.expect("it was never accepted").fail(wrong()).code(),
            Err(error) => {
                assert_eq!(error.wait(), Some(REFILL));
                error.code()
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_twenty_wrong_ones_few_are_checked_each_second() {
        let (attempts, address) = (Attempts::default(), client(1));
        for number in 0..MAX_FAILURES {
            assert_eq!(guess(&attempts, &address, number).now_or_never(), Some(ErrorCode::Unauthenticated));
        }
        let begun = Instant::now();
        let unseen = async {
            // The first ones wait meanwhile.
            tokio::task::yield_now().await;
            guess(&attempts, &address, 99).now_or_never()
        };
        let slowed = join_all((0..MAX_SLOWED).map(|number| guess(&attempts, &address, number)));
        let (slowed, unseen) = tokio::join!(slowed, unseen);
        assert_eq!((slowed, begun.elapsed()), (vec![ErrorCode::RateLimited; MAX_SLOWED as usize], SLOWED));
        assert_eq!(unseen, Some(ErrorCode::RateLimited));
        assert_eq!(guess(&attempts, &client(2), 1).now_or_never(), Some(ErrorCode::Unauthenticated), "elsewhere");
        advance(Duration::from_secs(20)).await;
        assert_eq!(guess(&attempts, &address, 1).now_or_never(), Some(ErrorCode::Unauthenticated));
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_one_works_at_once_if_it_was_accepted_before_and_otherwise_a_second_later() {
        let (attempts, address) = (Attempts::default(), client(1));
        attempts.accept(&digest(7));
        for number in 10..10 + MAX_FAILURES {
            guess(&attempts, &address, number).await;
        }
        assert!(matches!(attempts.begin(&address, &digest(7)).now_or_never(), Some(Ok(None))));
        let begun = Instant::now();
        drop(attempts.begin(&address, &digest(8)).await.unwrap());
        assert_eq!(begun.elapsed(), SLOWED);
    }

    #[tokio::test(start_paused = true)]
    async fn right_ones_spend_nothing_and_leave_nothing() {
        let (attempts, address) = (Attempts::default(), client(1));
        for number in 0..3 * MAX_FAILURES {
            let attempt = attempts.begin(&address, &digest(number)).now_or_never();
            drop(attempt.expect("it is not slowed"));
        }
        assert_eq!(attempts.addresses.lock().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_are_bounded() {
        let attempts = Attempts::default();
        for number in 0..=u32::try_from(MAX_ADDRESSES).unwrap() {
            let [_, high, middle, low] = number.to_be_bytes();
            guess(&attempts, &Owner::of_address([10, high, middle, low].into()), number).await;
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(attempts.addresses.lock().len(), MAX_ADDRESSES);
    }
}
