//! Two classes of workers. Copying much memory is one step, which holds a worker's thread and delays all others' runs in
//! it. Callers whose runs do that get their next runs in workers of lower priority, so that the kernel divides the
//! processor between them and the others.

use std::time::Duration;

use tokio::time::Instant;

use sekisho_core::bounded::BoundedCache;
use sekisho_core::caller::Owner;
use sekisho_guest_protocol::Usage;

/// A step that is longer than this delays others noticeably: a time slice has 1 ms.
const LONG_STEP: Duration = Duration::from_millis(20);

/// How long a caller stays in the second class after its last long step.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Callers remembered at once. Beyond, callers of the past are forgotten; while there are none, further callers stay in
/// the first class.
const MAX_CALLERS: usize = 10_000;

/// The callers of the second class.
#[derive(Debug)]
pub(crate) struct Classes(BoundedCache<Owner, Instant>);

impl Default for Classes {
    fn default() -> Self {
        Self(BoundedCache::new(MAX_CALLERS))
    }
}

impl Classes {
    /// Whether the caller's next run is in a worker of the second class.
    pub(crate) fn is_background(&self, caller: &Owner) -> bool {
        self.0.get(caller, |since| Some(since.elapsed() < REMEMBERED)).unwrap_or(false)
    }

    /// Takes in the use of a run of the caller.
    pub(crate) fn record(&self, caller: &Owner, usage: &Usage) {
        if usage.longest_step > LONG_STEP {
            self.0.try_insert(caller.clone(), Instant::now(), |_, since| since.elapsed() >= REMEMBERED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_with_long_steps_are_in_the_second_class_for_a_while() {
        let classes = Classes::default();
        let owner = |name: &str| Owner { tenant: "tenant".into(), caller: name.into() };
        let step = |milliseconds| Usage { longest_step: Duration::from_millis(milliseconds), ..Usage::default() };
        classes.record(&owner("light"), &step(20));
        classes.record(&owner("heavy"), &step(21));
        assert_eq!(["light", "heavy"].map(|name| classes.is_background(&owner(name))), [false, true]);
        tokio::time::advance(REMEMBERED / 2).await;
        classes.record(&owner("heavy"), &step(1));
        classes.record(&owner("again"), &step(300));
        tokio::time::advance(REMEMBERED / 2).await;
        assert_eq!(["heavy", "again"].map(|name| classes.is_background(&owner(name))), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn further_callers_displace_none_and_one_that_is_known_is_renewed() {
        let classes = Classes::default();
        let owner = |number: usize| Owner { tenant: "tenant".into(), caller: number.to_string().into() };
        let heavy = Usage { longest_step: LONG_STEP * 2, ..Usage::default() };
        (0..2 * MAX_CALLERS).for_each(|number| classes.record(&owner(number), &heavy));
        let remembered = classes.0.len();
        assert!(remembered <= MAX_CALLERS && classes.is_background(&owner(0)));
        tokio::time::advance(REMEMBERED / 2).await;
        classes.record(&owner(0), &heavy);
        tokio::time::advance(REMEMBERED / 2).await;
        assert!(classes.is_background(&owner(0)) && !classes.is_background(&owner(1)));
        (MAX_CALLERS..2 * MAX_CALLERS).for_each(|number| classes.record(&owner(number), &heavy));
        assert!(classes.0.len() <= MAX_CALLERS && classes.is_background(&owner(MAX_CALLERS)), "those of the past go");
    }
}
