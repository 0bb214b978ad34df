//! Runs: their events, their end, and what the next run begins with.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{create, ended, events, execute, get, hello, names, ran, said, streamed, until};
use crate::agents::with_scripts;
use crate::app::{answer, code};

/// Three answers without tools.
const TALK: &str = "turns: [{text: [one]}, {text: [two]}, {text: [three]}]";

/// The second answer takes long.
const SLOW: &str = "turns: [{text: [one]}, {text: [two], delay_seconds: 60}, {text: [three]}]";

/// A tool call that is answered, one that takes long, then an answer.
const CALLS: &str = r#"
turns:
  - text: ["Let me see."]
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: b, tool: sleep, arguments: '{"ms": 60000}'}
  - text: ["Done."]
"#;

#[tokio::test]
async fn a_run_sends_the_events_of_the_document_and_stores_what_it_did() {
    let app = with_scripts(&[]).await;
    let id = create(&app, json!({})).await;
    let mut body = hello();
    body["executor"] = json!({"user_id": "u-1"});
    let sent = events(streamed(&app, &id, &body)).await;
    let expected = [
        "system",
        "text_delta",
        "text_delta",
        "tool_use",
        "tool_result",
        "text_delta",
        "text_delta",
        "result",
        "system",
    ];
    assert_eq!(names(&sent), expected);
    assert!((1..).zip(&sent).all(|(number, event)| event.id == number), "{sent:?}");
    let of = |name: &str| &sent.iter().find(|event| event.name == name).unwrap().data;
    assert_eq!(
        (&of("tool_use")["tool_name"], &of("tool_use")["tool_input"]["expression"]),
        (&json!("calculator"), &json!("21.5 * 9 / 5 + 32"))
    );
    assert_eq!(of("tool_use")["tool_use_id"], of("tool_result")["tool_use_id"]);
    assert_eq!((&of("tool_result")["is_error"], &of("tool_result")["content"]), (&json!(false), &json!("70.7")));
    let result = of("result");
    assert!(result["result"].as_str().unwrap().ends_with("70.7 °F."), "{result}");
    assert_eq!((&result["is_error"], &result["errors"], &result["num_turns"]), (&json!(false), &json!([]), &json!(2)));
    assert_eq!(result["usage"], json!({"input_tokens": 290, "output_tokens": 42, "tool_calls": 1}));
    let session = &of("system")["session_id"];
    let last = &sent.last().unwrap().data;
    assert_eq!(
        (&of("system")["subtype"], &last["subtype"], &result["session_id"]),
        (&json!("init"), &json!("finish"), session)
    );
    let conversation = get(&app, &format!("/api/conversations/{id}")).await;
    assert_eq!((&conversation["session_id"], &conversation["title"]), (session, &json!("Is 21.5 °C warm?")));
    let run = get(&app, &format!("/api/runs/{}", of("system")["run_id"].as_str().unwrap())).await;
    assert_eq!(
        (&run["status"], &run["number"], &run["claimed_executor"]),
        (&json!("succeeded"), &json!(1), &json!("{\"user_id\":\"u-1\"}"))
    );
    assert_eq!(run["usage"][0]["input_tokens"], 290);
    let expected = [
        "user: Is 21.5 °C warm?",
        "assistant: Let me convert that. [calculator]",
        "tool: 70.7",
        "assistant: It is 21.5 °C in Tokyo, which is 70.7 °F.",
    ];
    assert_eq!(said(&app, &id).await, expected);
}

#[tokio::test]
async fn events_can_be_read_again_after_any_of_them() {
    let app = with_scripts(&[]).await;
    let id = create(&app, json!({})).await;
    let response = streamed(&app, &id, &hello()).send().await.unwrap();
    let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
    let all: Vec<_> = response.text().await.unwrap().split_terminator("\n\n").filter_map(super::event).collect();
    let path = format!("/api/runs/{run}/events");
    assert_eq!(events(app.get(&path)).await, all);
    let rest = events(app.get(&path).header("last-event-id", "3")).await;
    assert_eq!((rest.len(), rest[0].id), (all.len() - 3, 4));
    assert_eq!(events(app.get(&format!("{path}?after={}", all.len()))).await, []);
    let (status, _) = answer(app.get(&path).header("last-event-id", "x")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_run_continues_its_session_and_null_begins_a_new_one() {
    let app = with_scripts(&[("talk", TALK)]).await;
    let id = create(&app, json!({"agent": "talk", "title": "Mine"})).await;
    let first = ran(&app, &id, hello()).await;
    let second = ran(&app, &id, hello()).await;
    assert_eq!((&first["result"], &second["result"]), (&json!("one"), &json!("two")));
    assert_eq!(
        (&first["session_id"], &first["status"], &first["title"]),
        (&second["session_id"], &json!("succeeded"), &json!("Mine"))
    );
    let path = format!("/api/conversations/{id}");
    let reset = app.client.patch(format!("{}{path}", app.url)).json(&json!({"session_id": null}));
    assert_eq!(answer(reset).await.1["session_id"], Value::Null);
    let third = ran(&app, &id, hello()).await;
    assert_eq!(third["result"], "one");
    assert_ne!(third["session_id"], first["session_id"]);
    // An earlier session of the conversation can be continued; any other cannot.
    let change = |session: Value| app.client.patch(format!("{}{path}", app.url)).json(&json!({"session_id": session}));
    let (status, reply) = answer(change(json!("another"))).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_session"));
    assert_eq!(answer(change(first["session_id"].clone())).await.0, StatusCode::OK);
    assert_eq!(ran(&app, &id, hello()).await["result"], "three");
    let runs = get(&app, &format!("{path}/runs?limit=3")).await;
    let numbers: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| run["number"].as_i64().unwrap()).collect();
    assert_eq!((numbers, &runs["next"]), (vec![4, 3, 2], &json!("2")));
    assert_eq!(get(&app, &format!("{path}/runs?before=2")).await["runs"][0]["number"], 1);
}

#[tokio::test]
async fn a_restart_forgets_nothing() {
    let app = with_scripts(&[("talk", TALK)]).await;
    let id = create(&app, json!({"agent": "talk"})).await;
    ran(&app, &id, hello()).await;
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let again = crate::app::TestApp::in_directory(app.stop().await, &yaml).await;
    assert_eq!(ran(&again, &id, hello()).await["result"], "two");
}

#[tokio::test]
async fn a_second_run_waits_five_seconds_and_is_refused_or_interrupts_the_first() {
    let app = with_scripts(&[("slow", SLOW)]).await;
    let id = create(&app, json!({"agent": "slow"})).await;
    ran(&app, &id, hello()).await;
    let mut first = streamed(&app, &id, &hello()).send().await.unwrap();
    until(&mut first, |event| event.name == "system").await;
    let begun = Instant::now();
    let (refused, waiting) = tokio::join!(answer(execute(&app, &id, &hello())), events(streamed(&app, &id, &hello())));
    assert_eq!((refused.0, code(&refused.1)), (StatusCode::CONFLICT, "conversation_locked"));
    assert!(begun.elapsed() >= Duration::from_secs(5));
    assert_eq!(names(&waiting), ["queued", "error"]);
    assert_eq!(
        (&waiting[1].data["code"], &waiting[1].data["retryable"]),
        (&json!("CONVERSATION_LOCKED"), &json!(true))
    );
    let (status, _) = answer(app.client.delete(format!("{}/api/conversations/{id}", app.url))).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let next = ran(&app, &id, json!({"user_input": "And now?", "on_busy": "interrupt", "model": "weather"})).await;
    assert_eq!(next["status"], "succeeded");
    let rest = until(&mut first, |event| event.name == "result").await;
    let result = &rest.last().unwrap().data;
    assert_eq!(
        (&result["is_error"], &result["errors"][0]),
        (&json!(true), &json!("a later request of the conversation interrupted the run"))
    );
    let runs = get(&app, &format!("/api/conversations/{id}/runs")).await;
    let statuses: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["succeeded", "cancelled", "succeeded"]);
    let (status, _) = answer_of_delete(&app, &id).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "the lock is free");
}

async fn answer_of_delete(app: &crate::app::TestApp, id: &str) -> (StatusCode, String) {
    let response = app.client.delete(format!("{}/api/conversations/{id}", app.url)).send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

/// Starts a run and waits until its first call is answered and the second one is begun.
async fn begun_calls(app: &crate::app::TestApp, id: &str, more: Value) -> (reqwest::Response, String) {
    let mut body = hello();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut response = streamed(app, id, &body).send().await.unwrap();
    let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
    until(&mut response, |event| event.name == "tool_result").await;
    let path = format!("/api/logs/tool_executions?conversation_id={id}");
    while get(app, &path).await["rows"].as_array().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (response, run)
}

#[tokio::test]
async fn a_cancelled_run_keeps_what_it_has_and_the_next_one_knows_what_may_have_happened() {
    let app = with_scripts(&[("calls", CALLS)]).await;
    let id = create(&app, json!({"agent": "calls"})).await;
    let (mut response, run) = begun_calls(&app, &id, json!({})).await;
    let cancelled = app.post(&format!("/api/runs/{run}/cancel")).send().await.unwrap();
    assert_eq!(cancelled.status(), StatusCode::ACCEPTED);
    let rest = until(&mut response, |event| event.name == "system").await;
    assert_eq!(names(&rest), ["result", "system"]);
    let ended = get(&app, &format!("/api/runs/{run}")).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(ended["usage"][0]["num_turns"], 1);
    let kept = ["user: Is 21.5 °C warm?", "assistant: Let me see. [calculator] [sleep]", "tool: 42"];
    assert_eq!(said(&app, &id).await, kept);
    let page = get(&app, &format!("/api/conversations/{id}/messages")).await;
    assert!(page["messages"].as_array().unwrap().iter().all(|message| message["incomplete"] == true));
    assert_eq!(ran(&app, &id, json!({"user_input": "Go on."})).await["result"], "Done.");
    let all = said(&app, &id).await;
    assert!(all[3].starts_with("tool: Error: the call was sent") && all[3].contains("may have happened"), "{all:?}");
    assert_eq!(all[4..], ["user: Go on.", "assistant: Done."]);
    assert_eq!(app.metric("shannon_tool_executions_total{status=\"success\",tool_name=\"calculator\"}").await, 1.0);
}

#[tokio::test]
async fn a_run_waits_for_a_decision_about_a_call_if_it_is_asked_to() {
    let app = with_scripts(&[("calls", CALLS)]).await;
    for decision in ["skip", "repeat"] {
        let id = create(&app, json!({"agent": "calls"})).await;
        let (response, run) = begun_calls(&app, &id, json!({})).await;
        drop(response);
        assert_eq!(ended(&app, &run).await["error"]["message"], "the client disconnected, and the run was cancelled");
        let body = json!({"user_input": "Go on.", "on_unknown": "pause"});
        let mut response = streamed(&app, &id, &body).send().await.unwrap();
        let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
        let so_far = until(&mut response, |event| event.name == "approval").await;
        let approval = &so_far.last().unwrap().data;
        assert_eq!(approval["tool_name"], "sleep");
        let shown = async || get(&app, &format!("/api/runs/{run}")).await["waits_for"].take();
        let mut asked = Value::Null;
        while asked.is_null() {
            asked = shown().await;
        }
        asked["type"] = json!("approval");
        assert_eq!(asked, *approval);
        let resolve = |call: &str| {
            let body = json!({"call_id": call, "decision": decision});
            app.post(&format!("/api/runs/{run}/resolve")).json(&body).send()
        };
        assert_eq!(resolve("another").await.unwrap().status(), StatusCode::NOT_FOUND);
        let call = approval["call_id"].as_str().unwrap();
        assert_eq!(resolve(call).await.unwrap().status(), StatusCode::ACCEPTED);
        if decision == "repeat" {
            let repeated = until(&mut response, |event| event.name == "tool_use").await;
            assert_eq!(repeated.last().unwrap().data["tool_use_id"], call);
            assert_eq!(shown().await, Value::Null, "it is decided");
            // It takes a minute again.
            app.post(&format!("/api/runs/{run}/cancel")).send().await.unwrap();
            until(&mut response, |event| event.name == "result").await;
            continue;
        }
        let rest = until(&mut response, |event| event.name == "result").await;
        assert_eq!(rest.last().unwrap().data["result"], "Done.");
        assert!(said(&app, &id).await[3].starts_with("tool: Error: the call was sent"));
    }
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_run_or_lets_it_go_on() {
    let app = with_scripts(&[("pause", "turns: [{text: [one], delay_seconds: 1}]")]).await;
    for (on_disconnect, expected) in [("cancel", "cancelled"), ("continue", "succeeded")] {
        let id = create(&app, json!({"agent": "pause"})).await;
        let mut body = hello();
        body["on_disconnect"] = json!(on_disconnect);
        let mut response = streamed(&app, &id, &body).send().await.unwrap();
        let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
        until(&mut response, |event| event.name == "system").await;
        drop(response);
        if expected == "succeeded" {
            let rest = events(app.get(&format!("/api/runs/{run}/events")).header("last-event-id", "1")).await;
            assert_eq!(names(&rest), ["text_delta", "result", "system"]);
        }
        assert_eq!(ended(&app, &run).await["status"], expected);
    }
}

#[tokio::test]
async fn a_run_that_takes_too_long_returns_what_it_has() {
    let directory = tempfile::TempDir::new().unwrap();
    let script = directory.path().join("late.yaml");
    let turns = "turns: [{text: [So far.], calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"1\"}'}]}, {text: [late], delay_seconds: 60}]";
    std::fs::write(&script, turns).unwrap();
    let yaml = format!(
        "agent: {{default_profile: late, profiles: {{late: {{provider: replay, model: {}, max_run_seconds: 1}}}}}}",
        script.display()
    );
    let app = crate::app::TestApp::in_directory(directory, &yaml).await;
    let id = create(&app, json!({})).await;
    let reply = ran(&app, &id, hello()).await;
    assert_eq!((&reply["status"], &reply["is_error"]), (&json!("timed_out"), &json!(true)), "{reply}");
    assert_eq!(said(&app, &id).await.len(), 3, "the answered call is kept");
}

#[tokio::test]
async fn a_failed_run_has_one_row_and_its_error_in_the_form_of_the_reply() {
    let app = with_scripts(&[("refused", "turns: [{status: 400}]")]).await;
    let id = create(&app, json!({"agent": "refused"})).await;
    let (status, reply) = answer(execute(&app, &id, &hello())).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "model_refused"));
    let sent = events(streamed(&app, &id, &hello())).await;
    assert_eq!(names(&sent), ["system", "error", "result", "system"]);
    assert_eq!((&sent[1].data["code"], &sent[1].data["error_code"]), (&json!("SDK_ERROR"), &json!("model_refused")));
    let runs = get(&app, &format!("/api/conversations/{id}/runs")).await;
    let failed: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| &run["error"]["code"]).collect();
    assert_eq!(failed, [&json!("model_refused"); 2]);
    assert_eq!(get(&app, &format!("/api/conversations/{id}")).await["title"], Value::Null, "only a success sets it");
    // Two messages of the user in a row become one for the model: the next run is still its first turn.
    assert_eq!(ran(&app, &id, json!({"user_input": "Again.", "model": "weather"})).await["status"], "succeeded");
}

#[tokio::test]
async fn what_a_request_cannot_mean_is_refused() {
    let app = with_scripts(&[]).await;
    let id = create(&app, json!({})).await;
    for (body, part) in [
        (json!({"user_input": " "}), "`user_input` is empty"),
        (json!({"user_input": "a", "model": "none"}), "there is no model"),
        (json!({"user_input": "a", "on_busy": "never"}), "wrong form"),
        (json!({"user_input": "a", "executor": "x".repeat(300)}), "`executor`"),
    ] {
        let (status, reply) = answer(execute(&app, &id, &body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(reply["error"].as_str().unwrap().contains(part), "{reply}");
    }
    let inactive = app.client.patch(format!("{}/api/conversations/{id}", app.url)).json(&json!({"status": "inactive"}));
    assert_eq!(answer(inactive).await.1["status"], "inactive");
    let (status, reply) = answer(execute(&app, &id, &hello())).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    assert_eq!(get(&app, &format!("/api/conversations/{id}/runs")).await["runs"], json!([]));
}

#[tokio::test]
async fn the_list_of_events_is_published() {
    let app = with_scripts(&[]).await;
    let document = get(&app, "/openapi.json").await;
    let schema = &document["components"]["schemas"]["RunEvent"];
    let variants = schema["oneOf"].as_array().unwrap_or_else(|| panic!("{schema}"));
    let published: Vec<_> =
        variants.iter().map(|variant| variant["properties"]["type"]["enum"][0].as_str().unwrap()).collect();
    let expected = [
        "system",
        "text_delta",
        "thinking",
        "tool_use",
        "tool_result",
        "result",
        "error",
        "queued",
        "retry",
        "approval",
        "compacted",
        "subagent_begin",
        "subagent_end",
        "plan_changed",
    ];
    assert_eq!(published, expected);
}

/// The upstream answers with the header that it got.
#[tokio::test]
async fn tokens_of_a_request_reach_the_servers_that_take_them() {
    let echo = |headers: axum::http::HeaderMap| async move {
        headers.get("x-user-token").map(|token| token.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let url = crate::charges::served(axum::Router::new().route("/me", axum::routing::get(echo))).await;
    let directory = tempfile::TempDir::new().unwrap();
    let text = json!({"200": {"description": "me", "content": {"text/plain": {"schema": {"type": "string"}}}}});
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Me", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/me": {"get": {"operationId": "me", "responses": text}}},
    });
    let script = "turns: [{calls: [{id: a, tool: api__me, arguments: '{}'}]}, {text: [done]}]";
    let (file, model) = (directory.path().join("me.json"), directory.path().join("me.yaml"));
    std::fs::write(&file, document.to_string()).unwrap();
    std::fs::write(&model, script).unwrap();
    let yaml = format!(
        "outbound: {{{}}}\n\
         openapi: {{collections: {{api: {{spec_file: '{}', auth_config: {{headers_template: {{X-User-Token: 'u-$${{user_token}}'}}}}}}}}}}\n\
         agent: {{default_profile: me, profiles: {{me: {{provider: replay, model: '{}'}}}}}}\n",
        crate::charges::LOOPBACK,
        file.display(),
        model.display()
    );
    let app = crate::app::TestApp::in_directory(directory, &yaml).await;
    let id = create(&app, json!({})).await;
    ran(&app, &id, json!({"user_input": "Who am I?", "tokens": {"user_token": "s3cret"}})).await;
    assert!(said(&app, &id).await[2].contains("u-s3cret"));
    let other = create(&app, json!({})).await;
    ran(&app, &other, json!({"user_input": "Who am I?"})).await;
    assert!(said(&app, &other).await[2].contains("needs the caller's token `user_token`"));
}
