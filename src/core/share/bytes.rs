//! Bytes of a memory that many share.

use std::sync::Arc;

use super::{Lease, Share};
use crate::caller::Owner;

/// The part that one of many collections takes of a memory for all of them, in units of some bytes.
#[derive(Debug)]
pub struct HeldBytes {
    share: Arc<Share>,
    owner: Owner,
    unit: usize,
    units: Vec<Lease>,
}

impl HeldBytes {
    /// None yet. `share` has units of `unit` bytes.
    pub fn new(share: &Arc<Share>, owner: &Owner, unit: usize) -> Self {
        Self { share: Arc::clone(share), owner: owner.clone(), unit: unit.max(1), units: Vec::new() }
    }

    /// Takes as many units as so many bytes need, or gives the superfluous ones back. False where there are too few;
    /// the units that were taken stay then.
    pub fn hold(&mut self, bytes: usize) -> bool {
        let wanted = bytes.div_ceil(self.unit);
        self.units.truncate(wanted);
        while self.units.len() < wanted {
            let Some(unit) = self.share.try_acquire(&self.owner, 1) else { return false };
            self.units.push(unit);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_held_in_units_until_fewer_are_needed() {
        let share = Share::new(3);
        let held = || HeldBytes::new(&share, Owner::gateway(), 10);
        let (mut one, mut other) = (held(), held());
        assert!(one.hold(0) && share.used() == 0);
        assert!(one.hold(11) && share.used() == 2);
        assert!(!other.hold(11) && share.used() == 3, "one of two");
        assert!(one.hold(1) && other.hold(11));
        drop(one);
        assert_eq!(share.used(), 2);
        assert!(other.hold(0) && share.used() == 0);
    }
}
