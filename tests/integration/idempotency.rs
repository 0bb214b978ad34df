//! The same call sent twice.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{RequestBuilder, StatusCode};
use sekisho::testing::Store;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config};
use crate::charges::{Deaf, LOOPBACK, settings};
use crate::cli::Serving;

#[tokio::test]
async fn the_same_key_and_body_run_once() {
    let app = TestApp::start().await;
    let send = || {
        app.post("/tools/echo/execute")
            .header("idempotency-key", "k-1")
            .json(&json!({"arguments": {"a": 1, "b": 2}}))
            .send()
    };
    let replies = join_all((0..10).map(|_| send())).await;
    let mut replayed = 0;
    for reply in replies {
        let reply = reply.unwrap();
        replayed += usize::from(reply.headers().contains_key("idempotency-replayed"));
        let body: serde_json::Value = reply.json().await.unwrap();
        assert_eq!(body["output"]["run"], 1);
    }
    assert_eq!(replayed, 9);
    // The order of keys is no part of the body's meaning.
    let reordered =
        app.post("/tools/echo/execute").header("idempotency-key", "k-1").header("content-type", "application/json");
    let (_, body) = answer(reordered.body(r#"{"arguments":{"b":2,"a":1}}"#)).await;
    assert_eq!(body["output"]["run"], 1);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_a_conflict() {
    let app = TestApp::start().await;
    let send = |n: u32| {
        answer(app.post("/tools/echo/execute").header("idempotency-key", "k-1").json(&json!({"arguments": {"n": n}})))
    };
    assert_eq!(send(1).await.0, StatusCode::OK);
    let (status, reply) = send(2).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"));
    // It is in the records, as every call.
    let errors = app.metric(r#"shannon_tool_errors_total{error_type="idempotency_conflict",tool_name="echo"}"#).await;
    assert_eq!(errors, 1.0);
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    let id = reply["receipt"]["call_id"].as_str().unwrap();
    assert!(trail.lines().any(|line| line.contains(id) && line.contains("idempotency_conflict")), "{trail}");
}

#[tokio::test]
async fn a_refusal_is_not_stored() {
    let app = TestApp::start().await;
    let send = |expression| {
        let body = json!({"arguments": expression});
        answer(app.post("/tools/calculator/execute").header("idempotency-key", "k-1").json(&body))
    };
    assert_eq!(send(json!({})).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send(json!({"expression": "1"})).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_same_arguments_in_another_session_or_as_a_dry_run_are_another_call() {
    let app = TestApp::start().await;
    let send = |body| answer(app.post("/tools/echo/execute").header("idempotency-key", "k-1").json(&body));
    assert_eq!(send(json!({"session_id": "a"})).await.0, StatusCode::OK);
    for other in [json!({"session_id": "b"}), json!({}), json!({"session_id": "a", "dry_run": true})] {
        let (status, reply) = send(other).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"));
    }
}

#[tokio::test]
async fn an_unknown_tool_is_settled_also_with_a_key() {
    let app = TestApp::start().await;
    let (status, reply) =
        answer(app.post("/tools/nothing/execute").header("idempotency-key", "k").json(&json!({}))).await;
    assert_eq!((status, reply["error_info"]["stage"].as_str()), (StatusCode::NOT_FOUND, Some("find")));
    assert_eq!(app.metric(r#"shannon_tool_errors_total{error_type="unknown_tool",tool_name="unknown"}"#).await, 1.0);
}

/// Sends a call and closes the connection once it runs.
pub(crate) async fn lose_connection(app: &TestApp, request: RequestBuilder) {
    let runs = async {
        while app.gateway.pipeline.limits.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = request.send() => panic!("{answer:?}"),
        () = runs => {}
    }
}

fn sleep(app: &TestApp, ms: u64) -> RequestBuilder {
    app.post("/tools/sleep/execute").header("idempotency-key", "k-1").json(&json!({"arguments": {"ms": ms}}))
}

const RUNS: &str = "shannon_tool_executions_total{status=\"success\",tool_name=\"sleep\"}";

#[tokio::test]
async fn a_call_whose_connection_broke_runs_once_and_is_answered_when_it_comes_again() {
    let app = TestApp::start().await;
    lose_connection(&app, sleep(&app, 1_000)).await;
    lose_connection(&app, sleep(&app, 1_000)).await;
    let again = sleep(&app, 1_000).send().await.unwrap();
    assert_eq!((again.status(), again.headers()["idempotency-replayed"].to_str().unwrap()), (StatusCode::OK, "true"));
    assert_eq!((app.metric(RUNS).await, app.gateway.pipeline.limits.in_flight()), (1.0, 0));
}

/// The routes that call a tool all take the header.
#[tokio::test]
async fn a_reply_is_the_same_after_a_restart_and_a_reload() {
    let yaml = "session: {idempotency_seconds: 3600}";
    let app = TestApp::with(yaml).await;
    let body = json!({"arguments": {"n": 5.022_222_222_222_223e-7, "text": "ü"}});
    let named = json!({"tool_name": "fail", "arguments": {}});
    let send = async |app: &TestApp| {
        let calls = [
            app.post("/tools/echo/execute").json(&body),
            app.post("/tools/execute").json(&named),
            app.post("/api/v1/tools/calculator/execute").json(&json!({"arguments": {"expression": "1/3"}})),
        ];
        let replies = calls.map(async |call| {
            let reply = call.header("idempotency-key", "k-1").send().await.unwrap();
            let replayed = reply.headers().contains_key("idempotency-replayed");
            (reply.status(), reply.headers().get("x-ratelimit-limit").cloned(), replayed, reply.text().await.unwrap())
        });
        join_all(replies).await
    };
    let first = send(&app).await;
    assert!(first.iter().all(|(status, _, replayed, _)| *status == StatusCode::OK && !replayed), "{first:?}");
    let expected: Vec<_> = first.into_iter().map(|(status, rate, _, text)| (status, rate, true, text)).collect();
    assert_eq!(send(&app).await, expected);
    app.gateway.reload(config(&app.directory, yaml)).await;
    assert_eq!(send(&app).await, expected, "after a reload");
    let again = TestApp::in_directory(app.stop().await, yaml).await;
    assert_eq!(send(&again).await, expected, "after a restart");
    assert_eq!(again.metric("shannon_idempotent_replays_total").await, 3.0);
}

#[tokio::test]
async fn a_shutdown_waits_for_a_call_whose_client_has_gone() {
    let app = TestApp::start().await;
    lose_connection(&app, sleep(&app, 500)).await;
    let again = TestApp::in_directory(app.stop().await, "").await;
    let reply = sleep(&again, 500).send().await.unwrap();
    assert!(reply.headers().contains_key("idempotency-replayed"));
    let reply: Value = reply.json().await.unwrap();
    assert_eq!(reply["output"], 500);
    assert_eq!(again.metric(RUNS).await, 0.0);
}

#[tokio::test]
async fn a_call_that_a_shutdown_cut_off_has_an_unknown_outcome() {
    let yaml = "server: {shutdown_grace_seconds: 0}";
    let app = TestApp::with(yaml).await;
    lose_connection(&app, sleep(&app, 60_000)).await;
    let store = Store::open_file(&app.directory.path().join("state/sekisho.db")).await.unwrap();
    while store.idempotency().by_owner().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    store.close().await;
    let again = TestApp::in_directory(app.stop().await, yaml).await;
    let (status, reply) = answer(sleep(&again, 60_000)).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "unknown_outcome"));
    assert!(reply["error"].as_str().unwrap().contains("outcome is unknown"), "{reply}");
}

/// `kill -9` while the upstream has the call.
#[tokio::test]
async fn a_call_that_was_sent_when_the_gateway_was_killed_is_not_run_again() {
    let upstream = Deaf::start().await;
    let directory = TempDir::new().unwrap();
    let yaml = settings(&directory, &upstream.url, LOOPBACK);
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let pay = |serving: &Serving| {
        let request = client.post(format!("{}/tools/bank__pay/execute", serving.url));
        request.header("idempotency-key", "order-1").json(&json!({"arguments": {}}))
    };
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let reached = async {
        while upstream.requests() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = pay(&serving).send() => panic!("{answer:?}"),
        () = reached => {}
    }
    drop(serving);
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let (status, reply) = answer(pay(&serving)).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "unknown_outcome"), "{reply}");
    // Somebody finds out that it was made.
    let (_, list) = answer(client.get(format!("{}/effects?status=unknown", serving.url))).await;
    let effect = &list["items"][0];
    assert_eq!((&effect["tool"], &effect["status"]), (&json!("bank__pay"), &json!("unknown")), "{list}");
    let (_, running) = answer(client.get(format!("{}/effects?status=running", serving.url))).await;
    assert_eq!(running["items"], json!([]));
    let resolve = async |id: &str, body: Value| {
        let sent = client.post(format!("{}/effects/{id}/resolve", serving.url)).json(&body).send().await;
        sent.unwrap().status()
    };
    let id = effect["id"].as_str().unwrap();
    let made = json!({"outcome": "made", "answer": {"id": 7}});
    assert_eq!(resolve("nothing", made.clone()).await, StatusCode::NOT_FOUND);
    assert_eq!(resolve(id, json!({"outcome": "not_made", "answer": 1})).await, StatusCode::BAD_REQUEST);
    assert_eq!(resolve(id, made.clone()).await, StatusCode::NO_CONTENT);
    assert_eq!(resolve(id, made).await, StatusCode::NOT_FOUND, "it is resolved");
    let (status, reply) = answer(pay(&serving)).await;
    let found = (status, &reply["output"]["id"], &reply["receipt"]["answered_by"]);
    assert_eq!(found, (StatusCode::OK, &json!(7), &json!("person")), "{reply}");
    assert_eq!(upstream.requests(), 1);
}

/// One tenant's keys are its own affair.
#[tokio::test]
async fn a_tenants_calls_push_out_no_other_tenants_replies() {
    let yaml = "session: {max_idempotency_keys: 5}\n\
                auth: {api_keys: [{id: a, tenant: one, key: key-of-a}, {id: b, tenant: two, key: key-of-b}]}";
    let app = TestApp::with(yaml).await;
    let send = async |key: &str, idempotency_key: &str| {
        let call = app.post("/tools/echo/execute").bearer_auth(key).header("idempotency-key", idempotency_key);
        let reply = call.json(&json!({"arguments": {}})).send().await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
        reply.headers().contains_key("idempotency-replayed")
    };
    assert!(!send("key-of-a", "order").await);
    for n in 0..20 {
        assert!(!send("key-of-b", &n.to_string()).await);
    }
    assert!(send("key-of-a", "order").await);
    assert!(!send("key-of-b", "0").await, "its own oldest are gone");
}
