//! Units of a share that somebody holds.

use std::sync::Arc;

use super::Share;
use crate::caller::Owner;

/// Units of a share; given back on drop.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    share: Arc<Share>,
    pub(super) owner: Owner,
    pub(super) amount: u64,
}

impl Lease {
    /// A lease of units that were taken.
    pub(super) fn new(share: &Arc<Share>, owner: &Owner, amount: u64) -> Self {
        Self { share: Arc::clone(share), owner: owner.clone(), amount }
    }

    /// Units held.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Gives units back, so that at most this many are left.
    pub fn shrink_to(&mut self, amount: u64) {
        let less = self.amount.saturating_sub(amount);
        self.amount -= less;
        self.give_back(less);
    }

    /// Adds units of the same owner and share.
    pub fn extend(&mut self, mut more: Self) {
        debug_assert!(Arc::ptr_eq(&self.share, &more.share) && self.owner == more.owner, "{self:?} and {more:?}");
        self.amount += std::mem::take(&mut more.amount);
    }

    fn give_back(&self, amount: u64) {
        let is_awaited = {
            let mut state = self.share.state.lock();
            state.give_back(&self.owner, amount);
            state.waiting > 0
        };
        if is_awaited {
            self.share.grant();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}
