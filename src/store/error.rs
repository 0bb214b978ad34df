use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::error::DatabaseError;
use thiserror::Error;

use super::{Engine, Store};
use sekisho_core::error::{CallError, ErrorCode};

/// When a caller may try again while the store is away.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why the store cannot be used, and the remedy. `place` is the path of the file, or the URL of the database without its
/// password.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("the store's folder {} cannot be created: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the store {place} cannot be copied into a temporary folder: {source}")]
    Copy { place: String, source: io::Error },
    #[error("the permissions of the store {} cannot be restricted to this user: {source}", path.display())]
    NotPrivate { path: PathBuf, source: io::Error },
    #[error("the store {place} is damaged ({problem}); {remedy}")]
    Damaged { place: String, problem: String, remedy: &'static str },
    #[error(
        "the store {place} was written by a newer sekisho (schema {found}, this one supports {known}); run that one, or \
         name another state directory or store.url"
    )]
    Newer { place: String, found: i64, known: i64 },
    #[error(
        "replicas of an older sekisho (schema {found}) use the store {place}, and this version works beside those of schema \
         {oldest} and later only: stop them first, or upgrade to the version between them and this one"
    )]
    OlderReplicas { place: String, found: i64, oldest: i64 },
    #[error("the disk of the store {place} is full; free some space")]
    Full { place: String },
    #[error("the store {place} cannot be reached: {source}; check store.url and that the database runs")]
    Unreachable { place: String, source: sqlx::Error },
    /// Another transaction changed the same rows.
    #[error("the store {place} is busy: other processes kept changing the same rows ({source}); try again")]
    Conflict { place: String, source: sqlx::Error },
    #[error("the store {place} failed: {source}")]
    Failed { place: String, source: sqlx::Error },
}

impl StoreError {
    pub(super) fn new(engine: Engine, place: &str, source: sqlx::Error) -> Self {
        let place = place.to_owned();
        match engine {
            Engine::Sqlite => Self::from_sqlite(place, source),
            Engine::PostgreSql => Self::from_postgresql(place, source),
        }
    }

    /// Whether it may pass without a change of the program or of the data: the database is down, the disk full, or other
    /// processes are in the way.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Unreachable { .. } | Self::Conflict { .. } => true,
            Self::Failed { source, .. } => {
                use sqlx::Error::{Io, PoolClosed, PoolTimedOut};
                // Locked, read-only, failed input or output, no such file: https://www.sqlite.org/rescode.html
                matches!(source, Io(_) | PoolClosed | PoolTimedOut)
                    || matches!(sqlite_code(source), Some(6 | 8 | 10 | 14))
            }
            Self::Folder { .. }
            | Self::Copy { .. }
            | Self::NotPrivate { .. }
            | Self::Damaged { .. }
            | Self::Newer { .. }
            | Self::OlderReplicas { .. } => false,
        }
    }

    pub(super) fn damaged(engine: Engine, place: String, problem: String) -> Self {
        let remedy = match engine {
            Engine::Sqlite => {
                "stop sekisho and put back a copy, or move the file away together with its -wal and -shm: today's budgets \
                 then begin at zero"
            }
            Engine::PostgreSql => "correct the value, or restore the database",
        };
        Self::Damaged { place, problem, remedy }
    }

    fn from_sqlite(place: String, source: sqlx::Error) -> Self {
        const BUSY: u32 = 5;
        const CORRUPT: u32 = 11;
        const FULL: u32 = 13;
        const NOT_A_DATABASE: u32 = 26;
        match sqlite_code(&source) {
            Some(CORRUPT | NOT_A_DATABASE) => Self::damaged(Engine::Sqlite, place, source.to_string()),
            Some(FULL) => Self::Full { place },
            Some(BUSY) => Self::Conflict { place, source },
            _ => Self::Failed { place, source },
        }
    }

    /// By SQLSTATE (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
    fn from_postgresql(place: String, source: sqlx::Error) -> Self {
        use sqlx::Error::{Io, PoolTimedOut, Protocol, Tls};
        let code = source.as_database_error().and_then(DatabaseError::code);
        match code.as_deref() {
            Some("53100") => Self::Full { place },
            // Conflicts of transactions, and of two programs that create the tables.
            Some("40001" | "40P01" | "23505" | "42P07") => Self::Conflict { place, source },
            Some(code) if ["08", "28", "3D", "53", "57P"].iter().any(|class| code.starts_with(class)) => {
                Self::Unreachable { place, source }
            }
            // Failures of a connection at something in between, such as a balancer without a database behind it.
            None if matches!(source, Io(_) | PoolTimedOut | Protocol(_) | Tls(_)) => {
                Self::Unreachable { place, source }
            }
            _ => Self::Failed { place, source },
        }
    }
}

/// The result of a statement, whose error names the store's place.
pub(super) trait AtStore<T> {
    fn at(self, store: &Store) -> Result<T, StoreError>;
}

impl<T> AtStore<T> for sqlx::Result<T> {
    fn at(self, store: &Store) -> Result<T, StoreError> {
        self.map_err(|error| store.failed(error))
    }
}

/// The error says nothing of the store's place; the log does.
impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        if !error.is_outage() {
            return Self::internal(error);
        }
        tracing::error!(%error, "a request is refused: the store is not available");
        let message =
            "the gateway's store is not available: its database is down, or its disk is full; try again later";
        Self::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).caused_by(error)
    }
}

/// The primary code of SQLite's error, the low byte (<https://www.sqlite.org/rescode.html>).
pub(super) fn sqlite_code(error: &sqlx::Error) -> Option<u32> {
    let extended = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(extended & 0xff)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::StoreLocation;
    use sekisho_config::Secret;

    #[test]
    fn what_the_network_does_to_a_connection_is_an_outage() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        for (source, expected) in [
            (sqlx::Error::Protocol("expected to read 5 bytes, got 0 bytes at EOF".into()), true),
            (sqlx::Error::Io(reset()), true),
            (sqlx::Error::PoolTimedOut, true),
            (sqlx::Error::PoolClosed, true),
            (sqlx::Error::RowNotFound, false),
        ] {
            let error = StoreError::new(Engine::PostgreSql, "db", source);
            assert_eq!(error.is_outage(), expected, "{error}");
            let refused = CallError::from(error);
            let retry = expected.then_some(RETRY_AFTER);
            assert_eq!((refused.code() == ErrorCode::Overloaded, refused.wait()), (expected, retry));
        }
    }

    /// It closes a connection at once, or when the client has asked for encryption. In the latter case sqlx reads an answer
    /// that the protocol does not have.
    #[tokio::test]
    async fn a_balancer_without_a_database_behind_it_is_an_outage() {
        /// The bytes of the request for encryption. If they are not read, the end of the connection is a reset.
        const REQUEST: usize = 8;
        for is_read in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("postgres://sekisho@{}/sekisho?sslmode=prefer", listener.local_addr().unwrap());
            let closing = tokio::spawn(async move {
                loop {
                    let (mut connection, _) = listener.accept().await.unwrap();
                    if is_read {
                        connection.read_exact(&mut [0; REQUEST]).await.unwrap();
                    }
                }
            });
            let error = Store::open(&StoreLocation::PostgreSql(Secret::new(&url))).await.unwrap_err();
            closing.abort();
            assert!(error.is_outage(), "{error:?}");
            let is_of_protocol = matches!(error, StoreError::Unreachable { source: sqlx::Error::Protocol(_), .. });
            assert!(is_of_protocol || !is_read, "another error than the one that this test is for: {error:?}");
        }
    }
}
