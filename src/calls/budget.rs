//! Budgets: the maximum cost of a call is reserved before it runs and settled after, so that parallel calls never
//! overspend together (E7, E56–E63).
//!
//! A call belongs to five scopes: its request, agent and task (by the ids the caller names, under that caller's own
//! key; without an id the scope is only this call), and the days of its caller and its tenant (UTC; always counted,
//! limited where configured). Money and tokens are reserved in all of them or in none.
//!
//! The run of an agent is one request, with a token limit of its own.
//!
//! This module does not depend on how a call ends: the pipeline decides whether failed work is charged or refunded.

mod account;
mod accounts;
mod deferred;
mod hold;
mod leases;
pub mod model_prices;
mod rules;
mod scope;
#[cfg(test)]
mod tests;
mod write_behind;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{Timestamp, ToSpan};
use rust_decimal::{Decimal, RoundingStrategy};
use tokio::sync::Notify;

pub use self::account::Amount;
pub use self::deferred::{ChargesOfCall, DeferredCharges, TakenCharges};
pub use self::hold::{Charge, Hold};
pub use self::leases::BudgetLeases;
pub use self::model_prices::ModelUsage;
pub use self::rules::RuleBalance;
pub use self::write_behind::WriteBehind;

use self::account::Balance;
use self::accounts::AccountStore;
use self::deferred::UnstoredCharges;
use self::leases::{LeasedReserve, Leasing, NoLease};
use self::rules::RuleBudgets;
use self::scope::{Limits, MaxUsage, PerScope, Scope};
use crate::tool::{Metadata, Tool};
use sekisho_config::{BudgetConfig, LimitRule};
use sekisho_core::amount::PRICE_DECIMALS;
use sekisho_core::call::{CallContext, Caller, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_observe::metrics::DayBudget;
use sekisho_store::DailyScope;

/// The rest of money and tokens in the narrowest scope of a call; scopes without a limit do not count.
pub type Left = Amount;

/// The accounts of all scopes, and their limits.
#[derive(Debug)]
pub struct Budgets {
    settings: ArcSwap<Settings>,
    /// Tenants with limits of their own.
    tenants: ArcSwap<HashMap<Arc<str>, TenantLimits>>,
    accounts: AccountStore,
    /// Where several replicas share the budgets of a day.
    leasing: Option<Leasing>,
    unstored: UnstoredCharges,
    rules: RuleBudgets,
    /// Says whenever a hold was charged or refunded.
    freed: Arc<Notify>,
}

/// A tenant's own limits of one day, in place of the limits for all tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantLimits {
    pub cost_usd: Option<Decimal>,
    pub tokens: Option<u64>,
}

/// Whether a price fits.
#[derive(Debug, Clone, Copy)]
enum Fit {
    Now,
    /// Once the holds of its request are refunded.
    WithoutHolds,
    Never,
}

#[derive(Debug)]
struct Settings {
    limits: Arc<Limits>,
    /// The limits of calls that a run of an agent makes.
    limits_of_runs: Arc<Limits>,
    daily_cost_limit: Option<&'static str>,
    scope_idle: Duration,
}

impl Budgets {
    pub fn new(config: &BudgetConfig) -> Self {
        Self {
            settings: ArcSwap::from_pointee(Settings::from(config)),
            tenants: ArcSwap::default(),
            accounts: AccountStore::default(),
            leasing: None,
            unstored: UnstoredCharges::default(),
            rules: RuleBudgets::default(),
            freed: Arc::default(),
        }
    }

    /// The budgets of a replica: of the limits of a day it holds the part that it leased ([`BudgetLeases`]).
    pub fn of_replica(config: &BudgetConfig) -> Self {
        Self { leasing: Some(Leasing::new()), ..Self::new(config) }
    }

    /// Sets the database's time, by which the day of replicas begins.
    pub fn set_database_time(&self, now: Timestamp) {
        if let Some(leasing) = &self.leasing {
            leasing.clock().set(now);
        }
    }

    /// Applies new limits; the amounts spent and held so far stay.
    pub fn reconfigure(&self, config: &BudgetConfig) {
        self.settings.store(Arc::new(Settings::from(config)));
    }

    /// Sets the rules that limit the spending of a day. The spending by a rule of the same name stays.
    pub fn limit_by_rules(&self, rules: &[LimitRule]) {
        self.rules.reconfigure(rules);
    }

    /// The amounts that the subjects of rules have spent and hold today.
    pub fn rules_of_today(&self) -> Vec<RuleBalance> {
        self.rules.of_day(self.today())
    }

    /// Sets the tenants with limits of their own, and forgets all others.
    pub fn limit_tenants(&self, tenants: impl IntoIterator<Item = (Arc<str>, TenantLimits)>) {
        let limited = tenants.into_iter().filter(|(_, limits)| *limits != TenantLimits::default());
        self.tenants.store(Arc::new(limited.collect()));
    }

    /// Sets the limits of one tenant.
    pub fn limit_tenant(&self, tenant: &str, limits: TenantLimits) {
        if self.tenants.load().get(tenant).copied().unwrap_or_default() == limits {
            return;
        }
        self.tenants.rcu(|tenants| {
            let mut tenants = HashMap::clone(tenants);
            tenants.remove(tenant);
            tenants.extend((limits != TenantLimits::default()).then(|| (tenant.into(), limits)));
            tenants
        });
    }

    /// Reserves the tool's price and the tokens its text may have, at most as many as are left.
    /// Errors: `budget_exceeded` when the price does not fit, `token_limit_exceeded` when too few tokens are left,
    /// `invalid_request` for an id that is empty or too long.
    pub async fn reserve(&self, call: &CallContext, tool: &Tool) -> Result<Hold, CallError> {
        self.reserve_most(call, asked_by(call, tool), Some(tool.name())).await
    }

    /// Reserves the maximum cost and tokens of a model's turn. The tokens count only in the days of the caller and the tenant
    /// and by `limits.rules`; the other limits are of the text of tools.
    /// Errors: `budget_exceeded` or `token_limit_exceeded` when it does not fit, `invalid_request` for an id that is
    /// empty or too long.
    pub async fn reserve_turn(&self, call: &CallContext, model: &str, most: Amount) -> Result<Hold, CallError> {
        let cost = Amount { cost_usd: rounded(most.cost_usd), tokens: 0 };
        self.reserve_most(call, MaxUsage { tool: model, most: cost, day_tokens: most.tokens }, None).await
    }

    /// As [`reserve_turn`](Self::reserve_turn). Where the money fits, but for holds of the same request, it waits until these are
    /// charged or refunded: most of them cost less in the end.
    /// Errors: as `reserve_turn`.
    pub async fn reserve_turn_or_wait(&self, call: &CallContext, model: &str, most: Amount) -> Result<Hold, CallError> {
        let mut is_tried_again = false;
        loop {
            let mut freed = pin!(self.freed.notified());
            // From here on none is missed.
            freed.as_mut().enable();
            let refused = match self.reserve_turn(call, model, most).await {
                Err(error) if error.code() == ErrorCode::BudgetExceeded => error,
                reserved => return reserved,
            };
            match self.fit(call, most.cost_usd) {
                // It does since a moment ago, or a rule has refused it, or it is not leased.
                Fit::Now if !is_tried_again => is_tried_again = true,
                Fit::WithoutHolds => {
                    freed.await;
                    is_tried_again = false;
                }
                Fit::Now | Fit::Never => return Err(refused),
            }
        }
    }

    /// Whether a price that was refused fits by now, or once the holds of the request are refunded: all other scopes have that much.
    fn fit(&self, call: &CallContext, cost_usd: Decimal) -> Fit {
        let Ok(accounts) = self.accounts.find(call, self.today()) else { return Fit::Never };
        let (mut balances, limits) = (accounts.balances(), self.limits_for(call));
        let most = Amount { cost_usd: rounded(cost_usd), tokens: 0 };
        let fits =
            |balances: &PerScope<Balance>| limits.check(balances, &MaxUsage { tool: "", most, day_tokens: 0 }).is_ok();
        if fits(&balances) {
            return Fit::Now;
        }
        let request = &mut balances[Scope::Request as usize];
        if request.held.cost_usd.is_zero() {
            return Fit::Never;
        }
        request.held = Amount::ZERO;
        if fits(&balances) { Fit::WithoutHolds } else { Fit::Never }
    }

    /// The result of [`reserve`](Self::reserve), without reserving anything.
    /// Errors: the errors of `reserve`.
    pub fn check(&self, call: &CallContext, tool: &Tool) -> Result<Left, CallError> {
        let (day, asked) = (self.today(), asked_by(call, tool));
        let asked = match self.rules.of(day, &call.caller, Some(tool.name())) {
            Some(rules) => rules.bounded(asked)?,
            None => asked,
        };
        self.check_on(day, call, &asked)
    }

    /// The name of the configured daily money limit of a tenant.
    pub fn daily_cost_limit(&self, tenant: &str) -> Option<&'static str> {
        let own = self.tenants.load().get(tenant).and_then(|own| own.cost_usd);
        self.settings.load().daily_cost_limit.or(own.map(|_| "max_cost_per_day of the tenant"))
    }

    /// The money and tokens of today's callers and tenants, the most money first, at most so many.
    pub fn of_today(&self, max: usize) -> Vec<DayBudget> {
        self.of_today_in(None, max)
    }

    /// The same of one tenant and its callers, or of all.
    pub fn of_today_in(&self, tenant: Option<&str>, max: usize) -> Vec<DayBudget> {
        let mut days = self.accounts.of_day(self.today());
        if let Some(tenant) = tenant {
            days.retain(|(scope, key, _)| match scope {
                DailyScope::Tenant => **key == *tenant,
                DailyScope::Caller => Caller::parts_of_key(key).0 == tenant,
            });
        }
        days.sort_by_cached_key(|(_, _, balance)| Reverse(balance.spent.plus(balance.held).cost_usd));
        days.truncate(max);
        let budgets = days.into_iter().map(|(scope, key, Balance { spent, held, .. })| {
            let (tenant, caller) = match scope {
                DailyScope::Tenant => (key.to_string(), None),
                DailyScope::Caller => {
                    let (tenant, caller) = Caller::parts_of_key(&key);
                    (tenant.to_owned(), Some(caller.to_owned()))
                }
            };
            let scope = if caller.is_some() { Scope::Caller } else { Scope::Tenant };
            let limits = self.limits_of(&tenant);
            DayBudget {
                tenant,
                caller,
                spent: spent.cost_usd,
                held: held.cost_usd,
                limit: limits.most_cost(scope),
                tokens: spent.plus(held).tokens,
                token_limit: limits.most_tokens(scope),
            }
        });
        budgets.collect()
    }

    /// Removes request, agent and task scopes that have been idle, and past days. Never one with an amount held.
    pub fn evict_idle(&self) {
        self.accounts.evict(self.today(), self.settings.load().scope_idle);
        self.rules.evict(self.today());
    }

    /// Money and tokens held now; a hold counts once in each of its scopes. Zero when nothing runs.
    pub fn held(&self) -> Left {
        self.accounts.held()
    }

    /// `tool`: `None` for a model's turn.
    async fn reserve_most(
        &self,
        call: &CallContext,
        max_usage: MaxUsage<'_>,
        tool: Option<&str>,
    ) -> Result<Hold, CallError> {
        match self.rules.is_empty() {
            true => self.reserve_in_scopes(call, &max_usage).await,
            // Boxed, to keep it out of the size of the future.
            false => Box::pin(self.reserve_by_rules(call, max_usage, tool)).await,
        }
    }

    async fn reserve_by_rules(
        &self,
        call: &CallContext,
        max_usage: MaxUsage<'_>,
        tool: Option<&str>,
    ) -> Result<Hold, CallError> {
        let Some(rules) = self.rules.of(self.today(), &call.caller, tool) else {
            return self.reserve_in_scopes(call, &max_usage).await;
        };
        let max_usage = rules.bounded(max_usage)?;
        let mut hold = self.reserve_in_scopes(call, &max_usage).await?;
        hold.hold_by_rules(rules, &max_usage)?;
        Ok(hold)
    }

    async fn reserve_in_scopes(&self, call: &CallContext, max_usage: &MaxUsage<'_>) -> Result<Hold, CallError> {
        match &self.leasing {
            None => self.reserve_on(self.today(), call, max_usage),
            // Boxed, to keep the part that may wait out of the size of the future.
            Some(leasing) => Box::pin(leasing.reserve(self, call, max_usage)).await,
        }
    }

    fn reserve_leased(
        &self,
        call: &CallContext,
        max_usage: &MaxUsage<'_>,
        how: LeasedReserve,
    ) -> Result<Option<Hold>, NoLease> {
        let day = self.today();
        let accounts = self.accounts.open(call, day).map_err(NoLease::Refused)?;
        let limits = self.limits_for(call);
        let held = accounts.reserve_leased(&limits, max_usage, how)?;
        let freed = &self.freed;
        Ok(held.map(|(reserved, before)| Hold::new((accounts, freed), limits, (reserved, before), (call, day))))
    }

    fn leasing(&self) -> Option<&Leasing> {
        self.leasing.as_ref()
    }

    /// The day (UTC), where replicas share it by the database's clock.
    pub fn today(&self) -> Date {
        let now = self.leasing.as_ref().map_or_else(Timestamp::now, |leasing| *leasing.clock().now());
        Offset::UTC.to_datetime(now).date()
    }

    fn yesterday(&self) -> Date {
        self.today().saturating_sub(1.day())
    }

    fn reserve_on(&self, day: Date, call: &CallContext, max_usage: &MaxUsage<'_>) -> Result<Hold, CallError> {
        let accounts = self.accounts.open(call, day)?;
        let limits = self.limits_for(call);
        let (reserved, before) = accounts.reserve(&limits, max_usage)?;
        Ok(Hold::new((accounts, &self.freed), limits, (reserved, before), (call, day)))
    }

    fn check_on(&self, day: Date, call: &CallContext, max_usage: &MaxUsage<'_>) -> Result<Left, CallError> {
        let balances = self.accounts.find(call, day)?.balances();
        self.limits_for(call).check(&balances, max_usage)
    }

    fn limits_for(&self, call: &CallContext) -> Arc<Limits> {
        let settings = self.settings.load();
        let general = if call.charging.scopes.is_run { &settings.limits_of_runs } else { &settings.limits };
        self.with_tenant(general, &call.caller.tenant)
    }

    fn limits_of(&self, tenant: &str) -> Arc<Limits> {
        self.with_tenant(&self.settings.load().limits, tenant)
    }

    fn with_tenant(&self, general: &Arc<Limits>, tenant: &str) -> Arc<Limits> {
        match self.tenants.load().get(tenant) {
            None => Arc::clone(general),
            Some(own) => Arc::new(general.of_tenant(*own)),
        }
    }
}

impl From<&BudgetConfig> for Settings {
    fn from(config: &BudgetConfig) -> Self {
        Self {
            limits: Arc::new(Limits::from(config)),
            limits_of_runs: Arc::new(Limits::of_runs(config)),
            daily_cost_limit: config.daily_cost_limit(),
            scope_idle: Duration::from_secs(config.scope_idle_seconds),
        }
    }
}

/// A call of a program has no text: its results stay in the sandbox.
fn asked_by<'t>(call: &CallContext, tool: &'t Tool) -> MaxUsage<'t> {
    let tokens = if call.via == Via::Sandbox { 0 } else { tool.metadata.max_text_tokens };
    MaxUsage { tool: tool.name(), most: Amount { cost_usd: price_of(&tool.metadata), tokens }, day_tokens: 0 }
}

/// The price of a call of the tool.
pub fn price_of(metadata: &Metadata) -> Decimal {
    rounded(metadata.cost_per_use.max(Decimal::ZERO))
}

/// A price as it is charged.
pub fn rounded(price: Decimal) -> Decimal {
    if price.scale() <= PRICE_DECIMALS {
        return price;
    }
    price.round_dp_with_strategy(PRICE_DECIMALS, RoundingStrategy::AwayFromZero)
}
