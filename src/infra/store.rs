//! The persistent state: one SQLite file. The only module that uses sqlx.
//!
//! The SQL is limited to TEXT, BIGINT and `$1`, so that it can be moved to PostgreSQL later.

mod idempotency;
mod registrations;
mod runs;
mod summaries;
mod usage;

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, SqlitePool};
use thiserror::Error;
use tokio::time::Instant;

use super::temporary_folder::TemporaryFolder;

pub use self::idempotency::{IdempotencyRecord, OwnedRecords, RecordOwner, RecordedOutcome, StartedCall};
pub use self::registrations::Registrations;
pub use self::runs::AgentRun;
pub use self::usage::{DailyScope, DailyUsage};

/// Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    pool: SqlitePool,
    path: Arc<Path>,
}

/// Why the store cannot be used, and the remedy.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("the store's folder {} cannot be created: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the store {} cannot be copied into a temporary folder: {source}", path.display())]
    Copy { path: PathBuf, source: io::Error },
    #[error("the permissions of the store {} cannot be restricted to this user: {source}", path.display())]
    NotPrivate { path: PathBuf, source: io::Error },
    #[error(
        "the store {} is damaged ({problem}); stop sekisho and put back a copy, or move the file away together with \
         its -wal and -shm: today's budgets then begin at zero",
        path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error(
        "the store {} was written by a newer sekisho (schema {found}, this one supports {known}); run that one, or name \
         another state directory",
        path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("the disk of the store {} is full; free some space", path.display())]
    Full { path: PathBuf },
    #[error("the store {} failed: {source}", path.display())]
    Failed { path: PathBuf, source: sqlx::Error },
}

/// How long a statement waits for another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts to open a file that another process is creating.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

const CONNECTIONS: u32 = 4;

/// The migrations from an empty file to today's schema, in order. `PRAGMA user_version` counts those applied; a
/// released migration is never changed.
const MIGRATIONS: &[&str] = &[
    usage::SCHEMA,
    summaries::SCHEMA,
    registrations::COLLECTIONS,
    registrations::MCP_SERVERS,
    runs::SCHEMA,
    idempotency::SCHEMA,
];

impl Store {
    /// Opens the file, creates it and its folder if they are missing, and applies migrations. Other processes may
    /// have it open as well.
    ///
    /// # Errors
    /// [`StoreError`], naming the file.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            make_private_folder(folder).map_err(|source| StoreError::Folder { path: folder.to_owned(), source })?;
        }
        make_private_file(path).map_err(|source| StoreError::NotPrivate { path: path.to_owned(), source })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).before_acquire(|connection, _| {
            // On a full disk SQLite ends a transaction itself, while sqlx assumes it is still open: such a connection
            // would refuse every further transaction.
            Box::pin(async move { Ok(!connection.is_in_transaction()) })
        });
        Self::connect(pool, options, path).await
    }

    /// Opens a private copy of the file as it is now: nothing is written to the file, and what is written to the copy is
    /// lost. Without the file, the copy is empty. A gateway may have the file open.
    ///
    /// # Errors
    /// [`StoreError`], naming the file.
    pub async fn open_copy(path: &Path) -> Result<Self, StoreError> {
        let folder = TemporaryFolder::new().map_err(|source| StoreError::Copy { path: path.to_owned(), source })?;
        let copy = folder.path().join("copy.db");
        self::copy(path, &copy).await?;
        // The open connection keeps the copy, whose name goes with the folder.
        let pool = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let options = SqliteConnectOptions::new().filename(&copy).create_if_missing(true);
        Self::connect(pool, options.journal_mode(SqliteJournalMode::Memory), path).await
    }

    /// A store in memory, lost when the process exits.
    ///
    /// # Errors
    /// [`StoreError`], when SQLite has no memory.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // Every connection would have a database of its own, which is lost when it closes.
        let pool = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        Self::connect(pool, SqliteConnectOptions::new().in_memory(true), Path::new(":memory:")).await
    }

    /// Waits for running statements and closes the file, the write-ahead log folded into it.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn connect(pool: SqlitePoolOptions, options: SqliteConnectOptions, path: &Path) -> Result<Self, StoreError> {
        let pool = connected(pool, options).await.map_err(|error| StoreError::from_sqlx(path, error))?;
        let store = Self { pool, path: path.into() };
        store.migrate().await?;
        Ok(store)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        let found = self.migrate_from_found().await.map_err(|error| self.failed(error))?;
        if found > known {
            return Err(StoreError::Newer { path: self.path.to_path_buf(), found, known });
        }
        Ok(())
    }

    /// Applies missing migrations, and returns the version found. One process at a time.
    async fn migrate_from_found(&self) -> sqlx::Result<i64> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let found: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
        for (version, step) in (1_i64..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
            sqlx::raw_sql(*step).execute(&mut *transaction).await?;
            let counted = AssertSqlSafe(format!("PRAGMA user_version = {version}"));
            sqlx::raw_sql(counted).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(found)
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_sqlx(&self.path, error)
    }

    fn damaged(&self, problem: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path.to_path_buf(), problem: problem.into() }
    }
}

impl StoreError {
    fn from_sqlx(path: &Path, source: sqlx::Error) -> Self {
        const CORRUPT: u32 = 11;
        const FULL: u32 = 13;
        const NOT_A_DATABASE: u32 = 26;
        let path = path.to_owned();
        match code_of(&source) {
            Some(CORRUPT | NOT_A_DATABASE) => Self::Damaged { path, problem: source.to_string() },
            Some(FULL) => Self::Full { path },
            _ => Self::Failed { path, source },
        }
    }
}

/// Writes a copy of the file, if it exists, without writing to it.
///
/// # Errors
/// [`StoreError`], naming the file.
pub async fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    copy_file(from, to).await.map_err(|error| StoreError::from_sqlx(from, error))
}

async fn copy_file(from: &Path, to: &Path) -> sqlx::Result<()> {
    if !from.is_file() {
        return Ok(());
    }
    let mut log = from.as_os_str().to_owned();
    log.push("-wal");
    // Without a write-ahead log nobody has the file open, and SQLite would create one to read it.
    let options = SqliteConnectOptions::new().filename(from).read_only(true).immutable(!Path::new(&log).exists());
    let mut connection = options.busy_timeout(BUSY_TIMEOUT).connect().await?;
    let copied = sqlx::query("VACUUM INTO $1").bind(to.to_string_lossy()).execute(&mut connection).await;
    connection.close().await?;
    copied.map(drop)
}

/// Connects, and waits where another process has the file: when two switch a new one to its write-ahead log at once, one
/// fails, since SQLite does not wait there.
async fn connected(pool: SqlitePoolOptions, options: SqliteConnectOptions) -> sqlx::Result<SqlitePool> {
    const BUSY: u32 = 5;
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if code_of(&error) == Some(BUSY) && Instant::now() < until => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// The primary code of SQLite's error, the low byte (<https://www.sqlite.org/rescode.html>).
fn code_of(error: &sqlx::Error) -> Option<u32> {
    let extended = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(extended & 0xff)
}

/// Usage data is private to the service.
fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// It contains tool replies. The journal files beside it get the mode of this one.
fn make_private_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::set_permissions(&name, Permissions::from_mode(0o600)) {
            // The journal files exist only while it is open, or after a crash.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Makes the file unable to grow.
#[cfg(test)]
pub(crate) async fn fill_the_disk(store: &Store) {
    bound_the_file(store, "1").await;
}

#[cfg(test)]
pub(crate) async fn free_disk(store: &Store) {
    bound_the_file(store, "1000000").await;
}

#[cfg(test)]
async fn bound_the_file(store: &Store, pages: &'static str) {
    let options = store.pool.connect_options().as_ref().clone().pragma("max_page_count", pages);
    store.pool.set_connect_options(options);
    let every_one = futures_util::future::join_all((0..CONNECTIONS).map(|_| store.pool.acquire())).await;
    for connection in every_one {
        connection.unwrap().close().await.unwrap();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::core::call::Caller;

    #[tokio::test]
    async fn a_file_is_made_with_its_folder_and_opens_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/deeper/sekisho.db");
        Store::open(&path).await.unwrap().close().await;
        Store::open(&path).await.unwrap().close().await;
    }

    #[tokio::test]
    async fn the_file_and_those_beside_it_are_for_this_user_alone_also_one_of_an_earlier_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        for _ in 0..2 {
            let store = Store::open(&path).await.unwrap();
            for name in ["sekisho.db", "sekisho.db-wal", "sekisho.db-shm"] {
                assert_eq!(mode(name), 0o600, "{name}");
            }
            store.close().await;
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
    }

    #[tokio::test]
    async fn two_processes_may_open_a_new_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let opened = futures_util::future::join_all((0..8).map(|_| Store::open(&path))).await;
        for store in opened {
            store.unwrap().close().await;
        }
    }

    /// Happens with eight processes now and then: SQLite does not wait for a file whose journal mode it changes.
    #[tokio::test]
    async fn opening_waits_while_another_process_makes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let mut other = SqliteConnectOptions::new().filename(&path).create_if_missing(true).connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        let mut opening = pin!(Store::open(&path));
        tokio::time::timeout(BUSY_PAUSE * 10, opening.as_mut()).await.expect_err("it waits");
        sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
        opening.await.unwrap().close().await;
    }

    #[tokio::test]
    async fn a_copy_has_all_data_and_leaves_the_file_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert!(
            Store::open_copy(&path).await.unwrap().registrations(Registrations::McpServers).await.unwrap().is_empty()
        );
        assert!(names().is_empty(), "{:?}", names());
        let live = Store::open(&path).await.unwrap();
        live.keep_registration(Registrations::McpServers, "files", "{}").await.unwrap();
        for is_open in [true, false] {
            let before = (names(), std::fs::read(&path).unwrap());
            let copy = Store::open_copy(&path).await.unwrap();
            let kept = [("files".to_owned(), "{}".to_owned())];
            assert_eq!(copy.registrations(Registrations::McpServers).await.unwrap(), kept);
            copy.keep_registration(Registrations::McpServers, "more", "{}").await.unwrap();
            copy.close().await;
            assert_eq!((names(), std::fs::read(&path).unwrap()), before, "open: {is_open}");
            if is_open {
                assert_eq!(live.registrations(Registrations::McpServers).await.unwrap(), kept);
                live.close().await;
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        std::fs::write(&path, "this was never a database, ".repeat(400)).unwrap();
        let error = Store::open(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains("move the file away"), "{message}");
    }

    #[tokio::test]
    async fn a_file_of_a_newer_version_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let store = Store::open(&path).await.unwrap();
        sqlx::raw_sql("PRAGMA user_version = 1000").execute(&store.pool).await.unwrap();
        store.close().await;
        let error = Store::open(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 1000, .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_file_of_an_earlier_version_opens_with_all_its_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let mut earlier = SqliteConnectOptions::new().filename(&path).create_if_missing(true).connect().await.unwrap();
        sqlx::raw_sql(include_str!("../../tests/fixtures/store/version_5.sql")).execute(&mut earlier).await.unwrap();
        earlier.close().await.unwrap();
        let ann = Caller::new("ann", "acme", Vec::new()).key;
        for _ in 0..2 {
            let store = Store::open(&path).await.unwrap();
            let usage = store.usage_of("2026-11-20".parse().unwrap()).await.unwrap();
            assert_eq!(usage.iter().map(|usage| (&usage.key, usage.tokens)).collect::<Vec<_>>(), [(&ann, 7)]);
            assert_eq!(store.thread_summary(&ann, "thread").await.unwrap().as_deref(), Some("what was said"));
            for (kind, name) in [(Registrations::Collections, "petstore"), (Registrations::McpServers, "files")] {
                assert_eq!(store.registrations(kind).await.unwrap(), [(name.to_owned(), "{}".to_owned())]);
            }
            let runs = store.runs_of(&ann, 10).await.unwrap();
            assert_eq!(runs.iter().map(|run| (&run.caller_key, run.used.turns)).collect::<Vec<_>>(), [(&ann, 1)]);
            assert!(store.owned_idempotency_records().await.unwrap().is_empty());
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("file");
        std::fs::write(&in_the_way, "").unwrap();
        let error = Store::open(&in_the_way.join("sekisho.db")).await.unwrap_err();
        assert!(matches!(error, StoreError::Folder { .. }), "{error:?}");
    }
}
