//! The reservations of an interrupted plan are charged once its process has ended.

use super::state::PlanState;
use sekisho_calls::budget::Budgets;
use sekisho_core::error::CallError;
use sekisho_store::{ReservedCharge, Store, StoredPlan};

/// Charges the reservations of a plan whose process ended; whether there were any.
/// Errors: `internal` for a state that cannot be read; `overloaded` if the store is away. Nothing is charged then.
pub(crate) async fn charge_interrupted(
    store: &Store,
    budgets: &Budgets,
    found: &StoredPlan,
) -> Result<bool, CallError> {
    let reserved = store.charges().reserved(&found.id).await.map_err(CallError::from)?;
    if reserved.is_empty() {
        return Ok(false);
    }
    let mut state: PlanState = serde_json::from_str(&found.state).map_err(CallError::internal)?;
    reserved.iter().filter_map(ReservedCharge::row).for_each(|row| state.used.add(&row.used));
    let state = serde_json::to_string(&state).map_err(CallError::internal)?;
    if let Some(totals) = store.plans().charge(found, &state, &reserved).await.map_err(CallError::from)? {
        budgets.learn(&totals);
    }
    Ok(true)
}
