//! Which session ends so that another one can hold more memory.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::session::Session;
use sekisho_core::caller::Owner;
use sekisho_core::share::Lease;

/// The memory that an open session holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) owner: &'a Owner,
    pub(super) bytes: u64,
    /// Whether it may end, as one that no call has.
    pub(super) may_end: bool,
}

impl<'a> Held<'a> {
    pub(super) fn of<I>(session: &'a Session<I>, may_end: bool) -> Self {
        let bytes = session.state.lock().memory.as_ref().map_or(0, Lease::amount);
        Self { owner: &session.key.owner, bytes, may_end }
    }
}

/// The place of the session that ends so that a session of `owner` can hold `more` bytes. It is a session of the owner,
/// or of a tenant, or a caller of its tenant, that holds more than its own would then. Of these it is a session of
/// whoever holds most, the least recently used. `open` begins with the least recently used session of all.
pub(super) fn next_to_end(open: &[Held<'_>], owner: &Owner, more: u64) -> Option<usize> {
    let (mut tenants, mut callers) = (HashMap::<&str, u64>::new(), HashMap::<&str, u64>::new());
    for held in open {
        *tenants.entry(&held.owner.tenant).or_default() += held.bytes;
        *callers.entry(&held.owner.caller).or_default() += held.bytes;
    }
    let sums = |owner: &Owner| {
        let (by_tenant, by_caller) = (tenants.get(&*owner.tenant), callers.get(&*owner.caller));
        (by_tenant.copied().unwrap_or_default(), by_caller.copied().unwrap_or_default())
    };
    let (own_tenant, own) = sums(owner);
    let candidates = open.iter().enumerate().filter(|(_, held)| held.may_end && held.bytes > 0);
    let candidates = candidates.filter_map(|(place, held)| {
        let (by_tenant, by_caller) = sums(held.owner);
        let (is_own_tenant, is_own) = (held.owner.tenant == owner.tenant, held.owner == owner);
        let has_more = if is_own_tenant { by_caller > own + more } else { by_tenant > own_tenant + more };
        (is_own || has_more).then_some(((by_tenant, is_own_tenant, by_caller, is_own, Reverse(place)), place))
    });
    candidates.max_by_key(|(order, _)| *order).map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(tenant: &str, caller: &str) -> Owner {
        Owner { tenant: tenant.into(), caller: caller.into() }
    }

    #[test]
    fn the_owner_that_holds_most_loses_its_oldest_session_and_smaller_ones_lose_none() {
        let (ann, bob, eve) = (owner("one", "ann"), owner("one", "bob"), owner("two", "eve"));
        let held = |owner, bytes| Held { owner, bytes, may_end: true };
        let mut open = [held(&eve, 5), held(&ann, 10), held(&bob, 20), held(&ann, 40), held(&eve, 5)];
        for (owner, more, expected) in [
            (&eve, 9, Some(1)),
            (&eve, 60, Some(0)),
            (&bob, 29, Some(1)),
            (&bob, 30, Some(2)),
            (&ann, 1, Some(1)),
            (&owner("two", "new"), 59, Some(1)),
            (&owner("two", "new"), 60, None),
        ] {
            assert_eq!(next_to_end(&open, owner, more), expected, "{more} for {owner:?}");
        }
        open[1].may_end = false;
        assert_eq!(next_to_end(&open, &eve, 9), Some(3), "one that a call has stays, and counts");
        open[3].may_end = false;
        assert_eq!(next_to_end(&open, &owner("three", "new"), 9), Some(2));
    }
}
