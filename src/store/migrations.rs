//! The versions of the schema: one file each, in one SQL that both engines take. A released file is never changed.
//!
//! Replicas of two neighbouring versions use one database during an upgrade, so a change has two steps. The first
//! version only adds the parts that the next one needs (expand); parts that no program uses any more are removed a
//! version later (contract).

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AnyPool, AssertSqlSafe, SqlSafeStr as _};

use super::{Engine, postgresql};

/// In order; the first one is version 1.
const FILES: &[(&str, &str)] = &[
    ("daily usage", include_str!("migrations/0001_daily_usage.sql")),
    ("thread summaries", include_str!("migrations/0002_thread_summaries.sql")),
    ("OpenAPI collections", include_str!("migrations/0003_openapi_collections.sql")),
    ("MCP servers", include_str!("migrations/0004_mcp_servers.sql")),
    // No program of this version reads or writes it: a file of the next one removes it.
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
    ("blobs", include_str!("migrations/0021_blobs.sql")),
    ("keys and limits", include_str!("migrations/0022_keys_and_limits.sql")),
    ("approvals", include_str!("migrations/0023_approvals.sql")),
    ("user tokens", include_str!("migrations/0024_user_tokens.sql")),
    ("results", include_str!("migrations/0025_results.sql")),
    ("results tool", include_str!("migrations/0026_results_tool.sql")),
    ("user tokens used", include_str!("migrations/0027_user_tokens_used.sql")),
    ("program runs", include_str!("migrations/0028_program_runs.sql")),
    ("interpreter sessions", include_str!("migrations/0029_interpreter_sessions.sql")),
    ("creators of keys", include_str!("migrations/0030_creators_of_keys.sql")),
    ("tenant resources", include_str!("migrations/0031_tenant_resources.sql")),
    ("work", include_str!("migrations/0032_work.sql")),
    ("flow of values", include_str!("migrations/0033_flow_destinations.sql")),
    ("approval groups", include_str!("migrations/0034_approval_groups.sql")),
    ("values of sessions", include_str!("migrations/0035_flow_values.sql")),
    ("session prefixes", include_str!("migrations/0036_session_prefixes.sql")),
    ("usage of models", include_str!("migrations/0037_model_usage.sql")),
    ("effects", include_str!("migrations/0038_effects.sql")),
    ("recorded runs", include_str!("migrations/0039_recorded_runs.sql")),
    ("background runs", include_str!("migrations/0040_background_runs.sql")),
    ("branches", include_str!("migrations/0041_branches.sql")),
    ("index of calls", include_str!("migrations/0042_index_of_calls.sql")),
    ("stored credentials", include_str!("migrations/0043_stored_credentials.sql")),
    ("authorization server", include_str!("migrations/0044_broker.sql")),
    ("source requests", include_str!("migrations/0045_source_requests.sql")),
    ("sums of calls", include_str!("migrations/0046_call_sums.sql")),
    ("runs of indexed calls", include_str!("migrations/0047_runs_of_indexed_calls.sql")),
    ("contents of calls", include_str!("migrations/0048_contents_of_calls.sql")),
    ("configuration changes", include_str!("migrations/0049_configuration_changes.sql")),
];

/// The version that this program knows.
pub(super) const LATEST: i64 = FILES.len() as i64;

/// The oldest version whose programs work with the tables of [`LATEST`]: at most the version of the release before. A
/// database says it to those programs. Programs of this version and later ones do not use any part that a later file
/// removes or changes.
pub(super) const OLDEST: i64 = 18;

/// Brings the tables to [`LATEST`], all or nothing. A database of a newer version stays as it is if it says that this
/// program can use it.
///
/// `PRAGMA user_version` of a SQLite file has the version too. It was the only record of it in files written before the
/// table `_sqlx_migrations` existed, and programs of that time refuse a file by it.
/// Errors: [`MigrateError::VersionMissing`] with the version of tables that a newer program wrote;
/// [`MigrateError::VersionTooOld`] with the version of tables, if replicas use them that could not go on.
pub(super) async fn apply(pool: &AnyPool, engine: Engine) -> Result<(), MigrateError> {
    let mut migrator = migrator();
    let mut transaction = pool.begin_with(engine.begin_statement()).await?;
    match engine {
        Engine::Sqlite => {
            let found = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
            if found > LATEST {
                return Err(MigrateError::VersionMissing(found));
            }
            migrator.skip(&mut *transaction, Some(found)).await?;
            migrator.run(&mut *transaction).await?;
            let version = AssertSqlSafe(format!("PRAGMA user_version = {LATEST}"));
            sqlx::raw_sql(version).execute(&mut *transaction).await?;
        }
        Engine::PostgreSql => {
            let is_newer = postgresql::is_newer_and_usable(&mut transaction).await?;
            migrator.set_ignore_missing(is_newer);
            migrator.run(&mut *transaction).await?;
            if !is_newer {
                postgresql::record_oldest(&mut transaction).await?;
            }
        }
    }
    Ok(transaction.commit().await?)
}

pub(super) fn migrator() -> Migrator {
    let migrations = (1..).zip(FILES.iter().copied()).map(|(version, (description, sql))| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // Advisory locks are PostgreSQL's own. The transaction around all makes the later of two programs start again.
    migrator.set_locking(false);
    migrator
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that remove or change something, as programs from [`OLDEST`] on allow.
    const CONTRACTS: [i64; 0] = [];

    fn statements(sql: &str) -> Vec<String> {
        let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
        let text = lines.collect::<Vec<_>>().join(" ").to_uppercase();
        let words = text.split(';').map(|statement| statement.split_whitespace().collect::<Vec<_>>().join(" "));
        words.filter(|statement| !statement.is_empty()).collect()
    }

    /// Whether programs that do not know of a statement work on.
    fn only_adds(statement: &str) -> bool {
        let adds_column = statement.starts_with("ALTER TABLE ")
            && statement.contains(" ADD COLUMN ")
            && !statement.contains(" UNIQUE")
            && (!statement.contains(" NOT NULL") || statement.contains(" DEFAULT "));
        adds_column || statement.starts_with("CREATE TABLE ") || statement.starts_with("CREATE INDEX ")
    }

    #[test]
    fn files_that_older_programs_do_not_know_only_add() {
        const { assert!(OLDEST <= LATEST) };
        let later = (1..).zip(FILES).filter(|(version, _)| *version > OLDEST && !CONTRACTS.contains(version));
        for (version, (description, sql)) in later {
            for statement in statements(sql) {
                let remedy = "remove it a release later, when OLDEST is a version whose programs do not use it";
                assert!(only_adds(&statement), "{version} ({description}): {statement}: {remedy}");
            }
        }
    }

    #[test]
    fn statements_that_older_programs_cannot_live_with_are_found() {
        let sql = "-- Why; and how.\nCREATE TABLE a (b TEXT); -- of it\nALTER TABLE a ADD COLUMN c BIGINT NOT NULL\n  DEFAULT 0;";
        assert_eq!(statements(sql).iter().map(|one| only_adds(one)).collect::<Vec<_>>(), [true, true]);
        for sql in [
            "ALTER TABLE a ADD COLUMN c BIGINT NOT NULL",
            "ALTER TABLE a ADD COLUMN c BIGINT UNIQUE",
            "ALTER TABLE a RENAME COLUMN b TO c",
            "CREATE UNIQUE INDEX a_by_b ON a (b)",
            "DROP TABLE a",
            "UPDATE a SET b = 'c'",
        ] {
            assert!(!only_adds(sql), "{sql}");
        }
    }
}
