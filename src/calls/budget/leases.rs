//! The day's budgets where several replicas share them: the amount that calls may hold is leased ahead from the ledger
//! in the store. So a call costs no round trip, and all replicas together never spend more than the budget.
//!
//! The rules are in [`sekisho_core::lease::budget`]. Spending is written in the same way as without leases
//! ([`super::WriteBehind`]): once it is in the store, it leaves the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::scope::MaxUsage;
use super::{Budgets, Hold};
use sekisho_core::boot_clock;
use sekisho_core::call::{CallContext, Caller};
use sekisho_core::database_clock::DatabaseClock;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::lease::budget::{AccountLimit, may_spend};
use sekisho_observe::readiness::Readiness;
use sekisho_store::replica::{Confirmed, Replica};
use sekisho_store::{AskedLease, BudgetLeaseStore, DailyScope, Store, StoreError};

/// How often it is looked whether something is to be leased or given back.
const EVERY: Duration = Duration::from_millis(50);

/// How long an answer of the store is waited for.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a call waits for an amount that is not leased yet.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Its name in readiness.
const COMPONENT: &str = "leases";

/// The state that calls and the exchange with the store share.
#[derive(Debug)]
pub(super) struct Leasing {
    started: Instant,
    /// A call waits.
    wake: Notify,
    /// Exchanges so far.
    rounds: watch::Sender<u64>,
    /// The last exchange had no answer.
    is_away: AtomicBool,
    clock: DatabaseClock,
    /// The last heartbeat that was answered.
    confirmed: Mutex<Option<Confirmed>>,
}

/// How a day's account is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeasedReserve {
    pub(super) now: Duration,
    /// The leased amount may be spent: it cannot have been released.
    pub(super) may_spend: bool,
    /// Nothing waits for an amount that is not leased.
    pub(super) is_final: bool,
}

impl Leasing {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            wake: Notify::new(),
            rounds: watch::Sender::default(),
            is_away: AtomicBool::default(),
            clock: DatabaseClock::new(),
            confirmed: Mutex::default(),
        }
    }

    /// By it the day begins.
    pub(super) fn clock(&self) -> &DatabaseClock {
        &self.clock
    }

    /// Holds within the lease, after waiting for more if necessary.
    pub(super) async fn reserve(
        &self,
        budgets: &Budgets,
        call: &CallContext,
        max_usage: &MaxUsage<'_>,
    ) -> Result<Hold, CallError> {
        let mut rounds = self.rounds.subscribe();
        let until = Instant::now() + CALL_TIMEOUT;
        let until = call.must_end_by.map_or(until, |end| end.min(until));
        loop {
            let is_away = self.is_away.load(Ordering::Relaxed);
            let may_spend = self.may_spend();
            let how = LeasedReserve { now: self.now(), may_spend, is_final: is_away || Instant::now() >= until };
            match budgets.reserve_leased(call, max_usage, how) {
                Ok(Some(hold)) => return Ok(hold),
                Ok(None) if how.is_final => {
                    return Err(CallError::internal("the last attempt to hold a budget decides"));
                }
                Ok(None) => {}
                Err(NoLease::NotLeased(error)) if is_away || !may_spend => return Err(away(&error)),
                Err(NoLease::Refused(error) | NoLease::NotLeased(error)) => return Err(error),
            }
            self.wake.notify_one();
            // Without an answer the next attempt decides by the current lease.
            let _answered = timeout_at(until, rounds.changed()).await;
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn may_spend(&self) -> bool {
        self.confirmed.lock().is_some_and(|confirmed| may_spend(boot_clock::now(), confirmed.sent))
    }
}

/// Why nothing is held.
#[derive(Debug)]
pub(super) enum NoLease {
    /// The limits permit no more.
    Refused(CallError),
    /// They may, and it is not leased.
    NotLeased(CallError),
}

fn away(error: &CallError) -> CallError {
    let message =
        "the budget of this day cannot be leased: the database that all replicas share is away; try again later";
    CallError::new(ErrorCode::Overloaded, message)
        .with_details(error.details().to_vec())
        .retry_after(Duration::from_secs(5))
}

/// Exchanges leases with the store.
#[derive(Debug)]
pub struct BudgetLeases {
    budgets: Arc<Budgets>,
    store: BudgetLeaseStore,
    replica: Arc<Replica>,
    readiness: Arc<Readiness>,
}

impl BudgetLeases {
    pub fn new(budgets: &Arc<Budgets>, store: &Store, replica: &Arc<Replica>, readiness: &Arc<Readiness>) -> Self {
        Self {
            budgets: Arc::clone(budgets),
            store: store.budget_leases(),
            replica: Arc::clone(replica),
            readiness: Arc::clone(readiness),
        }
    }

    /// Leases and gives back until `shutdown` is cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let Some(leasing) = self.budgets.leasing() else { return };
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = leasing.wake.notified() => {}
                () = shutdown.cancelled() => return,
            }
            self.exchange(leasing).await;
        }
    }

    /// Gives everything back that is not in use, before this replica leaves.
    pub async fn give_back(&self) {
        // At the end of time every amount that is not in use is idle.
        let requests = self.budgets.lease_requests(Duration::MAX);
        if requests.is_empty() {
            return;
        }
        let given_back = timeout(EXCHANGE_TIMEOUT, self.store.exchange(self.replica.id(), &requests)).await;
        if !matches!(given_back, Ok(Ok(_))) {
            tracing::warn!("what this replica leased of the day's budgets could not be given back: it counts as spent");
        }
    }

    /// Removes leases of days that are over.
    pub async fn forget_old(&self) -> Result<(), StoreError> {
        self.store.forget_before(self.budgets.yesterday()).await
    }

    async fn exchange(&self, leasing: &Leasing) {
        let requests = self.budgets.lease_requests(leasing.now());
        if requests.is_empty() {
            return;
        }
        let answered = timeout(EXCHANGE_TIMEOUT, self.store.exchange(self.replica.id(), &requests)).await;
        let now = leasing.now();
        match answered {
            Ok(Ok(answers)) => {
                leasing.is_away.store(false, Ordering::Relaxed);
                for (asked, answer) in requests.iter().zip(&answers) {
                    self.budgets.accounts.leased(now, asked, answer);
                }
                self.readiness.restore(COMPONENT);
            }
            failed => {
                leasing.is_away.store(true, Ordering::Relaxed);
                requests.iter().for_each(|asked| self.budgets.accounts.not_leased(now, asked));
                let error = failed.map_or_else(
                    |_| "no answer within a second".to_owned(),
                    |answer| answer.err().map(|error| error.to_string()).unwrap_or_default(),
                );
                let reason =
                    format!("budgets cannot be leased, and calls are refused once what is leased is used: {error}");
                self.readiness.degrade(COMPONENT, reason);
            }
        }
        leasing.rounds.send_modify(|rounds| *rounds += 1);
    }
}

impl Budgets {
    /// A heartbeat of this replica was answered: for a while the replica may spend its leases, which nobody can release
    /// meanwhile.
    pub fn confirm_leases(&self, confirmed: Confirmed) {
        let Some(leasing) = &self.leasing else { return };
        let known = leasing.confirmed.lock().map_or(0, |known| known.releases);
        if confirmed.releases > known {
            tracing::warn!("an administrator released what this replica leased of the day's budgets: it leases anew");
            self.accounts.release_leases(confirmed.releases);
        }
        *leasing.confirmed.lock() = Some(confirmed);
    }

    /// The next requests to the ledger, in the order in which all replicas lock the rows.
    fn lease_requests(&self, now: Duration) -> Vec<AskedLease> {
        self.accounts.lease_requests(now, |scope, key| self.account_limit(scope, key))
    }

    fn account_limit(&self, scope: DailyScope, key: &str) -> AccountLimit {
        let tenant = match scope {
            DailyScope::Tenant => key,
            DailyScope::Caller => Caller::parts_of_key(key).0,
        };
        self.limits_of(tenant).account_limit(scope)
    }
}

#[cfg(test)]
mod tests;
