//! The store in a PostgreSQL database, which outlives state directories. `scripts/with-postgresql` starts the server and sets
//! `TEST_DATABASE_URL`.

use std::process::Command;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{AnyPool, AssertSqlSafe};
use tempfile::TempDir;
use url::Url;

use crate::app::{TestApp, answer, code, degraded};

/// A database for one test: a schema of the server's.
pub(crate) struct TestDatabase {
    url: Url,
    schema: String,
    connections: AnyPool,
}

impl TestDatabase {
    /// As the program connects to it.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) async fn new() -> Self {
        let mut url: Url = std::env::var("TEST_DATABASE_URL").unwrap().parse().unwrap();
        sqlx::any::install_default_drivers();
        let connections = AnyPool::connect(url.as_str()).await.unwrap();
        let schema = format!("test_{}", uuid::Uuid::new_v4().simple());
        let database = Self { url: url.clone(), schema: schema.clone(), connections };
        database.run(&format!("CREATE SCHEMA {schema}")).await;
        url.query_pairs_mut().append_pair("options[search_path]", &schema);
        Self { url, ..database }
    }

    async fn run(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.connections).await.unwrap();
    }

    /// As if a replica had not been heard of for so long.
    pub(crate) async fn silence(&self, replica: &str, duration: Duration) {
        let (schema, micros) = (&self.schema, duration.as_micros());
        self.run(&format!("UPDATE {schema}.replicas SET heartbeat = heartbeat - {micros} WHERE id = '{replica}'"))
            .await;
    }

    /// As if the database had been away for so long: no replica was heard of.
    pub(crate) async fn silence_all(&self, duration: Duration) {
        let (schema, micros) = (&self.schema, duration.as_micros());
        self.run(&format!("UPDATE {schema}.replicas SET heartbeat = heartbeat - {micros}")).await;
    }

    /// Makes every statement of a gateway fail: tables that are away are what a lost database is to a statement.
    pub(crate) async fn take_away(&self) {
        self.run(&format!("ALTER SCHEMA {0} RENAME TO {0}_away", self.schema)).await;
    }

    pub(crate) async fn bring_back(&self) {
        self.run(&format!("ALTER SCHEMA {0}_away RENAME TO {0}", self.schema)).await;
    }

    pub(crate) fn settings(&self, more: &str) -> String {
        format!("store: {{url: '{}'}}\n{more}", self.url)
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_spending_and_replies_survive_the_state_directory() {
    let database = TestDatabase::new().await;
    let yaml = database.settings("budget: {max_cost_per_caller_per_day: '0.25'}");
    let app = TestApp::with(&yaml).await;
    let once = |app: &TestApp| {
        app.post("/tools/paid/execute").header("idempotency-key", "once").json(&json!({"arguments": {}}))
    };
    let first = once(&app).send().await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let first: Value = first.json().await.unwrap();
    assert_eq!(app.call("paid", json!({})).await.0, StatusCode::OK);
    app.stop().await;
    let again = TestApp::with(&yaml).await;
    let (status, reply) = again.call("paid", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::PAYMENT_REQUIRED, "budget_exceeded"), "{reply}");
    let replayed = once(&again).send().await.unwrap();
    assert!(replayed.headers().contains_key("idempotency-replayed"));
    assert_eq!(replayed.json::<Value>().await.unwrap(), first);
    let file = again.directory.path().join("state/sekisho.db");
    assert!(!file.exists(), "nothing is kept in {}", file.display());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_call_with_a_key_runs_once_at_two_gateways() {
    let database = TestDatabase::new().await;
    let (one, other) = (TestApp::with(&database.settings("")).await, TestApp::with(&database.settings("")).await);
    let (tool, body) = ("/tools/paid/execute", json!({"arguments": {}}));
    let (status, reply) = answer(one.post(tool).header("idempotency-key", "k").json(&body)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let replayed = other.post(tool).header("idempotency-key", "k").json(&body).send().await.unwrap();
    assert!(replayed.headers().contains_key("idempotency-replayed"));
    assert_eq!(replayed.json::<Value>().await.unwrap(), reply);
}

/// The server of the other tests stays.
#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_calls_go_on_while_the_database_fails_and_nothing_spent_is_lost() {
    let database = TestDatabase::new().await;
    let yaml = database.settings("budget: {max_cost_per_caller_per_day: '0.25'}");
    let app = TestApp::with(&yaml).await;
    assert_eq!(degraded(&app).await, Value::Null);
    database.take_away().await;
    for _ in 0..2 {
        assert_eq!(app.call("paid", json!({})).await.0, StatusCode::OK);
    }
    until(&app, |degraded| degraded["store"].is_string()).await;
    let (status, reply) =
        answer(app.post("/tools/paid/execute").header("idempotency-key", "k").json(&json!({"arguments": {}}))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "a call whose key cannot be stored does not run: {reply}");
    database.bring_back().await;
    until(&app, |degraded| degraded["store"].is_null()).await;
    app.stop().await;
    let again = TestApp::with(&yaml).await;
    assert_eq!(again.call("paid", json!({})).await.0, StatusCode::PAYMENT_REQUIRED);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_commands_read_the_database_and_write_nothing() {
    let database = TestDatabase::new().await;
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("sekisho.yaml"), database.settings("state_directory: state\n")).unwrap();
    for arguments in [&["check"][..], &["explain", "calculator", r#"{"expression":"1+1"}"#], &["tools"]] {
        let run = command(&directory, arguments);
        assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
    let tables = format!("SELECT COUNT(*) FROM pg_tables WHERE schemaname = '{}'", database.schema);
    let tables: i64 = sqlx::query_scalar(AssertSqlSafe(tables)).fetch_one(&database.connections).await.unwrap();
    assert_eq!(tables, 0);
}

/// No server is needed for this one: port 1 of this machine has none.
#[test]
fn a_gateway_does_not_start_without_its_database_and_names_it_without_the_password() {
    let directory = TempDir::new().unwrap();
    let yaml = "state_directory: state\nstore: {url: 'postgres://ann:s3cret@127.0.0.1:1/sekisho'}\n";
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    for arguments in [&["serve"][..], &["check"]] {
        let run = command(&directory, arguments);
        let output = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
        assert!(!run.status.success(), "{arguments:?}");
        assert!(output.contains("postgres://ann@127.0.0.1:1/sekisho cannot be reached"), "{arguments:?}: {output}");
        assert!(!output.contains("s3cret"), "{arguments:?}: {output}");
    }
}

fn command(directory: &TempDir, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sekisho"));
    command.args(arguments).args(["--config", "sekisho.yaml"]).current_dir(directory.path()).output().unwrap()
}

/// Waits until what is degraded is so.
async fn until(app: &TestApp, is_so: impl Fn(&Value) -> bool) {
    let mut found = Value::Null;
    for _ in 0..200 {
        found = degraded(app).await;
        if is_so(&found) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{found}");
}
