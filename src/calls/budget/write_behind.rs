//! Daily usage that survives a restart: read at start, written in the background.
//!
//! Usage is written to the store every 50 ms while it changes, by a replica every 2 s, and at shutdown: a killed process
//! loses at most that.
//! Increments are written, never totals: two processes may share a store, and each reads the other's usage when it
//! writes.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{SignedDuration, ToSpan};
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{Budgets, TakenCharges};
use sekisho_observe::readiness::Readiness;
use sekisho_store::{Store, StoreError};

const EVERY: Duration = Duration::from_millis(50);

/// The same of a replica: its leases count as spent meanwhile, and many replicas write to one database.
const EVERY_OF_A_REPLICA: Duration = Duration::from_secs(2);

/// Days that the store keeps, for operators to inspect.
const KEPT_DAYS: i32 = 90;

/// Ids of stored charges that are forgotten at once where nothing else is written.
const MAX_KNOWN: usize = 100;

/// Its name in readiness.
const COMPONENT: &str = "store";

/// Keeps the store up to date with the day accounts of [`Budgets`].
#[derive(Debug)]
pub struct WriteBehind {
    budgets: Arc<Budgets>,
    store: Store,
    readiness: Arc<Readiness>,
    /// The day on which old days were last removed. Locked during a flush, so that only one runs.
    pruned: Mutex<Option<Date>>,
}

impl WriteBehind {
    /// Reads today's usage from before this process started.
    pub async fn start(budgets: Arc<Budgets>, store: Store, readiness: Arc<Readiness>) -> Result<Self, StoreError> {
        Self::start_on(budgets.today(), budgets, store, readiness).await
    }

    /// Flushes at intervals, and a last time once `shutdown` is cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut ticks = interval(if self.budgets.leasing().is_some() { EVERY_OF_A_REPLICA } else { EVERY });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
            self.flush().await;
        }
        self.flush().await;
    }

    /// Writes unsaved usage to the store. Usage that cannot be written is kept for the next time; meanwhile budgets
    /// continue in memory, and readiness reports so.
    pub async fn flush(&self) {
        self.flush_on(self.budgets.today()).await;
    }

    async fn start_on(
        day: Date,
        budgets: Arc<Budgets>,
        store: Store,
        readiness: Arc<Readiness>,
    ) -> Result<Self, StoreError> {
        budgets.learn(&store.usage().of_day(day).await?);
        budgets.rules.save(&store.rule_usage(), day, false).await?;
        Ok(Self { budgets, store, readiness, pruned: Mutex::new(None) })
    }

    async fn flush_on(&self, day: Date) {
        let mut pruned = self.pruned.lock().await;
        match self.save(day, &mut pruned).await {
            Ok(()) => self.readiness.restore(COMPONENT),
            Err(error) => {
                let reason = format!("daily budgets are only in memory and are lost at a restart: {error}");
                self.readiness.degrade(COMPONENT, reason);
            }
        }
    }

    async fn save(&self, day: Date, pruned: &mut Option<Date>) -> Result<(), StoreError> {
        // Once each: later spending waits for the next time.
        self.store_charges(self.budgets.take_pending()).await?;
        self.store_charges(self.budgets.take_unsaved()).await?;
        self.budgets.rules.save(&self.store.rule_usage(), day, self.budgets.leasing().is_some()).await?;
        if *pruned != Some(day) {
            let first = day.saturating_sub(KEPT_DAYS.days());
            self.store.usage().forget_before(first).await?;
            self.store.model_usage().forget_before(first).await?;
            let kept = SignedDuration::from_hours(24 * i64::from(KEPT_DAYS));
            self.store.charges().forget_before(self.store.now().earlier(kept)).await?;
            self.budgets.rules.forget_old(&self.store.rule_usage(), day).await?;
            *pruned = Some(day);
        }
        Ok(())
    }

    async fn store_charges(&self, charges: TakenCharges) -> Result<(), StoreError> {
        let known = self.budgets.take_known();
        if charges.charges().is_empty() && known.len() < MAX_KNOWN {
            self.budgets.keep_known(known);
            return Ok(());
        }
        let totals = self.store.charges().add(charges.charges(), &known).await?;
        charges.stored(&totals);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rust_decimal::Decimal;
    use tokio::time::Instant;

    use super::*;
    use crate::budget::scope::Scope;
    use crate::budget::tests::{MONDAY, TUESDAY, call, call_of, cents, max_usage};
    use sekisho_config::BudgetConfig;
    use sekisho_core::call::BudgetScopes;
    use sekisho_core::error::ErrorCode;
    use sekisho_store::test_support::{fill_the_disk, free_disk, test_store};

    /// A process: its budgets, written to a store it may share with others.
    async fn process(store: &Store, readiness: &Arc<Readiness>) -> (Arc<Budgets>, WriteBehind) {
        let config = BudgetConfig { max_cost_per_caller_per_day: Some(cents(100)), ..BudgetConfig::default() };
        let budgets = Arc::new(Budgets::new(&config));
        let write_behind =
            WriteBehind::start_on(MONDAY, Arc::clone(&budgets), store.clone(), Arc::clone(readiness)).await.unwrap();
        (budgets, write_behind)
    }

    fn spend(budgets: &Budgets, cost_cents: u64) {
        let hold = budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(cost_cents, 10)).unwrap();
        hold.charge(10);
    }

    fn spent_today(budgets: &Budgets) -> Decimal {
        // Only the request leaves 50 cents: the test reads the caller's day from the error message.
        let accounts = budgets.accounts.find(&call(BudgetScopes::default()), MONDAY).unwrap();
        accounts.balances()[Scope::Caller as usize].spent.cost_usd
    }

    #[tokio::test]
    async fn a_days_budget_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let readiness = Arc::new(Readiness::default());
        for run in 1..=3 {
            let store = Store::open_file(&path).await.unwrap();
            let (budgets, write_behind) = process(&store, &readiness).await;
            assert_eq!(spent_today(&budgets), cents(30 * (run - 1)));
            spend(&budgets, 20);
            write_behind.flush_on(MONDAY).await;
            spend(&budgets, 10);
            write_behind.flush_on(MONDAY).await;
            store.close().await;
        }
        let store = Store::open_file(&path).await.unwrap();
        let (budgets, _) = process(&store, &readiness).await;
        let error = budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(11, 1)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BudgetExceeded);
        assert!(budgets.check_on(TUESDAY, &call(BudgetScopes::default()), &max_usage(11, 1)).is_ok());
    }

    #[tokio::test]
    async fn two_processes_on_one_store_see_each_others_usage() {
        let (store, readiness) = (test_store().await, Arc::new(Readiness::default()));
        let (one, one_writes) = process(&store, &readiness).await;
        let (other, other_writes) = process(&store, &readiness).await;
        spend(&one, 10);
        spend(&other, 20);
        one_writes.flush_on(MONDAY).await;
        other_writes.flush_on(MONDAY).await;
        spend(&one, 5);
        one_writes.flush_on(MONDAY).await;
        assert_eq!((spent_today(&one), spent_today(&other)), (cents(35), cents(30)));
        assert!(one.take_pending().charges().is_empty() && one.take_unsaved().charges().is_empty());
    }

    #[tokio::test]
    async fn a_flush_ends_while_calls_go_on() {
        let (store, readiness) = (test_store().await, Arc::new(Readiness::default()));
        let budgets = Arc::new(Budgets::new(&BudgetConfig::default()));
        let writes = WriteBehind::start_on(MONDAY, Arc::clone(&budgets), store, readiness).await.unwrap();
        // Something to write, so that the first step of a flush does not end it.
        spend(&budgets, 1);
        let calls = async {
            loop {
                spend(&budgets, 1);
                tokio::task::yield_now().await;
            }
        };
        let flushed = async {
            tokio::select! {
                () = writes.flush_on(MONDAY) => {}
                () = calls => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(20), flushed).await.expect("it writes once");
        assert!(spent_today(&budgets) > cents(1));
    }

    #[tokio::test]
    async fn on_a_full_disk_budgets_stay_in_memory_and_are_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        let readiness = Arc::new(Readiness::default());
        let (budgets, write_behind) = process(&store, &readiness).await;
        fill_the_disk(&store).await;
        for n in 0..500 {
            let call = call_of(&format!("caller {n}"), "acme", BudgetScopes::default());
            budgets.reserve_on(MONDAY, &call, &max_usage(1, 10)).unwrap().charge(10);
        }
        spend(&budgets, 20);
        for _ in 0..3 {
            write_behind.flush_on(MONDAY).await;
            assert!(readiness.degraded()["store"].contains("is full"), "{:?}", readiness.degraded());
        }
        spend(&budgets, 10);
        assert_eq!(spent_today(&budgets), cents(30));
        free_disk(&store).await;
        write_behind.flush_on(MONDAY).await;
        assert!(readiness.degraded().is_empty());
        assert_eq!(store.usage().of_day(MONDAY).await.unwrap().len(), 502);
        let (restarted, _) = process(&store, &readiness).await;
        assert_eq!(spent_today(&restarted), cents(30));
    }

    #[tokio::test]
    async fn a_killed_process_loses_what_was_spent_in_the_last_interval_only() {
        let (store, readiness) = (test_store().await, Arc::new(Readiness::default()));
        let (budgets, write_behind) = process(&store, &readiness).await;
        let running = tokio::spawn(async move { write_behind.run(CancellationToken::new()).await });
        spend(&budgets, 20);
        let began = Instant::now();
        while spent_today(&process(&store, &readiness).await.0) != cents(20) {
            assert!(began.elapsed() < Duration::from_millis(900), "an interval is {EVERY:?}");
            tokio::time::sleep(EVERY / 10).await;
        }
        // As by SIGKILL: nothing is written at the end.
        running.abort();
        spend(&budgets, 20);
        assert_eq!(spent_today(&process(&store, &readiness).await.0), cents(20));
    }

    #[tokio::test]
    async fn what_was_spent_is_written_at_shutdown() {
        let (store, readiness) = (test_store().await, Arc::new(Readiness::default()));
        let (budgets, write_behind) = process(&store, &readiness).await;
        let shutdown = CancellationToken::new();
        let running = {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { write_behind.run(shutdown).await })
        };
        spend(&budgets, 20);
        shutdown.cancel();
        running.await.unwrap();
        let (restarted, _) = process(&store, &readiness).await;
        assert_eq!(spent_today(&restarted), cents(20));
    }
}
