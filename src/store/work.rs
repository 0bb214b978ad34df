//! Who works on a thing, such as a workspace: one mechanism for all kinds.
//!
//! A holder has a thing until its lease ends by the database's clock, and renews the lease until then. The heartbeats of replicas
//! only shorten leases: a replica takes a thing at once from a replica that is lost to it, by the rule for all other work of
//! replicas ([`Engine::is_lost`](super::Engine::is_lost)). A process that has a SQLite file for itself frees at its start the
//! things of the processes before.
//!
//! Whoever takes a thing gets a random holder and a fence that grows. Each later statement names both, so that a holder that lost
//! the thing changes nothing, also when it wakes long after its lease.

mod former_columns;
mod hold;
mod sweep;
mod take;

use std::time::Duration;

use sqlx::{Any, Transaction};

use self::former_columns::FormerColumns;
use super::program_runs::RUN_TTL;
use super::{AtStore, Engine, Store, StoreError};

/// The rules of a kind of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkKind {
    /// In the column `kind`.
    name: &'static str,
    /// The table of the things, and its column with the id of each.
    table: &'static str,
    key: &'static str,
    /// How long a holder has a thing without renewing its lease.
    lease: Duration,
    /// How long a row is kept after its thing was last taken, renewed or released.
    ttl: Duration,
    /// `None`: programs of the version before have no such things.
    former: Option<FormerColumns>,
}

/// The kinds of things.
const KINDS: [WorkKind; 5] = [WORKSPACE, CONVERSATION, PLAN, PROGRAM_RUN, BACKGROUND_RUN];

/// Workspaces that replicas share.
pub(super) const WORKSPACE: WorkKind = WorkKind {
    name: "workspace",
    table: "workspaces",
    key: "name",
    lease: Duration::from_secs(30),
    ttl: Duration::from_secs(3_600),
    former: Some(FormerColumns::Workspace),
};

/// Conversations while a run has them (C4–C6).
pub(super) const CONVERSATION: WorkKind = WorkKind {
    name: "conversation",
    table: "conversations",
    key: "id",
    lease: Duration::from_secs(15),
    ttl: Duration::from_secs(3_600),
    former: Some(FormerColumns::Conversation),
};

/// Plans of agents while a run has them.
pub(super) const PLAN: WorkKind = WorkKind {
    name: "plan",
    table: "plans",
    key: "id",
    lease: Duration::from_secs(15),
    ttl: Duration::from_secs(3_600),
    former: Some(FormerColumns::Plan),
};

/// Runs of programs that call tools, while a process writes their journals.
pub(super) const PROGRAM_RUN: WorkKind = WorkKind {
    name: "program_run",
    table: "program_runs",
    key: "id",
    lease: Duration::from_secs(15),
    // As long as the run: without the row, one that a live replica did not stop would count as a run of the version before.
    ttl: RUN_TTL,
    former: Some(FormerColumns::ProgramRun),
};

/// Runs that go on without a client, while a process works on them.
pub(super) const BACKGROUND_RUN: WorkKind = WorkKind {
    name: "background_run",
    table: "background_runs",
    key: "id",
    lease: Duration::from_secs(15),
    ttl: Duration::from_secs(3_600),
    former: None,
};

/// The state of a lease when its holder renews it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    Held,
    /// Its holder is to end its work.
    AskedToStop,
    /// Another holder has the thing.
    Lost,
}

/// The right to work on a thing, for one holder until the lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkLease {
    kind: WorkKind,
    id: String,
    holder: String,
    /// `None`: of a process that is no replica.
    replica: Option<String>,
    fence: i64,
}

/// Who works on things: the table `work`, and for one release the columns in which programs of the version before look for holders.
/// It reads `replicas` to find lost ones.
#[derive(Debug, Clone)]
pub struct WorkStore(pub(super) Store);

impl WorkStore {
    /// Begins a transaction that takes, renews or releases a thing together with a change of the thing itself.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        self.0.begin().await
    }

    /// Commits a transaction if its statements have found their rows; otherwise it changes nothing.
    pub(super) async fn end(&self, transaction: Transaction<'static, Any>, is_whole: bool) -> Result<(), StoreError> {
        let ended = if is_whole { transaction.commit().await } else { transaction.rollback().await };
        ended.at(&self.0)
    }
}

impl WorkKind {
    /// In the column `kind`.
    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// The condition that nobody has the thing of a row of its table, by leases: a table, or its name in the statement.
    /// On PostgreSQL, a change on this condition waits for a holder that takes the thing at the same time only because that holder
    /// writes the former columns, in the same row; of a kind without them, the change must take the thing itself.
    pub(super) fn is_free(self, engine: Engine, row: &str) -> String {
        let (Self { name, key, .. }, now) = (self, engine.now_expression());
        let former =
            self.former.map(|former| format!("AND {}", former.are_free(engine, row, "''"))).unwrap_or_default();
        format!(
            "(NOT EXISTS (SELECT 1 FROM work AS w WHERE w.kind = '{name}' AND w.id = {row}.{key}
                  AND w.holder IS NOT NULL AND w.held_until > {now}) {former})"
        )
    }

    /// The end of a query of the row of a thing, `thing`: it finds the row while a holder has the thing. The arguments are the
    /// parameters with the [terms](WorkLease::terms) of the lease.
    pub(super) fn held(self, [id, holder, fence]: [&str; 3]) -> String {
        let Self { name, table, key, .. } = self;
        let former = self.former.map(|former| format!("AND {}", former.are_of("w", "thing"))).unwrap_or_default();
        format!(
            "FROM {table} AS thing JOIN work AS w ON w.id = thing.{key}
             WHERE thing.{key} = {id} AND w.kind = '{name}' AND w.holder = {holder} AND w.fence = {fence} {former}"
        )
    }
}

impl WorkLease {
    /// Id of the thing, holder and fence.
    pub(super) fn terms(&self) -> (&str, &str, i64) {
        (&self.id, &self.holder, self.fence)
    }

    /// Of the thing.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

#[cfg(test)]
mod tests;
