//! Runs that go on without a client: their states, their limits, their webhooks, and responses in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode as Status};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

use super::{create, get, said};
use crate::app::{TestApp, answer, code};
use crate::charges::{LOOPBACK, served};

const TALK: &str = "turns: [{text: [one]}, {text: [two]}]";

const SLOW: &str = "turns: [{text: [one], delay_seconds: 60}]";

/// The key, and the bytes that it is.
const SECRET: (&str, &[u8]) = ("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", b"0123456789abcdef01234567");

async fn with_agent(script: &str, agent: &str, rest: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("script.yaml");
    std::fs::write(&file, script).unwrap();
    let profile = format!("{{provider: replay, model: '{}'}}", file.display());
    let yaml = format!("{rest}agent: {{{agent}default_profile: talker, profiles: {{talker: {profile}}}}}\n");
    TestApp::in_directory(directory, &yaml).await
}

async fn submitted(app: &TestApp, body: Value) -> String {
    let (status, run) = answer(app.post("/api/runs").json(&body)).await;
    assert_eq!((status, &run["status"]), (StatusCode::ACCEPTED, &json!("queued")), "{run}");
    run["id"].as_str().unwrap().to_owned()
}

/// Waits until this holds for the run.
async fn run_when(app: &TestApp, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    loop {
        let run = get(app, &format!("/api/runs/{id}")).await;
        if holds(&run) {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn ended(app: &TestApp, id: &str) -> Value {
    run_when(app, id, |run| run["ended_at"].is_string()).await
}

#[tokio::test]
async fn a_run_begins_or_continues_a_conversation_and_is_listed() {
    let app = with_agent(TALK, "", "").await;
    let first = ended(&app, &submitted(&app, json!({"user_input": "Say."})).await).await;
    assert_eq!((&first["status"], &first["result"]), (&json!("succeeded"), &json!("one")), "{first}");
    let conversation = first["conversation_id"].as_str().unwrap();
    let again = json!({"user_input": "Again.", "conversation_id": conversation});
    let second = ended(&app, &submitted(&app, again).await).await;
    assert_eq!((&second["result"], &second["conversation_id"]), (&json!("two"), &first["conversation_id"]));
    assert_eq!(said(&app, conversation).await, ["user: Say.", "assistant: one", "user: Again.", "assistant: two"]);
    let list = get(&app, "/api/runs?limit=1").await;
    assert_eq!((&list["items"][0]["id"], list["items"].as_array().unwrap().len()), (&second["id"], 1));
    let rest = get(&app, &format!("/api/runs?after={}", list["next"].as_str().unwrap())).await;
    assert_eq!((&rest["items"][0]["id"], &rest["next"]), (&first["id"], &Value::Null));
    let events = app.get(&format!("/api/runs/{}/events", second["id"].as_str().unwrap())).send().await.unwrap();
    assert!(events.text().await.unwrap().contains("text_delta"), "the events of its run");
    for (body, problem) in [
        (json!({"user_input": " "}), "`user_input` is empty"),
        (json!({"user_input": "a", "model": "nobody"}), "nobody"),
        (json!({"user_input": "a", "webhook": {"url": "ftp://a", "secret": SECRET.0}}), "`webhook.url`"),
        (json!({"user_input": "a", "webhook": {"url": "https://a.example", "secret": "x"}}), "`webhook.secret`"),
    ] {
        let (status, refused) = answer(app.post("/api/runs").json(&body)).await;
        assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "{body}");
        assert!(refused.to_string().contains(problem), "{body}: {refused}");
    }
}

#[tokio::test]
async fn a_tenant_has_so_many_runs_at_once_and_so_many_that_wait() {
    let app = with_agent(SLOW, "background: {max_running_per_tenant: 1, max_waiting_per_tenant: 1}, ", "").await;
    let first = submitted(&app, json!({"user_input": "a"})).await;
    run_when(&app, &first, |run| run["status"] == "running").await;
    let second = submitted(&app, json!({"user_input": "b"})).await;
    let (status, refused) = answer(app.post("/api/runs").json(&json!({"user_input": "c"}))).await;
    assert_eq!((status, code(&refused)), (StatusCode::SERVICE_UNAVAILABLE, "overloaded"), "{refused}");
    assert_eq!(get(&app, &format!("/api/runs/{second}")).await["status"], "queued");
    for id in [&second, &first] {
        let cancelled = app.post(&format!("/api/runs/{id}/cancel")).send().await.unwrap();
        assert_eq!(cancelled.status(), StatusCode::ACCEPTED);
        let run = ended(&app, id).await;
        assert_eq!(run["status"], "cancelled", "{run}");
    }
    assert_eq!(get(&app, &format!("/api/runs/{second}")).await["run_id"], Value::Null, "it has not begun");
}

/// The headers and the bodies of webhooks.
type Received = Arc<parking_lot::Mutex<Vec<(HeaderMap, String)>>>;

/// The receiver of webhooks: it refuses the first one.
async fn receiver() -> (String, Received) {
    let (received, count) = (Received::default(), Arc::new(AtomicUsize::new(0)));
    let kept = Arc::clone(&received);
    let take = move |headers: HeaderMap, body: String| {
        kept.lock().push((headers, body));
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if is_first { Status::SERVICE_UNAVAILABLE } else { Status::NO_CONTENT } }
    };
    (served(Router::new().route("/hook", post(take))).await, received)
}

#[tokio::test]
async fn a_webhook_is_signed_and_sent_again_until_it_is_taken() {
    let (receiver, received) = receiver().await;
    let app = with_agent(TALK, "", &format!("outbound: {{{LOOPBACK}}}\n")).await;
    let webhook = json!({"url": format!("{receiver}/hook"), "secret": SECRET.0});
    let id = submitted(&app, json!({"user_input": "Say.", "webhook": webhook})).await;
    let refused = run_when(&app, &id, |run| run["webhook_error"].is_string()).await;
    assert_eq!(refused["status"], "succeeded", "{refused}");
    let taken = run_when(&app, &id, |run| run["ended_at"].is_string() && run["webhook_error"].is_null()).await;
    let received = received.lock().clone();
    assert_eq!((received.len(), &received[0].1), (2, &received[1].1), "the same body");
    assert_eq!(received[0].0["webhook-id"], received[1].0["webhook-id"]);
    for (headers, body) in &received {
        let text = |name: &str| headers[name].to_str().unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.1).unwrap();
        mac.update(format!("{}.{}.{body}", text("webhook-id"), text("webhook-timestamp")).as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(text("webhook-signature"), expected);
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["type"], &body["timestamp"]), (&json!("run.succeeded"), &taken["ended_at"]), "{body}");
        let data = json!({"id": id, "conversation_id": taken["conversation_id"], "run_id": taken["run_id"], "status": "succeeded"});
        assert_eq!(body["data"], data, "it has no texts");
    }
}

#[tokio::test]
async fn a_webhook_goes_to_no_address_that_callers_may_not_reach() {
    let (receiver, received) = receiver().await;
    let app = with_agent(TALK, "", "").await;
    for url in [format!("{receiver}/hook"), "http://169.254.169.254/latest".to_owned()] {
        let body = json!({"user_input": "Say.", "webhook": {"url": url, "secret": SECRET.0}});
        let id = submitted(&app, body).await;
        let run = run_when(&app, &id, |run| run["webhook_error"].is_string()).await;
        assert_eq!(run["status"], "succeeded", "{run}");
    }
    assert!(received.lock().is_empty());
}

#[tokio::test]
async fn a_run_that_needs_an_approver_waits_for_one_and_goes_on() {
    let app = crate::approvals::runs::agent().await;
    let (_, run) = answer(app.post("/api/runs").bearer_auth("key-of-ann").json(&json!({"user_input": "Pay."}))).await;
    let path = format!("/api/runs/{}", run["id"].as_str().unwrap());
    let when = async |status: &str| loop {
        let (_, run) = answer(app.get(&path).bearer_auth("key-of-ann")).await;
        if run["status"] == status {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    when("paused").await;
    let (_, list) = answer(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
    let approval = list["approvals"][0]["id"].as_str().unwrap();
    let approved = app.post(&format!("/approvals/{approval}/approve")).bearer_auth("key-of-boss").json(&json!({}));
    assert_eq!(answer(approved).await.0, StatusCode::OK);
    let ended = when("succeeded").await;
    assert_eq!(ended["result"], "Done.", "{ended}");
    let (status, _) = answer(app.get(&path).bearer_auth("key-of-bob")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// As the published schema of a response has it.
fn check_form(response: &Value) {
    let (id, status) = (response["id"].as_str().unwrap(), response["status"].as_str().unwrap());
    assert!(id.starts_with("resp_") && response["created_at"].is_i64(), "{response}");
    assert!(["queued", "in_progress", "completed", "failed", "cancelled"].contains(&status), "{response}");
    assert_eq!((&response["object"], &response["background"]), (&json!("response"), &json!(true)), "{response}");
    assert!(response["output"].is_array() && response["tools"].is_array(), "{response}");
    assert_eq!(response["error"].is_object(), status == "failed", "{response}");
}

async fn response_when(app: &TestApp, id: &str, status: &str) -> Value {
    loop {
        let response = get(app, &format!("/v1/responses/{id}")).await;
        check_form(&response);
        if response["status"] == status {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn begun(app: &TestApp, body: Value) -> String {
    let (status, response) = answer(app.post("/v1/responses").json(&body)).await;
    assert_eq!((status, &response["status"]), (StatusCode::OK, &json!("queued")), "{response}");
    check_form(&response);
    response["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_response_in_the_background_is_polled_and_continued() {
    let app = with_agent(TALK, "", "").await;
    let body = json!({"input": "Say.", "background": true, "instructions": "Be brief.", "metadata": {"a": "b"}});
    let id = begun(&app, body).await;
    let first = response_when(&app, &id, "completed").await;
    let content = &first["output"][0]["content"][0];
    assert_eq!((&content["text"], &first["metadata"]["a"]), (&json!("one"), &json!("b")), "{first}");
    assert_eq!((&first["model"], &first["instructions"]), (&json!("talker"), &json!("Be brief.")));
    assert!(first["usage"]["total_tokens"].is_u64(), "{first}");
    let next = json!({"input": "Again.", "background": true, "previous_response_id": id});
    let second = response_when(&app, &begun(&app, next).await, "completed").await;
    assert_eq!(second["output"][0]["content"][0]["text"], "two", "{second}");
    assert_eq!(get(&app, "/api/runs").await["items"], json!([]), "it is no run of `POST /api/runs`");
    let unknown = json!({"input": "Again.", "background": true, "previous_response_id": "resp_1"});
    let (status, _) = answer(app.post("/v1/responses").json(&unknown)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// The events of a stream: each with its name as its type.
fn events_of(text: &str) -> Vec<Value> {
    let event = |block: &str| {
        let (name, data) = block.strip_prefix("event: ")?.split_once("\ndata: ")?;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name, "{data}");
        Some(data)
    };
    text.split("\n\n").filter_map(event).collect()
}

/// The events of a response after one of them.
async fn followed(app: &TestApp, id: &str, after: Option<u64>) -> Vec<Value> {
    let after = after.map(|after| format!("&starting_after={after}")).unwrap_or_default();
    let answer = app.get(&format!("/v1/responses/{id}?stream=true{after}")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    events_of(&answer.text().await.unwrap())
}

fn number(event: &Value) -> u64 {
    event["sequence_number"].as_u64().unwrap()
}

fn deltas(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["delta"].as_str()).collect()
}

#[tokio::test]
async fn a_response_in_the_background_is_streamed_and_followed_from_any_event() {
    const CALLING: &str = "turns: [{text: [I, ' look.'], calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"6*7\"}'}]}, {text: [It, ' is ', '42.']}]";
    let app = with_agent(CALLING, "", "").await;
    let body = json!({"input": "Say.", "background": true, "stream": true});
    let asked = app.post("/v1/responses").header("idempotency-key", "k-1").json(&body);
    let whole = events_of(&asked.send().await.unwrap().text().await.unwrap());
    let last = whole.last().unwrap();
    assert_eq!((&last["type"], &whole[0]["response"]["status"]), (&json!("response.completed"), &json!("queued")));
    check_form(&last["response"]);
    assert!(whole.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])), "{whole:#?}");
    assert_eq!(deltas(&whole), "I look.It is 42.");
    let id = last["response"]["id"].as_str().unwrap();
    let polled = get(&app, &format!("/v1/responses/{id}")).await;
    assert_eq!(
        (&polled["output"], &polled["output"][1]["content"][0]["text"]),
        (&last["response"]["output"], &json!("It is 42."))
    );

    // The same request has the events of the same response.
    let again = app.post("/v1/responses").header("idempotency-key", "k-1").json(&body);
    let again = events_of(&again.send().await.unwrap().text().await.unwrap());
    assert_eq!((&again.last().unwrap()["response"]["id"], deltas(&again)), (&last["response"]["id"], deltas(&whole)));

    let directory = app.stop().await;
    let yaml = std::fs::read_to_string(directory.path().join("sekisho.yaml")).unwrap();
    let app = TestApp::in_directory(directory, &yaml).await;
    for after in [None, Some(0), Some(6), Some(number(last) - 1), Some(number(last) + 9)] {
        let rest = followed(&app, id, after).await;
        assert_eq!(rest.last().unwrap()["response"], last["response"], "{after:?}");
        assert!(rest.iter().all(|event| after.is_none_or(|after| number(event) > after)), "{after:?}: {rest:#?}");
        // The first text has the numbers from 5 on.
        let known = after.map_or(0, |after| after.saturating_sub(4));
        let expected = if known < 7 { "I look.It is 42.".split_at(usize::try_from(known).unwrap()).1 } else { "" };
        assert_eq!(deltas(&rest), expected, "{after:?}");
    }
    for (path, problem) in [
        (format!("/v1/responses/{id}?starting_after=1"), "`starting_after`"),
        (format!("/v1/responses/{id}?stream=maybe"), "query"),
    ] {
        let (status, refused) = answer(app.get(&path)).await;
        assert!(status == StatusCode::BAD_REQUEST && refused.to_string().contains(problem), "{path}: {refused}");
    }
    let (_, ended) = answer(app.post("/v1/responses").json(&json!({"input": "Say."}))).await;
    let (status, refused) =
        answer(app.get(&format!("/v1/responses/{}?stream=true", ended["id"].as_str().unwrap()))).await;
    assert!(status == StatusCode::BAD_REQUEST && refused.to_string().contains("`background`"), "{refused}");
}

/// Its client goes after the first events, and another one follows the rest while it is on.
#[tokio::test]
async fn a_response_goes_on_when_its_client_leaves_the_stream() {
    let app = with_agent("turns: [{text: [one, two], delay_seconds: 2}]", "", "").await;
    let body = json!({"input": "Say.", "background": true, "stream": true});
    let mut stream = app.post("/v1/responses").json(&body).send().await.unwrap();
    let first = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let first = events_of(&first);
    let id = first[0]["response"]["id"].as_str().unwrap().to_owned();
    drop(stream);
    let rest = followed(&app, &id, Some(number(first.last().unwrap()))).await;
    assert_eq!((deltas(&rest), &rest.last().unwrap()["type"]), ("onetwo".to_owned(), &json!("response.completed")));
    assert_eq!(get(&app, &format!("/v1/responses/{id}")).await["status"], "completed");
}

#[tokio::test]
async fn a_response_in_the_background_is_cancelled_and_fails_in_openais_form() {
    let app = with_agent(SLOW, "", "").await;
    let id = begun(&app, json!({"input": "Say.", "background": true})).await;
    response_when(&app, &id, "in_progress").await;
    let (status, cancelled) = answer(app.post(&format!("/v1/responses/{id}/cancel"))).await;
    check_form(&cancelled);
    assert_eq!((status, &cancelled["status"]), (StatusCode::OK, &json!("cancelled")), "{cancelled}");
    let (status, _) = answer(app.post("/v1/responses/resp_1/cancel")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let mute = with_agent("turns: []", "", "").await;
    let id = begun(&mute, json!({"input": "Say.", "background": true})).await;
    let failed = response_when(&mute, &id, "failed").await;
    assert!(failed["error"]["code"].is_string() && failed["error"]["message"].is_string(), "{failed}");
    let app = with_agent(TALK, "", "").await;
    let (_, ended) = answer(app.post("/v1/responses").json(&json!({"input": "Say."}))).await;
    let path = format!("/v1/responses/{}/cancel", ended["id"].as_str().unwrap());
    let (status, refused) = answer(app.post(&path)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    let id = create(&app, json!({})).await;
    let (status, _) = answer(app.post("/api/runs").json(&json!({"user_input": "a", "conversation_id": id}))).await;
    assert_eq!(status, StatusCode::ACCEPTED, "of a conversation without runs");
}
