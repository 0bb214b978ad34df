//! Agents at `/v1`, as an OpenAI client sees them; a script plays the model.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};

/// A gateway with one agent for each script.
pub(crate) async fn with_scripts(scripts: &[(&str, &str)]) -> TestApp {
    let directory = tempfile::TempDir::new().unwrap();
    let mut yaml = "agent:\n  default_profile: weather\n  profiles:\n".to_owned();
    let weather = include_str!("../../config/examples/weather.yaml");
    for (name, script) in [("weather", weather)].iter().chain(scripts) {
        let file = directory.path().join(format!("{name}.yaml"));
        std::fs::write(&file, script).unwrap();
        writeln!(yaml, "    {name}: {{provider: replay, model: {}}}", file.display()).unwrap();
    }
    TestApp::in_directory(directory, &yaml).await
}

fn asked(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Is 21.5 °C warm?"}]})
}

/// The events of a stream: number and data each.
async fn events(app: &TestApp, body: &Value) -> Vec<(String, String)> {
    let response = app.post("/v1/chat/completions").json(body).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let text = response.text().await.unwrap();
    let event = |event: &str| {
        let (id, data) = event.strip_prefix("id: ").unwrap().split_once("\ndata: ").unwrap();
        (id.to_owned(), data.to_owned())
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn reported(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

/// The chunks of a stream that ended as it should.
async fn chunks(app: &TestApp, mut body: Value) -> Vec<Value> {
    body["stream"] = true.into();
    let mut events = events(app, &body).await;
    assert!(events.iter().enumerate().all(|(number, (id, _))| *id == number.to_string()), "{events:?}");
    assert_eq!(events.pop().unwrap().1, "[DONE]");
    events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn an_agent_answers_with_the_gateways_tools_run_inside() {
    let app = with_scripts(&[]).await;
    let (status, completion) = answer(app.post("/v1/chat/completions").json(&asked("weather"))).await;
    assert_eq!(status, 200, "{completion}");
    let choice = &completion["choices"][0];
    assert_eq!(
        (completion["object"].as_str(), choice["finish_reason"].as_str()),
        (Some("chat.completion"), Some("stop"))
    );
    let texts = "Let me convert that.\n\nIt is 21.5 °C in Tokyo, which is 70.7 °F.";
    assert_eq!(choice["message"]["content"], texts, "{completion}");
    assert_eq!(
        completion["usage"],
        json!({"prompt_tokens": 290, "completion_tokens": 42, "total_tokens": 332,
        "prompt_tokens_details": {"cached_tokens": 0}})
    );
    let calls = app.metrics().await;
    assert!(calls.lines().any(|line| line.contains("calculator") && line.ends_with(" 1")), "{calls}");
}

#[tokio::test]
async fn an_agent_streams_the_same_in_chunks_that_end_with_done() {
    let app = with_scripts(&[]).await;
    let mut body = asked("weather");
    body["stream_options"] = json!({"include_usage": true});
    let chunks = chunks(&app, body).await;
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let texts = "Let me convert that.\n\nIt is 21.5 °C in Tokyo, which is 70.7 °F.";
    assert_eq!(reported(&chunks), texts, "a blank line is between the texts of two turns");
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 332);
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_turn_that_calls_both_hands_out_the_clients_call_and_keeps_what_was_done() {
    let both = r#"
turns:
  - calls:
      - {id: own, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: theirs, tool: click, arguments: '{"x": 1}'}
  - text: ["Clicked."]
"#;
    let app = with_scripts(&[("both", both)]).await;
    let mut body = asked("both");
    body["tools"] = json!([{"type": "function", "function": {"name": "click", "parameters": {"type": "object"}}}]);
    let reported = chunks(&app, body.clone()).await;
    let calls: Vec<_> = reported.iter().filter(|chunk| chunk["choices"][0]["delta"]["tool_calls"].is_array()).collect();
    assert_eq!(calls.len(), 1, "{reported:?}");
    let call = calls[0]["choices"][0]["delta"]["tool_calls"][0].clone();
    assert_eq!(call["function"], json!({"name": "click", "arguments": "{\"x\": 1}"}));
    assert_eq!(reported.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    let messages = body["messages"].as_array_mut().unwrap();
    let id = call["id"].clone();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": "clicked"}));
    let (status, completion) = answer(app.post("/v1/chat/completions").json(&body)).await;
    assert_eq!((status.as_u16(), &completion["choices"][0]["message"]["content"]), (200, &json!("Clicked.")));
}

#[tokio::test]
async fn a_run_that_waits_for_its_client_outlives_a_restart() {
    let waits = r#"
turns:
  - calls: [{id: own, tool: calculator, arguments: '{"expression": "6*7"}'}]
  - calls: [{id: theirs, tool: click, arguments: '{"x": 1}'}]
  - text: ["Clicked."]
"#;
    let app = with_scripts(&[("waits", waits)]).await;
    let mut body = asked("waits");
    body["tools"] = json!([{"type": "function", "function": {"name": "click", "parameters": {"type": "object"}}}]);
    let (_, completion) = answer(app.post("/v1/chat/completions").json(&body)).await;
    let turn = completion["choices"][0]["message"].clone();
    let id = turn["tool_calls"][0]["id"].clone();
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([turn, json!({"role": "tool", "tool_call_id": id, "content": "clicked"})]);
    // The script goes by the turns of the conversation: the third is played only where the first is known.
    let (status, completion) = answer(app.post("/v1/chat/completions").json(&body)).await;
    assert_eq!((status.as_u16(), &completion["choices"][0]["message"]["content"]), (200, &json!("Clicked.")));
}

#[tokio::test]
async fn a_model_that_fails_midway_ends_the_stream_with_an_error() {
    let script =
        "turns: [{text: ['It is '], calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"1\"}'}]}]";
    let app = with_scripts(&[("breaks", script)]).await;
    let mut body = asked("breaks");
    body["stream"] = true.into();
    let text = app.post("/v1/chat/completions").json(&body).send().await.unwrap().text().await.unwrap();
    let mut chunks = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let last: Value = serde_json::from_str(chunks.next_back().unwrap()).unwrap();
    assert_eq!(
        (&last["choices"][0]["finish_reason"], &last["error"]["code"]),
        (&json!("error"), &json!("model_refused"))
    );
}

#[tokio::test]
async fn without_a_model_the_default_agent_answers_and_options_are_kept_or_refused() {
    let app = with_scripts(&[("two", "turns: [{text: [hi]}]")]).await;
    let unnamed = json!({"messages": [{"role": "user", "content": "Is 21.5 °C warm?"}]});
    let (status, reply) = answer(app.post("/v1/chat/completions").json(&unnamed)).await;
    assert_eq!((status.as_u16(), &reply["model"]), (200, &json!("weather")), "{reply}");
    for (option, status) in [(json!({"temperature": 0.1, "user": "ann"}), 200), (json!({"logprobs": true}), 400)] {
        let mut body = asked("two");
        body.as_object_mut().unwrap().extend(option.as_object().unwrap().clone());
        let (found, reply) = answer(app.post("/v1/chat/completions").json(&body)).await;
        assert_eq!(found.as_u16(), status, "{option}: {reply}");
    }
}

#[tokio::test]
async fn a_model_that_fails_at_once_is_an_error_that_openai_clients_can_read() {
    let app = with_scripts(&[("mute", "turns: []")]).await;
    for stream in [false, true] {
        let mut body = asked("mute");
        body["stream"] = stream.into();
        let response = app.post("/v1/chat/completions").json(&body).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x-should-retry"].to_str().unwrap()),
            (400, &"false")
        );
        let reply: Value = response.json().await.unwrap();
        assert_eq!((code(&reply), &reply["error_info"]["retryable"]), ("model_refused", &json!(false)), "{reply}");
        assert_eq!(
            (&reply["error"]["code"], &reply["error"]["type"]),
            (&json!("model_refused"), &json!("invalid_request_error"))
        );
        assert!(reply["error"]["message"].as_str().unwrap().contains("0 turns"), "{reply}");
    }
}

/// A70.
#[tokio::test]
async fn a_model_that_fails_later_ends_the_stream_in_order() {
    let short =
        "turns: [{text: [Let me see.], calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"1\"}'}]}]";
    let app = with_scripts(&[("short", short)]).await;
    let received = chunks(&app, asked("short")).await;
    assert!(reported(&received).starts_with("Let me see.\n\n["), "{received:?}");
}

#[tokio::test]
async fn the_agents_are_listed_and_others_are_named_unknown() {
    let app = with_scripts(&[]).await;
    let (_, models) = answer(app.get("/v1/models")).await;
    let entry = json!({"id": "weather", "object": "model", "created": 0, "owned_by": "sekisho"});
    assert_eq!(models["object"], "list");
    assert!(models["data"].as_array().unwrap().contains(&entry), "{models}");
    assert_eq!(answer(app.get("/v1/models/weather")).await.1, entry);
    let (status, reply) = answer(app.get("/v1/models/nobody")).await;
    let (kind, code_of_openai) = (&reply["error"]["type"], &reply["error"]["code"]);
    assert_eq!((status.as_u16(), kind), (404, &json!("invalid_request_error")));
    assert_eq!(code_of_openai, &json!("model_not_found"));
    let (status, reply) = answer(app.post("/v1/chat/completions").json(&asked("nobody"))).await;
    assert_eq!((status.as_u16(), code(&reply)), (400, "invalid_request"));
    assert!(reply["error"]["message"].as_str().unwrap().contains("weather"), "the names that there are: {reply}");
}

#[tokio::test]
async fn who_may_not_call_tools_may_not_run_agents() {
    let app = TestApp::with("auth: {anonymous: never, api_keys: [{id: ann, key: secret}]}").await;
    for request in [app.get("/v1/models"), app.post("/v1/chat/completions").json(&asked("weather"))] {
        let (status, reply) = answer(request).await;
        assert_eq!((status.as_u16(), &reply["error"]["type"]), (401, &json!("authentication_error")), "{reply}");
    }
}
