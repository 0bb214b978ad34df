//! Tokens that were verified before, so that not every request costs a signature check or a question to the issuer.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::SecretDigest;
use sekisho_core::bounded::BoundedCache;
use sekisho_core::call::Caller;

/// The verified tokens of one issuer, by their digests.
pub(super) struct SeenTokens(BoundedCache<SecretDigest, Seen>);

struct Seen {
    caller: Arc<Caller>,
    basis: Basis,
    /// Expiry in seconds since 1970, including the leeway.
    until: u64,
}

/// The key or the answer by which a token was verified.
#[derive(Clone, Copy)]
pub(super) enum Basis {
    /// By the keys of this generation.
    Keys(u64),
    /// By the issuer, whose answer counts until then.
    Answer(Instant),
}

/// Tokens remembered at once; then some of those that have expired make room, otherwise others.
const MAX_SEEN: usize = 10_000;

impl Default for SeenTokens {
    fn default() -> Self {
        Self(BoundedCache::new(MAX_SEEN))
    }
}

impl SeenTokens {
    /// The caller of a token, if the basis of its verification still counts. `generation`: of the current keys.
    pub(super) fn get(&self, digest: &SecretDigest, generation: impl FnOnce() -> u64) -> Option<Arc<Caller>> {
        self.0.get(digest, |seen| {
            let counts = match seen.basis {
                Basis::Keys(of) => of == generation(),
                Basis::Answer(until) => Instant::now() < until,
            };
            (counts && now() < seen.until).then(|| Arc::clone(&seen.caller))
        })
    }

    /// The expiry of a token, including the leeway.
    pub(super) fn until(&self, digest: &SecretDigest) -> Option<u64> {
        self.0.get(digest, |seen| Some(seen.until))
    }

    /// Removes those that do not count any more: their callers hold the texts of the tokens.
    pub(super) fn forget_expired(&self) {
        let (now, instant) = (now(), Instant::now());
        self.0.retain(|_, seen| seen.until > now && !matches!(seen.basis, Basis::Answer(until) if until <= instant));
    }

    pub(super) fn insert(&self, digest: SecretDigest, caller: Arc<Caller>, basis: Basis, until: u64) {
        let now = now();
        self.0.insert(digest, Seen { caller, basis, until }, |seen| seen.until <= now);
    }
}

/// Seconds since 1970, by the clock that expiry dates are about.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_counts_until_it_expires_and_while_what_verified_it_does() {
        let seen = SeenTokens::default();
        let ann = Arc::new(Caller::new("ann", "acme", Vec::new()));
        let counts = |number: u8, generation| seen.get(&[number; 32], || generation).is_some();
        let answer = Basis::Answer(Instant::now() + Duration::from_secs(30));
        for (number, basis, until) in
            [(1, Basis::Keys(7), now() + 60), (2, Basis::Keys(7), now()), (3, answer, now() + 60), (4, answer, now())]
        {
            seen.insert([number; 32], Arc::clone(&ann), basis, until);
        }
        assert_eq!([1, 2, 3, 4, 5].map(|number| counts(number, 7)), [true, false, true, false, false]);
        assert_eq!([1, 3].map(|number| counts(number, 8)), [false, true], "other keys are no other answer");
        seen.forget_expired();
        assert_eq!(seen.0.len(), 2, "those that count stay");
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!([1, 3].map(|number| counts(number, 7)), [true, false]);
        seen.forget_expired();
        assert_eq!((seen.0.len(), counts(1, 7)), (1, true));
    }

    #[test]
    fn tokens_that_expired_make_room_for_others() {
        let (seen, ann) = (SeenTokens::default(), Arc::new(Caller::new("ann", "acme", Vec::new())));
        let digest = |number: usize| {
            let mut digest = SecretDigest::default();
            digest[..8].copy_from_slice(&number.to_be_bytes());
            digest
        };
        let last = 2 * MAX_SEEN;
        for number in 0..=last {
            let until = if number == 0 || number == last { now() + 60 } else { now() };
            seen.insert(digest(number), Arc::clone(&ann), Basis::Keys(0), until);
            assert!(seen.until(&digest(number)) == Some(until));
        }
        assert!(seen.0.len() <= MAX_SEEN);
        assert!(seen.get(&digest(0), || 0).is_some() && seen.get(&digest(last), || 0).is_some());
    }
}
