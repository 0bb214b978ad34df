//! Charges that are stored in one transaction with what they are for, in place of in the background: a process that is killed
//! leaves both or neither.

use std::sync::Arc;

use jiff::civil::Date;
use parking_lot::Mutex;
use rust_decimal::Decimal;

use super::Budgets;
use crate::core::call::{Caller, ChargeSink};
use crate::infra::store::{DailyScope, DailyUsage};

/// Charges that are to be stored by whoever takes them. Those that nobody takes are written in the background.
#[derive(Debug)]
pub struct DeferredCharges {
    budgets: Arc<Budgets>,
    usage: Mutex<Vec<DailyUsage>>,
}

/// Charges on their way into the store. Unless they are stored, they are written in the background.
#[derive(Debug)]
#[must_use = "dropped charges are written in the background"]
pub struct TakenCharges {
    budgets: Arc<Budgets>,
    usage: Vec<DailyUsage>,
}

impl DeferredCharges {
    pub fn new(budgets: &Arc<Budgets>) -> Arc<Self> {
        Arc::new(Self { budgets: Arc::clone(budgets), usage: Mutex::default() })
    }

    pub fn is_empty(&self) -> bool {
        self.usage.lock().is_empty()
    }

    /// The charges since they were last taken, in the order of [`AccountStore::unsaved`](super::accounts::AccountStore).
    pub fn take(&self) -> TakenCharges {
        let mut usage = std::mem::take(&mut *self.usage.lock());
        usage.sort_unstable_by(|a, b| (a.scope, a.day, &a.key).cmp(&(b.scope, b.day, &b.key)));
        TakenCharges { budgets: Arc::clone(&self.budgets), usage }
    }
}

impl ChargeSink for DeferredCharges {
    fn charged(&self, caller: &Caller, day: Date, cost_usd: Decimal, tokens: u64) {
        let mut usage = self.usage.lock();
        for (scope, key) in [(DailyScope::Caller, &caller.key), (DailyScope::Tenant, &caller.tenant)] {
            let known = usage.iter_mut().find(|known| (known.day, known.scope, &known.key) == (day, scope, key));
            match known {
                Some(known) => {
                    known.cost_usd = known.cost_usd.saturating_add(cost_usd);
                    known.tokens = known.tokens.saturating_add(tokens);
                }
                None => usage.push(DailyUsage { day, scope, key: Arc::clone(key), cost_usd, tokens }),
            }
        }
    }
}

impl Drop for DeferredCharges {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl TakenCharges {
    /// To be added in the store.
    pub fn usage(&self) -> &[DailyUsage] {
        &self.usage
    }

    /// They are stored, with these totals, in the same order.
    pub fn stored(mut self, totals: &[DailyUsage]) {
        for (added, total) in std::mem::take(&mut self.usage).iter().zip(totals) {
            self.budgets.accounts.saved_deferred(added, total);
        }
    }
}

impl Drop for TakenCharges {
    fn drop(&mut self) {
        self.usage.iter().for_each(|usage| self.budgets.accounts.release(usage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::tests::{MONDAY, call, cents, max_usage};
    use crate::config::BudgetConfig;
    use crate::core::call::BudgetScopes;
    use crate::infra::store::test_support::test_store;

    fn spend(budgets: &Budgets, charges: Option<&Arc<DeferredCharges>>, cost_cents: u64) {
        let mut call = call(BudgetScopes::default());
        call.charges = charges.map(|charges| Arc::clone(charges) as Arc<dyn ChargeSink>);
        budgets.reserve_on(MONDAY, &call, &max_usage(cost_cents, 10)).unwrap().charge(10);
    }

    /// What the caller's day has: spent, and to be written in the background.
    fn day(budgets: &Budgets) -> (Decimal, Decimal) {
        let spent = budgets.accounts.of_day(MONDAY).into_iter().find(|(scope, ..)| *scope == DailyScope::Caller);
        let unsaved = budgets.accounts.unsaved().into_iter().find(|usage| usage.scope == DailyScope::Caller);
        (
            spent.map_or_else(Decimal::default, |(_, _, balance)| balance.spent.cost_usd),
            unsaved.map_or_else(Decimal::default, |usage| usage.cost_usd),
        )
    }

    #[tokio::test]
    async fn deferred_charges_count_at_once_and_are_stored_by_their_owner() {
        let (store, budgets) = (test_store().await, Arc::new(Budgets::new(&BudgetConfig::default())));
        let charges = DeferredCharges::new(&budgets);
        spend(&budgets, Some(&charges), 10);
        spend(&budgets, None, 1);
        spend(&budgets, Some(&charges), 20);
        assert_eq!(day(&budgets), (cents(31), cents(1)));
        let taken = charges.take();
        spend(&budgets, Some(&charges), 5);
        // The other charge is stored between, and its total is told after.
        let totals = store.add_usage(taken.usage()).await.unwrap();
        let unsaved = budgets.accounts.unsaved();
        let later = store.add_usage(&unsaved).await.unwrap();
        unsaved.iter().zip(&later).for_each(|(added, total)| budgets.accounts.saved(added, total));
        taken.stored(&totals);
        assert_eq!(day(&budgets), (cents(36), cents(0)));
        let last = charges.take();
        let totals = store.add_usage(last.usage()).await.unwrap();
        last.stored(&totals);
        assert_eq!(day(&budgets), (cents(36), cents(0)));
        let stored = store.usage_of(MONDAY).await.unwrap();
        assert!(stored.iter().all(|usage| (usage.cost_usd, usage.tokens) == (cents(36), 40)), "{stored:?}");
    }

    #[test]
    fn charges_that_are_not_stored_are_written_in_the_background() {
        let budgets = Arc::new(Budgets::new(&BudgetConfig::default()));
        let charges = DeferredCharges::new(&budgets);
        spend(&budgets, Some(&charges), 10);
        drop(charges.take());
        assert_eq!(day(&budgets), (cents(10), cents(10)));
        spend(&budgets, Some(&charges), 20);
        drop(charges);
        assert_eq!(day(&budgets), (cents(30), cents(30)));
    }
}
