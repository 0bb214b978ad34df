//! Runs of agents that pause until a person decides about a call, and go on, also after a restart.

use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ASKS, KEYS, approve, call, decide, pending, show};
use crate::app::{TestApp, answer, code};
use crate::conversations::{SentEvent, describe, events, names};

/// `echo` needs approval.
const PAYS: &str = r#"
turns:
  - text: ["Let me see."]
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: b, tool: echo, arguments: '{"n": 1}'}
  - text: ["Done."]
  - text: ["You are welcome."]
"#;

/// A gateway with an agent that makes such a call.
pub(crate) async fn agent() -> TestApp {
    agent_with(ASKS).await
}

/// The same with other settings of the tools.
pub(crate) async fn agent_with(tools: &str) -> TestApp {
    agent_that(PAYS, tools).await
}

/// A gateway with an agent whose model says this.
pub(super) async fn agent_that(script_of_model: &str, tools: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("pays.yaml");
    std::fs::write(&script, script_of_model).unwrap();
    let agent =
        format!("default_profile: pays, profiles: {{pays: {{provider: replay, model: '{}'}}}}", script.display());
    TestApp::in_directory(directory, &format!("{KEYS}{tools}agent: {{{agent}}}\n")).await
}

pub(super) async fn restarted(app: TestApp) -> TestApp {
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    TestApp::in_directory(app.stop().await, &yaml).await
}

fn post(app: &TestApp, path: &str, body: &Value) -> RequestBuilder {
    app.post(path).bearer_auth("key-of-ann").json(body)
}

pub(super) async fn ok(request: RequestBuilder) -> Value {
    let (status, body) = answer(request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

/// How often a tool ran in this process.
pub(super) async fn runs_of(app: &TestApp, tool: &str) -> f64 {
    app.metric(&format!("shannon_tool_executions_total{{status=\"success\",tool_name=\"{tool}\"}}")).await
}

#[tokio::test]
async fn an_openai_client_continues_a_paused_run_also_after_a_restart() {
    let app = agent().await;
    let mut messages = vec![json!({"role": "user", "content": "Pay."})];
    let complete = async |app: &TestApp, messages: &[Value]| {
        let completion = ok(post(app, "/v1/chat/completions", &json!({"messages": messages}))).await;
        completion["choices"][0].clone()
    };
    let choice = complete(&app, &messages).await;
    assert_eq!(choice["finish_reason"], "approval_required", "{choice}");
    let id = pending(&app).await;
    let paused = &choice["message"]["approvals"][0];
    assert_eq!((&paused["id"], &paused["tool"]), (&json!(id), &json!("echo")), "{choice}");
    let url = paused["url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/console/approvals/{id}")) && paused["expires_at"].is_string(), "{paused}");
    let content = choice["message"]["content"].as_str().unwrap();
    assert!(content.starts_with("Let me see.") && content.contains(url), "{content}");
    assert_eq!(app.metric("shannon_calls_in_flight").await, 0.0);
    assert_eq!(runs_of(&app, "calculator").await, 1.0, "the other calls of the turn run");
    messages.push(choice["message"].clone());
    // Nobody has decided. A client may keep each answer.
    let again = complete(&app, &messages).await;
    assert_eq!(
        (&again["finish_reason"], &again["message"]["approvals"][0]["id"]),
        (&json!("approval_required"), &json!(id))
    );
    messages.push(again["message"].clone());
    let app = restarted(app).await;
    approve(&app, &id).await;
    for _ in 0..2 {
        let choice = complete(&app, &messages).await;
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("stop"), &json!("Done.")));
    }
    assert_eq!((runs_of(&app, "calculator").await, runs_of(&app, "echo").await), (0.0, 1.0), "no call runs twice");
    messages.extend([json!({"role": "assistant", "content": "Done."}), json!({"role": "user", "content": "Thanks."})]);
    assert_eq!(complete(&app, &messages).await["message"]["content"], "You are welcome.");
    // Another caller has no such run.
    let stolen = app.post("/v1/chat/completions").bearer_auth("key-of-bob").json(&json!({"messages": messages[..2]}));
    let (status, refused) = answer(stolen).await;
    assert_eq!((status, code(&refused)), (StatusCode::NOT_FOUND, "unknown_session"), "{refused}");
}

#[tokio::test]
async fn a_stream_has_the_calls_that_wait_in_its_last_chunk() {
    let app = agent().await;
    let user = json!({"role": "user", "content": "Pay."});
    let body = json!({"messages": [user], "stream": true});
    let text = post(&app, "/v1/chat/completions", &body).send().await.unwrap().text().await.unwrap();
    let chunks = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let chunks: Vec<Value> = chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    let last = &chunks.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], "approval_required", "{last}");
    approve(&app, last["delta"]["approvals"][0]["id"].as_str().unwrap()).await;
    let content: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    let message = json!({"role": "assistant", "content": content, "approvals": last["delta"]["approvals"]});
    let completion = ok(post(&app, "/v1/chat/completions", &json!({"messages": [user, message]}))).await;
    assert_eq!(completion["choices"][0]["message"]["content"], "Done.");
}

#[tokio::test]
async fn a_response_is_incomplete_and_the_next_one_continues_it() {
    let app = agent().await;
    let paused = ok(post(&app, "/v1/responses", &json!({"input": "Pay."}))).await;
    assert_eq!(
        (&paused["status"], &paused["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("approval_required"))
    );
    let next = json!({"input": [], "previous_response_id": paused["id"]});
    assert_eq!(ok(post(&app, "/v1/responses", &next)).await["status"], "incomplete", "nobody has decided");
    approve(&app, paused["approvals"][0]["id"].as_str().unwrap()).await;
    let done = ok(post(&app, "/v1/responses", &next)).await;
    assert_eq!((&done["status"], &done["output"][0]["content"][0]["text"]), (&json!("completed"), &json!("Done.")));
    let thanks = json!({"input": "Thanks.", "previous_response_id": done["id"]});
    let answered = ok(post(&app, "/v1/responses", &thanks)).await;
    assert_eq!(answered["output"][0]["content"][0]["text"], "You are welcome.");
    // Responses are lost in a restart; the whole conversation as input is not.
    let app = restarted(app).await;
    let mut input = vec![json!({"role": "user", "content": "Pay."})];
    for items in [&paused["output"], &paused["approvals"]] {
        input.extend(items.as_array().unwrap().iter().cloned());
    }
    let done = ok(post(&app, "/v1/responses", &json!({"input": input}))).await;
    assert_eq!(done["output"][0]["content"][0]["text"], "Done.");
    assert_eq!(runs_of(&app, "echo").await, 0.0, "its answer is kept");
}

#[tokio::test]
async fn a_message_pauses_its_turn_and_is_sent_back_as_it_is() {
    let app = agent().await;
    let user = json!({"role": "user", "content": "Pay."});
    let ask =
        async |messages: Value| ok(post(&app, "/v1/messages", &json!({"max_tokens": 100, "messages": messages}))).await;
    let paused = ask(json!([user])).await;
    assert_eq!(paused["stop_reason"], "pause_turn", "{paused}");
    let block = paused["content"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&block["type"], &block["name"], &block["input"]),
        (&json!("server_tool_use"), &json!("echo"), &json!({"n": 1}))
    );
    assert_eq!(paused["approvals"][0]["call_id"], block["id"]);
    approve(&app, paused["approvals"][0]["id"].as_str().unwrap()).await;
    let done = ask(json!([user, {"role": "assistant", "content": paused["content"]}])).await;
    assert_eq!((&done["stop_reason"], &done["content"][0]["text"]), (&json!("end_turn"), &json!("Done.")));
}

/// A conversation of the agent.
pub(super) async fn conversation(app: &TestApp) -> String {
    let (status, created) = answer(post(app, "/api/conversations", &json!({}))).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    created["id"].as_str().unwrap().to_owned()
}

pub(super) fn execute(app: &TestApp, id: &str, body: &Value) -> RequestBuilder {
    post(app, &format!("/api/conversations/{id}/execute"), body)
}

pub(super) async fn said(app: &TestApp, id: &str) -> Vec<String> {
    let page = ok(app.get(&format!("/api/conversations/{id}/messages")).bearer_auth("key-of-ann")).await;
    page["messages"].as_array().unwrap().iter().map(|entry| describe(&entry["message"])).collect()
}

/// A conversation whose run is paused, and the id of the approval.
pub(crate) async fn paused(app: &TestApp) -> (String, String) {
    let id = conversation(app).await;
    let reply = ok(execute(app, &id, &json!({"user_input": "Pay."}))).await;
    assert_eq!((&reply["status"], &reply["is_error"], &reply["errors"]), (&json!("paused"), &json!(false), &json!([])));
    (id, reply["approvals"][0]["id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_paused_run_of_a_conversation_goes_on_after_a_restart() {
    let app = agent().await;
    let (id, approval) = paused(&app).await;
    let runs = ok(app.get(&format!("/api/conversations/{id}/runs")).bearer_auth("key-of-ann")).await;
    assert_eq!(
        (&runs["runs"][0]["status"], &runs["runs"][0]["error"]["code"]),
        (&json!("paused"), &json!("approval_required"))
    );
    let run = runs["runs"][0]["id"].as_str().unwrap().to_owned();
    let timeline =
        async |app: &TestApp| ok(app.get(&format!("/api/runs/{run}/timeline")).bearer_auth("key-of-ann")).await;
    let waits = timeline(&app).await;
    let call = &waits["items"][2];
    assert_eq!((&call["state"], &call["work"]["approval"]), (&json!("waits"), &json!(approval)), "{waits}");
    assert_eq!((&call["ended_at"], &waits["until"]), (&Value::Null, &Value::Null), "{waits}");
    let kept = ["user: Pay.", "assistant: Let me see. [calculator] [echo]", "tool: 42"];
    assert_eq!(said(&app, &id).await, kept);
    // Without anything to say, the run goes on as soon as somebody has decided, and no run begins before.
    let (status, refused) = answer(execute(&app, &id, &json!({}))).await;
    assert_eq!((status, code(&refused)), (StatusCode::FORBIDDEN, "approval_required"), "{refused}");
    assert_eq!(refused["error_info"]["approval"]["id"], json!(approval));
    let app = restarted(app).await;
    approve(&app, &approval).await;
    let reply = ok(execute(&app, &id, &json!({}))).await;
    assert_eq!((&reply["status"], &reply["result"]), (&json!("succeeded"), &json!("Done.")), "{reply}");
    let whole = [&kept[..], &["tool: {\"echo\":{\"n\":1},\"run\":1}", "assistant: Done."]].concat();
    assert_eq!(said(&app, &id).await, whole);
    // The call lasted until it was approved and made, after the end of its run.
    let made = timeline(&app).await;
    let call = &made["items"][2];
    assert_eq!((&call["state"], &call["ended_at"]), (&json!("succeeded"), &made["until"]), "{made}");
    assert!(made["until"].is_string(), "{made}");
    let runs = ok(app.get(&format!("/api/conversations/{id}/runs")).bearer_auth("key-of-ann")).await;
    assert_eq!((runs["runs"].as_array().unwrap().len(), &runs["runs"][0]["status"]), (2, &json!("succeeded")));
    let calls = ok(app.get("/api/logs/tool_executions").bearer_auth("key-of-ann")).await;
    assert_eq!(calls["rows"].as_array().unwrap().len(), 2, "it is one call: {calls}");
    assert_eq!((runs_of(&app, "calculator").await, runs_of(&app, "echo").await), (0.0, 1.0));
    let (status, refused) = answer(execute(&app, &id, &json!({}))).await;
    assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "nothing waits: {refused}");
}

#[tokio::test]
async fn a_stream_of_a_conversation_has_an_event_for_the_call_and_ends() {
    let app = agent().await;
    let id = conversation(&app).await;
    let streamed = |body: Value| execute(&app, &id, &body).header("accept", "text/event-stream");
    let sent = events(streamed(json!({"user_input": "Pay."}))).await;
    let expected = ["system", "text_delta", "tool_use", "tool_use", "tool_result", "approval", "result", "system"];
    assert_eq!(names(&sent), expected);
    let of = |sent: &[SentEvent], name: &str| sent.iter().find(|event| event.name == name).unwrap().data.clone();
    let (event, used) = (of(&sent, "approval"), &sent[3].data);
    assert_eq!((&event["call_id"], &event["tool_name"]), (&used["tool_use_id"], &json!("echo")));
    assert_eq!((&event["tool_input"], of(&sent, "result")["is_error"].clone()), (&json!("{\"n\": 1}"), json!(false)));
    approve(&app, event["approval"]["id"].as_str().unwrap()).await;
    let sent = events(streamed(json!({}))).await;
    assert_eq!(names(&sent), ["system", "tool_use", "tool_result", "text_delta", "result", "system"]);
    assert_eq!(of(&sent, "tool_result")["tool_use_id"], event["call_id"]);
}

#[tokio::test]
async fn a_model_is_told_why_an_approver_denied_its_call() {
    let app = agent().await;
    let (id, approval) = paused(&app).await;
    let (status, _) = decide(&app, "key-of-boss", &approval, "deny", json!({"reason": "too much"})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(ok(execute(&app, &id, &json!({}))).await["result"], "Done.");
    let told = &said(&app, &id).await[3];
    assert!(told.starts_with("tool: Error: an approver denied this call (too much)"), "{told}");
    assert_eq!(runs_of(&app, "echo").await, 0.0);
}

#[tokio::test]
async fn an_approver_changes_the_arguments_and_the_model_is_told() {
    let app = agent().await;
    let (id, approval) = paused(&app).await;
    let change = json!({"reason": "less", "arguments": {"n": 0}});
    let wide = json!({"scope": "minutes", "minutes": 5, "arguments": {"n": 0}});
    assert_eq!(decide(&app, "key-of-boss", &approval, "approve", wide).await.0, StatusCode::BAD_REQUEST);
    let (status, approved) = decide(&app, "key-of-boss", &approval, "approve", change.clone()).await;
    assert_eq!((status, &approved["decisions"][0]["changed_arguments"]), (StatusCode::OK, &json!(true)), "{approved}");
    let (_, shown) = show(&app, "key-of-eve", &approval).await;
    assert_eq!((&shown["arguments"], &shown["changed_arguments"]), (&json!({"n": 1}), &json!({"n": 0})), "{shown}");
    let (_, own) = show(&app, "key-of-ann", &approval).await;
    assert_eq!(own.get("changed_arguments"), None, "{own}");
    // A call that its caller sends is never another one.
    let sent = call(&app, "key-of-ann", &json!({"n": 1})).header("x-approval-id", &approval);
    assert_eq!(code(&answer(sent).await.1), "approval_mismatch");
    let rest = super::ask(&app, "key-of-ann", &json!({"n": 2})).await;
    let (status, refused) = decide(&app, "key-of-boss", &rest, "approve", change).await;
    assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("the run of an agent"), "{refused}");
    assert_eq!(ok(execute(&app, &id, &json!({}))).await["result"], "Done.");
    let told = &said(&app, &id).await[3];
    assert_eq!(told, "tool: [The approver changed the arguments to {\"n\":0}.]\n{\"echo\":{\"n\":0},\"run\":1}");
}

#[tokio::test]
async fn what_the_user_says_meanwhile_is_answered_without_the_call() {
    let app = agent().await;
    let (id, approval) = paused(&app).await;
    assert_eq!(ok(execute(&app, &id, &json!({"user_input": "Never mind."}))).await["result"], "Done.");
    let said = said(&app, &id).await;
    assert!(said[3].starts_with("tool: Error: The call waits for a person"), "{said:?}");
    assert_eq!(said[4..], ["user: Never mind.", "assistant: Done."]);
    let (_, shown) = show(&app, "key-of-boss", &approval).await;
    assert_eq!((&shown["status"], runs_of(&app, "echo").await), (&json!("pending"), 0.0));
    let calls = ok(app.get("/api/logs/tool_executions").bearer_auth("key-of-ann")).await;
    let calls = calls["rows"].as_array().unwrap();
    assert!(calls.iter().all(|call| call["ended_at"].is_string()), "{calls:?}");
}

/// A plan begins with a goal, and makes no call of the run before.
#[tokio::test]
async fn a_plan_ends_the_calls_for_which_the_run_before_paused() {
    const PLAN: &str = include_str!("../../../config/examples/plan.yaml");
    let directory = TempDir::new().unwrap();
    let [pays, plan] = [("pays.yaml", PAYS), ("plan.yaml", PLAN)].map(|(name, script)| {
        let file = directory.path().join(name);
        std::fs::write(&file, script).unwrap();
        file.display().to_string()
    });
    let agent = format!(
        "default_profile: pays, profiles: {{pays: {{provider: replay, model: '{pays}'}}, \
         planned: {{provider: replay, model: '{plan}', planner: {{preset: steps}}}}}}"
    );
    let app = TestApp::in_directory(directory, &format!("{KEYS}{ASKS}agent: {{{agent}}}\n")).await;
    let (id, _) = paused(&app).await;
    let planned = json!({"user_input": "Which is warmer?", "model": "planned"});
    let reply = ok(execute(&app, &id, &planned)).await;
    assert_eq!(reply["status"], "succeeded", "{reply}");
    let said = said(&app, &id).await;
    assert!(said[3].starts_with("tool: Error: a person had to approve the call, and it was not made"), "{said:?}");
    let calls = ok(app.get("/api/logs/tool_executions").bearer_auth("key-of-ann")).await;
    let calls = calls["rows"].as_array().unwrap();
    assert!(calls.iter().any(|call| call["tool_name"] == "echo"), "{calls:?}");
    assert!(calls.iter().all(|call| call["ended_at"].is_string()), "{calls:?}");
}

/// `/api/chat` is an API over conversations.
#[tokio::test]
async fn a_message_of_a_chat_says_which_calls_wait_and_the_next_one_makes_them() {
    let app = agent().await;
    let paused = ok(post(&app, "/api/chat", &json!({"message": "Pay."}))).await;
    assert_eq!(paused["approvals"][0]["tool"], "echo", "{paused}");
    approve(&app, paused["approvals"][0]["id"].as_str().unwrap()).await;
    let next = json!({"message": "Go on.", "session_id": paused["session_id"]});
    let done = ok(post(&app, "/api/chat", &next)).await;
    assert_eq!((&done["reply"], &done["tool_calls"][0]["name"]), (&json!("Done."), &json!("echo")), "{done}");
}
