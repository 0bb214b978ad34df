//! Charges that are made once, even if the process is killed or the answer to a commit is lost: the maximum cost of a
//! call is stored before the call is sent, and each charge has an id.

use std::sync::Arc;

use jiff::civil::Date;
use rust_decimal::Decimal;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::conversation_runs::add_usage;
use super::usage::{DailyScope, amounts};
use super::{
    AtStore, DailyModelUsage, DailyUsage, MAX_ROWS, ModelUsageRow, Store, StoreError, parameters_of_rows, retried,
    stays_prepared,
};
use sekisho_core::call::{ModelTurns, Reservation, ReservedTurn, UsedModel};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::record::RunUsage;

/// A charge to be stored, at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCharge {
    pub id: Arc<str>,
    /// Whether it is stored only in place of a reservation with its id. It may have been charged already.
    pub is_reserved: bool,
    /// Nothing, to release a reservation.
    pub usage: Vec<DailyUsage>,
    /// The turns of models among it.
    pub models: Vec<DailyModelUsage>,
}

/// The maximum cost of a call whose process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedCharge {
    pub id: Arc<str>,
    pub caller_key: Arc<str>,
    pub tenant: Arc<str>,
    pub day: Date,
    pub cost_usd: Decimal,
    /// The turn of a model; `None` for a tool.
    pub turn: Option<ReservedTurn>,
}

const RESERVED: &str = "id, caller_key, tenant, day, cost_usd, agent, model, provider, prompt_tokens,
    completion_tokens";

/// In the order of the columns.
type ReservedRow = (String, String, String, String, String, Option<String>, Option<String>, Option<String>, i64, i64);

/// The sums by scope, day and key, in the order in which every transaction locks the rows.
pub fn sums_of<'a>(usage: impl IntoIterator<Item = &'a DailyUsage>) -> Vec<DailyUsage> {
    let mut sums: Vec<DailyUsage> = Vec::new();
    for added in usage {
        let of_row =
            |known: &&mut DailyUsage| (known.day, known.scope, &known.key) == (added.day, added.scope, &added.key);
        match sums.iter_mut().find(of_row) {
            Some(sum) => {
                sum.cost_usd = sum.cost_usd.saturating_add(added.cost_usd);
                sum.tokens = sum.tokens.saturating_add(added.tokens);
            }
            None => sums.push(added.clone()),
        }
    }
    sums.sort_unstable_by(|a, b| (a.scope, a.day, &a.key).cmp(&(b.scope, b.day, &b.key)));
    sums
}

impl ReservedCharge {
    /// The charges of the caller and of the tenant.
    pub fn usage(&self) -> [DailyUsage; 2] {
        let tokens = self.turns().map_or(0, |turns| turns.tokens());
        let of = |scope, key: &Arc<str>| DailyUsage {
            day: self.day,
            scope,
            key: Arc::clone(key),
            cost_usd: self.cost_usd,
            tokens,
        };
        [of(DailyScope::Caller, &self.caller_key), of(DailyScope::Tenant, &self.tenant)]
    }

    /// The assumed usage of the model.
    pub fn row(&self) -> Option<ModelUsageRow> {
        let UsedModel { agent, provider, model } = &self.turn.as_ref()?.model;
        let ModelTurns { prompt_tokens, completion_tokens, cost_usd, .. } = self.turns()?;
        let used = RunUsage { prompt_tokens, completion_tokens, cost_usd, ..RunUsage::default() };
        let (agent, provider, model) = (agent.to_string(), provider.to_string(), model.to_string());
        Some(ModelUsageRow { agent, provider, model, used })
    }

    /// The same for its caller's day.
    fn model_usage(&self) -> Option<DailyModelUsage> {
        let (day, caller_key) = (self.day, Arc::clone(&self.caller_key));
        Some(DailyModelUsage { day, caller_key, model: self.turn.as_ref()?.model.clone(), used: self.turns()? })
    }

    fn turns(&self) -> Option<ModelTurns> {
        let &ReservedTurn { prompt_tokens, completion_tokens, .. } = self.turn.as_ref()?;
        let cost_usd = self.cost_usd;
        Some(ModelTurns { turns: 1, prompt_tokens, completion_tokens, cost_usd, ..ModelTurns::default() })
    }
}

/// Charges that are made once: the tables `stored_charges` and `reserved_charges`. The amounts are added to
/// `daily_usage` and `model_usage`, and to `usage_logs` for a run whose process ended.
#[derive(Debug, Clone)]
pub struct ChargeStore(pub(super) Store);

impl ChargeStore {
    /// Stores the maximum cost of a call of a run or plan, unless it was charged already: then it is sent again after
    /// its process was killed.
    /// Errors: [`StoreError`]; the call must not be sent then.
    pub async fn reserve(&self, owner: &str, reservation: &Reservation) -> Result<(), StoreError> {
        let Reservation { id, caller, day, cost_usd, turn } = reservation;
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        sqlx::query(
            "INSERT INTO reserved_charges (id, owner, caller_key, tenant, day, cost_usd, agent, model, provider,
                prompt_tokens, completion_tokens, reserved)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
             WHERE NOT EXISTS (SELECT 1 FROM stored_charges WHERE id = $1) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&**id)
        .bind(owner)
        .bind(&*caller.key)
        .bind(&*caller.tenant)
        .bind(day.to_string())
        .bind(cost_usd.to_string())
        .bind(turn.as_ref().map(|turn| &*turn.model.agent))
        .bind(turn.as_ref().map(|turn| &*turn.model.model))
        .bind(turn.as_ref().map(|turn| &*turn.model.provider))
        .bind(turn.as_ref().map_or(0, |turn| count(turn.prompt_tokens)))
        .bind(turn.as_ref().map_or(0, |turn| count(turn.completion_tokens)))
        .bind(self.0.now().as_microsecond())
        .execute(&self.0.pool)
        .await
        .map(drop)
        .at(&self.0)
    }

    /// Stores charges, all or nothing, and returns the new totals in the order of [`sums_of`] them. `known`: ids of charges
    /// that are known to be stored, and will not be stored again.
    /// Errors: [`StoreError`]. Whether they are stored is not known then; they can be stored again.
    pub async fn add(&self, charges: &[StoredCharge], known: &[Arc<str>]) -> Result<Vec<DailyUsage>, StoreError> {
        retried(|| self.try_add(charges, known)).await
    }

    async fn try_add(&self, charges: &[StoredCharge], known: &[Arc<str>]) -> Result<Vec<DailyUsage>, StoreError> {
        let mut transaction = self.0.begin().await?;
        for known in known.chunks(MAX_ROWS) {
            let ids = parameters_of_rows(known.len(), "", 1);
            let sql = format!("DELETE FROM stored_charges WHERE id IN ({ids})");
            let removed = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(known.len()));
            let removed = known.iter().fold(removed, |removed, id| removed.bind(&**id));
            removed.execute(&mut *transaction).await.at(&self.0)?;
        }
        let totals = self.add_within(&mut transaction, charges).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(totals)
    }

    /// As [`add`](Self::add), within a transaction: its last statements, since they lock rows that others change too.
    pub(super) async fn add_within(
        &self,
        connection: &mut AnyConnection,
        charges: &[StoredCharge],
    ) -> Result<Vec<DailyUsage>, StoreError> {
        let (mut due, mut models) = (Vec::new(), Vec::new());
        for charge in charges {
            let is_new = claim(connection, charge, self.0.now()).await.at(&self.0)?;
            let nothing = |usage: &DailyUsage| DailyUsage { cost_usd: Decimal::ZERO, tokens: 0, ..usage.clone() };
            due.extend(charge.usage.iter().map(|usage| if is_new { usage.clone() } else { nothing(usage) }));
            models.extend(charge.models.iter().filter(|_| is_new).cloned());
        }
        self.add_sums(connection, &due, &models).await
    }

    /// Charges all that is reserved for a run whose process ended, with a row of the models' usage, within the transaction of
    /// its end. The new totals.
    pub(super) async fn charge_reserved_within(
        &self,
        connection: &mut AnyConnection,
        run: &str,
    ) -> Result<Vec<DailyUsage>, StoreError> {
        let reserved = self.take_reserved(connection, "owner = $1", run).await?;
        let mut rows = self.0.conversation_logs().usage_rows_within(connection, run).await?;
        for row in reserved.iter().filter_map(ReservedCharge::row) {
            let is_same = |known: &&mut ModelUsageRow| {
                (&known.agent, &known.provider, &known.model) == (&row.agent, &row.provider, &row.model)
            };
            match rows.iter_mut().find(is_same) {
                Some(known) => known.used.add(&row.used),
                None => rows.push(row),
            }
        }
        add_usage(connection, run, &rows).await.at(&self.0)?;
        self.charge_taken(connection, &reserved).await
    }

    /// The reservations for a run or plan.
    pub async fn reserved(&self, owner: &str) -> Result<Vec<ReservedCharge>, StoreError> {
        let sql = format!("SELECT {RESERVED} FROM reserved_charges WHERE owner = $1 ORDER BY id");
        let rows = sqlx::query_as(AssertSqlSafe(sql)).bind(owner).fetch_all(&self.0.pool).await;
        rows.at(&self.0)?.into_iter().map(|row| self.reserved_charge(row)).collect()
    }

    /// Charges all reservations from before a moment, and returns the new totals.
    /// Errors: [`StoreError`]; nothing is charged then.
    pub async fn charge_reserved_before(&self, moment: DatabaseTime) -> Result<Vec<DailyUsage>, StoreError> {
        retried(|| self.try_charge_reserved_before(moment)).await
    }

    async fn try_charge_reserved_before(&self, moment: DatabaseTime) -> Result<Vec<DailyUsage>, StoreError> {
        let mut transaction = self.0.begin().await?;
        let (which, moment) = ("reserved < CAST($1 AS BIGINT)", moment.as_microsecond().to_string());
        let reserved = self.take_reserved(&mut transaction, which, &moment).await?;
        let totals = self.charge_taken(&mut transaction, &reserved).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(totals)
    }

    /// Forgets which charges were stored before a moment.
    pub async fn forget_before(&self, moment: DatabaseTime) -> Result<(), StoreError> {
        let forgotten = sqlx::query("DELETE FROM stored_charges WHERE stored < $1").bind(moment.as_microsecond());
        forgotten.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Removes reservations, which are charged by who removes them. Their calls are not charged when they are sent again.
    pub(super) async fn take_reserved(
        &self,
        connection: &mut AnyConnection,
        which: &str,
        value: &str,
    ) -> Result<Vec<ReservedCharge>, StoreError> {
        let sql = format!("DELETE FROM reserved_charges WHERE {which} RETURNING {RESERVED}");
        let rows = sqlx::query_as(AssertSqlSafe(sql)).bind(value).fetch_all(&mut *connection).await.at(&self.0)?;
        let reserved = rows.into_iter().map(|row| self.reserved_charge(row)).collect::<Result<Vec<_>, _>>()?;
        for charge in reserved.iter().filter(|charge| charge.turn.is_none()) {
            remember(connection, &charge.id, self.0.now()).await.at(&self.0)?;
        }
        Ok(reserved)
    }

    pub(super) async fn charge_taken(
        &self,
        connection: &mut AnyConnection,
        reserved: &[ReservedCharge],
    ) -> Result<Vec<DailyUsage>, StoreError> {
        let usage: Vec<_> = reserved.iter().flat_map(ReservedCharge::usage).collect();
        let models: Vec<_> = reserved.iter().filter_map(ReservedCharge::model_usage).collect();
        self.add_sums(connection, &usage, &models).await
    }

    /// Adds to the tables of days, always in this order, and returns the new totals.
    async fn add_sums(
        &self,
        connection: &mut AnyConnection,
        usage: &[DailyUsage],
        models: &[DailyModelUsage],
    ) -> Result<Vec<DailyUsage>, StoreError> {
        let totals = self.0.usage().add_within(connection, &sums_of(usage)).await?;
        self.0.model_usage().add_within(connection, models).await?;
        Ok(totals)
    }

    fn reserved_charge(&self, row: ReservedRow) -> Result<ReservedCharge, StoreError> {
        let (id, caller_key, tenant, day, cost_usd, agent, model, provider, prompt_tokens, completion_tokens) = row;
        let day = day.parse().map_err(|_| self.0.damaged(format!("no day: {day:?}")))?;
        let (cost_usd, prompt_tokens) = amounts(&self.0, &cost_usd, prompt_tokens)?;
        let (_, completion_tokens) = amounts(&self.0, "0", completion_tokens)?;
        let turn = agent.zip(model);
        Ok(ReservedCharge {
            id: id.into(),
            caller_key: caller_key.into(),
            tenant: tenant.into(),
            day,
            cost_usd,
            turn: turn.map(|(agent, model)| {
                // An earlier version did not store the provider.
                let provider = provider.unwrap_or_else(|| "unknown".to_owned()).into();
                let model = UsedModel { agent: agent.into(), provider, model: model.into() };
                ReservedTurn { model, prompt_tokens, completion_tokens }
            }),
        })
    }
}

/// Whether the charge is to be made: nobody made it before.
async fn claim(connection: &mut AnyConnection, charge: &StoredCharge, now: DatabaseTime) -> sqlx::Result<bool> {
    if !charge.is_reserved {
        return remember(connection, &charge.id, now).await;
    }
    let taken = sqlx::query("DELETE FROM reserved_charges WHERE id = $1").bind(&*charge.id).execute(connection).await?;
    Ok(taken.rows_affected() > 0)
}

/// Whether no charge with that id was remembered.
async fn remember(connection: &mut AnyConnection, id: &str, now: DatabaseTime) -> sqlx::Result<bool> {
    let added = sqlx::query("INSERT INTO stored_charges (id, stored) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
        .bind(id)
        .bind(now.as_microsecond())
        .execute(connection)
        .await?;
    Ok(added.rows_affected() > 0)
}

#[cfg(test)]
mod tests;
