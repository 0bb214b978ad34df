//! The persistent state: tables in a SQLite file, or in a PostgreSQL database. The only module that uses sqlx.
//!
//! Both engines take the same statements: TEXT, BIGINT, `$1`, and nothing that only one of them has. Moments and money
//! are text. When two processes change one row, the later one waits, since each transaction writes before it reads.

/// A statement with the values of its parameters.
macro_rules! bound {
    ($statement:expr, $($value:expr),+ $(,)?) => { $statement$(.bind($value))+ };
}

mod approvals;
mod background_runs;
mod broker;
mod budget_leases;
mod call_index;
mod charges;
pub mod clock_difference;
mod configuration_changes;
mod conversation_journal;
mod conversation_lock;
mod conversation_logs;
mod conversation_runs;
mod conversation_titles;
mod conversations;
mod error;
mod flow_destinations;
mod flow_sessions;
mod idempotency;
mod interpreter_sessions;
mod location;
mod managed_keys;
mod migrations;
mod model_usage;
mod paused_runs;
mod permits;
mod plan_charges;
mod plan_vectors;
mod plans;
mod postgresql;
mod program_runs;
mod rate_buckets;
mod recorded_runs;
mod registrations;
mod released_leases;
pub mod replica;
mod replicas;
mod resources;
mod results;
mod rule_usage;
pub mod sealing;
mod sessions;
mod shared_versions;
mod source_requests;
mod sqlite;
pub mod state_lock;
mod summaries;
pub mod temporary_folder;
mod tenant_resources;
mod text;
mod topics;
mod usage;
mod user_sign_ins;
mod user_tokens;
mod work;
mod workspaces;

#[cfg(test)]
mod tenant_keys;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sqlx::migrate::MigrateError;
use sqlx::{Any, AnyPool, AssertSqlSafe, Transaction};
use tokio::time::Instant;

use self::error::AtStore;
use crate::temporary_folder::private_folder;
use sekisho_core::database_clock::{DatabaseClock, DatabaseTime};

pub use self::approvals::{
    ApprovalFilter, ApprovalStore, Asked, DecidedApproval, NewApproval, PENDING_OF_CALLER, StoredApproval,
};
pub use self::background_runs::{
    BackgroundKind, BackgroundLease, BackgroundRun, BackgroundRunStore, BackgroundState, BackgroundStep,
    NewBackgroundRun,
};
pub use self::broker::{BrokerSession, BrokerStore, NewBrokerSession, PresentedCode, StoredBrokerKey};
pub use self::budget_leases::{AccountLease, AskedLease, BudgetLeaseStore};
pub use self::call_index::{
    CallCursor, CallIndexStore, CallOrder, CallSums, CountedUse, EventFilter, Facet, FailureGroup, Failures,
    FailuresBy, Figures, FoundCalls, IndexFilter, IndexWriter, IndexedCall, NewCallContent, NewIndexedCall, Series,
    Subject, TimeRange, Times, ToolUse, UseCursor, use_of,
};
pub use self::charges::{ChargeStore, ReservedCharge, StoredCharge, sums_of};
pub use self::configuration_changes::{ChangeState, ConfigurationChangeStore, MAX_CHANGES, NewChange, StoredChange};
pub use self::conversation_journal::{ToolExecution, ToolOutcome, TurnMessage, Used};
pub use self::conversation_lock::ConversationLock;
pub use self::conversation_logs::{ConversationLogStore, CopiedRun, LogFilter, LogRow, WithModel};
pub use self::conversation_runs::{
    ConversationRun, ConversationRunStore, MessageLog, ModelUsageRow, RunEnd, RunStatus, StoredError,
};
pub use self::conversation_titles::LaterTitle;
pub use self::conversations::{Branch, Conversation, ConversationChange, ConversationStatus, ConversationStore};
pub use self::error::StoreError;
pub use self::flow_destinations::{
    FlowDestination, FlowDestinationStore, MAX_DESTINATIONS_OF_TENANT, StoredFlowDestination,
};
pub use self::flow_sessions::{
    FlowSession, FlowSessionStore, MAX_SESSIONS_OF_CALLER, MAX_VALUES_OF_CALLER, StoredFlowSession,
};
pub use self::idempotency::{
    EqualEffect, IdempotencyRecord, IdempotencyStore, KeptReply, NamedCall, OpenEffect, OpenRecord, OwnedRecords,
    RecordFence, RecordOwner, RecordedOutcome, StartedCall,
};
pub use self::interpreter_sessions::{
    AskedOfSession, InterpreterSessionFence, InterpreterSessionKey, InterpreterSessionStore, ListedSession,
    NewInterpreterSession, NewSessionImage, SessionImage, SessionTimes, TakenSession, WantedSession,
};
pub use self::location::StoreLocation;
pub use self::managed_keys::{KeyStore, MAX_KEYS, NewManagedKey, StoredKey};
pub use self::model_usage::{DailyModelUsage, ModelUsageStore};
pub use self::paused_runs::{PausedRun, PausedRunStore};
pub use self::permits::{AskedPermits, PermitStore, StoredPermit};
pub use self::plans::{PlanLease, PlanStore, PlanWish, StoredPlan};
pub use self::program_runs::{
    NewProgramRun, ProgramRunLease, ProgramRunOwner, ProgramRunState, ProgramRunStore, StoredProgramRun,
};
pub use self::rate_buckets::{AskedCalls, RateBucketStore, TakenCalls};
pub use self::recorded_runs::{ListedRecordedRun, NewRecordedRun, RecordedRunOwner, RecordedRunStore};
pub use self::registrations::{RegistrationStore, Registrations};
pub use self::released_leases::{Release, ReleasedLease};
pub use self::replicas::{ReplicaIdentity, ReplicaStore, StoredReplica};
pub use self::resources::{ResourceKind, ResourceStore};
pub use self::results::{ListedResult, NewResult, ResultContent, ResultOwner, ResultStore};
pub use self::rule_usage::{RuleUsage, RuleUsageStore};
pub use self::sessions::{HandOver, SessionMessage, SessionSummary, StoredPrefix};
pub use self::source_requests::{
    Audience, MAX_REQUESTS_OF_TENANT, NewSourceRequest, RequestState, SourceRequestFilter, SourceRequestStore,
    StoredSourceRequest,
};
pub use self::summaries::ThreadSummaryStore;
pub use self::tenant_resources::{StoredResource, WriteOutcome};
pub use self::usage::{DailyScope, DailyUsage, UsageStore};
pub use self::user_sign_ins::{SIGN_IN_TTL, StoredSignIn};
pub use self::user_tokens::{NewUserToken, RenewalLease, StoredUserToken, TokenOwner, UserTokenFilter, UserTokenStore};
pub use self::work::{LockState, WorkKind, WorkLease, WorkStore};
pub use self::workspaces::{WorkspaceLock, WorkspaceStore};

/// The database. The statements of each topic are methods of its handle, such as [`Store::plans`]. Cheap to clone; clones and
/// handles share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
    /// For records that must be on the disk before a call is sent (the beginning of a call with a key, the state of an
    /// approval), and for changes by administrators: of keys, registrations and resources. For a SQLite file it is a
    /// connection that waits for the disk; otherwise it is `pool`.
    durable: AnyPool,
    engine: Engine,
    /// As in errors.
    place: Arc<str>,
    clock: Arc<DatabaseClock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Sqlite,
    PostgreSql,
}

/// How often a transaction is begun again that another one undid.
const MAX_CONFLICTS: u32 = 8;

/// Rows of one statement.
const MAX_ROWS: usize = 500;

impl Store {
    /// Connects, and applies migrations. Other processes may use the same store.
    /// Errors: [`StoreError`], naming the place.
    pub async fn open(location: &StoreLocation) -> Result<Self, StoreError> {
        match location {
            StoreLocation::File(path) => Self::open_file(path).await,
            StoreLocation::PostgreSql(url) => {
                let place = location.to_string();
                sqlx::any::install_default_drivers();
                let pool = postgresql::connect(url.expose()).await;
                Self::migrated(Engine::PostgreSql, &place, pool).await
            }
        }
    }

    /// Opens the SQLite file, creates it and its folder if they are missing, and applies migrations.
    /// Errors: [`StoreError`], naming the file.
    pub async fn open_file(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            sqlite::make_private_folder(folder)
                .map_err(|source| StoreError::Folder { path: folder.to_owned(), source })?;
        }
        sqlite::make_private_file(path).map_err(|source| StoreError::NotPrivate { path: path.to_owned(), source })?;
        sqlx::any::install_default_drivers();
        let place = path.display().to_string();
        let store = Self::migrated(Engine::Sqlite, &place, sqlite::connect(path).await).await?;
        let durable = sqlite::connect_durably(path).await.at(&store)?;
        Ok(Self { durable, ..store })
    }

    /// Opens a private copy of the current state: nothing is written to the original, and writes to the copy are lost.
    /// Without an original, the copy is empty. A gateway may use the original. The copy of a database has only the
    /// tables that commands read: registrations and spending.
    /// Errors: [`StoreError`], naming the original.
    pub async fn open_copy(original: &StoreLocation) -> Result<Self, StoreError> {
        let place = original.to_string();
        let folder = private_folder().map_err(|source| StoreError::Copy { place: place.clone(), source })?;
        let file = folder.path().join("copy.db");
        copy(original, &file).await?;
        sqlx::any::install_default_drivers();
        // The open connection keeps the copy, whose name goes with the folder.
        Self::migrated(Engine::Sqlite, &place, sqlite::connect_to_copy(&file).await).await
    }

    /// A store in memory, lost when the process exits.
    /// Errors: [`StoreError`], when SQLite has no memory.
    pub async fn in_memory() -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        Self::migrated(Engine::Sqlite, ":memory:", sqlite::connect_to_memory().await).await
    }

    /// Waits for running statements and disconnects. The write-ahead log of a file is folded into the file.
    pub async fn close(&self) {
        self.durable.close().await;
        self.pool.close().await;
    }

    async fn migrated(engine: Engine, place: &str, pool: sqlx::Result<AnyPool>) -> Result<Self, StoreError> {
        let pool = pool.map_err(|error| StoreError::new(engine, place, error))?;
        let clock = match engine {
            Engine::Sqlite => DatabaseClock::of_this_machine(),
            Engine::PostgreSql => DatabaseClock::new(),
        };
        let store = Self { durable: pool.clone(), pool, engine, place: place.into(), clock: Arc::new(clock) };
        store.migrate().await?;
        store.set_clock().await?;
        Ok(store)
    }

    /// Several programs may start at once: the first one changes the tables, and the others find them changed.
    async fn migrate(&self) -> Result<(), StoreError> {
        let until = Instant::now() + sqlite::BUSY_TIMEOUT;
        loop {
            let error = match migrations::apply(&self.pool, self.engine).await {
                Ok(()) => return Ok(()),
                Err(MigrateError::VersionMissing(found)) => {
                    return Err(StoreError::Newer { place: self.place.to_string(), found, known: migrations::LATEST });
                }
                Err(MigrateError::VersionTooOld(found, oldest)) => {
                    return Err(StoreError::OlderReplicas { place: self.place.to_string(), found, oldest });
                }
                Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => self.failed(error),
                Err(MigrateError::VersionMismatch(version)) => {
                    return Err(self.damaged(format!("its schema {version} is another one than sekisho's")));
                }
                Err(error) => self.failed(error.into()),
            };
            if !matches!(error, StoreError::Conflict { .. }) || Instant::now() >= until {
                return Err(error);
            }
            tokio::time::sleep(sqlite::BUSY_PAUSE).await;
        }
    }

    /// Begins a transaction that writes.
    async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        self.pool.begin_with(self.engine.begin_statement()).await.at(self)
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        StoreError::new(self.engine, &self.place, error)
    }

    /// The time by the clock that all processes of the store share: the database's as it was last heard, or, for a
    /// file, this machine's. The moment of every stored value, and of every value that is compared with one, is from
    /// here or from the database.
    pub fn now(&self) -> DatabaseTime {
        self.clock.now()
    }

    /// The clock of [`now`](Self::now).
    pub fn clock(&self) -> &Arc<DatabaseClock> {
        &self.clock
    }

    /// How far the clock of this machine is ahead of the database's.
    pub fn machine_is_ahead_by(&self) -> SignedDuration {
        Timestamp::now().duration_since(*self.clock.now())
    }

    /// Asks the database for its time. A replica hears it with each heartbeat.
    /// Errors: [`StoreError`]; the clock goes on as before.
    pub async fn set_clock(&self) -> Result<(), StoreError> {
        if self.engine == Engine::Sqlite {
            return Ok(());
        }
        let statement = format!("SELECT {}", self.engine.now_expression());
        let micros: i64 = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&self.pool).await.at(self)?;
        self.clock.set(*self.moment(micros)?);
        Ok(())
    }

    /// Asks the database for an answer.
    /// Errors: [`StoreError`]: there is none.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await.map(drop).at(self)
    }

    /// A moment as the database has it.
    fn moment(&self, microsecond: i64) -> Result<DatabaseTime, StoreError> {
        let moment = Timestamp::from_microsecond(microsecond);
        moment.map(DatabaseTime::of_database).map_err(|_| self.damaged(format!("a moment is {microsecond}")))
    }

    fn damaged(&self, problem: impl Into<String>) -> StoreError {
        StoreError::damaged(self.engine, self.place.to_string(), problem.into())
    }
}

impl Engine {
    /// The statement that begins a transaction that writes. SQLite takes the lock of the only writer first: otherwise
    /// it would refuse a transaction whose first statement reads.
    fn begin_statement(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::PostgreSql => "BEGIN",
        }
    }

    /// The end of a query of an `INSERT … SELECT` whose rows show that the writer still has the right to write. On PostgreSQL
    /// a query reads past a transaction that gives the right to the next holder, and the write would be stored after that
    /// one has read. With this lock one of the two waits for the other. SQLite has one writer at a time.
    fn share_lock(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::PostgreSql => "FOR SHARE",
        }
    }

    /// Microseconds since 1970 by the database's clock, when the transaction of the statement began.
    fn now_expression(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000000 AS BIGINT)",
            Self::PostgreSql => "CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) * 1000000 AS BIGINT)",
        }
    }
}

/// Writes a copy into a new SQLite file, without writing to the original. Without an original there is no copy.
/// Errors: [`StoreError`], naming the original.
pub async fn copy(original: &StoreLocation, to: &Path) -> Result<(), StoreError> {
    let place = original.to_string();
    match original {
        StoreLocation::File(from) => {
            sqlite::copy(from, to).await.map_err(|error| StoreError::new(Engine::Sqlite, &place, error))
        }
        StoreLocation::PostgreSql(url) => {
            let store = Store::open_file(to).await?;
            postgresql::copy(url.expose(), &place, &store.pool).await?;
            store.close().await;
            Ok(())
        }
    }
}

/// Whether a statement with so many rows stays prepared. A connection keeps the last hundred texts, and each number of rows is
/// another one, of up to 250 KB, which would take the place of one that every call needs.
const fn stays_prepared(rows: usize) -> bool {
    rows <= 4
}

/// The parameters of so many rows of a statement: `($1, $2), ($3, $4)`, each with fixed values in front.
fn parameters_of_rows(rows: usize, fixed: &str, columns: usize) -> String {
    let row = |row: usize| {
        let parameters = (1..=columns).map(|column| format!("${}", row * columns + column));
        format!("({fixed}{})", parameters.collect::<Vec<_>>().join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// Runs a transaction, and again when another one undid it.
async fn retried<T, F>(transaction: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for attempt in 0..MAX_CONFLICTS {
        match transaction().await {
            Err(StoreError::Conflict { .. }) => {
                let longest = 1 << attempt;
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..=longest))).await;
            }
            outcome => return outcome,
        }
    }
    transaction().await
}
