//! A holder renews its lease, learns that it is asked to stop, and releases the thing.

use std::time::Duration;

use sqlx::{AnyConnection, AssertSqlSafe};
use tokio::time::{Instant, sleep, timeout_at};

use super::{KINDS, LockState, WorkKind, WorkLease, WorkStore};
use crate::replica::{HEARTBEAT, LOST_AFTER};
use crate::replicas::micros;
use crate::{AtStore, Engine, StoreError};

/// Renewals in the time of a short lease. A longer one is renewed as often as a replica has heartbeats.
const RENEWALS: u32 = 3;

/// Interval of attempts after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// A holder that could not renew its lease for so long counts it as lost. Where a replica does not reach the database any more, its last
/// heartbeat was up to an interval before its last renewal: it stops its work a second before another replica takes the thing.
const GIVE_UP: Duration = LOST_AFTER.saturating_sub(HEARTBEAT).saturating_sub(RETRY);

impl WorkStore {
    /// Renews a lease, which was asked for or renewed at that moment, at intervals: until its holder has lost the thing, could not
    /// renew the lease in time, or is asked to stop. It then has the rest of the lease.
    pub async fn keep_renewing(&self, lease: &WorkLease, renewed: Instant) -> LockState {
        let interval = (lease.kind.lease / RENEWALS).min(HEARTBEAT);
        let (mut renewed, mut pause) = (renewed, interval);
        loop {
            sleep(pause).await;
            let asked = Instant::now();
            match timeout_at(renewed + GIVE_UP, self.renew(lease)).await {
                Ok(Ok(LockState::Held)) => (renewed, pause) = (asked, interval),
                Ok(Ok(state)) => return state,
                Ok(Err(error)) => {
                    tracing::warn!(%error, kind = lease.kind.name, id = lease.id, "a lease could not be renewed");
                    pause = RETRY;
                }
                Err(_) => {}
            }
            if Instant::now() >= renewed + GIVE_UP {
                tracing::error!(
                    kind = lease.kind.name,
                    id = lease.id,
                    "a lease was not renewed in time: it counts as lost"
                );
                return LockState::Lost;
            }
        }
    }

    /// Holds a thing for longer, unless another holder has it.
    pub async fn renew(&self, lease: &WorkLease) -> Result<LockState, StoreError> {
        let mut transaction = self.begin().await?;
        let state = self.renew_within(&mut transaction, lease).await?;
        self.end(transaction, state != LockState::Lost).await?;
        Ok(state)
    }

    /// As [`renew`](Self::renew), within a transaction that must be undone when the thing was lost: a change of a thing that its
    /// holder keeps.
    pub(crate) async fn renew_within(
        &self,
        connection: &mut AnyConnection,
        lease: &WorkLease,
    ) -> Result<LockState, StoreError> {
        self.try_renew(connection, lease).await.at(&self.0)
    }

    async fn try_renew(&self, connection: &mut AnyConnection, lease: &WorkLease) -> sqlx::Result<LockState> {
        let by_former = match lease.kind.former {
            Some(former) => former.renew(self.0.engine, &mut *connection, lease).await?,
            None => LockState::Held,
        };
        if by_former == LockState::Lost {
            return Ok(LockState::Lost);
        }
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE work SET held_until = {now} + $5, expires = {now} + $6
             WHERE kind = $1 AND id = $2 AND holder = $3 AND fence = $4 RETURNING stop_fence"
        );
        let stop_fence: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(lease.kind.name)
            .bind(&lease.id)
            .bind(&lease.holder)
            .bind(lease.fence)
            .bind(micros(lease.kind.lease))
            .bind(micros(lease.kind.ttl))
            .fetch_optional(connection)
            .await?;
        Ok(match stop_fence {
            None => LockState::Lost,
            Some(fence) if fence == lease.fence => LockState::AskedToStop,
            Some(_) => by_former,
        })
    }

    /// Gives a thing back. False: it was lost, and its holder changes nothing about it.
    /// Errors: [`StoreError`]; the lease ends by itself then.
    pub async fn release(&self, lease: &WorkLease) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let is_released = self.release_within(&mut transaction, lease).await?;
        self.end(transaction, is_released).await?;
        Ok(is_released)
    }

    /// As [`release`](Self::release), within a transaction that must be undone when the thing was lost: the last change of a
    /// thing takes effect with its release, or not at all.
    pub(crate) async fn release_within(
        &self,
        connection: &mut AnyConnection,
        lease: &WorkLease,
    ) -> Result<bool, StoreError> {
        self.try_release(connection, lease).await.at(&self.0)
    }

    async fn try_release(&self, connection: &mut AnyConnection, lease: &WorkLease) -> sqlx::Result<bool> {
        if let Some(former) = lease.kind.former
            && !former.release(connection, lease).await?
        {
            return Ok(false);
        }
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE work SET holder = NULL, replica = NULL, expires = {now} + $5
             WHERE kind = $1 AND id = $2 AND holder = $3 AND fence = $4"
        );
        let released = sqlx::query(AssertSqlSafe(sql))
            .bind(lease.kind.name)
            .bind(&lease.id)
            .bind(&lease.holder)
            .bind(lease.fence)
            .bind(micros(lease.kind.ttl));
        Ok(released.execute(connection).await?.rows_affected() > 0)
    }

    /// Asks the holder of a thing, in any process, to stop: it learns so when it renews its lease.
    pub async fn ask_to_stop(&self, kind: WorkKind, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        self.ask_to_stop_within(&mut transaction, (kind, id)).await?;
        self.end(transaction, true).await
    }

    /// As [`ask_to_stop`](Self::ask_to_stop), within a transaction.
    pub(crate) async fn ask_to_stop_within(
        &self,
        connection: &mut AnyConnection,
        (kind, id): (WorkKind, &str),
    ) -> Result<(), StoreError> {
        self.try_ask_to_stop(connection, (kind, id)).await.at(&self.0)
    }

    async fn try_ask_to_stop(&self, connection: &mut AnyConnection, (kind, id): (WorkKind, &str)) -> sqlx::Result<()> {
        if let Some(former) = kind.former {
            former.ask_to_stop(&mut *connection, (kind, id)).await?;
        }
        let asked =
            sqlx::query("UPDATE work SET stop_fence = fence WHERE kind = $1 AND id = $2 AND holder IS NOT NULL");
        asked.bind(kind.name).bind(id).execute(connection).await.map(drop)
    }

    /// Frees the things of earlier processes. Only the one process of a state directory uses its file, while other processes of a
    /// database may live: their leases end.
    pub async fn free_things_of_earlier_processes(&self) -> Result<(), StoreError> {
        if self.0.engine == Engine::PostgreSql {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        self.try_free_all(&mut transaction).await.at(&self.0)?;
        self.end(transaction, true).await
    }

    async fn try_free_all(&self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        for kind in KINDS {
            if let Some(former) = kind.former {
                former.free_all(&mut *connection, kind.table).await?;
            }
        }
        let freed = sqlx::query("UPDATE work SET holder = NULL, replica = NULL WHERE holder IS NOT NULL");
        freed.execute(connection).await.map(drop)
    }
}
