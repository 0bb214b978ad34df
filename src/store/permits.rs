//! Slots of tools whose concurrency limit is counted over all replicas. Each slot is a row, so that there are never
//! more slots than the limit has. A slot is free when its replica is lost: the heartbeats of a replica renew all its
//! slots.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::replicas::micros;
use super::{AtStore, Store, StoreError, retried, stays_prepared};

/// Slots of one statement that are given back.
const MAX_GIVEN_BACK: usize = 200;

/// A slot that a call has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredPermit {
    pub tool: String,
    pub slot: i64,
    /// The id of the statement that took it: a later holder of the slot has another one.
    pub holder: String,
}

/// Slots that a replica wants for its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedPermits<'a> {
    pub tool: &'a str,
    /// How many the tool has.
    pub limit: u32,
    pub wanted: usize,
    pub replica: &'a str,
    pub holder: &'a str,
}

/// Slots of tools with a limit over all replicas: the table `tool_permits`. It reads `replicas` to find lost ones.
#[derive(Debug, Clone)]
pub struct PermitStore(pub(super) Store);

impl PermitStore {
    /// Takes free slots, at most as many as are wanted. Two statements never take the same one.
    /// Errors: [`StoreError`]; slots may still be taken when no answer arrives ([`of_replica`](Self::of_replica)).
    pub async fn take(&self, asked: AskedPermits<'_>, lost_after: Duration) -> Result<Vec<StoredPermit>, StoreError> {
        let sql = self.take_statement();
        // Each statement begins at another slot, so that two at once seldom want the same.
        let first: i64 = rand::random_range(0..i64::from(asked.limit.max(1)));
        let slots = retried(|| self.try_take(&sql, first, asked, lost_after)).await?;
        let permit = |slot| StoredPermit { tool: asked.tool.to_owned(), slot, holder: asked.holder.to_owned() };
        Ok(slots.into_iter().map(permit).collect())
    }

    /// Frees slots, except slots that others took in between.
    pub async fn give_back(&self, permits: &[StoredPermit]) -> Result<(), StoreError> {
        for permits in permits.chunks(MAX_GIVEN_BACK) {
            let each = (0..permits.len()).map(|row| {
                let [tool, slot, holder] = [1, 2, 3].map(|column| 3 * row + column);
                format!("(tool = ${tool} AND slot = ${slot} AND holder = ${holder})")
            });
            let sql = format!("DELETE FROM tool_permits WHERE {}", each.collect::<Vec<_>>().join(" OR "));
            retried(|| self.try_give_back(&sql, permits)).await?;
        }
        Ok(())
    }

    /// The slots that a replica has for at least so long.
    pub async fn of_replica(&self, replica: &str, taken_before: Duration) -> Result<Vec<StoredPermit>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT tool, slot, holder FROM tool_permits WHERE replica = $1 AND taken <= {now} - $2");
        let rows: Vec<(String, i64, String)> =
            bound!(sqlx::query_as(AssertSqlSafe(sql)), replica, micros(taken_before))
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        Ok(rows.into_iter().map(|(tool, slot, holder)| StoredPermit { tool, slot, holder }).collect())
    }

    /// Removes the slots of replicas that are lost to this replica, also of tools that are no longer called.
    pub async fn forget_lost(&self, replica: &str, lost_after: Duration) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM tool_permits WHERE NOT {}", self.is_held("tool_permits", ("$1", "$2")));
        let removed = bound!(sqlx::query(AssertSqlSafe(sql)), replica, micros(lost_after)).execute(&self.0.pool).await;
        removed.map(drop).at(&self.0)
    }

    async fn try_take(
        &self,
        sql: &str,
        first: i64,
        asked: AskedPermits<'_>,
        lost_after: Duration,
    ) -> Result<Vec<i64>, StoreError> {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .bind(asked.tool)
            .bind(i64::from(asked.limit))
            .bind(asked.holder)
            .bind(asked.replica)
            .bind(first)
            .bind(i64::try_from(asked.wanted).unwrap_or(i64::MAX))
            .bind(micros(lost_after))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)
    }

    async fn try_give_back(&self, sql: &str, permits: &[StoredPermit]) -> Result<(), StoreError> {
        let mut statement = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(stays_prepared(permits.len()));
        for StoredPermit { tool, slot, holder } in permits {
            statement = statement.bind(tool).bind(*slot).bind(holder);
        }
        statement.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// The parameters are tool, limit, holder, replica, the slot to begin at, how many, and after how long a replica is lost.
    fn take_statement(&self) -> String {
        let now = self.0.engine.now_expression();
        let [taken, held] = ["taken_slot", "held"].map(|row| self.is_held(row, ("$4", "$7")));
        format!(
            "WITH RECURSIVE slots(slot) AS
                 (SELECT CAST(1 AS BIGINT) UNION ALL SELECT slot + 1 FROM slots WHERE slot < CAST($2 AS BIGINT))
             INSERT INTO tool_permits AS held (tool, slot, holder, replica, taken)
             SELECT $1, free.slot, $3, $4, {now} FROM
                 (SELECT slots.slot FROM slots WHERE NOT EXISTS
                      (SELECT 1 FROM tool_permits AS taken_slot
                       WHERE taken_slot.tool = $1 AND taken_slot.slot = slots.slot AND {taken})
                  ORDER BY (slots.slot + CAST($5 AS BIGINT)) % CAST($2 AS BIGINT) LIMIT $6) AS free
             WHERE TRUE ORDER BY free.slot
             ON CONFLICT (tool, slot) DO UPDATE
             SET holder = excluded.holder, replica = excluded.replica, taken = excluded.taken WHERE NOT {held}
             RETURNING slot"
        )
    }

    /// Whether a slot is held, as a replica sees it. A slot that was just taken is held, even if this statement does
    /// not know its replica.
    fn is_held(&self, row: &str, (replica, lost_after): (&str, &str)) -> String {
        let (now, lost) =
            (self.0.engine.now_expression(), self.0.engine.is_lost(&format!("{row}.replica"), (replica, lost_after)));
        format!("({row}.taken > {now} - CAST({lost_after} AS BIGINT) OR NOT {lost})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReplicaIdentity;
    use crate::test_support::test_store;

    const LOST_AFTER: Duration = Duration::from_secs(12);

    async fn beat(store: &Store, id: &str) {
        let replica = ReplicaIdentity {
            id,
            host: "host",
            version: "1",
            configuration: "c",
            policies: "p",
            address: None,
            degraded: "[]",
        };
        store.replicas().beat(replica, LOST_AFTER).await.unwrap();
    }

    async fn take(store: &Store, replica: &str, (limit, wanted): (u32, usize), lost: Duration) -> Vec<StoredPermit> {
        let holder = uuid::Uuid::new_v4().to_string();
        let asked = AskedPermits { tool: "slow", limit, wanted, replica, holder: &holder };
        store.permits().take(asked, lost).await.unwrap()
    }

    #[tokio::test]
    async fn slots_are_taken_up_to_the_limit_and_free_once_they_are_given_back() {
        let store = test_store().await;
        let mut held = take(&store, "a", (3, 2), LOST_AFTER).await;
        assert_eq!(held.len(), 2);
        held.extend(take(&store, "b", (3, 5), LOST_AFTER).await);
        let mut slots: Vec<_> = held.iter().map(|permit| permit.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [1, 2, 3]);
        assert!(take(&store, "a", (3, 1), LOST_AFTER).await.is_empty());
        store.permits().give_back(&held[..1]).await.unwrap();
        let again = take(&store, "b", (3, 5), LOST_AFTER).await;
        assert_eq!(again.iter().map(|permit| permit.slot).collect::<Vec<_>>(), [held[0].slot]);
        store.permits().give_back(&held[..1]).await.unwrap();
        assert!(take(&store, "a", (3, 1), LOST_AFTER).await.is_empty(), "the slot is another call's now");
        assert_eq!(take(&store, "a", (4, 5), LOST_AFTER).await.len(), 1, "the limit was raised");
    }

    #[tokio::test]
    async fn slots_are_free_once_their_replica_is_lost() {
        let store = test_store().await;
        beat(&store, "live").await;
        beat(&store, "other").await;
        assert_eq!(take(&store, "live", (2, 1), LOST_AFTER).await.len(), 1);
        assert_eq!(take(&store, "gone", (2, 1), LOST_AFTER).await.len(), 1);
        assert!(take(&store, "other", (2, 2), LOST_AFTER).await.is_empty(), "it was taken just now");
        store.permits().set_taken_long_ago().await;
        assert_eq!(store.permits().of_replica("gone", LOST_AFTER).await.unwrap().len(), 1);
        assert_eq!(take(&store, "other", (2, 2), LOST_AFTER).await.len(), 1, "its replica has left");
        store.permits().set_taken_long_ago().await;
        store.replicas().remove("other").await.unwrap();
        store.permits().forget_lost("live", LOST_AFTER).await.unwrap();
        assert_eq!(store.permits().of_replica("live", LOST_AFTER).await.unwrap().len(), 1);
        assert!(store.permits().of_replica("other", LOST_AFTER).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn replicas_that_ask_at_once_take_no_more_than_there_are() {
        let store = test_store().await;
        let asking = (0..30).map(|n| {
            let store = store.clone();
            tokio::spawn(async move { take(&store, &format!("replica {n}"), (10, 2), LOST_AFTER).await.len() })
        });
        let taken: usize = futures_util::future::join_all(asking).await.into_iter().map(Result::unwrap).sum();
        assert!(taken <= 10 && taken > 0, "{taken}");
        let rest = take(&store, "last", (10, 10), LOST_AFTER).await.len();
        assert_eq!(taken + rest, 10);
    }
}
