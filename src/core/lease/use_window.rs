//! The use of the last second or two.

use std::time::Duration;

use crate::amount::Amount;

const WINDOW: Duration = Duration::from_secs(1);

/// Something that adds up.
pub trait Quantity: Copy + Default {
    fn plus(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
}

/// The use of this second, and of the one before.
#[derive(Debug, Default)]
#[cfg_attr(feature = "test-support", derive(Clone, PartialEq, Eq, Hash))]
pub struct UseWindow<Q> {
    began: Duration,
    this: Q,
    last: Q,
}

impl<Q: Quantity> UseWindow<Q> {
    pub fn add(&mut self, now: Duration, used: Q) {
        self.turn(now);
        self.this = self.this.plus(used);
    }

    /// The use of a second.
    pub fn per_second(&mut self, now: Duration) -> Q {
        self.turn(now);
        self.this.max(self.last)
    }

    fn turn(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.began);
        if passed >= WINDOW {
            self.last = if passed < WINDOW * 2 { self.this } else { Q::default() };
            self.this = Q::default();
            self.began = now;
        }
    }
}

impl Quantity for Amount {
    fn plus(self, other: Self) -> Self {
        Amount::plus(self, other)
    }

    fn max(self, other: Self) -> Self {
        Amount::max(self, other)
    }
}

impl Quantity for u64 {
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_second_is_known_for_two() {
        let mut window = UseWindow::default();
        let at = Duration::from_millis;
        window.add(at(10_000), 3);
        window.add(at(10_900), 4_u64);
        assert_eq!(window.per_second(at(10_950)), 7);
        window.add(at(11_100), 1);
        assert_eq!(window.per_second(at(11_200)), 7);
        assert_eq!(window.per_second(at(12_200)), 1);
        assert_eq!(window.per_second(at(20_000)), 0);
    }
}
