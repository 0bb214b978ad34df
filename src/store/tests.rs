mod fences;
mod upgrades;

use std::pin::pin;

use std::os::unix::fs::PermissionsExt as _;

use sqlx::ConnectOptions as _;
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::sqlite::BUSY_PAUSE;
use super::test_support::{database_of_tests, test_store};
use super::*;
use sekisho_config::Secret;
use sekisho_core::administration::Ownership;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};

/// A registration of all tenants.
fn shared(name: &str) -> StoredResource {
    StoredResource { name: name.to_owned(), owner: Ownership::Shared, value: "{}".to_owned() }
}

#[tokio::test]
async fn a_file_is_made_with_its_folder_and_opens_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/deeper/sekisho.db");
    Store::open_file(&path).await.unwrap().close().await;
    Store::open_file(&path).await.unwrap().close().await;
}

#[tokio::test]
async fn the_file_and_those_beside_it_are_for_this_user_alone_also_one_of_an_earlier_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sekisho.db");
    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    for _ in 0..2 {
        let store = Store::open_file(&path).await.unwrap();
        for name in ["sekisho.db", "sekisho.db-wal", "sekisho.db-shm"] {
            assert_eq!(mode(name), 0o600, "{name}");
        }
        store.close().await;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
}

#[tokio::test]
async fn two_processes_may_open_a_new_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sekisho.db");
    let opened = futures_util::future::join_all((0..8).map(|_| Store::open_file(&path))).await;
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
    let mut opening = pin!(Store::open_file(&path));
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
        Store::open_copy(&StoreLocation::File(path.clone()))
            .await
            .unwrap()
            .registrations()
            .list(Registrations::McpServers)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(names().is_empty(), "{:?}", names());
    let live = Store::open_file(&path).await.unwrap();
    live.registrations().keep(Registrations::McpServers, &Ownership::Shared, "files", "{}").await.unwrap();
    for is_open in [true, false] {
        let before = (names(), std::fs::read(&path).unwrap());
        let copy = Store::open_copy(&StoreLocation::File(path.clone())).await.unwrap();
        let kept = [shared("files")];
        assert_eq!(copy.registrations().list(Registrations::McpServers).await.unwrap(), kept);
        copy.registrations().keep(Registrations::McpServers, &Ownership::Shared, "more", "{}").await.unwrap();
        copy.close().await;
        assert_eq!((names(), std::fs::read(&path).unwrap()), before, "open: {is_open}");
        if is_open {
            assert_eq!(live.registrations().list(Registrations::McpServers).await.unwrap(), kept);
            live.close().await;
        }
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sekisho.db");
    std::fs::write(&path, "this was never a database, ".repeat(400)).unwrap();
    let error = Store::open_file(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(message.contains("move the file away"), "{message}");
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sekisho.db");
    let store = Store::open_file(&path).await.unwrap();
    sqlx::raw_sql("PRAGMA user_version = 1000").execute(&store.pool).await.unwrap();
    store.close().await;
    let error = Store::open_file(&path).await.unwrap_err();
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
        let store = Store::open_file(&path).await.unwrap();
        let usage = store.usage().of_day("2026-11-20".parse().unwrap()).await.unwrap();
        assert_eq!(usage.iter().map(|usage| (&usage.key, usage.tokens)).collect::<Vec<_>>(), [(&ann, 7)]);
        assert_eq!(store.thread_summaries().get(&ann, "thread").await.unwrap().as_deref(), Some("what was said"));
        for (kind, name) in [(Registrations::Collections, "petstore"), (Registrations::McpServers, "files")] {
            assert_eq!(store.registrations().list(kind).await.unwrap(), [shared(name)]);
        }
        assert!(store.idempotency().by_owner().await.unwrap().is_empty());
        store.close().await;
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("file");
    std::fs::write(&in_the_way, "").unwrap();
    let error = Store::open_file(&in_the_way.join("sekisho.db")).await.unwrap_err();
    assert!(matches!(error, StoreError::Folder { .. }), "{error:?}");
}

/// With a copy there is nothing to lose: its writes stay in it.
#[tokio::test]
async fn a_copy_of_a_database_has_what_commands_read() {
    let Some(database) = database_of_tests().await else { return };
    assert!(
        Store::open_copy(&database)
            .await
            .unwrap()
            .registrations()
            .list(Registrations::McpServers)
            .await
            .unwrap()
            .is_empty()
    );
    let live = Store::open(&database).await.unwrap();
    live.registrations().keep(Registrations::McpServers, &Ownership::Shared, "files", "{}").await.unwrap();
    let day = "2026-11-20".parse().unwrap();
    let spent =
        DailyUsage { day, scope: DailyScope::Tenant, key: "acme".into(), cost_usd: "0.1".parse().unwrap(), tokens: 7 };
    live.usage().add(std::slice::from_ref(&spent)).await.unwrap();
    let copy = Store::open_copy(&database).await.unwrap();
    let kept = [shared("files")];
    assert_eq!(copy.registrations().list(Registrations::McpServers).await.unwrap(), kept);
    assert_eq!(copy.usage().of_day(day).await.unwrap(), [spent]);
    copy.registrations().keep(Registrations::McpServers, &Ownership::Shared, "more", "{}").await.unwrap();
    assert_eq!(live.registrations().list(Registrations::McpServers).await.unwrap(), kept);
}

/// The later one finds the tables of the earlier one.
#[tokio::test]
async fn programs_that_start_at_once_create_the_tables_of_a_database_once() {
    let Some(database) = database_of_tests().await else { return };
    let opened = futures_util::future::join_all((0..8).map(|_| Store::open(&database))).await;
    for store in opened {
        store.unwrap().close().await;
    }
}

/// Adds a version that no program knows.
async fn make_newer(store: &Store) {
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 SELECT 1000, description, success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1";
    sqlx::raw_sql(newer).execute(&store.pool).await.unwrap();
}

async fn set_oldest(store: &Store, oldest: i64) {
    let set = "UPDATE shared_versions SET version = $1 WHERE subject = 'oldest_schema'";
    let changed = sqlx::query(set).bind(oldest).execute(&store.pool).await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let store = test_store().await;
    make_newer(&store).await;
    if store.engine == Engine::PostgreSql {
        set_oldest(&store, migrations::LATEST + 1).await;
    }
    let error = store.migrate().await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 1000, .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_of_the_next_version_is_used_if_it_says_so() {
    let Some(database) = database_of_tests().await else { return };
    let store = Store::open(&database).await.unwrap();
    let expand = "ALTER TABLE mcp_servers ADD COLUMN note TEXT NOT NULL DEFAULT ''; CREATE TABLE added (name TEXT)";
    sqlx::raw_sql(expand).execute(&store.pool).await.unwrap();
    make_newer(&store).await;
    set_oldest(&store, migrations::LATEST).await;
    let second = Store::open(&database).await.unwrap();
    second.registrations().keep(Registrations::McpServers, &Ownership::Shared, "files", "{}").await.unwrap();
    let copy = Store::open_copy(&database).await.unwrap();
    assert_eq!(copy.registrations().list(Registrations::McpServers).await.unwrap().len(), 1);
    set_oldest(&store, migrations::LATEST + 1).await;
    for opened in [Store::open(&database).await, Store::open_copy(&database).await] {
        assert!(matches!(opened, Err(StoreError::Newer { found: 1000, .. })), "{opened:?}");
    }
    sqlx::raw_sql("DELETE FROM shared_versions").execute(&store.pool).await.unwrap();
    let error = Store::open(&database).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "a database that says nothing: {error:?}");
}

#[tokio::test]
async fn tables_are_not_migrated_while_replicas_use_them_that_could_not_go_on() {
    let Some(database) = database_of_tests().await else { return };
    let StoreLocation::PostgreSql(url) = &database else { unreachable!() };
    let pool = postgresql::connect(url.expose()).await.unwrap();
    migrations::migrator().run_to(migrations::OLDEST - 1, &pool).await.unwrap();
    let clock = Arc::new(DatabaseClock::new());
    let store = Store { durable: pool.clone(), pool, engine: Engine::PostgreSql, place: "older".into(), clock };
    // As a replica of that version does.
    let now = store.engine.now_expression();
    let beat = format!("INSERT INTO replicas VALUES ('a', 'host', '0', 'c', 'p', {now}, {now})");
    sqlx::raw_sql(AssertSqlSafe(beat)).execute(&store.pool).await.unwrap();
    let error = Store::open(&database).await.unwrap_err();
    assert!(matches!(error, StoreError::OlderReplicas { .. }), "{error:?}");
    assert!(error.to_string().contains("stop them first"), "{error}");
    store.replicas().remove("a").await.unwrap();
    Store::open(&database).await.unwrap();
}

/// Port 1 of this machine has no server.
#[tokio::test]
async fn a_database_that_cannot_be_reached_is_named_without_its_password() {
    let location = StoreLocation::PostgreSql(Secret::new("postgres://ann:s3cret@127.0.0.1:1/sekisho"));
    for error in [Store::open(&location).await.unwrap_err(), Store::open_copy(&location).await.unwrap_err()] {
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        let message = format!("{error} {error:?}");
        assert!(message.contains("postgres://ann@127.0.0.1:1/sekisho"), "{message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
}

/// Callers learn that they may try again, and nothing of where the store is.
#[tokio::test]
async fn a_store_that_is_away_is_not_an_internal_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sekisho.db");
    let store = Store::open_file(&path).await.unwrap();
    test_support::fill_the_disk(&store).await;
    let full = store
        .registrations()
        .keep(Registrations::McpServers, &Ownership::Shared, "files", &"x".repeat(1 << 20))
        .await
        .unwrap_err();
    store.close().await;
    let closed = store.registrations().list(Registrations::McpServers).await.unwrap_err();
    let nowhere = StoreLocation::PostgreSql(Secret::new("postgres://ann:s3cret@127.0.0.1:1/sekisho"));
    let down = Store::open(&nowhere).await.unwrap_err();
    for error in [full, closed, down] {
        let error = CallError::from(error);
        assert_eq!((error.code(), error.retryable(), error.wait().is_some()), (ErrorCode::Overloaded, true, true));
        assert!(!error.message().contains("sekisho.db") && !error.message().contains("127.0.0.1"), "{error}");
    }
    std::fs::write(&path, "this was never a database, ".repeat(400)).unwrap();
    let damaged = CallError::from(Store::open_file(&path).await.unwrap_err());
    assert_eq!(damaged.code(), ErrorCode::Internal);
}

#[tokio::test]
async fn the_connections_to_a_file_cache_few_pages() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    let mut connections = Vec::new();
    for _ in 0..sqlite::CONNECTIONS {
        connections.push(store.pool.acquire().await.unwrap());
    }
    connections.push(store.durable.acquire().await.unwrap());
    for connection in &mut connections {
        let kibibytes: i64 = sqlx::query_scalar("PRAGMA cache_size").fetch_one(&mut **connection).await.unwrap();
        assert_eq!(kibibytes, -512);
    }
}

/// Otherwise each connection would keep a hundred texts of up to 250 KB.
#[test]
fn each_statement_with_a_variable_number_of_rows_says_whether_it_stays_prepared() {
    assert_eq!([1, 4, 5, MAX_ROWS].map(stays_prepared), [true, true, false, false]);
    let mut statements = 0;
    for entry in std::fs::read_dir(sekisho_core::checkout::checkout().join("src/store")).unwrap() {
        let path = entry.unwrap().path();
        let Some("rs") = path.extension().and_then(std::ffi::OsStr::to_str) else { continue };
        if path.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let count = |word: &str| text.matches(word).count() - text.matches(&format!("fn {word}")).count();
        assert!(count("parameters_of_rows(") <= count("persistent(stays_prepared("), "{}", path.display());
        statements += count("parameters_of_rows(");
    }
    assert!(statements > 5);
}
