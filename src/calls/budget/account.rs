//! One scope's account: the amounts spent, held, and not written to the store yet.

use std::time::Duration;

use rust_decimal::Decimal;
use tokio::time::Instant;

use sekisho_core::amount::add;
use sekisho_core::lease::budget::{AccountLimit, BudgetLease, LeaseRequest};

pub use sekisho_core::amount::Amount;

/// The amounts that count against a scope's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) spent: Amount,
    pub(super) held: Amount,
    /// `held` has the amount that this replica did not lease, too.
    pub(super) is_leased: bool,
}

impl Balance {
    /// The holders of the held amount, for error messages.
    pub(super) fn holders(&self) -> &'static str {
        match self.is_leased {
            false => "calls still running",
            true => "calls still running, or leased by replicas",
        }
    }

    /// The rest of a limit of money.
    pub(super) fn left_of_cost(&self, most: Decimal) -> Decimal {
        most.saturating_sub(add(self.spent.cost_usd, self.held.cost_usd)).max(Decimal::ZERO)
    }

    /// The rest of a limit of tokens.
    pub(super) fn left_of_tokens(&self, most: u64) -> u64 {
        most.saturating_sub(self.spent.tokens.saturating_add(self.held.tokens))
    }
}

/// A request for an account with this limit.
pub(super) type AskedAmount = (AccountLimit, LeaseRequest);

#[derive(Debug)]
pub(super) struct Account {
    balance: Balance,
    /// The part of `spent` that is in the store; only a day's account is ever saved.
    saved: Amount,
    /// The part of `spent` that is stored together with the call or turn that it paid for.
    deferred: Amount,
    /// When a call last took or returned the account; only for named scopes.
    last_used: Instant,
    /// Where several replicas share the account.
    lease: Option<Box<BudgetLease>>,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            balance: Balance::default(),
            saved: Amount::ZERO,
            deferred: Amount::ZERO,
            last_used: Instant::now(),
            lease: None,
        }
    }

    pub(super) fn balance(&self) -> &Balance {
        &self.balance
    }

    pub(super) fn last_used(&self) -> Instant {
        self.last_used
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.last_used = now;
    }

    pub(super) fn hold(&mut self, amount: Amount) {
        self.balance.held = self.balance.held.plus(amount);
    }

    /// Ends a hold: `spent` of it is spent, the rest is free again.
    pub(super) fn settle(&mut self, held: Amount, spent: Amount) {
        debug_assert!(self.balance.held.covers(held), "a hold of {held:?} is settled twice: {self:?}");
        self.balance.held = self.balance.held.minus(held);
        self.balance.spent = self.balance.spent.plus(spent);
    }

    /// The spending that is not in the store, with the deferred part.
    pub(super) fn outstanding(&self) -> Amount {
        self.balance.spent.minus(self.saved)
    }

    /// The spending that is to be written to the store in the background.
    pub(super) fn unsaved(&self) -> Amount {
        self.outstanding().minus(self.deferred)
    }

    /// Leaves a part of the spending to the task that stores it with its call or turn.
    pub(super) fn defer(&mut self, amount: Amount) {
        self.deferred = self.deferred.plus(amount);
    }

    /// The deferred part is stored by now.
    pub(super) fn release(&mut self, amount: Amount) {
        self.deferred = self.deferred.minus(amount);
    }

    /// The store has added `added` and then had `total`, from this process or another. Where several were added at
    /// once, an earlier total may arrive later.
    pub(super) fn saved(&mut self, added: Amount, total: Amount) {
        let outstanding = self.outstanding().minus(added);
        self.saved = self.saved.max(total);
        self.balance.spent = self.saved.plus(outstanding);
        if let Some(lease) = &mut self.lease {
            lease.settle(added);
        }
    }

    /// The balance, as if the part that is not leased, or may not be spent, were held.
    pub(super) fn leased_balance(&self, limit: AccountLimit, may_spend: bool) -> Balance {
        let Balance { spent, held, .. } = self.balance;
        let free = self.free_lease(limit, may_spend);
        let most = Amount { cost_usd: limit.cost_usd.unwrap_or_default(), tokens: limit.tokens.unwrap_or_default() };
        let not_leased = limit.limited(most.minus(spent).minus(held).minus(free));
        Balance { spent, held: held.plus(not_leased), is_leased: true }
    }

    /// Whether the amount may be held within the lease.
    pub(super) fn is_leased(&self, limit: AccountLimit, amount: Amount, may_spend: bool) -> bool {
        self.free_lease(limit, may_spend).covers(limit.limited(amount))
    }

    /// Notes that the amount is held within the lease.
    pub(super) fn use_lease(&mut self, now: Duration, limit: AccountLimit, amount: Amount) {
        if let Some(lease) = &mut self.lease {
            lease.use_up(now, limit.limited(amount));
        }
    }

    /// Notes that a call waits until so much is leased. False: it is known not to be there.
    pub(super) fn await_lease(&mut self, now: Duration, limit: AccountLimit, amount: Amount) -> bool {
        let in_use = limit.limited(self.in_use());
        self.lease.get_or_insert_default().await_more(now, in_use, limit.limited(amount))
    }

    /// The next request to the ledger, if anything is leased.
    pub(super) fn lease_request(&mut self, now: Duration, limit: impl FnOnce() -> AccountLimit) -> Option<AskedAmount> {
        let in_use = self.in_use();
        let lease = self.lease.as_mut()?;
        let limit = limit();
        lease.request(now, limit.limited(in_use)).map(|request| (limit, request))
    }

    /// The lease, if there is one.
    pub(super) fn lease(&mut self) -> Option<&mut BudgetLease> {
        self.lease.as_deref_mut()
    }

    fn free_lease(&self, limit: AccountLimit, may_spend: bool) -> Amount {
        let lease = self.lease.as_ref().filter(|_| may_spend);
        lease.map_or(Amount::ZERO, |lease| lease.free(limit.limited(self.in_use())))
    }

    /// The amount that calls hold, and the spending that is not known to be in the store.
    fn in_use(&self) -> Amount {
        self.balance.held.plus(self.outstanding())
    }
}
