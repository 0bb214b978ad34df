//! The versions of the schema: one file each, in one SQL that both engines take. A released file is never changed.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AnyPool, AssertSqlSafe, SqlSafeStr as _};

use super::Engine;

/// In order; the first one is version 1.
const FILES: [(&str, &str); 20] = [
    ("daily usage", include_str!("migrations/0001_daily_usage.sql")),
    ("thread summaries", include_str!("migrations/0002_thread_summaries.sql")),
    ("OpenAPI collections", include_str!("migrations/0003_openapi_collections.sql")),
    ("MCP servers", include_str!("migrations/0004_mcp_servers.sql")),
    ("agent runs", include_str!("migrations/0005_agent_runs.sql")),
    ("idempotency records", include_str!("migrations/0006_idempotency_records.sql")),
    ("conversations", include_str!("migrations/0007_conversations.sql")),
    ("resources", include_str!("migrations/0008_resources.sql")),
    ("plans", include_str!("migrations/0009_plans.sql")),
    ("session summaries", include_str!("migrations/0010_session_summaries.sql")),
    ("cached tokens of runs", include_str!("migrations/0011_cached_tokens_of_runs.sql")),
    ("paused runs", include_str!("migrations/0012_paused_runs.sql")),
    ("replicas", include_str!("migrations/0013_replicas.sql")),
    ("leases", include_str!("migrations/0014_leases.sql")),
    ("idempotent runners", include_str!("migrations/0015_idempotent_runners.sql")),
    ("registrations version", include_str!("migrations/0016_registrations_version.sql")),
    ("charges", include_str!("migrations/0017_charges.sql")),
    ("plan vectors", include_str!("migrations/0018_plan_vectors.sql")),
    ("replica address", include_str!("migrations/0019_replica_address.sql")),
    ("releases and permits", include_str!("migrations/0020_releases_and_permits.sql")),
];

/// The version that this program knows.
pub(super) const LATEST: i64 = FILES.len() as i64;

/// Brings the tables to [`LATEST`], all or nothing.
///
/// `PRAGMA user_version` of a SQLite file has the version too. It was the only record of it in files written before the
/// table `_sqlx_migrations` existed, and programs of that time refuse a file by it.
///
/// # Errors
/// [`MigrateError::VersionMissing`] with the version of tables that a newer program wrote.
pub(super) async fn apply(pool: &AnyPool, engine: Engine) -> Result<(), MigrateError> {
    let migrator = migrator();
    let mut transaction = pool.begin_with(engine.begin_statement()).await?;
    if engine == Engine::Sqlite {
        let found = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
        if found > LATEST {
            return Err(MigrateError::VersionMissing(found));
        }
        migrator.skip(&mut *transaction, Some(found)).await?;
    }
    migrator.run(&mut *transaction).await?;
    if engine == Engine::Sqlite {
        let version = AssertSqlSafe(format!("PRAGMA user_version = {LATEST}"));
        sqlx::raw_sql(version).execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}

fn migrator() -> Migrator {
    let migrations = (1..).zip(FILES).map(|(version, (description, sql))| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // Advisory locks are PostgreSQL's own. The transaction around all makes the later of two programs start again.
    migrator.set_locking(false);
    migrator
}
