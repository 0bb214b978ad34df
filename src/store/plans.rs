//! Plans of agents: the state of each after every node, and the process that runs it. Reports that a process still runs
//! a plan go by the clock that all processes of the store share.

use std::sync::Arc;

use jiff::Timestamp;

use sqlx::AssertSqlSafe;

use super::{DailyUsage, Engine, Store, StoreError, StoredCharge, retried};
use sekisho_core::database_clock::DatabaseTime;

/// How long after its last sign the process of a plan counts as alive, where several processes share a store.
const ALIVE_MS: i64 = 15_000;

/// The status of a plan that a process runs.
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
    /// Whether its process is gone while it ran.
    pub is_interrupted: bool,
    /// Whether the process that reads it is to run it.
    pub is_held_here: bool,
    pub created: DatabaseTime,
    pub changed: DatabaseTime,
    /// JSON.
    pub state: String,
}

/// A plan, and the process that runs it.
#[derive(Debug, Clone)]
pub struct PlanKey {
    pub id: Arc<str>,
    pub holder: Arc<str>,
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
pub(super) type Row = (String, String, String, String, String, String, i64, String, String, String);

/// Plans of agents and their vectors: the tables `plans` and `plan_vectors`. It makes the charges of a plan, and removes its
/// reservations from `reserved_charges`.
#[derive(Debug, Clone)]
pub struct PlanStore(pub(super) Store);

impl PlanStore {
    /// Adds a plan that `holder` runs.
    pub async fn add(&self, plan: &StoredPlan, holder: &str) -> Result<(), StoreError> {
        let seen = self.now_in_millis();
        let statement = format!(
            "INSERT INTO plans (id, caller_key, agent, session, status, wish, holder, seen, created, changed, state)
             VALUES ($1, $2, $3, $4, $5, '', $6, {seen}, $7, $8, $9)"
        );
        sqlx::query(AssertSqlSafe(statement))
            .bind(&*plan.id)
            .bind(&*plan.caller_key)
            .bind(&plan.agent)
            .bind(plan.session.as_deref().unwrap_or_default())
            .bind(&plan.status)
            .bind(holder)
            .bind(text_of(*plan.created))
            .bind(text_of(*plan.changed))
            .bind(&plan.state)
            .execute(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(())
    }

    /// A plan of a caller. `process`: this process.
    pub async fn get(&self, caller_key: &str, id: &str, process: &str) -> Result<Option<StoredPlan>, StoreError> {
        let statement = format!("SELECT {} FROM plans WHERE id = $1 AND caller_key = $2", self.columns());
        let row: Option<Row> = sqlx::query_as(AssertSqlSafe(statement))
            .bind(id)
            .bind(caller_key)
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        row.map(|row| self.stored_plan(row, process)).transpose()
    }

    /// The plans of a caller that were created before a moment, the latest first.
    pub async fn of_caller(
        &self,
        caller_key: &str,
        before: Timestamp,
        max: u32,
        process: &str,
    ) -> Result<Vec<StoredPlan>, StoreError> {
        let statement = format!(
            "SELECT {} FROM plans WHERE caller_key = $1 AND created < $2 ORDER BY created DESC LIMIT $3",
            self.columns()
        );
        let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(statement))
            .bind(caller_key)
            .bind(text_of(before))
            .bind(i64::from(max))
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        rows.into_iter().map(|row| self.stored_plan(row, process)).collect()
    }

    /// Stores the state of a plan that this process runs, and the charges for its usage; returns the wish of its caller
    /// and the new totals. `None`, and nothing is stored, if another process runs it.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is stored then.
    pub async fn save(
        &self,
        key: &PlanKey,
        (status, state): (&str, &str),
        charges: &[StoredCharge],
        now: DatabaseTime,
    ) -> Result<Option<(PlanWish, Vec<DailyUsage>)>, StoreError> {
        retried(|| self.try_save(key, (status, state), charges, now)).await
    }

    async fn try_save(
        &self,
        key: &PlanKey,
        (status, state): (&str, &str),
        charges: &[StoredCharge],
        now: DatabaseTime,
    ) -> Result<Option<(PlanWish, Vec<DailyUsage>)>, StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let seen = self.now_in_millis();
        let wish: Option<String> = sqlx::query_scalar(AssertSqlSafe(format!(
            "UPDATE plans SET status = $1, state = $2, seen = {seen}, changed = $3
             WHERE id = $4 AND holder = $5 AND status = $6 RETURNING wish"
        )))
        .bind(status)
        .bind(state)
        .bind(text_of(*now))
        .bind(&*key.id)
        .bind(&*key.holder)
        .bind(RUNNING)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(failed)?;
        let Some(wish) = wish else {
            transaction.rollback().await.map_err(failed)?;
            return Ok(None);
        };
        let totals = self.0.charges().add_within(&mut transaction, charges).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(Some((PlanWish::of(&wish), totals)))
    }

    /// Records that this process still runs a plan; returns the wish of its caller. `None` if another process runs it.
    pub async fn beat(&self, key: &PlanKey) -> Result<Option<PlanWish>, StoreError> {
        let seen = self.now_in_millis();
        let statement = format!("UPDATE plans SET seen = {seen} WHERE id = $1 AND holder = $2 RETURNING wish");
        let wish = sqlx::query_scalar(AssertSqlSafe(statement))
            .bind(&*key.id)
            .bind(&*key.holder)
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(wish.map(|wish: String| PlanWish::of(&wish)))
    }

    /// Ends a plan that this process ran, and leaves its state.
    pub async fn end(&self, key: &PlanKey, status: &str, now: DatabaseTime) -> Result<(), StoreError> {
        sqlx::query("UPDATE plans SET status = $1, changed = $2 WHERE id = $3 AND holder = $4 AND status = $5")
            .bind(status)
            .bind(text_of(*now))
            .bind(&*key.id)
            .bind(&*key.holder)
            .bind(RUNNING)
            .execute(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(())
    }

    /// Tells the process of a running plan the wish of its caller; returns whether the plan runs.
    pub async fn set_wish(&self, id: &str, wish: PlanWish) -> Result<bool, StoreError> {
        let changed = sqlx::query("UPDATE plans SET wish = $1 WHERE id = $2 AND status = $3")
            .bind(wish.as_str())
            .bind(id)
            .bind(RUNNING)
            .execute(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(changed.rows_affected() == 1)
    }

    /// Replaces a plan that does not run, if it is still as it was `found`; returns whether it was. With the status
    /// `running`, `process` runs it from now on.
    pub async fn replace(
        &self,
        found: &StoredPlan,
        status: &str,
        state: &str,
        process: &str,
        now: DatabaseTime,
    ) -> Result<bool, StoreError> {
        // An interrupted plan still says that it runs; nobody changes it, unless its process is alive after all.
        let seen = self.now_in_millis();
        let changed = sqlx::query(AssertSqlSafe(format!(
            "UPDATE plans SET status = $1, state = $2, wish = '', holder = $3, seen = {seen}, changed = $4
             WHERE id = $5 AND status = $6 AND changed = $7"
        )))
        .bind(status)
        .bind(state)
        .bind(process)
        .bind(text_of(*now))
        .bind(&*found.id)
        .bind(&found.status)
        .bind(text_of(*found.changed))
        .execute(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(changed.rows_affected() == 1)
    }

    /// Removes the oldest plans of a caller that do not run, so that `max` are left.
    pub async fn forget_surplus(&self, caller_key: &str, max: u32) -> Result<(), StoreError> {
        sqlx::query(
            "DELETE FROM plans WHERE caller_key = $1 AND status <> $2 AND id NOT IN
             (SELECT id FROM plans WHERE caller_key = $3 ORDER BY created DESC LIMIT $4)",
        )
        .bind(caller_key)
        .bind(RUNNING)
        .bind(caller_key)
        .bind(i64::from(max))
        .execute(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(())
    }

    /// Removes plans that nobody changed since a moment.
    pub async fn forget_before(&self, moment: DatabaseTime) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM plans WHERE changed < $1")
            .bind(text_of(*moment))
            .execute(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        self.forget_vectors_without_plans().await
    }

    /// The columns of a [`Row`]: instead of the moment when a process last said that it runs the plan, how long ago that was.
    pub(super) fn columns(&self) -> String {
        let now = self.now_in_millis();
        format!("id, caller_key, agent, session, status, holder, {now} - seen, created, changed, state")
    }

    fn now_in_millis(&self) -> String {
        format!("{} / 1000", self.0.engine.now_expression())
    }

    pub(super) fn stored_plan(&self, row: Row, process: &str) -> Result<StoredPlan, StoreError> {
        let (id, caller_key, agent, session, status, holder, unseen_for, created, changed, state) = row;
        let moment = |text: &str| {
            let moment = text.parse().map_err(|_| self.0.damaged(format!("a plan has the time {text:?}")));
            moment.map(DatabaseTime::of_database)
        };
        // A SQLite file has one process, so that any other one is gone.
        let is_alive = holder == process || self.0.engine == Engine::PostgreSql && unseen_for < ALIVE_MS;
        Ok(StoredPlan {
            id: id.into(),
            caller_key: caller_key.into(),
            agent,
            session: Some(session).filter(|session| !session.is_empty()),
            is_interrupted: status == RUNNING && !is_alive,
            is_held_here: status == RUNNING && holder == process,
            status,
            created: moment(&created)?,
            changed: moment(&changed)?,
            state,
        })
    }
}

impl PlanWish {
    fn as_str(self) -> &'static str {
        self.into()
    }

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
mod tests {
    use super::*;
    use crate::test_support::test_store;

    fn moment(second: i64) -> DatabaseTime {
        Timestamp::from_second(1_800_000_000 + second).unwrap().into()
    }

    fn plan(id: &str, caller_key: &str, created: i64) -> StoredPlan {
        StoredPlan {
            id: id.into(),
            caller_key: caller_key.into(),
            agent: "a".into(),
            session: None,
            status: RUNNING.into(),
            is_interrupted: false,
            is_held_here: true,
            created: moment(created),
            changed: moment(created),
            state: "{}".into(),
        }
    }

    fn key(holder: &str) -> PlanKey {
        PlanKey { id: "1".into(), holder: holder.into() }
    }

    #[tokio::test]
    async fn only_the_process_that_runs_a_plan_saves_it_and_learns_what_its_caller_wants() {
        let store = test_store().await;
        store.plans().add(&plan("1", "ann", 0), "p").await.unwrap();
        let saved = store.plans().save(&key("p"), (RUNNING, "{\"a\":1}"), &[], moment(1)).await.unwrap();
        assert_eq!(saved, Some((PlanWish::GoOn, Vec::new())));
        assert!(store.plans().set_wish("1", PlanWish::Pause).await.unwrap());
        assert_eq!(store.plans().beat(&key("p")).await.unwrap(), Some(PlanWish::Pause));
        assert_eq!(store.plans().save(&key("q"), (RUNNING, "{}"), &[], moment(2)).await.unwrap(), None);
        assert_eq!(store.plans().beat(&key("q")).await.unwrap(), None);
        store.plans().save(&key("p"), ("paused", "{\"a\":2}"), &[], moment(3)).await.unwrap();
        assert!(!store.plans().set_wish("1", PlanWish::Cancel).await.unwrap(), "it does not run");
        assert_eq!(store.plans().save(&key("p"), (RUNNING, "{}"), &[], moment(4)).await.unwrap(), None);

        let found = store.plans().get("ann", "1", "q").await.unwrap().unwrap();
        assert_eq!((found.status.as_str(), found.state.as_str()), ("paused", "{\"a\":2}"));
        assert!(store.plans().replace(&found, RUNNING, "{}", "q", moment(5)).await.unwrap());
        assert!(!store.plans().replace(&found, RUNNING, "{}", "r", moment(5)).await.unwrap(), "it was taken");
        assert!(store.plans().save(&key("q"), (RUNNING, "{}"), &[], moment(6)).await.unwrap().is_some());
        store.plans().end(&key("q"), "cancelled", moment(7)).await.unwrap();
        assert_eq!(store.plans().get("ann", "1", "q").await.unwrap().unwrap().status, "cancelled");
    }

    #[tokio::test]
    async fn a_plan_whose_process_is_gone_is_interrupted() {
        let store = test_store().await;
        store.plans().add(&plan("1", "ann", 0), "p").await.unwrap();
        store.plans().beat(&key("p")).await.unwrap();
        let own = store.plans().get("ann", "1", "p").await.unwrap().unwrap();
        assert!(!own.is_interrupted && own.is_held_here);
        let of_another = store.plans().get("ann", "1", "q").await.unwrap().unwrap();
        assert!(!of_another.is_held_here);
        let of_another = of_another.is_interrupted;
        assert_eq!(of_another, store.engine == Engine::Sqlite);
        sqlx::query("UPDATE plans SET seen = seen - 15001").execute(&store.pool).await.unwrap();
        assert!(store.plans().get("ann", "1", "q").await.unwrap().unwrap().is_interrupted);
        store.plans().beat(&key("p")).await.unwrap();
        let again = store.plans().get("ann", "1", "q").await.unwrap().unwrap().is_interrupted;
        assert_eq!(again, store.engine == Engine::Sqlite, "it said by the store's clock that it runs the plan");
    }

    #[tokio::test]
    async fn plans_are_listed_for_their_caller_until_they_are_old() {
        let store = test_store().await;
        for plan in [plan("1", "ann", 0), plan("2", "ann", 1), plan("3", "bob", 2)] {
            store.plans().add(&plan, "p").await.unwrap();
        }
        let ids = async |caller: &str, before| {
            let plans = store.plans().of_caller(caller, *moment(before), 10, "p").await.unwrap();
            plans.iter().map(|plan| plan.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids("ann", 9).await, ["2", "1"]);
        assert_eq!(ids("ann", 1).await, ["1"]);
        assert!(store.plans().get("bob", "1", "p").await.unwrap().is_none());
        store.plans().forget_surplus("ann", 1).await.unwrap();
        assert_eq!(ids("ann", 9).await, ["2", "1"], "both run");
        store.plans().forget_before(moment(1)).await.unwrap();
        assert_eq!(ids("ann", 9).await, ["2"]);
    }
}
