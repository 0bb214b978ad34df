//! Plans of agents: the state of each after every node. The run that has a plan, in whatever process, has it by a lease.

use std::sync::Arc;

use jiff::Timestamp;

use sqlx::{AnyConnection, AssertSqlSafe};
use tokio::time::Instant;

use super::work::{LockState, PLAN, WorkLease};
use super::{AtStore, DailyUsage, Store, StoreError, StoredCharge, retried};
use sekisho_core::database_clock::DatabaseTime;

/// The status of a plan that a run has.
pub(super) const RUNNING: &str = "running";

/// A plan as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPlan {
    pub id: Arc<str>,
    pub caller_key: Arc<str>,
    /// The profile's name.
    pub agent: String,
    /// The session of its tool calls.
    pub session: Option<String>,
    pub status: String,
    /// Whether its run is gone without an end.
    pub is_interrupted: bool,
    pub created: DatabaseTime,
    pub changed: DatabaseTime,
    /// JSON.
    pub state: String,
}

/// The right to run a plan, only for its holder, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLease {
    pub(super) lease: WorkLease,
}

impl PlanLease {
    /// The id of the plan.
    pub fn plan(&self) -> &str {
        self.lease.id()
    }
}

/// The wish of a caller for a plan that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum PlanWish {
    #[strum(serialize = "")]
    GoOn,
    Pause,
    Cancel,
}

/// In the order of the columns.
pub(super) type Row = (String, String, String, String, String, i64, String, String, String);

/// Plans of agents and their vectors: the tables `plans` and `plan_vectors`. It makes the charges of a plan, and removes its
/// reservations from `reserved_charges`.
#[derive(Debug, Clone)]
pub struct PlanStore(pub(super) Store);

impl PlanStore {
    /// Adds a plan for a run at `replica`, or at a process that is no replica. The run has it.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn add(&self, plan: &StoredPlan, replica: Option<&str>) -> Result<PlanLease, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        sqlx::query(
            "INSERT INTO plans (id, caller_key, agent, session, status, wish, holder, seen, created, changed, state)
             VALUES ($1, $2, $3, $4, $5, '', '', 0, $6, $7, $8)",
        )
        .bind(&*plan.id)
        .bind(&*plan.caller_key)
        .bind(&plan.agent)
        .bind(plan.session.as_deref().unwrap_or_default())
        .bind(&plan.status)
        .bind(text_of(*plan.created))
        .bind(text_of(*plan.changed))
        .bind(&plan.state)
        .execute(&mut *transaction)
        .await
        .at(&self.0)?;
        let lease = work.take_within(&mut transaction, (PLAN, &plan.id), replica).await?;
        work.end(transaction, lease.is_some()).await?;
        lease.map(|lease| PlanLease { lease }).ok_or_else(|| self.0.damaged(format!("the plan {} has a run", plan.id)))
    }

    /// A plan of a caller.
    pub async fn get(&self, caller_key: &str, id: &str) -> Result<Option<StoredPlan>, StoreError> {
        let statement = format!("SELECT {} FROM plans WHERE id = $1 AND caller_key = $2", self.columns());
        let row: Option<Row> = bound!(sqlx::query_as(AssertSqlSafe(statement)), id, caller_key)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)?;
        row.map(|row| self.stored_plan(row)).transpose()
    }

    /// The plans of a caller that were created before a moment, the latest first.
    pub async fn of_caller(
        &self,
        caller_key: &str,
        before: Timestamp,
        max: u32,
    ) -> Result<Vec<StoredPlan>, StoreError> {
        let statement = format!(
            "SELECT {} FROM plans WHERE caller_key = $1 AND created < $2 ORDER BY created DESC LIMIT $3",
            self.columns()
        );
        let rows: Vec<Row> =
            bound!(sqlx::query_as(AssertSqlSafe(statement)), caller_key, text_of(before), i64::from(max))
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        rows.into_iter().map(|row| self.stored_plan(row)).collect()
    }

    /// Stores the state of a plan for its run, and the charges for its usage; returns the wish of its caller and the new totals.
    /// With another status than `running` the run gives the plan back. `None`, and nothing is stored, if it has lost it.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn save(
        &self,
        lease: &PlanLease,
        (status, state): (&str, &str),
        charges: &[StoredCharge],
        now: DatabaseTime,
    ) -> Result<Option<(PlanWish, Vec<DailyUsage>)>, StoreError> {
        retried(|| self.try_save(lease, (status, state), charges, now)).await
    }

    async fn try_save(
        &self,
        lease: &PlanLease,
        (status, state): (&str, &str),
        charges: &[StoredCharge],
        now: DatabaseTime,
    ) -> Result<Option<(PlanWish, Vec<DailyUsage>)>, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_held = match status {
            RUNNING => work.renew_within(&mut transaction, &lease.lease).await? != LockState::Lost,
            _ => work.release_within(&mut transaction, &lease.lease).await?,
        };
        let sql = "UPDATE plans SET status = $1, state = $2, changed = $3 WHERE id = $4 AND status = $5 RETURNING wish";
        let wish: Option<String> = bound!(sqlx::query_scalar(sql), status, state, text_of(*now), lease.plan(), RUNNING)
            .fetch_optional(&mut *transaction)
            .await
            .at(&self.0)?;
        let Some(wish) = wish.filter(|_| is_held) else {
            work.end(transaction, false).await?;
            return Ok(None);
        };
        let totals = self.0.charges().add_within(&mut transaction, charges).await?;
        work.end(transaction, true).await?;
        Ok(Some((PlanWish::of(&wish), totals)))
    }

    /// Holds a plan for longer, again and again: until its run has lost it, or its caller wants to cancel it. The lease was asked
    /// for at that moment.
    pub async fn keep_renewing(&self, lease: &PlanLease, asked: Instant) -> LockState {
        self.0.work().keep_renewing(&lease.lease, asked).await
    }

    /// Ends a plan for its run, and leaves its state. Nothing is changed if the run has lost it.
    pub async fn end(&self, lease: &PlanLease, status: &str, now: DatabaseTime) -> Result<(), StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_held = work.release_within(&mut transaction, &lease.lease).await?;
        sqlx::query("UPDATE plans SET status = $1, changed = $2 WHERE id = $3 AND status = $4")
            .bind(status)
            .bind(text_of(*now))
            .bind(lease.plan())
            .bind(RUNNING)
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        work.end(transaction, is_held).await
    }

    /// Gives a plan back without an end: it is interrupted.
    /// Errors: [`StoreError`]; it is interrupted once its lease ends.
    pub async fn give_up(&self, lease: &PlanLease) -> Result<(), StoreError> {
        self.0.work().release(&lease.lease).await.map(drop)
    }

    /// Tells the run of a plan the wish of its caller; returns whether the plan runs.
    pub async fn set_wish(&self, id: &str, wish: PlanWish) -> Result<bool, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let changed =
            bound!(sqlx::query("UPDATE plans SET wish = $1 WHERE id = $2 AND status = $3"), wish.as_str(), id, RUNNING)
                .execute(&mut *transaction)
                .await
                .at(&self.0)?;
        let runs = changed.rows_affected() == 1;
        if runs && wish == PlanWish::Cancel {
            work.ask_to_stop_within(&mut transaction, (PLAN, id)).await?;
        }
        work.end(transaction, runs).await?;
        Ok(runs)
    }

    /// Replaces a plan that does not run, if it is still as it was `found`; returns whether it was.
    pub async fn replace(
        &self,
        found: &StoredPlan,
        (status, state): (&str, &str),
        now: DatabaseTime,
    ) -> Result<bool, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_free = PLAN.is_free(self.0.engine, "plans");
        let is_replaced = self.replace_within(&mut transaction, found, (status, state), now, &is_free).await;
        let is_replaced = is_replaced.at(&self.0)?;
        work.end(transaction, is_replaced).await?;
        Ok(is_replaced)
    }

    /// As [`replace`](Self::replace), with a plan that runs from now on, at `replica` or at a process that is no replica. `None`: it
    /// was changed, or another run has it.
    pub async fn resume(
        &self,
        found: &StoredPlan,
        state: &str,
        replica: Option<&str>,
        now: DatabaseTime,
    ) -> Result<Option<PlanLease>, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let Some(lease) = work.take_within(&mut transaction, (PLAN, &found.id), replica).await? else {
            work.end(transaction, false).await?;
            return Ok(None);
        };
        let is_resumed = self.replace_within(&mut transaction, found, (RUNNING, state), now, "1 = 1").await;
        let is_resumed = is_resumed.at(&self.0)?;
        work.end(transaction, is_resumed).await?;
        Ok(is_resumed.then_some(PlanLease { lease }))
    }

    /// Whether the plan was as it was `found`.
    async fn replace_within(
        &self,
        connection: &mut AnyConnection,
        found: &StoredPlan,
        (status, state): (&str, &str),
        now: DatabaseTime,
        condition: &str,
    ) -> sqlx::Result<bool> {
        let statement = format!(
            "UPDATE plans SET status = $1, state = $2, wish = '', changed = $3
             WHERE id = $4 AND status = $5 AND changed = $6 AND {condition}"
        );
        let changed = sqlx::query(AssertSqlSafe(statement))
            .bind(status)
            .bind(state)
            .bind(text_of(*now))
            .bind(&*found.id)
            .bind(&found.status)
            .bind(text_of(*found.changed));
        Ok(changed.execute(connection).await?.rows_affected() == 1)
    }

    /// Removes the oldest plans of a caller that do not run, so that `max` are left.
    pub async fn forget_surplus(&self, caller_key: &str, max: u32) -> Result<(), StoreError> {
        let sql = "DELETE FROM plans WHERE caller_key = $1 AND status <> $2 AND id NOT IN
             (SELECT id FROM plans WHERE caller_key = $3 ORDER BY created DESC LIMIT $4)";
        bound!(sqlx::query(sql), caller_key, RUNNING, caller_key, i64::from(max))
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(())
    }

    /// Removes plans that nobody changed since a moment.
    pub async fn forget_before(&self, moment: DatabaseTime) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM plans WHERE changed < $1")
            .bind(text_of(*moment))
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        self.forget_vectors_without_plans().await
    }

    /// The columns of a [`Row`], with 1 for a plan that no run has.
    pub(super) fn columns(&self) -> String {
        let is_free = PLAN.is_free(self.0.engine, "plans");
        let is_free = format!("CASE WHEN {is_free} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END");
        format!("id, caller_key, agent, session, status, {is_free}, created, changed, state")
    }

    pub(super) fn stored_plan(&self, row: Row) -> Result<StoredPlan, StoreError> {
        let (id, caller_key, agent, session, status, is_free, created, changed, state) = row;
        let moment = |text: &str| {
            let moment = text.parse().map_err(|_| self.0.damaged(format!("a plan has the time {text:?}")));
            moment.map(DatabaseTime::of_database)
        };
        Ok(StoredPlan {
            id: id.into(),
            caller_key: caller_key.into(),
            agent,
            session: Some(session).filter(|session| !session.is_empty()),
            is_interrupted: status == RUNNING && is_free == 1,
            status,
            created: moment(&created)?,
            changed: moment(&changed)?,
            state,
        })
    }
}

sekisho_core::as_str!(PlanWish);

impl PlanWish {
    /// One of a newer program changes nothing.
    fn of(text: &str) -> Self {
        text.parse().unwrap_or(Self::GoOn)
    }
}

/// With as many decimals always, so that texts are in the order of their moments.
pub(super) fn text_of(moment: Timestamp) -> String {
    format!("{moment:.6}")
}

#[cfg(test)]
mod tests;
