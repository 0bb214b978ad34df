//! A store that a program of the version before has written, and still uses.

use super::*;

/// The last version of the schema without the table `work`.
const VERSION_BEFORE: i64 = 31;

const ANN: &str = "acme\u{1f}ann";

/// Rows as that version has them: a workspace and a conversation that nobody has, and one of each that a replica has; a plan, and a
/// run of a program.
fn rows(engine: Engine) -> String {
    let now = engine.now_expression();
    format!(
        "INSERT INTO workspaces VALUES ('free', 'v', '{{\"a\":1}}', NULL, 3, 0, {now}),
                                       ('held', 'v', '{{\"b\":2}}', 'before', 1, {now} + 60000000, {now});
         INSERT INTO conversations VALUES ('free', '{ANN}', NULL, 'active', 'a', NULL, 0, '{{}}', 1, 1, NULL, 3, 0, -1),
                                          ('held', '{ANN}', NULL, 'active', 'a', NULL, 0, '{{}}', 1, 1, 'before', 1, {now} + 60000000, -1);
         INSERT INTO plans VALUES ('p', '{ANN}', 'a', '', 'paused', '', 'process', 1, '2026-11-25T00:00:00.000000Z',
                                   '2026-11-25T00:00:00.000000Z', '{{}}');
         INSERT INTO program_runs (id, tenant, caller_key, endpoint, arguments, state, runner, fence, created, expires)
         VALUES ('r', 'acme', '{ANN}', 'all', 'digest', 'stopped', 'process', 1, {now}, {now} + 3600000000);
         INSERT INTO program_run_parts VALUES ('r', 0, 'sealed')"
    )
}

/// In a file, or in the database of the tests.
async fn store_of_version_before(folder: &Path) -> StoreLocation {
    sqlx::any::install_default_drivers();
    let location = database_of_tests().await.unwrap_or_else(|| StoreLocation::File(folder.join("sekisho.db")));
    let (engine, pool) = match &location {
        StoreLocation::File(path) => (Engine::Sqlite, sqlite::connect(path).await.unwrap()),
        StoreLocation::PostgreSql(url) => (Engine::PostgreSql, postgresql::connect(url.expose()).await.unwrap()),
    };
    migrations::migrator().run_to(VERSION_BEFORE, &pool).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(rows(engine))).execute(&pool).await.unwrap();
    if engine == Engine::Sqlite {
        let version = format!("PRAGMA user_version = {VERSION_BEFORE}");
        sqlx::raw_sql(AssertSqlSafe(version)).execute(&pool).await.unwrap();
    }
    pool.close().await;
    location
}

#[tokio::test]
async fn a_store_of_the_version_before_opens_with_its_workspaces_and_conversations_and_their_holders() {
    let folder = tempfile::tempdir().unwrap();
    let location = store_of_version_before(folder.path()).await;
    for _ in 0..2 {
        let store = Store::open(&location).await.unwrap();
        for (name, files) in [("free", "{\"a\":1}"), ("held", "{\"b\":2}")] {
            assert_eq!(store.workspaces().files(name).await.unwrap().as_deref(), Some(files));
        }
        assert_eq!(store.workspaces().lock("held", "one").await.unwrap(), None, "the version before has it");
        let lock = store.workspaces().lock("free", "one").await.unwrap().unwrap();
        assert_eq!((lock.version.as_str(), lock.files.as_str()), ("v", "{\"a\":1}"));
        store.workspaces().unlock(&lock).await.unwrap();
        assert_eq!(store.conversations().lock("held", None).await.unwrap(), None, "the version before runs it");
        let lock = store.conversations().lock("free", None).await.unwrap().unwrap();
        store.conversations().unlock(&lock).await.unwrap();
        assert_eq!(store.plans().get(ANN, "p").await.unwrap().unwrap().status, "paused");
        assert_eq!(store.program_runs().parts("r").await.unwrap(), [(0, "sealed".to_owned())]);
        store.close().await;
    }
}
