//! A thing is taken by one holder at a time.

use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use super::{WorkKind, WorkLease, WorkStore};
use crate::replica::LOST_AFTER;
use crate::replicas::micros;
use crate::{AtStore, StoreError};

/// Who takes a thing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taker<'a> {
    pub(super) kind: WorkKind,
    pub(super) id: &'a str,
    pub(super) holder: &'a str,
    /// `None`: a process that is no replica. Only the leases of others count for it, and only its own for others.
    pub(super) replica: Option<&'a str>,
}

impl WorkStore {
    /// Takes a thing for a replica, or for a process that is none. `None`: another holder has it. A replica takes nothing from
    /// itself before the lease ends.
    pub async fn take(&self, kind: WorkKind, id: &str, replica: Option<&str>) -> Result<Option<WorkLease>, StoreError> {
        let mut transaction = self.begin().await?;
        let lease = self.take_within(&mut transaction, (kind, id), replica).await?;
        self.end(transaction, lease.is_some()).await?;
        Ok(lease)
    }

    /// As [`take`](Self::take), within a transaction that must be undone when nothing is taken.
    pub(crate) async fn take_within(
        &self,
        connection: &mut AnyConnection,
        (kind, id): (WorkKind, &str),
        replica: Option<&str>,
    ) -> Result<Option<WorkLease>, StoreError> {
        let holder = Uuid::new_v4().to_string();
        let taker = Taker { kind, id, holder: &holder, replica };
        let fence = self.try_take(connection, taker).await.at(&self.0)?;
        Ok(fence.map(|fence| WorkLease { kind, id: id.to_owned(), holder, replica: replica.map(str::to_owned), fence }))
    }

    /// The fence. The former columns first, as in all transactions: they lock rows in one order.
    async fn try_take(&self, connection: &mut AnyConnection, taker: Taker<'_>) -> sqlx::Result<Option<i64>> {
        if let Some(former) = taker.kind.former
            && !former.take(self.0.engine, connection, taker).await?
        {
            return Ok(None);
        }
        let engine = self.0.engine;
        let (now, lost) = (engine.now_expression(), engine.is_lost("w.replica", ("$4", "$7")));
        let unrenewed = engine.is_unrenewed("$5", "$7");
        let sql = format!(
            "INSERT INTO work AS w (kind, id, holder, replica, fence, held_until, stop_fence, expires)
             VALUES ($1, $2, $3, $4, 1, {now} + $5, 0, {now} + $6)
             ON CONFLICT (kind, id) DO UPDATE SET holder = excluded.holder, replica = excluded.replica,
                 fence = w.fence + 1, held_until = excluded.held_until, expires = excluded.expires
             WHERE w.holder IS NULL OR w.held_until <= {now}
                 OR (w.replica <> $4 AND {lost} AND {unrenewed})
             RETURNING fence"
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(taker.kind.name)
            .bind(taker.id)
            .bind(taker.holder)
            .bind(taker.replica)
            .bind(micros(taker.kind.lease))
            .bind(micros(taker.kind.ttl))
            .bind(micros(LOST_AFTER))
            .fetch_optional(connection)
            .await
    }
}
