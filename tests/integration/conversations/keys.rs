//! Turns with an `Idempotency-Key`: sent again, they get the answer of the first run.

use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::{create, ended, execute, get, hello, said, streamed};
use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};
use crate::idempotency::lose_connection;

/// An answer for each run, without tools.
const TALK: &str = "turns: [{text: [one]}, {text: [two]}, {text: [three]}, {text: [four]}]";

/// A call that takes a while, then an answer.
const SLEEP: &str = r#"
turns:
  - text: ["I wait."]
    calls:
      - {id: a, tool: sleep, arguments: '{"ms": 700}'}
  - text: ["Done."]
"#;

/// A plan and its steps.
const PLAN: &str = include_str!("../../../config/examples/plan.yaml");

/// A call, after which the model's provider refuses.
const CALL_AND_FAIL: &str = r#"
turns:
  - text: ["Let me see."]
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
  - {status: 401}
"#;

fn keyed(request: RequestBuilder, key: &str) -> RequestBuilder {
    request.header("idempotency-key", key)
}

/// Status, whether it is the answer of an earlier request, the run, and the text.
async fn sent(request: RequestBuilder) -> (StatusCode, bool, Option<String>, String) {
    let response = request.send().await.unwrap();
    let run = response.headers().get("x-run-id").map(|id| id.to_str().unwrap().to_owned());
    let replayed = response.headers().get("idempotency-replayed").is_some_and(|value| value == "true");
    (response.status(), replayed, run, response.text().await.unwrap())
}

async fn runs(app: &TestApp, id: &str) -> usize {
    get(app, &format!("/api/conversations/{id}/runs")).await["runs"].as_array().unwrap().len()
}

async fn restarted(app: TestApp) -> TestApp {
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    TestApp::in_directory(app.stop().await, &yaml).await
}

#[tokio::test]
async fn a_turn_that_is_sent_again_has_one_run_and_one_answer_also_after_a_restart() {
    let app = with_scripts(&[("talk", TALK)]).await;
    let id = create(&app, json!({"agent": "talk"})).await;
    let (status, replayed, run, text) = sent(keyed(execute(&app, &id, &hello()), "k-1")).await;
    assert_eq!((status, replayed), (StatusCode::OK, false), "{text}");
    assert!(run.is_some() && text.contains("\"one\""), "{text}");
    let expected = (StatusCode::OK, true, run, text);
    assert_eq!(sent(keyed(execute(&app, &id, &hello()), "k-1")).await, expected);
    // Another key, and none, begin runs of their own; events are sent again as they were.
    let (_, _, second, events) = sent(keyed(streamed(&app, &id, &hello()), "k-2")).await;
    assert!(events.contains("event: result") && events.contains("\"two\""), "{events}");
    assert_eq!(sent(keyed(streamed(&app, &id, &hello()), "k-2")).await, (StatusCode::OK, true, second, events));
    assert!(sent(execute(&app, &id, &hello())).await.3.contains("\"three\""));
    assert_eq!(runs(&app, &id).await, 3);
    // Another body is another turn, and another conversation has keys of its own.
    let (status, reply) = answer(keyed(execute(&app, &id, &json!({"user_input": "else"})), "k-1")).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"));
    let other = create(&app, json!({"agent": "talk"})).await;
    assert!(!sent(keyed(execute(&app, &other, &hello()), "k-1")).await.1);

    let app = restarted(app).await;
    assert_eq!(sent(keyed(execute(&app, &id, &hello()), "k-1")).await, expected);
    assert_eq!((runs(&app, &id).await, said(&app, &id).await.len()), (3, 6));
    assert_eq!(app.metric("shannon_idempotent_replays_total").await, 1.0);
    // The answer goes with its conversation.
    let deleted = app.client.delete(format!("{}/api/conversations/{id}", app.url)).send().await.unwrap();
    assert!(deleted.status().is_success());
    assert_eq!(sent(keyed(execute(&app, &id, &hello()), "k-1")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_turn_whose_connection_broke_goes_on_and_its_effect_happens_once() {
    let app = with_scripts(&[("sleep", SLEEP)]).await;
    let id = create(&app, json!({"agent": "sleep"})).await;
    for request in [execute(&app, &id, &hello()), streamed(&app, &id, &hello())] {
        lose_connection(&app, keyed(request, "k-1")).await;
    }
    let (status, replayed, run, text) = sent(keyed(execute(&app, &id, &hello()), "k-1")).await;
    assert_eq!((status, replayed), (StatusCode::OK, true), "{text}");
    let reply: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&reply["result"], &reply["status"]), (&json!("Done."), &json!("succeeded")));
    assert_eq!(ended(&app, &run.unwrap()).await["status"], "succeeded");
    let calls = app.metric("shannon_tool_executions_total{status=\"success\",tool_name=\"sleep\"}").await;
    assert_eq!((calls, runs(&app, &id).await), (1.0, 1));
}

#[tokio::test]
async fn a_turn_that_did_nothing_runs_again_and_one_that_made_a_call_does_not() {
    let app = with_scripts(&[("fails", "turns: [{status: 401}]"), ("calls", CALL_AND_FAIL)]).await;
    for (agent, expected) in [("fails", 2), ("calls", 1)] {
        let id = create(&app, json!({"agent": agent})).await;
        let first = sent(keyed(execute(&app, &id, &hello()), "k-1")).await;
        let second = sent(keyed(execute(&app, &id, &hello()), "k-1")).await;
        assert!(!first.0.is_success() && first.0 == second.0, "{first:?}");
        assert_eq!((runs(&app, &id).await, second.1), (expected, expected == 1), "{second:?}");
    }
}

#[tokio::test]
async fn the_other_routes_of_turns_take_keys_too() {
    let app = with_scripts(&[("talk", TALK), ("more", TALK), ("plans", PLAN)]).await;
    let chat = || keyed(app.post("/api/chat").json(&json!({"message": "hello", "model": "talk"})), "k-1");
    let (first, again) = (sent(chat()).await, sent(chat()).await);
    assert_eq!((first.0, first.1, again.1, &first.3), (StatusCode::OK, false, true, &again.3));
    assert_eq!(get(&app, "/api/conversations").await["conversations"].as_array().unwrap().len(), 1);
    let response = |stream: bool| {
        let body = json!({"model": "talk", "input": "hello", "stream": stream});
        keyed(app.post("/v1/responses").json(&body), if stream { "s" } else { "k-1" })
    };
    for stream in [false, true] {
        let (first, again) = (sent(response(stream)).await, sent(response(stream)).await);
        assert_eq!((first.0, first.1, again.1, &first.3), (StatusCode::OK, false, true, &again.3));
    }
    let messages = json!([{"role": "user", "content": "hello"}]);
    let body = |stream: bool, maximum: u32| json!({"model": "more", "max_tokens": maximum, "messages": messages, "stream": stream});
    for route in ["/v1/chat/completions", "/v1/messages"] {
        for stream in [false, true] {
            let turn = || keyed(app.post(route).json(&body(stream, 100)), &format!("k-{stream}"));
            let (first, again) = (sent(turn()).await, sent(turn()).await);
            assert_eq!((first.0, first.1, again.1, &first.3), (StatusCode::OK, false, true, &again.3), "{route}");
        }
        let in_thread = app.post(route).json(&body(false, 100)).header("x-openwebui-chat-id", "other");
        for other in [app.post(route).json(&body(false, 99)), in_thread] {
            assert_eq!(sent(keyed(other, "k-false")).await.0, StatusCode::CONFLICT, "{route}");
        }
    }
    let plan = || keyed(app.post("/api/plans").json(&json!({"goal": "hello", "profile": "plans"})), "k-1");
    let (first, again) = (sent(plan()).await, sent(plan()).await);
    assert_eq!((first.0, first.1, again.1, &first.3), (StatusCode::CREATED, false, true, &again.3));
    assert_eq!(get(&app, "/api/plans").await["items"].as_array().unwrap().len(), 1);
    let bad = keyed(app.post("/v1/responses").json(&json!({"model": "talk", "input": "x"})), "k-1");
    assert_eq!(sent(bad).await.0, StatusCode::CONFLICT);
}
