//! Stores for tests.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use sqlx::{AnyPool, AssertSqlSafe};
use uuid::Uuid;

use super::{
    Conversation, ConversationStatus, DailyUsage, PermitStore, ReplicaIdentity, Store, StoreError, StoreLocation,
    StoredCharge, UsageStore, UserTokenStore, sqlite,
};
use crate::replica::LOST_AFTER;
use sekisho_config::Secret;
use sekisho_core::database_clock::{DatabaseClock, DatabaseTime};

/// The URL of a PostgreSQL database for tests: where it is set, the tests run on that engine.
const DATABASE: &str = "TEST_DATABASE_URL";

/// The file that gets the name of each test with a store, where it is set: `scripts/test-stores` runs those, and no others, again on
/// PostgreSQL.
const LIST: &str = "STORE_TESTS";

/// An empty store: in memory, or a new schema of the database of `TEST_DATABASE_URL`.
pub async fn test_store() -> Store {
    match database_of_tests().await {
        Some(location) => Store::open(&location).await.unwrap(),
        None => Store::in_memory().await.unwrap(),
    }
}

/// A new schema of the database of `TEST_DATABASE_URL`.
pub async fn database_of_tests() -> Option<StoreLocation> {
    list_this_test();
    let url = std::env::var(DATABASE).ok()?;
    sqlx::any::install_default_drivers();
    let pool = AnyPool::connect(&url).await.unwrap();
    let schema = format!("test_{}", Uuid::new_v4().simple());
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&pool).await.unwrap();
    pool.close().await;
    let mut url: url::Url = url.parse().unwrap();
    url.query_pairs_mut().append_pair("options[search_path]", &schema);
    Some(StoreLocation::PostgreSql(Secret::new(url.as_str())))
}

/// Adds the name of the test to the list. The thread of a test has its name.
fn list_this_test() {
    let Some(file) = std::env::var_os(LIST) else { return };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    assert!(name.contains("::"), "a test opens its store on its own thread, which has its name, and not on {name:?}");
    let mut list = OpenOptions::new().create(true).append(true).open(file).unwrap();
    // At once: other tests write to it, too.
    list.write_all(format!("{name}\n").as_bytes()).unwrap();
}

impl UsageStore {
    /// Adds to the stored usage.
    pub async fn add(&self, usage: &[DailyUsage]) -> Result<Vec<DailyUsage>, StoreError> {
        let (id, usage) = (Uuid::new_v4().to_string().into(), usage.to_vec());
        let charge = StoredCharge { id, is_reserved: false, usage, models: Vec::new() };
        self.0.charges().add(&[charge], &[]).await
    }
}

/// The same store, with another clock.
pub fn with_clock(store: &Store, clock: &Arc<DatabaseClock>) -> Store {
    Store { clock: Arc::clone(clock), ..store.clone() }
}

impl PermitStore {
    /// As if all permits had been taken long ago.
    pub async fn set_taken_long_ago(&self) {
        sqlx::query("UPDATE tool_permits SET taken = 0").execute(&self.0.pool).await.unwrap();
    }
}

impl Store {
    /// Changes rows as a person with access to the database could.
    pub async fn change_rows(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.pool).await.unwrap();
    }
}

/// A heartbeat of a replica with this id.
pub async fn beat(store: &Store, id: &str) {
    let (host, version, configuration, policies, degraded) = ("h", "1", "c", "p", "[]");
    let replica = ReplicaIdentity { id, host, version, configuration, policies, address: None, degraded };
    store.replicas().beat(replica, LOST_AFTER).await.unwrap();
}

/// As if the database had been away for so long: no replica had a heartbeat, or renewed a lease. Leases lose `LOST_AFTER` at most, so
/// that they have not ended.
pub async fn silence_replicas(store: &Store, by: std::time::Duration) {
    let aged = sqlx::query("UPDATE work SET held_until = held_until - $1");
    aged.bind(i64::try_from(by.min(LOST_AFTER).as_micros()).unwrap()).execute(&store.pool).await.unwrap();
    let silenced = sqlx::query("UPDATE replicas SET heartbeat = heartbeat - $1, live_since = live_since - $1");
    silenced.bind(i64::try_from(by.as_micros()).unwrap()).execute(&store.pool).await.unwrap();
}

/// As if a replica had been there for so much longer.
pub async fn age_replica(store: &Store, id: &str, by: std::time::Duration) {
    let aged = sqlx::query("UPDATE replicas SET live_since = live_since - $1 WHERE id = $2");
    aged.bind(i64::try_from(by.as_micros()).unwrap()).bind(id).execute(&store.pool).await.unwrap();
}

/// Makes the file of a SQLite store unable to grow.
pub async fn fill_the_disk(store: &Store) {
    bound_the_file(store, "PRAGMA max_page_count = 1").await;
}

pub async fn free_disk(store: &Store) {
    bound_the_file(store, "PRAGMA max_page_count = 1000000").await;
}

/// The bound is one of each connection: all are held at once.
async fn bound_the_file(store: &Store, bound: &'static str) {
    let mut every_one = Vec::new();
    for _ in 0..sqlite::CONNECTIONS {
        every_one.push(store.pool.acquire().await.unwrap());
    }
    for mut connection in every_one {
        sqlx::raw_sql(bound).execute(&mut *connection).await.unwrap();
    }
    sqlx::raw_sql(bound).execute(&store.durable).await.unwrap();
}

/// As if an approval had been asked and decided so much earlier.
pub async fn age_approval(store: &Store, id: &str, by: std::time::Duration) {
    let micros = by.as_micros();
    let sql =
        format!("UPDATE approvals SET created = created - {micros}, expires = expires - {micros} WHERE id = '{id}'");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&store.pool).await.unwrap();
}

/// A conversation without runs.
pub fn conversation(id: &str, caller_key: &str) -> Conversation {
    conversation_created(id, caller_key, 1)
}

/// A conversation without runs that was created so many microseconds after 1970.
pub fn conversation_created(id: &str, caller_key: &str, created: i64) -> Conversation {
    let moment = DatabaseTime::from(Timestamp::from_microsecond(created).unwrap());
    Conversation {
        id: id.into(),
        caller_key: caller_key.into(),
        title: None,
        status: ConversationStatus::Active,
        agent: "default".into(),
        session_id: None,
        workspace: false,
        labels: BTreeMap::from([("team".to_owned(), "\"a\"".to_owned())]),
        created: moment,
        changed: moment,
        branch: None,
    }
}

/// As if the call that has a workspace had been silent for too long.
pub async fn expire_workspace(store: &Store, name: &str) {
    for sql in ["UPDATE workspaces SET held_until = 0 WHERE name = $1", "UPDATE work SET held_until = 0 WHERE id = $1"]
    {
        sqlx::query(sql).bind(name).execute(&store.pool).await.unwrap();
    }
}

/// As if no holder of a workspace, a conversation, a plan or a run of a program had renewed its lease for too long.
pub async fn end_leases(store: &Store) {
    for table in ["work", "workspaces", "conversations"] {
        store.change_rows(&format!("UPDATE {table} SET held_until = 0")).await;
    }
    store.change_rows("UPDATE plans SET seen = 0").await;
}

/// As if a caller's sign-in had been offered so much earlier.
pub async fn age_sign_in(store: &Store, id: &str, by: std::time::Duration) {
    let aged = sqlx::query("UPDATE user_sign_ins SET expires = expires - $1 WHERE id = $2");
    let micros = i64::try_from(by.as_micros()).unwrap();
    aged.bind(micros).bind(id).execute(&store.pool).await.unwrap();
}

/// As if all runs of programs had been written so much earlier.
pub async fn age_program_runs(store: &Store, by: std::time::Duration) {
    let aged = sqlx::query("UPDATE program_runs SET created = created - $1, expires = expires - $1");
    let micros = i64::try_from(by.as_micros()).unwrap();
    aged.bind(micros).execute(&store.pool).await.unwrap();
}

/// As if all sessions of interpreters had begun and been used so much earlier.
pub async fn age_sessions(store: &Store, by: std::time::Duration) {
    let aged = sqlx::query(
        "UPDATE interpreter_sessions
         SET began = began - $1, used = used - $1, ends = ends - $1, expires = expires - $1",
    );
    let micros = i64::try_from(by.as_micros()).unwrap();
    aged.bind(micros).execute(&store.pool).await.unwrap();
}

/// As if all results had been stored so much earlier.
pub async fn age_results(store: &Store, by: std::time::Duration) {
    let aged = sqlx::query("UPDATE results SET created = created - $1, expires = expires - $1");
    let micros = i64::try_from(by.as_micros()).unwrap();
    aged.bind(micros).execute(&store.pool).await.unwrap();
}

/// As if all tokens of callers had been changed and used so much earlier.
pub async fn age_user_tokens(store: &UserTokenStore, by: std::time::Duration) {
    let aged = sqlx::query("UPDATE user_tokens SET changed = changed - $1, used = used - $1");
    let micros = i64::try_from(by.as_micros()).unwrap();
    aged.bind(micros).execute(&store.0.pool).await.unwrap();
}
