//! The spending that the rules of `limits.rules` allow on a day: an account for each subject of a rule. The amount that
//! a call reserves of the other scopes is held here too, and settled with it.
//!
//! Replicas do not lease these accounts: each knows the others' spending from its last read of the store, some two
//! seconds ago.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use jiff::ToSpan;
use jiff::civil::Date;
use parking_lot::Mutex;
use rust_decimal::Decimal;

use super::account::Amount;
use super::scope::MaxUsage;
use sekisho_config::LimitRule;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{RuleUsage, RuleUsageStore, StoreError};

/// Tokens that a call must have left for its answer, as of the other scopes.
const MIN_ANSWER_TOKENS: u64 = 256;

/// Days for which the store, and unsaved usage in memory, is kept.
const KEPT_DAYS: i32 = 7;

/// The rules that limit days, and their accounts.
#[derive(Debug, Default)]
pub(super) struct RuleBudgets {
    /// `None`: there is no such rule.
    rules: ArcSwapOption<Vec<Arc<LimitRule>>>,
    #[expect(clippy::disallowed_types, reason = "money: none goes before it is saved, and its day is over")]
    accounts: dashmap::DashMap<RuleDay, Arc<Mutex<RuleAccount>>>,
    /// Whether the store's amounts from before these rules are known.
    is_known: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RuleDay {
    day: Date,
    rule: Arc<str>,
    subject: Arc<str>,
}

#[derive(Debug, Default, Clone, Copy)]
struct RuleAccount {
    /// As the store has it, of all processes.
    stored: Amount,
    /// Spent by this process since.
    unsaved: Amount,
    held: Amount,
}

/// The accounts of one call.
#[derive(Debug)]
pub(super) struct RulesOfCall(Vec<(Arc<LimitRule>, Arc<Mutex<RuleAccount>>)>);

/// The amounts that a call holds of its accounts; settled by [`RuleHold::settle`].
#[derive(Debug)]
pub(super) struct RuleHold {
    accounts: Vec<Arc<Mutex<RuleAccount>>>,
    held: Amount,
}

/// The spending of a rule's subject today, and the amount that its running calls hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleBalance {
    pub rule: Arc<str>,
    pub subject: Arc<str>,
    pub used: Amount,
}

impl RuleAccount {
    fn used(&self) -> Amount {
        self.stored.plus(self.unsaved).plus(self.held)
    }
}

impl RuleBudgets {
    /// Applies other rules; the spending stays.
    pub(super) fn reconfigure(&self, rules: &[LimitRule]) {
        let limiting: Vec<_> = rules.iter().filter(|rule| rule.limits_days()).cloned().map(Arc::new).collect();
        self.rules.store((!limiting.is_empty()).then(|| Arc::new(limiting)));
        self.is_known.store(false, Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.load().is_none()
    }

    /// The accounts of a call; `None` if no rule matches it. `tool`: `None` for a model's turn.
    pub(super) fn of(&self, day: Date, caller: &Caller, tool: Option<&str>) -> Option<RulesOfCall> {
        let rules = self.rules.load();
        let mut matching = Vec::new();
        for rule in rules.as_ref()?.iter() {
            for subject in rule.subjects(caller, tool) {
                let key = RuleDay { day, rule: rule.name.as_str().into(), subject };
                matching.push((Arc::clone(rule), self.open(key)));
            }
        }
        (!matching.is_empty()).then_some(RulesOfCall(matching))
    }

    /// All accounts of a day that have something spent or held.
    pub(super) fn of_day(&self, day: Date) -> Vec<RuleBalance> {
        let of_day = self.accounts.iter().filter(|entry| entry.key().day == day);
        let balances = of_day.map(|entry| {
            let RuleDay { rule, subject, .. } = entry.key().clone();
            RuleBalance { rule, subject, used: entry.value().lock().used() }
        });
        balances.filter(|balance| !balance.used.is_zero()).collect()
    }

    /// Removes past days once they are saved.
    pub(super) fn evict(&self, today: Date) {
        let given_up = today.saturating_sub(KEPT_DAYS.days());
        self.accounts.retain(|key, account| {
            Arc::strong_count(account) > 1
                || key.day >= today
                || (key.day >= given_up && !account.lock().unsaved.is_zero())
        });
    }

    /// Writes the spending. `is_shared`: also takes over the spending of other processes.
    /// Errors: the store fails; the unwritten amounts are written the next time.
    pub(super) async fn save(&self, store: &RuleUsageStore, today: Date, is_shared: bool) -> Result<(), StoreError> {
        let unsaved = self.unsaved();
        if !unsaved.is_empty() {
            store.add(&unsaved).await?;
            for RuleUsage { day, rule, subject, amount } in unsaved {
                let account = self.open(RuleDay { day, rule, subject });
                let mut account = account.lock();
                account.unsaved = account.unsaved.minus(amount);
                account.stored = account.stored.plus(amount);
            }
        }
        if !self.is_empty() && (is_shared || !self.is_known.load(Ordering::Acquire)) {
            self.learn(&store.of_day(today).await?);
            self.is_known.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Takes over the store's amounts.
    fn learn(&self, usage: &[RuleUsage]) {
        for RuleUsage { day, rule, subject, amount } in usage {
            let key = RuleDay { day: *day, rule: Arc::clone(rule), subject: Arc::clone(subject) };
            self.open(key).lock().stored = *amount;
        }
    }

    /// Removes old days from the store.
    pub(super) async fn forget_old(&self, store: &RuleUsageStore, today: Date) -> Result<(), StoreError> {
        store.forget_before(today.saturating_sub(KEPT_DAYS.days())).await
    }

    fn unsaved(&self) -> Vec<RuleUsage> {
        let unsaved = self.accounts.iter().filter_map(|entry| {
            let amount = entry.value().lock().unsaved;
            let RuleDay { day, rule, subject } = entry.key().clone();
            (!amount.is_zero()).then_some(RuleUsage { day, rule, subject, amount })
        });
        let mut unsaved: Vec<_> = unsaved.collect();
        // The order in which every process locks the rows.
        unsaved.sort_unstable_by(|a, b| (a.day, &a.rule, &a.subject).cmp(&(b.day, &b.rule, &b.subject)));
        unsaved
    }

    fn open(&self, key: RuleDay) -> Arc<Mutex<RuleAccount>> {
        let known = self.accounts.get(&key).map(|account| Arc::clone(&account));
        known.unwrap_or_else(|| Arc::clone(&self.accounts.entry(key).or_default()))
    }
}

impl RulesOfCall {
    /// The request, with at most the tokens that the rules leave.
    /// Errors: `budget_exceeded` or `token_limit_exceeded`, by the first rule that has too little left.
    pub(super) fn bounded<'a>(&self, mut max_usage: MaxUsage<'a>) -> Result<MaxUsage<'a>, CallError> {
        for (rule, account) in &self.0 {
            let left = left_of(rule, &account.lock());
            fits(rule, left, &max_usage)?;
            let turn = Amount { cost_usd: Decimal::ZERO, tokens: max_usage.day_tokens };
            whole(rule, left, &MaxUsage { most: turn, ..max_usage })?;
            max_usage.most.tokens = max_usage.most.tokens.min(left.tokens);
        }
        Ok(max_usage)
    }

    /// Holds the amount in every account, or in none.
    /// Errors: as [`bounded`](Self::bounded): another call may have been faster.
    pub(super) fn hold(self, max_usage: &MaxUsage<'_>, amount: Amount) -> Result<RuleHold, CallError> {
        let mut hold = RuleHold { accounts: Vec::with_capacity(self.0.len()), held: amount };
        let wanted = MaxUsage { most: amount, ..*max_usage };
        for (rule, account) in self.0 {
            let mut locked = account.lock();
            let left = left_of(&rule, &locked);
            if let Err(refusal) = fits(&rule, left, &wanted).and_then(|()| whole(&rule, left, &wanted)) {
                drop(locked);
                hold.settle(Amount::ZERO);
                return Err(refusal);
            }
            locked.held = locked.held.plus(amount);
            drop(locked);
            hold.accounts.push(account);
        }
        Ok(hold)
    }
}

impl RuleHold {
    /// Ends the hold, `spent` of it being spent.
    pub(super) fn settle(&mut self, spent: Amount) {
        for account in std::mem::take(&mut self.accounts) {
            let mut account = account.lock();
            account.held = account.held.minus(self.held);
            account.unsaved = account.unsaved.plus(spent);
        }
    }
}

/// The rest of a rule's limits; the maximum where it has none.
fn left_of(rule: &LimitRule, account: &RuleAccount) -> Amount {
    let used = account.used();
    let left = |most: Decimal| most.saturating_sub(used.cost_usd).max(Decimal::ZERO);
    Amount {
        cost_usd: rule.cost_per_day.map_or(Decimal::MAX, left),
        tokens: rule.tokens_per_day.map_or(u64::MAX, |most| most.saturating_sub(used.tokens)),
    }
}

fn fits(rule: &LimitRule, left: Amount, max_usage: &MaxUsage<'_>) -> Result<(), CallError> {
    if max_usage.most.cost_usd > left.cost_usd {
        let (most, cost) = (rule.cost_per_day.unwrap_or_default(), max_usage.most.cost_usd);
        let what = format!("{} of {most} USD left today, and {} costs {cost}", left.cost_usd, max_usage.tool);
        return Err(refused(rule, ErrorCode::BudgetExceeded, &what));
    }
    let needed = max_usage.most.tokens.min(MIN_ANSWER_TOKENS).min(rule.tokens_per_day.unwrap_or(u64::MAX));
    if left.tokens < needed {
        return Err(too_few_tokens(rule, left, max_usage, needed));
    }
    Ok(())
}

/// The held amount must be left as a whole.
fn whole(rule: &LimitRule, left: Amount, wanted: &MaxUsage<'_>) -> Result<(), CallError> {
    match left.tokens < wanted.most.tokens {
        true => Err(too_few_tokens(rule, left, wanted, wanted.most.tokens)),
        false => Ok(()),
    }
}

fn too_few_tokens(rule: &LimitRule, left: Amount, max_usage: &MaxUsage<'_>, needed: u64) -> CallError {
    let most = rule.tokens_per_day.unwrap_or_default();
    let (tool, purpose) = (max_usage.tool, max_usage.purpose());
    let what = format!("{} of {most} tokens left today, and {tool} needs {needed} {purpose}", left.tokens);
    refused(rule, ErrorCode::TokenLimitExceeded, &what)
}

fn refused(rule: &LimitRule, code: ErrorCode, what: &str) -> CallError {
    let (per, name) = (rule.per.as_str(), &rule.name);
    let next = "a new day begins at 00:00 UTC, or an operator raises the rule of `limits.rules`";
    CallError::new(code, format!("this {per} has by the rule {name} {what}; {next}"))
        .limited_by(name)
        .of_limit(rule.per.counts())
}

#[cfg(test)]
mod tests;
