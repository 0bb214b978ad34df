//! Where accounts are stored and found.
//!
//! Locks: an account's lock is never held while a map is searched, and the accounts of one call are locked in the
//! order of [`Scope`], so that no two calls wait for each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::Date;
use parking_lot::{Mutex, MutexGuard};
use rust_decimal::Decimal;
use tokio::time::Instant;

use super::account::{Account, Amount, Balance};
use super::leases::{LeasedReserve, NoLease};
use super::scope::{Limits, MaxUsage, PerScope, Scope, ScopedAmount};
use sekisho_core::bounded::shrink;
use sekisho_core::call::{BudgetScopes, CallContext};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::lease::budget::AccountLimit;
use sekisho_store::{AccountLease, AskedLease, DailyScope, DailyUsage};

/// Maximum length of a request, agent or task id, in bytes: each is stored as long as its scope.
const MAX_ID: usize = 128;

/// Maximum requests, agents and tasks (of each) stored for one caller. Beyond it the longest unused are removed: a
/// caller may use new ids at will, so removal gives no advantage.
const MAX_SCOPES_OF_A_CALLER: usize = 20_000;

/// Days for which unsaved usage is kept in memory.
const UNSAVED_DAYS: i32 = 7;

type SharedAccount = Arc<Mutex<Account>>;

/// Every account there is.
#[derive(Debug, Default)]
pub(super) struct AccountStore {
    #[expect(clippy::disallowed_types, reason = "money: none goes before it is saved, and its day is over")]
    days: dashmap::DashMap<DayKey, SharedAccount>,
    /// By [`Caller::key`](sekisho_core::call::Caller).
    #[expect(clippy::disallowed_types, reason = "money: each caller's are bounded, and go when they are idle")]
    named: dashmap::DashMap<Arc<str>, NamedScopes>,
}

/// One day of one caller or tenant. A call belongs to the day on which it was reserved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DayKey {
    day: Date,
    scope: DailyScope,
    key: Arc<str>,
}

/// The request, agent and task accounts of one caller, by id.
#[derive(Debug, Default)]
struct NamedScopes([HashMap<Box<str>, SharedAccount>; 3]);

/// The accounts of one call; `None` for a scope that is only this call.
#[derive(Debug, Default)]
pub(super) struct Accounts(PerScope<Option<SharedAccount>>);

impl AccountStore {
    /// The accounts of a call, created if they are missing.
    /// Errors: `invalid_request` for an id that is empty or too long.
    pub(super) fn open(&self, call: &CallContext, day: Date) -> Result<Accounts, CallError> {
        let ids = named_ids(&call.charging.scopes)?;
        let [request, agent, task] = if ids.iter().all(Option::is_none) {
            [None, None, None]
        } else {
            self.named.entry(Arc::clone(&call.caller.key)).or_default().open(ids, call.charging.scopes.spent_before)
        };
        let [caller, tenant] = day_keys(call, day).map(|key| self.open_day(key));
        Ok(Accounts([request, agent, task, Some(caller), Some(tenant)]))
    }

    /// The existing accounts of a call; a missing one has nothing spent.
    /// Errors: as [`open`](Self::open).
    pub(super) fn find(&self, call: &CallContext, day: Date) -> Result<Accounts, CallError> {
        let ids = named_ids(&call.charging.scopes)?;
        let [request, agent, task] = match self.named.get(&*call.caller.key) {
            Some(named) => named.find(ids),
            None => [None, None, None],
        };
        let [caller, tenant] = day_keys(call, day).map(|key| self.days.get(&key).map(|found| Arc::clone(&found)));
        Ok(Accounts([request, agent, task, caller, tenant]))
    }

    pub(super) fn held(&self) -> Amount {
        let mut total = Amount::ZERO;
        for account in &self.days {
            total = total.plus(account.lock().balance().held);
        }
        for named in &self.named {
            for account in named.0.iter().flat_map(HashMap::values) {
                total = total.plus(account.lock().balance().held);
            }
        }
        total
    }

    /// Removes scopes idle for `idle`, and days before `today` once they are saved.
    pub(super) fn evict(&self, today: Date, idle: Duration) {
        let now = Instant::now();
        self.named.retain(|_, named| {
            named.keep(|account| in_use(account) || now.duration_since(account.lock().last_used()) < idle);
            !named.0.iter().all(HashMap::is_empty)
        });
        let given_up = today.saturating_sub(UNSAVED_DAYS.days());
        self.days.retain(|key, account| {
            in_use(account) || key.day >= today || (key.day >= given_up && !account.lock().outstanding().is_zero())
        });
    }

    /// The usage that nobody stores yet, which is left to the caller now.
    pub(super) fn defer_unsaved(&self) -> Vec<DailyUsage> {
        let unsaved = self.days.iter().filter_map(|entry| {
            let mut account = entry.value().lock();
            let unsaved = account.unsaved();
            account.defer(unsaved);
            let Amount { cost_usd, tokens } = unsaved;
            let DayKey { day, scope, ref key } = *entry.key();
            (!unsaved.is_zero()).then(|| DailyUsage { day, scope, key: Arc::clone(key), cost_usd, tokens })
        });
        unsaved.collect()
    }

    /// The balances of one day, by caller's key or tenant.
    pub(super) fn of_day(&self, today: Date) -> Vec<(DailyScope, Arc<str>, Balance)> {
        let of_day = self.days.iter().filter(|entry| entry.key().day == today);
        of_day.map(|entry| (entry.key().scope, Arc::clone(&entry.key().key), *entry.value().lock().balance())).collect()
    }

    /// The store added `added` and now has `total` for that day.
    pub(super) fn saved(&self, added: &DailyUsage, total: &DailyUsage) {
        let account = self.open_day(DayKey { day: total.day, scope: total.scope, key: Arc::clone(&total.key) });
        account.lock().saved(amount(added), amount(total));
    }

    /// The same for usage that was deferred.
    pub(super) fn saved_deferred(&self, added: &DailyUsage, total: &DailyUsage) {
        let account = self.open_day(DayKey { day: total.day, scope: total.scope, key: Arc::clone(&total.key) });
        let mut account = account.lock();
        account.release(amount(added));
        account.saved(amount(added), amount(total));
    }

    /// The next requests to the ledger, in the order in which every transaction locks the rows.
    pub(super) fn lease_requests(
        &self,
        now: Duration,
        limit: impl Fn(DailyScope, &str) -> AccountLimit,
    ) -> Vec<AskedLease> {
        let asked = self.days.iter().filter_map(|entry| {
            let DayKey { day, scope, ref key } = *entry.key();
            let (limit, request) = entry.value().lock().lease_request(now, || limit(scope, key))?;
            Some(AskedLease { day, scope, key: Arc::clone(key), limit, request })
        });
        let mut asked: Vec<_> = asked.collect();
        asked.sort_unstable_by(|a, b| (a.scope, a.day, &a.key).cmp(&(b.scope, b.day, &b.key)));
        asked
    }

    /// The ledger answered a request.
    pub(super) fn leased(&self, now: Duration, asked: &AskedLease, answer: &AccountLease) {
        let account = self.open_day(DayKey { day: asked.day, scope: asked.scope, key: Arc::clone(&asked.key) });
        let mut account = account.lock();
        account.saved(Amount::ZERO, answer.spent);
        if let Some(lease) = account.lease() {
            lease.answered(now, &asked.request, answer.lease);
        }
    }

    /// The leases of all accounts were released so often.
    pub(super) fn release_leases(&self, releases: i64) {
        for account in &self.days {
            if let Some(lease) = account.lock().lease() {
                lease.release(releases);
            }
        }
    }

    /// A request had no answer.
    pub(super) fn not_leased(&self, now: Duration, asked: &AskedLease) {
        let account = self.open_day(DayKey { day: asked.day, scope: asked.scope, key: Arc::clone(&asked.key) });
        if let Some(lease) = account.lock().lease() {
            lease.unanswered(now);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.days.len() + self.named.iter().flat_map(|named| named.0.each_ref().map(HashMap::len)).sum::<usize>()
    }

    /// Room of the maps of ids of all callers.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.named.iter().flat_map(|named| named.0.each_ref().map(HashMap::capacity)).sum()
    }

    fn open_day(&self, key: DayKey) -> SharedAccount {
        if let Some(account) = self.days.get(&key) {
            return Arc::clone(&account);
        }
        Arc::clone(&self.days.entry(key).or_insert_with(new_account))
    }
}

impl NamedScopes {
    /// `spent_before`: by the request, if it is new.
    fn open(&mut self, ids: [Option<&str>; 3], spent_before: Decimal) -> [Option<SharedAccount>; 3] {
        let mut maps = self.0.iter_mut().zip([spent_before, Decimal::ZERO, Decimal::ZERO]);
        ids.map(|id| maps.next().zip(id).map(|((accounts, spent), id)| open_named(accounts, id, spent)))
    }

    fn find(&self, ids: [Option<&str>; 3]) -> [Option<SharedAccount>; 3] {
        let mut maps = self.0.iter();
        ids.map(|id| maps.next().zip(id).and_then(|(accounts, id)| accounts.get(id).map(Arc::clone)))
    }

    fn keep(&mut self, mut wanted: impl FnMut(&SharedAccount) -> bool) {
        for accounts in &mut self.0 {
            accounts.retain(|_, account| wanted(account));
            // It may have had 20 000, and is kept while one of them is used.
            shrink(accounts);
        }
    }
}

impl Accounts {
    /// Reserves the request in every account, or nothing in any.
    pub(super) fn reserve(
        &self,
        limits: &Limits,
        max_usage: &MaxUsage<'_>,
    ) -> Result<(ScopedAmount, Amount), CallError> {
        let mut locked = self.0.each_ref().map(|account| account.as_deref().map(Mutex::lock));
        let balances =
            locked.each_ref().map(|account| account.as_ref().map_or_else(Balance::default, |a| *a.balance()));
        let (reserved, before) = limits.fit(&balances, self.0.each_ref().map(Option::is_some), max_usage)?;
        hold(&mut locked, reserved);
        touch(&mut locked);
        Ok((reserved, before))
    }

    /// Reserves the request within the leases. `None`: a part of it is not leased yet, and is to be.
    pub(super) fn reserve_leased(
        &self,
        limits: &Limits,
        max_usage: &MaxUsage<'_>,
        LeasedReserve { now, may_spend, is_final }: LeasedReserve,
    ) -> Result<Option<(ScopedAmount, Amount)>, NoLease> {
        let mut locked = self.0.each_ref().map(|account| account.as_deref().map(Mutex::lock));
        let mut balances =
            locked.each_ref().map(|account| account.as_ref().map_or_else(Balance::default, |a| *a.balance()));
        let is_shared = self.0.each_ref().map(Option::is_some);
        let (mut reserved, before) = limits.fit(&balances, is_shared, max_usage).map_err(NoLease::Refused)?;
        let (mut is_leased, mut may_come) = (true, !is_final);
        for (scope, of_day) in Scope::DAYS {
            let limit = limits.account_limit(of_day);
            let Some(account) = locked[scope as usize]
                .as_mut()
                .filter(|account| !account.is_leased(limit, reserved.of_day(), may_spend))
            else {
                continue;
            };
            is_leased = false;
            may_come = may_come && account.await_lease(now, limit, reserved.of_day());
        }
        if !is_leased && may_come {
            return Ok(None);
        }
        if !is_leased {
            for (scope, of_day) in Scope::DAYS {
                if let Some(account) = &locked[scope as usize] {
                    balances[scope as usize] = account.leased_balance(limits.account_limit(of_day), may_spend);
                }
            }
            (reserved, _) = limits.fit(&balances, is_shared, max_usage).map_err(NoLease::NotLeased)?;
        }
        hold(&mut locked, reserved);
        for (scope, of_day) in Scope::DAYS {
            if let Some(account) = &mut locked[scope as usize] {
                account.use_lease(now, limits.account_limit(of_day), reserved.of_day());
            }
        }
        touch(&mut locked);
        Ok(Some((reserved, before)))
    }

    /// Ends a reservation, `spent` of it being spent, and returns the balances of the accounts. A deferred amount is
    /// not written in the background; spending of named scopes never is.
    pub(super) fn settle(self, reserved: ScopedAmount, spent: ScopedAmount, is_deferred: bool) -> PerScope<Balance> {
        let mut locked = self.0.each_ref().map(|account| account.as_deref().map(Mutex::lock));
        touch(&mut locked);
        let mut scopes = 0..;
        locked.map(|account| {
            let scope = scopes.next().unwrap_or_default();
            let (reserved, spent) = (reserved.at(scope), spent.at(scope));
            match account {
                None => Balance { spent, ..Balance::default() },
                Some(mut account) => {
                    account.settle(reserved, spent);
                    if is_deferred {
                        account.defer(spent);
                    }
                    *account.balance()
                }
            }
        })
    }

    pub(super) fn balances(&self) -> PerScope<Balance> {
        self.0.each_ref().map(|account| account.as_deref().map_or_else(Balance::default, |a| *a.lock().balance()))
    }
}

fn hold(locked: &mut PerScope<Option<MutexGuard<'_, Account>>>, reserved: ScopedAmount) {
    for (scope, account) in locked.iter_mut().enumerate() {
        if let Some(account) = account {
            account.hold(reserved.at(scope));
        }
    }
}

/// Only named scopes are ever idle; a call without ids need not read the clock.
fn touch(locked: &mut PerScope<Option<MutexGuard<'_, Account>>>) {
    let mut named = locked.iter_mut().take(Scope::NAMED.len()).flatten().peekable();
    if named.peek().is_some() {
        let now = Instant::now();
        named.for_each(|account| account.touch(now));
    }
}

fn named_ids(scopes: &BudgetScopes) -> Result<[Option<&str>; 3], CallError> {
    let BudgetScopes { request, agent, task, is_run: _, spent_before: _ } = scopes;
    let ids = [request, agent, task].map(Option::as_deref);
    for (scope, id) in Scope::NAMED.into_iter().zip(ids) {
        if id.is_some_and(|id| id.is_empty() || id.len() > MAX_ID) {
            let name = scope.as_str();
            let message = format!("the {name} id must have 1 to {MAX_ID} bytes; shorten it or omit it");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
    }
    Ok(ids)
}

fn day_keys(call: &CallContext, day: Date) -> [DayKey; 2] {
    [
        DayKey { day, scope: DailyScope::Caller, key: Arc::clone(&call.caller.key) },
        DayKey { day, scope: DailyScope::Tenant, key: Arc::clone(&call.caller.tenant) },
    ]
}

fn open_named(accounts: &mut HashMap<Box<str>, SharedAccount>, id: &str, spent: Decimal) -> SharedAccount {
    if let Some(account) = accounts.get(id) {
        return Arc::clone(account);
    }
    if accounts.len() >= MAX_SCOPES_OF_A_CALLER {
        forget_older_half(accounts);
    }
    let account = new_account();
    if !spent.is_zero() {
        let spent = Amount { cost_usd: spent, tokens: 0 };
        let mut account = account.lock();
        account.hold(spent);
        account.settle(spent, spent);
    }
    accounts.insert(id.into(), Arc::clone(&account));
    account
}

fn forget_older_half(accounts: &mut HashMap<Box<str>, SharedAccount>) {
    let mut last_used: Vec<_> = accounts.values().map(|account| account.lock().last_used()).collect();
    let middle = last_used.len() / 2;
    let (_, &mut median, _) = last_used.select_nth_unstable(middle);
    accounts.retain(|_, account| in_use(account) || account.lock().last_used() > median);
}

/// Whether a call holds the account. Used while the map is locked for writing, so that no call can take it meanwhile.
fn in_use(account: &SharedAccount) -> bool {
    Arc::strong_count(account) > 1
}

fn new_account() -> SharedAccount {
    Arc::new(Mutex::new(Account::new()))
}

fn amount(usage: &DailyUsage) -> Amount {
    Amount { cost_usd: usage.cost_usd, tokens: usage.tokens }
}
