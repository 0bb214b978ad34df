//! A value for each of the last periods. An old one makes room for a new one, so that it never grows.

/// The values of the last periods of a length.
#[derive(Debug)]
pub(super) struct Periods<T> {
    seconds: u64,
    slots: Box<[Slot<T>]>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Number of the period since 1970.
    period: u64,
    value: T,
}

impl<T: Default> Periods<T> {
    /// `slots` periods of so many seconds.
    pub(super) fn new(slots: usize, seconds: u64) -> Self {
        Self { seconds, slots: (0..slots).map(|_| Slot { period: 0, value: T::default() }).collect() }
    }

    /// The value of the period of this second.
    pub(super) fn at(&mut self, second: u64) -> &mut T {
        let period = second / self.seconds;
        let index = self.index(period);
        let slot = &mut self.slots[index];
        if slot.period != period {
            *slot = Slot { period, value: T::default() };
        }
        &mut slot.value
    }

    /// The values up to this second, the oldest first; `None` for a period without one.
    pub(super) fn until(&self, second: u64) -> impl Iterator<Item = Option<&T>> {
        let last = second / self.seconds;
        let periods = (0..self.slots.len() as u64).rev().map(move |ago| last.saturating_sub(ago));
        periods.map(|period| {
            let slot = &self.slots[self.index(period)];
            (slot.period == period).then_some(&slot.value)
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "smaller than the number of slots")]
    fn index(&self, period: u64) -> usize {
        (period % self.slots.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_values_make_room_and_periods_without_one_are_empty() {
        let mut periods = Periods::<u32>::new(3, 10);
        for second in [1_000, 1_005, 1_010, 1_035] {
            *periods.at(second) += 1;
        }
        let values = |second| periods.until(second).map(Option::<&u32>::copied).collect::<Vec<_>>();
        assert_eq!(values(1_039), [Some(1), None, Some(1)], "the calls of 1000 to 1009 are gone");
        assert_eq!(values(1_045), [None, Some(1), None]);
        assert_eq!(values(9_000), [None, None, None]);
    }
}
