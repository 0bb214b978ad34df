//! The file of the embedded engine: how it is created, opened and copied.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AnyPool, ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::Instant;

use super::error::sqlite_code;

/// How long a statement waits for another process that is writing; sqlx's own default, too.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts to open a file that another process is creating.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(10);

pub(super) const CONNECTIONS: u32 = 4;

/// Readers do not wait for a writer, and a commit needs no fsync: a crash of the machine may undo the last commits,
/// never a part of one.
/// Each connection caches 512 KiB of pages, 2.5 MiB in all, instead of 2 MB each: the rows that calls read are indexed
/// and small, and the system caches the file, too.
const ON_DISK: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -512";

/// A commit is on the disk when it is answered, and with it all that was committed before.
const DURABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -512";

/// As [`ON_DISK`], for the index of calls: a search looks at thousands of rows. A new file has pages that hold some ten calls: two fit
/// into the usual ones, which are filled to two thirds, and each is written by two system calls.
const INDEX: &str =
    "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -8192";

/// Connections to the index: for new entries, for the removal of old ones, and for the pages that are read.
const INDEX_CONNECTIONS: u32 = 3;

/// Connects to the file of the index, which is created if it is missing.
pub(super) async fn connect_to_index(path: &Path) -> sqlx::Result<AnyPool> {
    connect_with(path, INDEX_CONNECTIONS, INDEX).await
}

/// Connects to a file, which is created if it is missing.
pub(super) async fn connect(path: &Path) -> sqlx::Result<AnyPool> {
    connect_with(path, CONNECTIONS, ON_DISK).await
}

/// Another connection to the same file, for writes that must outlast a crash of the machine.
pub(super) async fn connect_durably(path: &Path) -> sqlx::Result<AnyPool> {
    connect_with(path, 1, DURABLE).await
}

async fn connect_with(path: &Path, connections: u32, settings: &'static str) -> sqlx::Result<AnyPool> {
    let pool = AnyPoolOptions::new()
        .max_connections(connections)
        .after_connect(move |connection, _| Box::pin(async move { connection.execute(settings).await.map(drop) }))
        .before_acquire(|connection, _| {
            // On a full disk SQLite ends a transaction itself, while sqlx assumes it is still open: such a connection
            // would refuse every further transaction.
            Box::pin(async move { Ok(!connection.is_in_transaction()) })
        });
    connected(pool, options(path)?, settings).await
}

/// Connects to a database in memory.
pub(super) async fn connect_to_memory() -> sqlx::Result<AnyPool> {
    one_connection().connect("sqlite::memory:").await
}

/// Connects to a file that is removed while it is open.
pub(super) async fn connect_to_copy(path: &Path) -> sqlx::Result<AnyPool> {
    let pool = one_connection().after_connect(|connection, _| {
        // A journal beside it would have no folder.
        Box::pin(async move { connection.execute("PRAGMA journal_mode = MEMORY").await.map(drop) })
    });
    pool.connect_with(options(path)?).await
}

/// Writes a copy of the file, if it exists, without writing to it.
pub(super) async fn copy(from: &Path, to: &Path) -> sqlx::Result<()> {
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

/// Creates a folder that is private to the service.
pub(super) fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file, or restricts one: it contains tool replies. The journal files beside it get its mode.
pub(super) fn make_private_file(path: &Path) -> io::Result<()> {
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

/// A database that is lost with its connection must keep it.
fn one_connection() -> AnyPoolOptions {
    AnyPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None)
}

fn options(path: &Path) -> sqlx::Result<AnyConnectOptions> {
    const IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/');
    let path = std::path::absolute(path)?;
    let path = percent_encode(path.as_os_str().as_encoded_bytes(), IN_A_PATH);
    format!("sqlite:{path}?mode=rwc").parse()
}

/// Connects, and waits where another process has the file: when two switch a new one to its write-ahead log at once, one
/// fails, since SQLite does not wait there.
async fn connected(pool: AnyPoolOptions, options: AnyConnectOptions, settings: &'static str) -> sqlx::Result<AnyPool> {
    const BUSY: u32 = 5;
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match prepare(&options, settings).await {
            Err(error) if sqlite_code(&error) == Some(BUSY) && Instant::now() < until => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            Err(error) => return Err(error),
            Ok(()) => return pool.connect_with(options).await,
        }
    }
}

/// Opens the file once by itself: a pool keeps trying to open a file that is no database, and then says only that it waited.
async fn prepare(options: &AnyConnectOptions, settings: &'static str) -> sqlx::Result<()> {
    let mut connection = options.connect().await?;
    connection.execute(settings).await?;
    connection.close().await
}
