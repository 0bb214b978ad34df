//! Charges that are stored in one transaction with the work that they pay for, instead of in the background: a process
//! that is killed leaves both or neither. The maximum cost of a call is stored before the call is sent.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::civil::Date;
use parking_lot::Mutex;
use uuid::Uuid;

use super::Budgets;
use sekisho_core::call::{ChargeSink, ChargedCall, ModelTurns, Reservation, UsedModel};
use sekisho_core::error::CallError;
use sekisho_core::failpoint;
use sekisho_store::{DailyModelUsage, DailyScope, DailyUsage, Store, StoredCharge, sums_of};

/// Charges that are stored by the task that takes them. Charges that no task takes are written in the background.
#[derive(Debug)]
pub struct DeferredCharges {
    budgets: Arc<Budgets>,
    /// Where reservations are stored, and for which run or plan.
    owner: (Store, Arc<str>),
    charges: Mutex<Vec<StoredCharge>>,
}

/// The charges of one call, the first of which has the call's key as its id: a call that is sent again after its process was
/// killed is not charged again.
#[derive(Debug)]
pub struct ChargesOfCall {
    charges: Arc<DeferredCharges>,
    key: Mutex<Option<Arc<str>>>,
}

/// Charges on their way into the store. Unless they are known to be stored, they are written in the background; each has an
/// id, so that it is made once.
#[derive(Debug)]
#[must_use = "dropped charges are written in the background"]
pub struct TakenCharges {
    budgets: Arc<Budgets>,
    charges: Vec<StoredCharge>,
}

/// Charges between transactions.
#[derive(Debug, Default)]
pub(super) struct UnstoredCharges {
    /// Charges that may be in the store or not.
    pending: Mutex<Vec<StoredCharge>>,
    /// Ids that the store need not remember.
    known: Mutex<Vec<Arc<str>>>,
    /// Turns of models that are to be written in the background.
    turns: Mutex<HashMap<TurnsOf, ModelTurns>>,
}

/// Whose turns: the day, the caller's key and the model.
type TurnsOf = (Date, Arc<str>, UsedModel);

impl DeferredCharges {
    /// The charges of a run or plan, whose reservations are stored under its id.
    pub fn new(budgets: &Arc<Budgets>, store: &Store, owner: &str) -> Arc<Self> {
        let owner = (store.clone(), owner.into());
        Arc::new(Self { budgets: Arc::clone(budgets), owner, charges: Mutex::default() })
    }

    /// Further charges of the same owner.
    pub fn apart(&self) -> Arc<Self> {
        Arc::new(Self { budgets: Arc::clone(&self.budgets), owner: self.owner.clone(), charges: Mutex::default() })
    }

    /// The charges of a call with a key.
    pub fn of_call(self: &Arc<Self>, key: Arc<str>) -> Arc<ChargesOfCall> {
        Arc::new(ChargesOfCall { charges: Arc::clone(self), key: Mutex::new(Some(key)) })
    }

    pub fn is_empty(&self) -> bool {
        self.charges.lock().is_empty()
    }

    /// The charges since they were last taken.
    pub fn take(&self) -> TakenCharges {
        TakenCharges { budgets: Arc::clone(&self.budgets), charges: mem::take(&mut *self.charges.lock()) }
    }
}

impl ChargeSink for DeferredCharges {
    fn open(&self) -> Arc<str> {
        new_id()
    }

    fn reserve(&self, reservation: Reservation) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(async move {
            let (store, owner) = &self.owner;
            store.charges().reserve(owner, &reservation).await.map_err(CallError::from)?;
            failpoint::reach("charge.reserved");
            Ok(())
        })
    }

    fn charged(&self, charged: ChargedCall<'_>) {
        let ChargedCall { id, caller, day, cost_usd, tokens, turn } = charged;
        let of = |scope, key: &Arc<str>| DailyUsage { day, scope, key: Arc::clone(key), cost_usd, tokens };
        let usage = match (cost_usd.is_zero(), tokens) {
            (true, 0) => Vec::new(),
            _ => vec![of(DailyScope::Caller, &caller.key), of(DailyScope::Tenant, &caller.tenant)],
        };
        let of_turn = |(model, used): (&UsedModel, ModelTurns)| {
            let (caller_key, model) = (Arc::clone(&caller.key), model.clone());
            DailyModelUsage { day, caller_key, model, used }
        };
        let models = turn.map(of_turn);
        let is_reserved = id.is_some();
        let id = id.map_or_else(new_id, Arc::clone);
        let mut charges = self.charges.lock();
        match charges.iter_mut().find(|known| known.id == id) {
            // A call that was made again, since its tool was not ready.
            Some(known) => {
                known.usage.extend(usage);
                known.models.extend(models);
            }
            None => charges.push(StoredCharge { id, is_reserved, usage, models: models.into_iter().collect() }),
        }
    }
}

impl ChargesOfCall {
    /// The same with another key.
    pub fn with_key(&self, key: Arc<str>) -> Arc<Self> {
        self.charges.of_call(key)
    }
}

impl ChargeSink for ChargesOfCall {
    fn open(&self) -> Arc<str> {
        self.key.lock().take().unwrap_or_else(new_id)
    }

    fn reserve(&self, reservation: Reservation) -> BoxFuture<'_, Result<(), CallError>> {
        self.charges.reserve(reservation)
    }

    fn charged(&self, charged: ChargedCall<'_>) {
        self.charges.charged(charged);
    }
}

impl Drop for DeferredCharges {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl TakenCharges {
    /// To be stored.
    pub fn charges(&self) -> &[StoredCharge] {
        &self.charges
    }

    /// They are stored, with these totals, in the order of their sums.
    pub fn stored(mut self, totals: &[DailyUsage]) {
        let charges = mem::take(&mut self.charges);
        for (added, total) in sums_of(charges.iter().flat_map(|charge| &charge.usage)).iter().zip(totals) {
            self.budgets.accounts.saved_deferred(added, total);
        }
        let known = charges.into_iter().filter(|charge| !charge.is_reserved).map(|charge| charge.id);
        self.budgets.unstored.known.lock().extend(known);
    }
}

impl Drop for TakenCharges {
    fn drop(&mut self) {
        if !self.charges.is_empty() {
            self.budgets.unstored.pending.lock().append(&mut self.charges);
        }
    }
}

impl Budgets {
    /// The charges that may be stored already.
    pub(super) fn take_pending(self: &Arc<Self>) -> TakenCharges {
        let charges = mem::take(&mut *self.unstored.pending.lock());
        TakenCharges { budgets: Arc::clone(self), charges }
    }

    /// The spending that is to be written in the background, as one charge.
    pub(super) fn take_unsaved(self: &Arc<Self>) -> TakenCharges {
        let (usage, turns) = (self.accounts.defer_unsaved(), mem::take(&mut *self.unstored.turns.lock()));
        let row = |((day, caller_key, model), used)| DailyModelUsage { day, caller_key, model, used };
        let models: Vec<_> = turns.into_iter().map(row).collect();
        let is_empty = usage.is_empty() && models.is_empty();
        let charge = (!is_empty).then(|| StoredCharge { id: new_id(), is_reserved: false, usage, models });
        TakenCharges { budgets: Arc::clone(self), charges: charge.into_iter().collect() }
    }

    /// Counts turns of a model whose charge is written in the background.
    pub(super) fn count_turn(&self, day: Date, caller_key: &Arc<str>, model: &UsedModel, used: ModelTurns) {
        let mut turns = self.unstored.turns.lock();
        let sum = turns.entry((day, Arc::clone(caller_key), model.clone())).or_default();
        *sum = sum.plus(used);
    }

    /// The ids that the store need not remember.
    pub(super) fn take_known(&self) -> Vec<Arc<str>> {
        mem::take(&mut *self.unstored.known.lock())
    }

    /// Keeps ids for later.
    pub(super) fn keep_known(&self, ids: Vec<Arc<str>>) {
        self.unstored.known.lock().extend(ids);
    }

    /// Takes over the store's totals, such as charges of a process that ended.
    pub fn learn(&self, totals: &[DailyUsage]) {
        for total in totals {
            let nothing = DailyUsage { cost_usd: 0.into(), tokens: 0, ..total.clone() };
            self.accounts.saved(&nothing, total);
        }
    }
}

fn new_id() -> Arc<str> {
    Uuid::new_v4().to_string().into()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rust_decimal::Decimal;

    use super::*;
    use crate::budget::Amount;
    use crate::budget::tests::{MONDAY, call, cents, max_usage};
    use sekisho_config::BudgetConfig;
    use sekisho_core::call::{BudgetScopes, CallCharging, CallContext};
    use sekisho_store::test_support::test_store;

    fn spend(budgets: &Budgets, charges: Option<&Arc<DeferredCharges>>, cost_cents: u64) {
        let mut call = call(BudgetScopes::default());
        call.charging.sink = charges.map(|charges| Arc::clone(charges) as Arc<dyn ChargeSink>);
        budgets.reserve_on(MONDAY, &call, &max_usage(cost_cents, 10)).unwrap().charge(10);
    }

    /// The spending of the caller's day.
    fn spent(budgets: &Budgets) -> Decimal {
        let spent = budgets.accounts.of_day(MONDAY).into_iter().find(|(scope, ..)| *scope == DailyScope::Caller);
        spent.map_or_else(Decimal::default, |(_, _, balance)| balance.spent.cost_usd)
    }

    /// Writes the charges of the background. Returns the caller's spending in the store.
    async fn written(budgets: &Arc<Budgets>, store: &Store) -> Decimal {
        for take in [Budgets::take_pending, Budgets::take_unsaved] {
            let (charges, known) = (take(budgets), budgets.take_known());
            let totals = store.charges().add(charges.charges(), &known).await.unwrap();
            charges.stored(&totals);
        }
        let usage = store.usage().of_day(MONDAY).await.unwrap();
        usage.into_iter().filter(|usage| usage.scope == DailyScope::Caller).map(|usage| usage.cost_usd).sum()
    }

    #[tokio::test]
    async fn deferred_charges_count_at_once_and_are_stored_by_their_owner() {
        let (store, budgets) = (test_store().await, Arc::new(Budgets::new(&BudgetConfig::default())));
        let charges = DeferredCharges::new(&budgets, &store, "run");
        spend(&budgets, Some(&charges), 10);
        spend(&budgets, None, 1);
        spend(&budgets, Some(&charges), 20);
        assert_eq!(spent(&budgets), cents(31));
        let taken = charges.take();
        spend(&budgets, Some(&charges), 5);
        let totals = store.charges().add(taken.charges(), &[]).await.unwrap();
        // The other charge is stored between, and its total is told before.
        assert_eq!(written(&budgets, &store).await, cents(31));
        taken.stored(&totals);
        assert_eq!(spent(&budgets), cents(36));
        let last = charges.take();
        let totals = store.charges().add(last.charges(), &[]).await.unwrap();
        last.stored(&totals);
        assert_eq!((spent(&budgets), written(&budgets, &store).await), (cents(36), cents(36)));
        let stored = store.usage().of_day(MONDAY).await.unwrap();
        assert!(stored.iter().all(|usage| (usage.cost_usd, usage.tokens) == (cents(36), 40)), "{stored:?}");
    }

    #[tokio::test]
    async fn turns_of_models_are_stored_with_their_charges() {
        let (store, budgets) = (test_store().await, Arc::new(Budgets::new(&BudgetConfig::default())));
        let charges = DeferredCharges::new(&budgets, &store, "run");
        let model = UsedModel { agent: "main".into(), provider: "openai".into(), model: "m".into() };
        let used =
            ModelTurns { turns: 1, prompt_tokens: 8, completion_tokens: 2, cost_usd: cents(1), ..Default::default() };
        for sink in [None, Some(Arc::clone(&charges) as Arc<dyn ChargeSink>)] {
            let mut call = call(BudgetScopes::default());
            call.charging.sink = sink;
            let most = Amount { cost_usd: cents(2), tokens: 50 };
            let hold = budgets.reserve_turn(&call, "m", most).await.unwrap();
            hold.charge_turn(&budgets, &call.caller, &model, used);
        }
        for taken in [charges.take(), budgets.take_unsaved()] {
            let totals = store.charges().add(taken.charges(), &[]).await.unwrap();
            taken.stored(&totals);
        }
        let today = budgets.today();
        let stored = store.model_usage().between(today, today).await.unwrap();
        let caller_key = Arc::clone(&call(BudgetScopes::default()).caller.key);
        assert_eq!(stored, [DailyModelUsage { day: today, caller_key, model, used: used.plus(used) }]);
        let tokens: Vec<_> = store.usage().of_day(today).await.unwrap().iter().map(|usage| usage.tokens).collect();
        assert_eq!(tokens, [20, 20], "of the caller and of the tenant");
        assert!(budgets.take_unsaved().charges().is_empty());
    }

    #[tokio::test]
    async fn charges_that_are_not_stored_are_written_in_the_background() {
        let (store, budgets) = (test_store().await, Arc::new(Budgets::new(&BudgetConfig::default())));
        let charges = DeferredCharges::new(&budgets, &store, "run");
        spend(&budgets, Some(&charges), 10);
        drop(charges.take());
        assert_eq!((spent(&budgets), written(&budgets, &store).await), (cents(10), cents(10)));
        spend(&budgets, Some(&charges), 20);
        drop(charges);
        assert_eq!((spent(&budgets), written(&budgets, &store).await), (cents(30), cents(30)));
    }

    /// As where a connection ends while it commits.
    #[tokio::test]
    async fn charges_whose_commit_lost_its_answer_are_made_once() {
        let (store, budgets) = (test_store().await, Arc::new(Budgets::new(&BudgetConfig::default())));
        let charges = DeferredCharges::new(&budgets, &store, "run");
        spend(&budgets, None, 1);
        spend(&budgets, Some(&charges), 10);
        spend_reserved(&budgets, &charges, 20).await;
        let (unsaved, taken) = (budgets.take_unsaved(), charges.take());
        store.charges().add(unsaved.charges(), &[]).await.unwrap();
        store.charges().add(taken.charges(), &[]).await.unwrap();
        drop((unsaved, taken));
        spend(&budgets, None, 2);
        assert_eq!((written(&budgets, &store).await, spent(&budgets)), (cents(33), cents(33)));
    }

    #[tokio::test]
    async fn what_a_killed_process_had_reserved_is_charged_once_and_its_repeated_call_is_not() {
        let (store, killed) = (test_store().await, Arc::new(Budgets::new(&BudgetConfig::default())));
        let charges = DeferredCharges::new(&killed, &store, "run");
        let of_call = charges.of_call("key".into());
        let reserved = |budgets: &Budgets, sink: Arc<dyn ChargeSink>| {
            let call = CallContext {
                charging: CallCharging { sink: Some(sink), ..CallCharging::default() },
                ..call(BudgetScopes::default())
            };
            budgets.reserve_on(MONDAY, &call, &max_usage(20, 10)).unwrap()
        };
        let mut lost = reserved(&killed, of_call);
        lost.store(None).await.unwrap();
        let released = reserved(&killed, Arc::clone(&charges) as Arc<dyn ChargeSink>);
        drop(released);

        let budgets = Arc::new(Budgets::new(&BudgetConfig::default()));
        let later = store.now().later(SignedDuration::from_secs(1));
        budgets.learn(&store.charges().charge_reserved_before(later).await.unwrap());
        assert_eq!((spent(&budgets), written(&budgets, &store).await), (cents(20), cents(20)));
        assert!(store.charges().charge_reserved_before(later).await.unwrap().is_empty());
        // Its process was suspended, and is not dead.
        lost.charge(10);
        drop(charges);
        assert_eq!(written(&killed, &store).await, cents(20));

        let charges = DeferredCharges::new(&budgets, &store, "later run");
        let mut repeated = reserved(&budgets, charges.of_call("key".into()));
        repeated.store(None).await.unwrap();
        repeated.charge(10);
        drop(charges);
        assert_eq!((written(&budgets, &store).await, spent(&budgets)), (cents(20), cents(20)));
    }

    async fn spend_reserved(budgets: &Budgets, charges: &Arc<DeferredCharges>, cost_cents: u64) {
        let sink = Some(Arc::clone(charges) as Arc<dyn ChargeSink>);
        let call =
            CallContext { charging: CallCharging { sink, ..CallCharging::default() }, ..call(BudgetScopes::default()) };
        let mut hold = budgets.reserve_on(MONDAY, &call, &max_usage(cost_cents, 10)).unwrap();
        hold.store(None).await.unwrap();
        hold.charge(10);
    }
}
