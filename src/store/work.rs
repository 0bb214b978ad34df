//! Who works on a thing, such as a workspace, and the sealed entries that it wrote: one mechanism for all kinds.
//!
//! A holder has a thing until its lease ends by the database's clock, and renews the lease until then. The heartbeats of replicas
//! only shorten leases: a replica takes a thing at once from a replica that is lost to it, by the rule for all other work of
//! replicas ([`Engine::is_lost`](super::Engine::is_lost)). A process that has a SQLite file for itself frees at its start the
//! things of the processes before.
//!
//! Whoever takes a thing gets a random holder and a fence that grows. Each later statement names both, so that a holder that lost
//! the thing changes nothing, also when it wakes long after its lease.

mod entries;
mod former_columns;
mod hold;
mod sweep;
mod take;

use std::time::Duration;

use sqlx::{Any, Transaction};

use self::former_columns::FormerColumns;
use super::{Store, StoreError};

/// The rules of a kind of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkKind {
    /// In the column `kind`.
    pub(super) name: &'static str,
    /// How long a holder has a thing without renewing its lease.
    lease: Duration,
    /// How long a row is kept after its thing was last taken, renewed or released.
    ttl: Duration,
    /// `None`: programs of the version before have no such things.
    former: Option<FormerColumns>,
}

/// The kinds of things.
const KINDS: [WorkKind; 1] = [WORKSPACE];

/// Workspaces that replicas share.
pub(super) const WORKSPACE: WorkKind = WorkKind {
    name: "workspace",
    lease: Duration::from_secs(30),
    ttl: Duration::from_secs(3_600),
    former: Some(FormerColumns { table: "workspaces", key: "name" }),
};

/// The right to work on a thing, for one holder until the lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkLease {
    kind: WorkKind,
    id: String,
    holder: String,
    fence: i64,
}

/// Who works on things, and their entries: the tables `work` and `work_entries`, and for one release the columns in which programs
/// of the version before look for holders. It reads `replicas` to find lost ones.
#[derive(Debug, Clone)]
pub struct WorkStore(pub(super) Store);

impl WorkStore {
    /// Begins a transaction that takes, renews or releases a thing together with a change of the thing itself.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        let begun = self.0.pool.begin_with(self.0.engine.begin_statement()).await;
        begun.map_err(|error| self.0.failed(error))
    }

    /// Commits a transaction if its statements have found their rows; otherwise it changes nothing.
    pub(super) async fn end(&self, transaction: Transaction<'static, Any>, is_whole: bool) -> Result<(), StoreError> {
        let ended = if is_whole { transaction.commit().await } else { transaction.rollback().await };
        ended.map_err(|error| self.0.failed(error))
    }
}

impl WorkLease {
    /// Of the thing.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

#[cfg(test)]
mod tests;
