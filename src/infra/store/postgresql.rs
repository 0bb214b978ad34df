//! The database of the other engine: how it is connected to, and how commands that only read look at it.

use std::time::Duration;

use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::{AnyPool, AssertSqlSafe, Column, Row as _};

use super::StoreError;
use super::migrations::LATEST;

/// Of one gateway. Calls use few: what is written at every call is collected first.
const CONNECTIONS: u32 = 8;

/// How long a statement waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What commands read that only look: registrations, replicas, and what was spent.
const COPIED: [&str; 4] = ["daily_usage", "openapi_collections", "mcp_servers", "replicas"];

pub(super) async fn connect(url: &str) -> sqlx::Result<AnyPool> {
    AnyPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(CONNECT_TIMEOUT).connect(url).await
}

/// Copies what commands read into the tables of another store. A database of an older version, or an empty one, has no
/// table or column that this needs and the other store does not know.
///
/// # Errors
/// [`StoreError::Newer`], and when the database cannot be read.
pub(super) async fn copy(url: &str, place: &str, to: &AnyPool) -> Result<(), StoreError> {
    let failed = |error| StoreError::new(super::Engine::PostgreSql, place, error);
    let from = connect(url).await.map_err(failed)?;
    let found = version(&from).await.map_err(failed)?;
    if found > LATEST {
        return Err(StoreError::Newer { place: place.to_owned(), found, known: LATEST });
    }
    for table in COPIED {
        if exists(&from, table).await.map_err(failed)? {
            copy_table(table, &from, to).await.map_err(failed)?;
        }
    }
    from.close().await;
    Ok(())
}

/// Zero where no gateway wrote yet.
async fn version(pool: &AnyPool) -> sqlx::Result<i64> {
    if !exists(pool, "_sqlx_migrations").await? {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations").fetch_one(pool).await
}

async fn exists(pool: &AnyPool, table: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table).fetch_one(pool).await
}

async fn copy_table(table: &str, from: &AnyPool, to: &AnyPool) -> sqlx::Result<()> {
    let rows = sqlx::query(AssertSqlSafe(format!("SELECT * FROM {table}"))).fetch_all(from).await?;
    for row in &rows {
        insert(table, row, to).await?;
    }
    Ok(())
}

/// All columns are TEXT or BIGINT.
async fn insert(table: &str, row: &AnyRow, to: &AnyPool) -> sqlx::Result<()> {
    let names: Vec<_> = row.columns().iter().map(Column::name).collect();
    let values: Vec<_> = (1..=names.len()).map(|number| format!("${number}")).collect();
    let sql = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
    let mut statement = sqlx::query(AssertSqlSafe(sql));
    for index in 0..names.len() {
        statement = match row.try_get::<Option<i64>, _>(index) {
            Ok(number) => statement.bind(number),
            Err(_) => statement.bind(row.try_get::<Option<String>, _>(index)?),
        };
    }
    statement.execute(to).await.map(drop)
}
