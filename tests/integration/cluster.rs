//! Several gateways on one PostgreSQL database, as replicas: real programs, which are also killed.

mod global_limits;
mod keys;
mod limit_rules;
mod outage;
mod release;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, degraded};
use crate::charges::served;
use crate::cli::{Serving, sekisho};
use crate::openapi::{ADMIN, document};
use crate::slack::slack;
use crate::store_database::TestDatabase;

/// A running replica with a state directory of its own.
struct Replica {
    directory: TempDir,
    serving: Option<Serving>,
    client: Client,
}

impl Replica {
    fn start(database: &TestDatabase, more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("sekisho.yaml"), database.settings(&clustered(more))).unwrap();
        let client = Client::builder().no_proxy().build().unwrap();
        let mut replica = Self { directory, serving: None, client };
        replica.restart();
        replica
    }

    fn restart(&mut self) {
        self.serving = Some(Serving::start_with(&self.directory, &["--config", "sekisho.yaml"]));
    }

    /// As by `kill -9`.
    fn kill(&mut self) {
        self.serving = None;
    }

    fn url(&self) -> &str {
        &self.serving.as_ref().unwrap().url
    }

    fn command(&self, arguments: &[&str]) -> Value {
        let run =
            sekisho(&self.directory).args(["--config", "sekisho.yaml", "--json"]).args(arguments).output().unwrap();
        serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{}", crate::cli::text(&run)))
    }

    /// Calls until a call is answered otherwise than with success; how many succeeded, and that answer.
    async fn call_until_refused(&self, at_once: usize) -> (usize, Vec<StatusCode>) {
        let calling = (0..at_once).map(|_| async {
            let mut succeeded = 0;
            loop {
                match call(&self.client, self.url()).await {
                    Some(StatusCode::OK) => succeeded += 1,
                    Some(other) => return (succeeded, other),
                    // Killed meanwhile.
                    None => return (succeeded, StatusCode::BAD_GATEWAY),
                }
            }
        });
        let ended = futures_util::future::join_all(calling).await;
        (ended.iter().map(|(succeeded, _)| succeeded).sum(), ended.into_iter().map(|(_, status)| status).collect())
    }
}

fn clustered(more: &str) -> String {
    format!("cluster: {{enabled: true}}\n{more}\n")
}

async fn call(client: &Client, url: &str) -> Option<StatusCode> {
    let body = json!({"arguments": {"expression": "6*7"}});
    let sent = client.post(format!("{url}/tools/calculator/execute")).json(&body).send().await;
    Some(sent.ok()?.status())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_three_replicas_spend_one_budget_also_when_one_is_killed() {
    let database = TestDatabase::new().await;
    // 300 calls.
    let settings = "budget: {max_cost_per_caller_per_day: '3.00'}\n\
                    tools: {overrides: {calculator: {cost_per_use: '0.01', rate_limit: 1000000}}}";
    let mut replicas: Vec<_> = (0..3).map(|_| Replica::start(&database, settings)).collect();
    let (mut killed, mut others) = (replicas.pop().unwrap(), replicas);
    // Some calls of the one that is killed, in the middle of others.
    let before = async {
        let mut succeeded = 0;
        for _ in 0..20 {
            succeeded += usize::from(call(&killed.client, killed.url()).await == Some(StatusCode::OK));
        }
        succeeded
    };
    let others_before = async {
        let mut succeeded = 0;
        for _ in 0..20 {
            for replica in &others {
                succeeded += usize::from(call(&replica.client, replica.url()).await == Some(StatusCode::OK));
            }
        }
        succeeded
    };
    let (of_killed, of_others) = tokio::join!(before, others_before);
    assert_eq!((of_killed, of_others), (20, 40));
    killed.kill();
    let listed = others[0].command(&["cluster"]);
    let leased: f64 = listed["replicas"].as_array().unwrap().iter().filter_map(|one| one["leased_usd"].as_f64()).sum();
    assert!(leased > 0.0 && leased <= 2.4, "{listed}");
    let calling = others.iter().map(|replica| replica.call_until_refused(8));
    let ended = futures_util::future::join_all(calling).await;
    for (_, statuses) in &ended {
        assert!(statuses.iter().all(|status| *status == StatusCode::PAYMENT_REQUIRED), "{statuses:?}");
    }
    killed.restart();
    let (after, statuses) = killed.call_until_refused(1).await;
    assert_eq!(statuses, [StatusCode::PAYMENT_REQUIRED]);
    let all = of_killed + of_others + after + ended.iter().map(|(succeeded, _)| succeeded).sum::<usize>();
    // What the killed one leased, at most 5 % of 3 USD, and what it had spent and not settled, at most its 20 calls.
    assert!((260..=300).contains(&all), "{all} of 300 calls");
    // Those that stop give back what they did not use.
    others.clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_three_replicas_keep_one_rate() {
    for per_minute in [60_u32, 1_800] {
        let database = TestDatabase::new().await;
        let settings = format!("tools: {{overrides: {{calculator: {{rate_limit: {per_minute}}}}}}}");
        let replicas: Vec<_> = (0..3).map(|_| Replica::start(&database, &settings)).collect();
        let began = Instant::now();
        let calling = replicas.iter().map(|replica| replica.call_until_refused(8));
        let ended = futures_util::future::join_all(calling).await;
        let seconds = began.elapsed().as_secs_f64();
        let all = ended.iter().map(|(succeeded, _)| succeeded).sum::<usize>() as f64;
        for (_, statuses) in &ended {
            assert!(statuses.iter().all(|status| *status == StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
        }
        let (limit, refilled) = (f64::from(per_minute), f64::from(per_minute) / 60.0 * seconds);
        assert!(all >= 0.9 * limit && all <= limit + refilled + 1.0, "{all} calls of {limit} in {seconds} s");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_are_listed_until_they_leave() {
    let database = TestDatabase::new().await;
    let (one, mut other) = (Replica::start(&database, ""), Replica::start(&database, "limits: {max_concurrent: 7}"));
    let ids = |listed: &Value| {
        let replicas = listed["replicas"].as_array().unwrap().iter();
        replicas.map(|replica| replica["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let listed = one.command(&["cluster"]);
    assert_eq!(ids(&listed).len(), 2, "{listed}");
    let (status, ready) = answer(one.client.get(format!("{}/readyz", one.url()))).await;
    assert_eq!((status, &ready["replica"]), (StatusCode::OK, &listed["replica"]));
    assert_eq!(ids(&listed)[0], ready["replica"].as_str().unwrap(), "the one that started first");
    let items: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!((items.len(), items[1]), (2, ids(&listed)[0].as_str()), "the latest first: {listed}");
    for replica in listed["replicas"].as_array().unwrap() {
        assert_eq!((&replica["status"], &replica["version"]), (&json!("live"), &json!(env!("CARGO_PKG_VERSION"))));
    }
    let alone = TempDir::new().unwrap();
    std::fs::write(alone.path().join("sekisho.yaml"), database.settings("")).unwrap();
    let checked = sekisho(&alone).args(["--config", "sekisho.yaml", "check"]).output().unwrap();
    let said = crate::cli::text(&checked);
    assert!(said.contains("`cluster.enabled` is off, and 2 live replicas use this database"), "{said}");
    let stopped = other.serving.as_ref().unwrap().id();
    let pid = rustix::process::Pid::from_raw(i32::try_from(stopped).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(other.serving.as_mut().unwrap().wait().success());
    assert_eq!(ids(&one.command(&["cluster"])), [ready["replica"].as_str().unwrap()]);
    let checked = one.command(&["check"]);
    let found = checked.as_array().unwrap().iter().find(|finding| finding["part"] == "cluster").unwrap();
    assert!(found["says"].as_str().unwrap().contains("1 replicas are live"), "{found}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_while_the_database_is_away_replicas_use_up_what_they_leased() {
    let database = TestDatabase::new().await;
    let settings = clustered("budget: {max_cost_per_caller_per_day: '20'}");
    let app = TestApp::with(&database.settings(&settings)).await;
    assert_eq!(app.call("paid", json!({})).await.0, StatusCode::OK);
    database.take_away().await;
    let mut refused = Value::Null;
    for _ in 0..30 {
        let (status, reply) = app.call("paid", json!({})).await;
        if status != StatusCode::OK {
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{reply}");
            refused = reply;
            break;
        }
    }
    assert!(refused.to_string().contains("cannot be leased"), "{refused}");
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::OK, "rates go on, by the part of this replica");
    assert!(degraded(&app).await["leases"].is_string());
    database.bring_back().await;
    let until = Instant::now() + slack(Duration::from_secs(10));
    while app.call("paid", json!({})).await.0 != StatusCode::OK {
        assert!(Instant::now() < until, "{}", degraded(&app).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Of two replicas that are asked at once one runs the call, and both have its reply.
#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_call_with_a_key_runs_at_one_replica_while_others_wait_for_its_reply() {
    let database = TestDatabase::new().await;
    let settings = database.settings(&clustered(""));
    let replicas = [TestApp::with(&settings).await, TestApp::with(&settings).await, TestApp::with(&settings).await];
    let ask = |app: &TestApp, tool: &str| {
        let request = app.post(&format!("/tools/{tool}/execute")).header("idempotency-key", tool);
        request.json(&json!({"arguments": {"ms": 700}})).send()
    };
    for tool in ["sleep", "echo"] {
        let replies = futures_util::future::join_all(replicas.iter().map(|app| ask(app, tool))).await;
        let (mut replayed, mut texts) = (0, Vec::new());
        for reply in replies {
            let reply = reply.unwrap();
            assert_eq!(reply.status(), StatusCode::OK);
            replayed += usize::from(reply.headers().contains_key("idempotency-replayed"));
            texts.push(reply.text().await.unwrap());
        }
        assert_eq!(replayed, 2, "{tool}");
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
}

/// A key of a call whose replica was killed is answered at another one once that counts as lost: 12 s.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_call_whose_replica_was_killed_has_no_known_outcome_and_does_not_run_again() {
    let database = TestDatabase::new().await;
    let host = SlowUpstream::start().await;
    let settings = host.collection();
    let (mut killed, other) = (Replica::start(&database, &settings), Replica::start(&database, &settings));
    let ask = |replica: &Replica| {
        let request = replica.client.post(format!("{}/tools/slow__wait/execute", replica.url()));
        request.header("idempotency-key", "once").json(&json!({"arguments": {}})).send()
    };
    let first = tokio::spawn(ask(&killed));
    host.until_called().await;
    killed.kill();
    assert!(first.await.unwrap().is_err());
    let reply = ask(&other).await.unwrap();
    let (status, body) = (reply.status(), reply.json::<Value>().await.unwrap());
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "unknown_outcome"), "{body}");
    assert_eq!(host.calls(), 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_what_one_replica_registers_is_at_the_others_within_two_seconds() {
    let database = TestDatabase::new().await;
    let upstream = TestApp::start().await;
    let settings = database.settings(&clustered(&format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1], \
         mcp_allowed_domains: [127.0.0.1]}}\n{ADMIN}"
    )));
    let (one, other) = (TestApp::with(&settings).await, TestApp::with(&settings).await);
    let registration = json!({"name": "itself", "spec_inline": document(&upstream.url).to_string()});
    let (status, reply) =
        answer(one.post("/tools/openapi/register").bearer_auth("key-of-ada").json(&registration)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(is_listed(&other, "itself__tool", true).await < slack(Duration::from_secs(2)));
    receipts_name_version(&other, 1).await;
    let (status, reply) =
        answer(one.client.delete(format!("{}/tools/openapi/itself", one.url)).bearer_auth("key-of-ada")).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(is_listed(&other, "itself__tool", false).await < slack(Duration::from_secs(2)));
    receipts_name_version(&other, 2).await;
    let function = json!({"name": "remote_function", "url": upstream.url, "func_name": "f"});
    let (status, reply) = answer(one.post("/tools/mcp/register").bearer_auth("key-of-ada").json(&function)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(is_listed(&other, "remote_function", true).await < slack(Duration::from_secs(2)));
    let removal = one.client.delete(format!("{}/admin/servers/mcp/remote_function", one.url));
    let (status, reply) = answer(removal.bearer_auth("key-of-ada")).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(is_listed(&other, "remote_function", false).await < slack(Duration::from_secs(2)));
    let tenant = json!({"name": "default", "max_cost_per_day": "0.15"});
    let (status, reply) = answer(one.post("/api/tenants").bearer_auth("key-of-ada").json(&tenant)).await;
    assert!(status.is_success(), "{reply}");
    let began = Instant::now();
    let mut paid = 0;
    while answer(other.post("/tools/paid/execute").bearer_auth("key-of-ada").json(&json!({"arguments": {}}))).await.0
        == StatusCode::OK
    {
        paid += 1;
        assert!(began.elapsed() < slack(Duration::from_secs(2)), "{paid} calls were paid for");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until receipts name this version of the registrations.
async fn receipts_name_version(app: &TestApp, expected: i64) {
    let until = Instant::now() + slack(Duration::from_secs(5));
    loop {
        let (_, reply) = app.call("echo", json!({})).await;
        if reply["receipt"]["registry_version"] == expected {
            return;
        }
        assert!(Instant::now() < until, "{reply}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How long it took until tools whose names begin so are listed, or are no longer.
async fn is_listed(app: &TestApp, tool: &str, expected: bool) -> Duration {
    let began = Instant::now();
    loop {
        let (_, listed) = answer(app.get("/tools/list").bearer_auth("key-of-ada")).await;
        if listed.to_string().contains(tool) == expected {
            return began.elapsed();
        }
        assert!(began.elapsed() < slack(Duration::from_secs(20)), "{listed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A service with one operation that does not answer.
struct SlowUpstream {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl SlowUpstream {
    async fn start() -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let router = Router::new().route(
            "/wait",
            post(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<&str>()
            }),
        );
        Self { url: served(router).await, calls }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn until_called(&self) {
        let until = Instant::now() + slack(Duration::from_secs(10));
        while self.calls() == 0 {
            assert!(Instant::now() < until, "the call was not sent");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The settings of a gateway that offers it as `slow__wait`.
    fn collection(&self) -> String {
        format!(
            "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\nopenapi: {{collections: \
             {{slow: {{spec_inline: '{}'}}}}}}",
            self.document()
        )
    }

    fn document(&self) -> Value {
        let text = json!({"200": {"description": "done", "content": {"text/plain": {"schema": {"type": "string"}}}}});
        json!({
            "openapi": "3.1.0", "info": {"title": "Slow", "version": "1"}, "servers": [{"url": self.url}],
            "paths": {"/wait": {"post": {"operationId": "wait", "responses": text}}},
        })
    }
}

/// No server is needed for this one.
#[test]
fn replicas_without_a_database_are_a_configuration_error() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("sekisho.yaml"), "cluster:\n  enabled: true\n").unwrap();
    let run = sekisho(&directory).args(["--config", "sekisho.yaml", "serve"]).output().unwrap();
    let said = crate::cli::text(&run);
    assert_eq!(run.status.code(), Some(4), "{said}");
    assert!(
        said.contains("sekisho.yaml:2") && said.contains("cluster.enabled") && said.contains("store.url"),
        "{said}"
    );
}

#[tokio::test]
async fn a_gateway_that_is_no_replica_says_so() {
    let app = TestApp::start().await;
    let (_, ready) = answer(app.get("/readyz")).await;
    assert_eq!(ready.get("replica"), None);
    let shown = app.gateway.cluster().replica_id();
    assert_eq!(shown, None);
}
