//! `kill -9` of the real program at every step of a run, at every node of a plan, and between a call's intent and its outcome,
//! on both engines. Whatever the point: the conversation is free again in time, its rows and charges are those of a whole
//! transaction, and no answered call is lost or sent again.

mod background;
mod plans;
mod runs;

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::{post, put};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use reqwest::{Client, Method, StatusCode};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use sqlx::{AnyPool, AssertSqlSafe};
use tempfile::TempDir;

use crate::app::answer;
use crate::charges::{LOOPBACK, served};
use crate::cli::{Serving, sekisho};
use crate::slack::slack;
use crate::store_database::TestDatabase;

/// Cases that run at once.
const AT_ONCE: usize = 4;

/// Replicas need one, with which the requests of runs in the background are sealed.
const SEALING_KEY: &str = "6b65796b65796b65796b65796b65796b65796b65796b65796b65796b65796b65";

/// How long a killed process may hold what it had: 15 s on PostgreSQL, where other processes may live. The rest is for starts.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// How long an evaluation of the policies may take: its limit is in real time, and several debug builds share the processors here.
/// After the default of 50 ms the payment is refused, and its plan ends without it.
const MAX_POLICY_MS: u64 = 60_000;

/// The price of a payment.
fn price() -> Decimal {
    Decimal::new(1, 2)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Engine {
    Sqlite,
    PostgreSql,
}

/// The program, its state, and a bank whose payments are counted by their `Idempotency-Key`.
struct Bank {
    directory: TempDir,
    database: Option<TestDatabase>,
    keys: Arc<Mutex<Vec<String>>>,
    client: Client,
}

impl Bank {
    async fn new(engine: Engine, script: &str, profile: &str) -> Self {
        let (directory, keys) = (TempDir::new().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let paid = Arc::clone(&keys);
        let take = move |headers: HeaderMap| {
            paid.lock().push(headers["idempotency-key"].to_str().unwrap().to_owned());
            async { "paid" }
        };
        let router = Router::new().route("/pay", post(take.clone())).route("/settle", put(take));
        let text = json!({"200": {"description": "done", "content": {"text/plain": {"schema": {"type": "string"}}}}});
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "Bank", "version": "1"},
            "servers": [{"url": served(router).await}],
            "paths": {
                "/pay": {"post": {"operationId": "pay", "responses": text}},
                "/settle": {"put": {"operationId": "settle", "responses": text}},
            },
        });
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (document, script) = (file("bank.json", &document.to_string()), file("script.yaml", script));
        let database = match engine {
            Engine::Sqlite => None,
            Engine::PostgreSql => Some(TestDatabase::new().await),
        };
        let store = database.as_ref().map(|database| database.settings("")).unwrap_or_default();
        let yaml = format!(
            "{store}outbound: {{{LOOPBACK}}}\n\
             secrets: {{key: {SEALING_KEY}}}\n\
             budget: {{max_cost_per_caller_per_day: '10'}}\n\
             policy: {{timeout_ms: {MAX_POLICY_MS}}}\n\
             openapi: {{collections: {{bank: {{spec_file: '{document}', base_cost_per_use: '{}'}}}}}}\n\
             agent: {{default_profile: teller, profiles: {{teller: {{provider: replay, model: '{script}', \
             price_per_million_prompt_tokens: 100, price_per_million_completion_tokens: 100, {profile}}}}}}}\n",
            price(),
        );
        file("sekisho.yaml", &yaml);
        Self { directory, database, keys, client: Client::builder().no_proxy().build().unwrap() }
    }

    /// Starts the program, which kills itself at this point.
    async fn start(&self, fatal: Option<&str>) -> Serving {
        let mut program = sekisho(&self.directory);
        program.envs(fatal.map(|point| ("SEKISHO_FAILPOINT", point)));
        tokio::task::spawn_blocking(|| Serving::run(program, &["--config", "sekisho.yaml"])).await.unwrap()
    }

    /// Waits until the program was killed.
    async fn killed(mut serving: Serving, point: &str) {
        let begun = Instant::now();
        let status = loop {
            match serving.ended() {
                Some(status) => break status,
                None => assert!(begun.elapsed() < slack(Duration::from_secs(20)), "{point} is not reached"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(status.signal(), Some(9), "{point}");
    }

    async fn send(&self, serving: &Serving, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let request = self.client.request(method.clone(), format!("{}{path}", serving.url));
        answer(if method == Method::GET { request } else { request.json(&body) }).await
    }

    async fn get(&self, serving: &Serving, path: &str) -> Value {
        let (status, body) = self.send(serving, Method::GET, path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    fn payments(&self) -> usize {
        self.keys.lock().len()
    }

    /// The first column of what is stored, while no process of the program may run.
    async fn stored(&self, statement: &str) -> Vec<String> {
        sqlx::any::install_default_drivers();
        let url = match &self.database {
            Some(database) => database.url().to_owned(),
            None => format!("sqlite://{}", self.directory.path().join("state/sekisho.db").display()),
        };
        let pool = AnyPool::connect(&url).await.unwrap();
        let rows = sqlx::query_scalar(AssertSqlSafe(statement.to_owned())).fetch_all(&pool).await.unwrap();
        pool.close().await;
        rows
    }

    async fn sum(&self, statement: &str) -> Decimal {
        self.stored(statement).await.iter().map(|cost| cost.parse::<Decimal>().unwrap()).sum()
    }

    /// What the caller was charged.
    async fn charged(&self) -> Decimal {
        self.sum("SELECT cost_usd FROM daily_usage WHERE scope = 'caller'").await
    }
}

/// Plays each case, some at once, and names those that fail.
async fn play_all<C, F>(cases: impl IntoIterator<Item = C>, play: impl Fn(C) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    stream::iter(cases)
        .map(|case| tokio::spawn(play(case)))
        .buffer_unordered(AT_ONCE)
        .for_each(|played| async {
            played.unwrap();
        })
        .await;
}

/// Runs the conversation as soon as nobody holds it.
async fn next_run(bank: &Bank, serving: &Serving, path: &str) -> Value {
    loop {
        let execute = format!("{path}/execute");
        let (status, reply) = bank.send(serving, Method::POST, &execute, json!({"user_input": "Go on."})).await;
        match status {
            StatusCode::OK => return reply,
            StatusCode::CONFLICT => assert_eq!(reply["error_info"]["code"], "conversation_locked", "{reply}"),
            _ => panic!("{path}: {status} {reply}"),
        }
    }
}
