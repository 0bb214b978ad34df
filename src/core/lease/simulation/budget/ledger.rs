//! The ledger: it decides about the replicas' leases, and releases the leases of lost replicas.

use rust_decimal::Decimal;

use super::{Broken, Event, Run, money};
use crate::lease::budget::{LeaseRequest, RELEASED_AFTER, decide};

impl Run {
    /// The administrator releases the leases of lost replicas.
    pub(super) fn release_lost(&mut self) {
        let lost_for = u64::try_from(RELEASED_AFTER.as_micros()).unwrap();
        let lost_for = if self.broken == Broken::LiveReleased { 0 } else { lost_for };
        let now = self.events.now;
        for (&(at, life), (heard, releases)) in &mut self.known {
            let Some(lease) = self.leases.get_mut(&(at, life)).filter(|_| *heard + lost_for <= now) else { continue };
            if lease.amount.is_zero() {
                continue;
            }
            *releases += 1;
            lease.releases = *releases;
            self.leased -= std::mem::take(&mut lease.amount).cost_usd;
            let alive = Some(&self.replicas[at]).filter(|replica| replica.life == life);
            self.unknown += alive.map_or_else(
                || self.unsaid.remove(&(at, life)).unwrap_or_default(),
                |replica| replica.in_use().cost_usd,
            );
        }
    }

    pub(super) fn ask(&mut self, at: usize, life: u64, request: LeaseRequest) {
        let mut own = self.leases.get(&(at, life)).copied().unwrap_or_default();
        if self.broken == Broken::Sequence {
            own.sequence = i64::MIN;
        }
        if self.broken == Broken::ReleaseForgotten {
            own.releases = 0;
        }
        let others = match self.broken {
            Broken::OthersForgotten => Decimal::ZERO,
            _ => self.leased - own.amount.cost_usd,
        };
        let Some((stored, answer)) = decide(self.limit, (money(self.spent), money(others)), own, &request) else {
            return;
        };
        self.leased += stored.amount.cost_usd - own.amount.cost_usd;
        self.leases.insert((at, life), stored);
        self.send(at, Event::Answered { at, life, request, answer });
    }
}
