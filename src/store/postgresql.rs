//! The database of the other engine: how it is connected to, and how commands that only read look at it.

use std::time::Duration;

use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::migrate::MigrateError;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Column, Row as _};

use super::migrations::{LATEST, OLDEST};
use super::{Engine, StoreError};
use crate::replica::LOST_AFTER;

/// Maximum connections of one gateway. Calls use few: the writes of every call are collected first.
const CONNECTIONS: u32 = 8;

/// How long a statement waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The tables of commands that only look: registrations, replicas, and spending.
const COPIED: [&str; 6] =
    ["daily_usage", "model_usage", "openapi_collections", "mcp_servers", "replicas", "tenant_resources"];

pub(super) async fn connect(url: &str) -> sqlx::Result<AnyPool> {
    AnyPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(CONNECT_TIMEOUT).connect(url).await
}

/// Copies the tables that commands read into the tables of another store. A database of an older version, or an empty
/// one, lacks tables and columns that the other store has; a database of a newer version has more.
/// Errors: [`StoreError::Newer`], and when the database cannot be read.
pub(super) async fn copy(url: &str, place: &str, to: &AnyPool) -> Result<(), StoreError> {
    let failed = |error| StoreError::new(Engine::PostgreSql, place, error);
    let from = connect(url).await.map_err(failed)?;
    let mut connection = from.acquire().await.map_err(failed)?;
    check_version(&mut connection).await.map_err(|problem| match problem {
        MigrateError::VersionMissing(found) => StoreError::Newer { place: place.to_owned(), found, known: LATEST },
        MigrateError::Execute(error) => failed(error),
        other => failed(other.into()),
    })?;
    for table in COPIED {
        if exists(&mut connection, table).await.map_err(failed)? {
            copy_table(table, &mut connection, to).await.map_err(failed)?;
        }
    }
    drop(connection);
    from.close().await;
    Ok(())
}

/// Whether the tables are a newer program's, with which this one may work.
/// Errors: [`MigrateError::VersionMissing`] when it may not; [`MigrateError::VersionTooOld`] when the tables are so old
/// that replicas which use them could not go on once they are migrated, while there are such replicas.
pub(super) async fn is_newer_and_usable(connection: &mut AnyConnection) -> Result<bool, MigrateError> {
    let found = check_version(connection).await?;
    if found > 0 && found < OLDEST && has_live_replicas(connection).await? {
        return Err(MigrateError::VersionTooOld(found, OLDEST));
    }
    Ok(found > LATEST)
}

/// Says in the database which programs may use its tables.
pub(super) async fn record_oldest(connection: &mut AnyConnection) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO shared_versions (subject, version) VALUES ('oldest_schema', $1)
         ON CONFLICT (subject) DO UPDATE SET version = excluded.version
         WHERE shared_versions.version <> excluded.version",
    )
    .bind(OLDEST)
    .execute(connection)
    .await
    .map(drop)
}

/// The version of the tables: zero where no gateway wrote yet.
async fn check_version(connection: &mut AnyConnection) -> Result<i64, MigrateError> {
    if !exists(connection, "_sqlx_migrations").await? {
        return Ok(0);
    }
    let found = sqlx::query_scalar("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations");
    let found: i64 = found.fetch_one(&mut *connection).await?;
    if found > LATEST {
        let oldest = sqlx::query_scalar("SELECT version FROM shared_versions WHERE subject = 'oldest_schema'");
        let oldest: Option<i64> = oldest.fetch_optional(connection).await?;
        if oldest.is_none_or(|oldest| oldest > LATEST) {
            return Err(MigrateError::VersionMissing(found));
        }
    }
    Ok(found)
}

async fn has_live_replicas(connection: &mut AnyConnection) -> sqlx::Result<bool> {
    if !exists(connection, "replicas").await? {
        return Ok(false);
    }
    let sql = format!("SELECT COUNT(*) FROM replicas WHERE heartbeat > {} - $1", Engine::PostgreSql.now_expression());
    let lost_after = i64::try_from(LOST_AFTER.as_micros()).unwrap_or(i64::MAX);
    let live: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).bind(lost_after).fetch_one(connection).await?;
    Ok(live > 0)
}

async fn exists(connection: &mut AnyConnection, table: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table).fetch_one(connection).await
}

async fn copy_table(table: &str, from: &mut AnyConnection, to: &AnyPool) -> sqlx::Result<()> {
    let known: Vec<String> =
        sqlx::query_scalar("SELECT name FROM pragma_table_info($1)").bind(table).fetch_all(to).await?;
    let rows = sqlx::query(AssertSqlSafe(format!("SELECT * FROM {table}"))).fetch_all(from).await?;
    for row in &rows {
        insert(table, &known, row, to).await?;
    }
    Ok(())
}

/// All columns are TEXT or BIGINT.
async fn insert(table: &str, known: &[String], row: &AnyRow, to: &AnyPool) -> sqlx::Result<()> {
    let columns = row.columns().iter().filter(|column| known.iter().any(|name| name == column.name()));
    let columns: Vec<_> = columns.collect();
    let names: Vec<_> = columns.iter().map(|column| column.name()).collect();
    let values: Vec<_> = (1..=names.len()).map(|number| format!("${number}")).collect();
    let sql = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
    let mut statement = sqlx::query(AssertSqlSafe(sql));
    for column in columns {
        let index = column.ordinal();
        statement = match row.try_get::<Option<i64>, _>(index) {
            Ok(number) => statement.bind(number),
            Err(_) => statement.bind(row.try_get::<Option<String>, _>(index)?),
        };
    }
    statement.execute(to).await.map(drop)
}
