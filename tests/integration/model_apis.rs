//! Agents at `/v1/responses` and `/v1/messages`, and files of users in every API; a script plays the model.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};
use crate::sent_turns::{SentTurns, append_only};

/// Calls a tool of the gateway and one of the client.
const BOTH: &str = r#"
turns:
  - text: ["Let me see."]
    calls:
      - {id: own, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: theirs, tool: click, arguments: '{"x": 1}'}
  - text: ["Clicked."]
  - text: ["You are welcome."]
"#;

const TWO: &str = "turns: [{text: [one]}, {text: [two]}, {text: [three]}]";

const THINKER: &str = "turns: [{thinking: Hm., text: [Yes.]}]";

/// It fails after its first piece.
const BREAKS: &str =
    "turns: [{text: ['It is '], calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"1\"}'}]}]";

const KEYS: &str = "
auth:
  anonymous: never
  api_keys:
    - {id: ada, key: key-of-ada, roles: [operator, admin]}
    - {id: bob, key: key-of-bob}
";

/// Bytes that are no text, in base64, and where they are in the workspace.
const BINARY: (&str, &str) = ("//4AAQ==", "data.bin");

/// A gateway that requires a key, with an agent that answers three times.
async fn with_keys() -> TestApp {
    let directory = tempfile::TempDir::new().unwrap();
    let script = directory.path().join("two.yaml");
    std::fs::write(&script, TWO).unwrap();
    let profile = format!("{{provider: replay, model: {}}}", script.display());
    let yaml = format!("{KEYS}agent: {{default_profile: two, profiles: {{two: {profile}}}}}");
    TestApp::in_directory(directory, &yaml).await
}

/// Names and bodies of the events of a stream.
async fn events(request: RequestBuilder) -> Vec<(String, Value)> {
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let event = |event: &str| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let body: Value = serde_json::from_str(data).unwrap();
        assert_eq!(body["type"], name);
        (name.to_owned(), body)
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn responses(app: &TestApp, body: &Value) -> RequestBuilder {
    app.post("/v1/responses").json(body)
}

fn messages(app: &TestApp, body: &Value) -> RequestBuilder {
    app.post("/v1/messages").json(body)
}

fn texts(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
    items.map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

fn joined(events: &[(String, Value)], field: &str) -> String {
    events.iter().filter_map(|(_, body)| body[field].as_str().or(body["delta"][field].as_str())).collect()
}

#[tokio::test]
async fn a_response_has_a_message_for_each_text_and_streams_the_same() {
    let app = with_scripts(&[]).await;
    let mut body = json!({"model": "weather", "input": "Is 21.5 °C warm?", "metadata": {"run": "1"}});
    let (status, response) = answer(responses(&app, &body)).await;
    assert_eq!((status.as_u16(), &response["status"]), (200, &json!("completed")), "{response}");
    assert_eq!(texts(&response), ["Let me convert that.", "It is 21.5 °C in Tokyo, which is 70.7 °F."]);
    assert_eq!((&response["usage"]["total_tokens"], &response["metadata"]), (&json!(332), &json!({"run": "1"})));
    body["stream"] = true.into();
    let events = events(responses(&app, &body)).await;
    for (number, (_, event)) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names[..4],
        ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    );
    assert_eq!(joined(&events, "delta"), texts(&response).concat());
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), texts(&last["response"])), ("response.completed", texts(&response)));
}

#[tokio::test]
async fn a_function_of_the_client_is_called_and_its_output_continues_the_response() {
    let app = with_scripts(&[("both", BOTH)]).await;
    let tools = json!([{"type": "function", "name": "click", "parameters": {"type": "object"}}]);
    let body = json!({"model": "both", "input": "Click it.", "tools": tools});
    let (_, first) = answer(responses(&app, &body)).await;
    let call = first["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&call["type"], &call["name"], &call["arguments"]),
        (&json!("function_call"), &json!("click"), &json!("{\"x\": 1}"))
    );
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "clicked"});
    let mut whole = vec![json!({"role": "user", "content": "Click it."})];
    whole.extend(first["output"].as_array().unwrap().iter().cloned());
    whole.push(output.clone());
    let by_id = json!({"model": "both", "input": [output], "previous_response_id": first["id"]});
    let reference = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let references = [
        vec![whole[0].clone()],
        first["output"].as_array().unwrap().iter().map(reference).collect(),
        vec![output.clone()],
    ];
    for next in [
        by_id.clone(),
        json!({"model": "both", "input": whole}),
        json!({"model": "both", "input": references.concat()}),
    ] {
        let (status, second) = answer(responses(&app, &next)).await;
        assert_eq!((status.as_u16(), texts(&second)), (200, vec!["Clicked."]), "{next}: {second}");
    }
    // The calls of the gateway's own tools are in the conversation that is kept, once each.
    let (_, second) = answer(responses(&app, &by_id)).await;
    let thanks = json!({"model": "both", "input": "Thanks.", "previous_response_id": second["id"]});
    assert_eq!(texts(&answer(responses(&app, &thanks)).await.1), ["You are welcome."]);
    let calls = app.metrics().await;
    assert!(calls.lines().any(|line| line.contains("calculator") && line.ends_with(" 1")), "{calls}");
    let (status, reply) =
        answer(responses(&app, &json!({"input": "go on", "previous_response_id": first["id"]}))).await;
    assert_eq!((status.as_u16(), code(&reply)), (400, "invalid_request"), "the call has no result: {reply}");
}

#[tokio::test]
async fn a_response_is_continued_by_its_own_caller_and_only_if_it_is_kept() {
    let app = with_scripts(&[("two", TWO)]).await;
    let ask = async |body: Value| answer(responses(&app, &body)).await;
    let (_, first) = ask(json!({"model": "two", "input": "hi", "instructions": "Be brief."})).await;
    let (_, second) =
        ask(json!({"model": "two", "input": "and?", "previous_response_id": first["id"], "store": false})).await;
    assert_eq!((texts(&second), &second["store"], &second["instructions"]), (vec!["two"], &json!(false), &Value::Null));
    for id in [second["id"].clone(), json!("resp_unknown")] {
        let (status, reply) = ask(json!({"model": "two", "input": "and?", "previous_response_id": id})).await;
        assert_eq!((status.as_u16(), &reply["error"]["code"]), (404, &json!("unknown_session")), "{reply}");
    }
    let app = with_keys().await;
    let (_, first) = answer(responses(&app, &json!({"input": "hi"})).bearer_auth("key-of-ada")).await;
    let next = json!({"input": "and?", "previous_response_id": first["id"]});
    for (key, status) in [("key-of-bob", 404), ("key-of-ada", 200)] {
        let (found, reply) = answer(responses(&app, &next).bearer_auth(key)).await;
        assert_eq!(found.as_u16(), status, "{key}: {reply}");
        let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
        let (found, reply) = answer(app.get(&path).bearer_auth(key)).await;
        assert_eq!(found.as_u16(), status, "{key}: {reply}");
        assert!(status == 404 || reply == first, "{reply}");
    }
}

/// As the Python client's `tool_runner` sends them.
#[tokio::test]
async fn a_thread_has_only_new_messages_after_its_first_request() {
    let app = with_scripts(&[("both", BOTH)]).await;
    let tools = json!([{"name": "click", "input_schema": {"type": "object"}}]);
    let mut body = json!({"model": "both", "messages": [{"role": "user", "content": "Click it."}], "tools": tools,
        "thread": {"type": "create"}});
    let (_, first) = answer(messages(&app, &body)).await;
    assert_eq!(first["stop_reason"], "tool_use", "{first}");
    let result = json!({"type": "tool_result", "tool_use_id": first["content"][1]["id"], "content": "clicked"});
    body["messages"] = json!([{"role": "user", "content": [result]}]);
    body["thread"] = json!({"type": "continue", "previous_message_id": first["id"]});
    let (status, second) = answer(messages(&app, &body)).await;
    assert_eq!((status.as_u16(), &second["content"][0]["text"]), (200, &json!("Clicked.")), "{second}");
    body["messages"] = json!([{"role": "user", "content": "Thanks."}]);
    body["thread"]["previous_message_id"] = second["id"].clone();
    body["stream"] = true.into();
    let streamed = events(messages(&app, &body)).await;
    assert!(streamed.iter().any(|(_, event)| event["delta"]["text"] == "You are welcome."), "{streamed:?}");
    body["stream"] = false.into();
    body["thread"]["previous_message_id"] = "msg_unknown".into();
    let (status, reply) = answer(messages(&app, &body)).await;
    assert_eq!((status.as_u16(), code(&reply)), (404, "unknown_session"), "{reply}");
}

#[tokio::test]
async fn a_response_that_fails_says_so_in_openais_form() {
    let app = with_scripts(&[("mute", "turns: []"), ("breaks", BREAKS)]).await;
    for stream in [false, true] {
        let (status, reply) = answer(responses(&app, &json!({"model": "mute", "input": "hi", "stream": stream}))).await;
        assert_eq!((status.as_u16(), &reply["error"]["type"]), (400, &json!("invalid_request_error")), "{reply}");
    }
    let events = events(responses(&app, &json!({"model": "breaks", "input": "hi", "stream": true}))).await;
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["response"]["error"]["code"]), ("response.failed", &json!("model_refused")));
    assert_eq!(texts(&last["response"]), ["It is "]);
    for (option, value) in [("prompt", json!({"id": "p"})), ("tools", json!([{"type": "web_search"}]))] {
        let mut body = json!({"input": "hi"});
        body[option] = value;
        let (status, reply) = answer(responses(&app, &body)).await;
        assert!(status == 400 && reply["error"]["message"].as_str().unwrap().contains(option), "{option}: {reply}");
    }
}

#[tokio::test]
async fn a_message_is_answered_and_streamed_with_the_gateways_tools_run_inside() {
    let app = with_scripts(&[("thinker", THINKER)]).await;
    let question = json!([{"role": "user", "content": "Is 21.5 °C warm?"}]);
    let mut body = json!({"model": "weather", "max_tokens": 500, "messages": question});
    let (status, message) = answer(messages(&app, &body)).await;
    assert_eq!((status.as_u16(), &message["stop_reason"]), (200, &json!("end_turn")), "{message}");
    assert_eq!(message["content"][1]["text"], "It is 21.5 °C in Tokyo, which is 70.7 °F.");
    assert_eq!((&message["usage"]["input_tokens"], &message["usage"]["output_tokens"]), (&json!(290), &json!(42)));
    body["stream"] = true.into();
    let streamed = events(messages(&app, &body)).await;
    assert_eq!(joined(&streamed, "text"), "Let me convert that.It is 21.5 °C in Tokyo, which is 70.7 °F.");
    let ends: Vec<_> = streamed.iter().rev().take(2).map(|(name, _)| name.as_str()).collect();
    assert_eq!((ends, streamed[0].0.as_str()), (vec!["message_stop", "message_delta"], "message_start"));
    body = json!({"model": "thinker", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(answer(messages(&app, &body)).await.1["content"], json!([{"type": "text", "text": "Yes."}]));
    body["thinking"] = json!({"type": "adaptive"});
    assert_eq!(answer(messages(&app, &body)).await.1["content"][0]["thinking"], "Hm.");
}

#[tokio::test]
async fn a_tool_of_the_client_is_used_and_its_result_goes_on() {
    let app = with_scripts(&[("both", BOTH)]).await;
    let tools = json!([{"name": "click", "input_schema": {"type": "object"}}]);
    let mut body = json!({"model": "both", "messages": [{"role": "user", "content": "Click it."}], "tools": tools});
    let (_, message) = answer(messages(&app, &body)).await;
    assert_eq!((&message["stop_reason"], &message["content"][1]["input"]), (&json!("tool_use"), &json!({"x": 1})));
    let result = json!({"type": "tool_result", "tool_use_id": message["content"][1]["id"], "content": "clicked"});
    let conversation = body["messages"].as_array_mut().unwrap();
    conversation.push(json!({"role": "assistant", "content": message["content"]}));
    conversation.push(json!({"role": "user", "content": [result]}));
    let (status, message) = answer(messages(&app, &body)).await;
    assert_eq!((status.as_u16(), &message["content"][0]["text"]), (200, &json!("Clicked.")), "{message}");
}

#[tokio::test]
async fn tokens_are_counted_without_a_run() {
    let app = with_scripts(&[("mute", "turns: []")]).await;
    let count = async |text: &str, more: Value| {
        let mut body = json!({"model": "mute", "messages": [{"role": "user", "content": text}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, reply) = answer(app.post("/v1/messages/count_tokens").json(&body)).await;
        assert_eq!(status, 200, "{reply}");
        reply["input_tokens"].as_u64().unwrap()
    };
    let short = count("hi", json!({})).await;
    assert!(short > 0);
    assert!(count(&"word ".repeat(1_000), json!({})).await >= short + 1_000);
    let tool = json!({"name": "click", "description": "x".repeat(4_000), "input_schema": {"type": "object"}});
    assert!(count("hi", json!({"tools": [tool]})).await >= short + 900);
}

#[tokio::test]
async fn anthropics_clients_get_errors_in_their_form_and_may_send_their_key_header() {
    let app = TestApp::with(KEYS).await;
    let body = json!({"model": "nobody", "messages": [{"role": "user", "content": "hi"}]});
    let (status, reply) = answer(messages(&app, &body)).await;
    assert_eq!(
        (status.as_u16(), &reply["type"], &reply["error"]["type"]),
        (401, &json!("error"), &json!("authentication_error"))
    );
    let (status, reply) = answer(messages(&app, &body).header("x-api-key", "key-of-bob")).await;
    assert_eq!((status.as_u16(), &reply["error"]["type"]), (400, &json!("invalid_request_error")), "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("anthropic"), "the profiles are named: {reply}");
    let app = with_scripts(&[("breaks", BREAKS)]).await;
    let events = events(messages(
        &app,
        &json!({"model": "breaks", "stream": true,
        "messages": [{"role": "user", "content": "hi"}]}),
    ))
    .await;
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["error"]["type"]), ("error", &json!("invalid_request_error")));
}

/// A user's message with a file, in each API: the path, the body, and the name of the file.
fn requests_with_a_file(base64: &str) -> [(&'static str, Value); 3] {
    let url = format!("data:application/octet-stream;base64,{base64}");
    let part = json!({"type": "file", "file": {"filename": BINARY.1, "file_data": url}});
    let input = json!({"type": "input_file", "filename": BINARY.1, "file_data": url});
    let source = json!({"type": "base64", "media_type": "application/octet-stream", "data": base64});
    let document = json!({"type": "document", "title": BINARY.1, "source": source});
    [
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": [part]}]})),
        ("/v1/responses", json!({"input": [{"role": "user", "content": [input]}], "store": false})),
        ("/v1/messages", json!({"messages": [{"role": "user", "content": [document]}]})),
    ]
}

#[tokio::test]
async fn a_users_file_goes_to_the_workspace_of_the_thread() {
    let app = with_keys().await;
    let read = async |session: &str| {
        let list = json!({"arguments": {"recursive": true}, "session_id": session});
        answer(app.post("/tools/file_list/execute").bearer_auth("key-of-ada").json(&list)).await.1["output"].to_string()
    };
    for (number, (path, body)) in requests_with_a_file(BINARY.0).into_iter().enumerate() {
        let session = format!("thread-{number}");
        let ask = |key: &str| app.post(path).bearer_auth(key).json(&body);
        let (status, reply) = answer(ask("key-of-ada")).await;
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains("X-OpenWebUI-Chat-Id"), "without a session: {path}: {reply}");
        let (status, reply) = answer(ask("key-of-bob").header("x-openwebui-chat-id", &session)).await;
        assert_eq!((status.as_u16(), code(&reply)), (403, "denied"), "{path}: a file is a call of file_write: {reply}");
        let (status, reply) = answer(ask("key-of-ada").header("x-openwebui-chat-id", &session)).await;
        assert_eq!(status, 200, "{path}: {reply}");
        assert!(read(&session).await.contains(BINARY.1), "{path}: {}", read(&session).await);
    }
    // A short text is part of the message: it needs no session and no role.
    for (path, body) in requests_with_a_file("aGVsbG8=") {
        let (status, reply) = answer(app.post(path).bearer_auth("key-of-bob").json(&body)).await;
        assert_eq!(status, 200, "{path}: {reply}");
    }
    // A response that is kept has a session of its own.
    let (_, mut body) = requests_with_a_file(BINARY.0)[1].clone();
    body["store"] = true.into();
    let (status, response) = answer(app.post("/v1/responses").bearer_auth("key-of-ada").json(&body)).await;
    assert_eq!(status, 200, "{response}");
    assert!(read(response["id"].as_str().unwrap()).await.contains(BINARY.1));
}

/// An agent of each provider that a request names, at a server that keeps what it is sent and answers as Anthropic does.
async fn with_recorded_models(models: &str) -> (TestApp, Arc<Mutex<Vec<Value>>>) {
    let requests = Arc::<Mutex<Vec<Value>>>::default();
    let seen = Arc::clone(&requests);
    let events = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Read."}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    let body: String = events.iter().map(|event| format!("event: e\ndata: {event}\n\n")).collect();
    let respond = move |request: Bytes| async move {
        seen.lock().unwrap().push(serde_json::from_slice(&request).unwrap());
        ([("content-type", "text/event-stream")], body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = append_only(Router::new().fallback(respond), SentTurns::default());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let base_url = format!("http://{address}/v1");
    (TestApp::with(&models.replace("BASE_URL", &base_url)).await, requests)
}

#[tokio::test]
async fn a_pdf_is_read_by_a_model_that_can_and_goes_to_the_workspace_where_there_is_one() {
    let profiles = "agent:\n  profiles:\n    reader: {provider: anthropic, model: claude, base_url: BASE_URL, api_key: k}\n    other: {provider: openai, model: m, base_url: BASE_URL, api_key: k}\n";
    let (app, requests) = with_recorded_models(&format!("{KEYS}{profiles}")).await;
    // `%PDF-1.7`, and bytes that are no text.
    let pdf = "JVBERi0xLjcK//4=";
    // To write to the workspace is a call of file_write, for which bob has no role.
    for (key, thread, is_placed) in [
        ("key-of-ada", None, false),
        ("key-of-ada", Some("t"), true),
        ("key-of-bob", None, false),
        ("key-of-bob", Some("t"), false),
    ] {
        for (path, mut body) in requests_with_a_file(pdf) {
            body["model"] = "reader".into();
            let request = app.post(path).bearer_auth(key).json(&body);
            let request = thread.iter().fold(request, |request, thread| request.header("x-openwebui-chat-id", *thread));
            let (status, reply) = answer(request).await;
            assert_eq!(status, 200, "{path}: {reply}");
            // The summary of the thread is another request.
            let sent = std::mem::take(&mut *requests.lock().unwrap());
            let sent = sent.into_iter().find(|request| request["max_tokens"] != 500).unwrap();
            let content = &sent["messages"][0]["content"];
            assert_eq!(
                (&content[0]["type"], &content[0]["source"]["data"]),
                (&json!("document"), &json!(pdf)),
                "{sent}"
            );
            assert_eq!(content[1]["text"].as_str().unwrap().contains("in the workspace"), is_placed, "{sent}");
        }
    }
    // A server with OpenAI's API mostly reads none.
    for (path, mut body) in requests_with_a_file(pdf) {
        body["model"] = "other".into();
        let (status, reply) = answer(app.post(path).bearer_auth("key-of-ada").json(&body)).await;
        assert_eq!(status, 400, "{path}: {reply}");
    }
}

#[tokio::test]
async fn a_temperature_that_the_model_does_not_take_is_refused_by_name_before_it_is_asked() {
    let profiles = "agent:\n  profiles:\n    o3: {provider: openai, model: o3, base_url: BASE_URL, api_key: k}\n    opus: {provider: anthropic, model: claude-opus-4-7, base_url: BASE_URL, api_key: k}\n";
    let (app, requests) = with_recorded_models(profiles).await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for model in ["o3", "opus"] {
        for (path, body) in [
            ("/v1/chat/completions", json!({"messages": messages, "temperature": 0.5})),
            ("/v1/responses", json!({"input": "hi", "temperature": 0.5})),
            ("/v1/messages", json!({"messages": messages, "max_tokens": 9, "temperature": 0.5})),
        ] {
            let mut body = body.clone();
            body["model"] = model.into();
            let (status, reply) = answer(app.post(path).json(&body)).await;
            let message = reply["error"]["message"].as_str().unwrap_or_default();
            assert!(status == 400 && message.starts_with("`temperature` cannot be kept"), "{path}: {reply}");
        }
    }
    assert_eq!(requests.lock().unwrap().len(), 0);
    // Its default is kept, and the profile's own value is left out.
    let default = json!({"model": "opus", "messages": messages, "max_tokens": 9, "temperature": 1});
    assert_eq!(answer(app.post("/v1/messages").json(&default)).await.0, 200);
    assert_eq!(requests.lock().unwrap()[0].get("temperature"), None);
}

#[tokio::test]
async fn agents_without_a_key_are_not_listed_and_fail_for_good() {
    let app = with_scripts(&[]).await;
    let (_, models) = answer(app.get("/v1/models")).await;
    let names: Vec<_> = models["data"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["weather"]);
    let (status, reply) = answer(app.get("/v1/models/anthropic")).await;
    assert_eq!((status.as_u16(), &reply["error"]["code"]), (404, &json!("model_not_found")), "{reply}");
    let (status, reply) = answer(responses(&app, &json!({"model": "anthropic", "input": "hi"}))).await;
    assert_eq!((status.as_u16(), &reply["error_info"]["retryable"]), (502, &json!(false)), "{reply}");
}
