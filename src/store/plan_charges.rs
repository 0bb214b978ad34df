//! The reservations of interrupted plans, and their charges.

use super::plans::{RUNNING, Row, text_of};
use super::{AtStore, DailyUsage, PlanStore, ReservedCharge, StoreError, StoredPlan, retried};

impl PlanStore {
    /// The interrupted plans for which money is reserved.
    pub async fn with_reservations(&self) -> Result<Vec<StoredPlan>, StoreError> {
        let columns = self.columns();
        let statement =
            format!("SELECT {columns} FROM plans WHERE status = $1 AND id IN (SELECT owner FROM reserved_charges)");
        let rows: Vec<Row> =
            sqlx::query_as(sqlx::AssertSqlSafe(statement)).bind(RUNNING).fetch_all(&self.0.pool).await.at(&self.0)?;
        let plans: Vec<_> = rows.into_iter().map(|row| self.stored_plan(row)).collect::<Result<_, _>>()?;
        Ok(plans.into_iter().filter(|plan| plan.is_interrupted).collect())
    }

    /// Charges the reservations of an interrupted plan, stores its state with that, and returns the new totals. `None`,
    /// and nothing is charged, if the plan is no longer as it was `found`, or it was charged in between.
    /// Errors: [`StoreError`]; nothing is charged then.
    pub async fn charge(
        &self,
        found: &StoredPlan,
        state: &str,
        reserved: &[ReservedCharge],
    ) -> Result<Option<Vec<DailyUsage>>, StoreError> {
        retried(|| self.try_charge(found, state, reserved)).await
    }

    async fn try_charge(
        &self,
        found: &StoredPlan,
        state: &str,
        reserved: &[ReservedCharge],
    ) -> Result<Option<Vec<DailyUsage>>, StoreError> {
        let mut transaction = self.0.begin().await?;
        let statement = "UPDATE plans SET state = $1 WHERE id = $2 AND status = $3 AND changed = $4";
        let changed = bound!(sqlx::query(statement), state, &*found.id, &found.status, text_of(*found.changed))
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        let taken = self.0.charges().take_reserved(&mut transaction, "owner = $1", &found.id).await?;
        if changed.rows_affected() == 0 || taken.len() != reserved.len() {
            transaction.rollback().await.at(&self.0)?;
            return Ok(None);
        }
        let totals = self.0.charges().charge_taken(&mut transaction, &taken).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(Some(totals))
    }
}
