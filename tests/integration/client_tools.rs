//! Calls that an agent hands to its client: the run that waits is found again by its own client alone. Model servers
//! in this process speak the protocols, and number their calls as some really do: not at all, or anew each time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::app::{TestApp, answer};
use crate::sent_turns::SentTurns;

/// A model that first calls the calculator with what the user said and `my_tool` of the client, and then tells what
/// both answered.
struct ModelServer {
    address: SocketAddr,
    /// The messages of each request.
    asked: Arc<Mutex<Vec<Value>>>,
    /// Its requests: each continues an earlier one.
    sent: Arc<Mutex<SentTurns>>,
}

impl ModelServer {
    async fn start(provider: &'static str, ids: [&'static str; 2]) -> Self {
        let (asked, sent) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::<Mutex<SentTurns>>::default());
        let (kept, turns) = (Arc::clone(&asked), Arc::clone(&sent));
        let respond = async move |request: Bytes| {
            let request: Value = serde_json::from_slice(&request).unwrap();
            turns.lock().unwrap().add(&request);
            let messages = request["messages"].clone();
            kept.lock().unwrap().push(messages.clone());
            let results = results_in(&messages);
            let body = match (provider, results.is_empty()) {
                ("openai", true) => openai_calls(&question_in(&messages), ids),
                ("openai", false) => openai_text(&format!("GOT {}", results.join(" | "))),
                (_, true) => anthropic_calls(&question_in(&messages), ids),
                (_, false) => anthropic_text(&format!("GOT {}", results.join(" | "))),
            };
            ([("content-type", "text/event-stream")], body)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(respond)).await });
        Self { address, asked, sent }
    }

    async fn gateway(&self, provider: &str, more: &str) -> TestApp {
        let profile = format!("{{provider: {provider}, model: m, base_url: 'http://{}/v1', retries: 0}}", self.address);
        TestApp::with(&format!("{more}agent: {{default_profile: m, profiles: {{m: {profile}}}}}")).await
    }

    /// Ids of the calls in the last request, and of their results.
    fn ids_sent(&self) -> (Vec<String>, Vec<String>) {
        let asked = self.asked.lock().unwrap();
        let messages = asked.last().unwrap().as_array().unwrap().clone();
        let parts: Vec<Value> =
            messages.iter().flat_map(|m| m["content"].as_array().cloned().unwrap_or_default()).collect();
        let calls = messages.iter().flat_map(|m| m["tool_calls"].as_array().cloned().unwrap_or_default());
        let calls = calls.chain(parts.iter().filter(|part| part["type"] == "tool_use").cloned());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let results = messages.iter().chain(&parts);
        let results =
            results.flat_map(|m| [&m["tool_call_id"], &m["tool_use_id"]]).filter(|id| id.is_string()).map(text);
        (calls.map(|call| text(&call["id"])).collect(), results.collect())
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.sent.lock().unwrap().check();
    }
}

fn question_in(messages: &Value) -> String {
    let user = messages.as_array().unwrap().iter().rev().find(|message| message["role"] == "user").unwrap();
    user["content"].as_str().or(user["content"][0]["text"].as_str()).unwrap().to_owned()
}

fn results_in(messages: &Value) -> Vec<String> {
    let messages = messages.as_array().unwrap();
    let parts = messages.iter().flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    let results = messages.iter().filter(|message| message["role"] == "tool").cloned();
    let results = results.chain(parts.filter(|part| part["type"] == "tool_result"));
    results.map(|result| result["content"].as_str().unwrap().to_owned()).collect()
}

fn arguments(question: &str) -> String {
    json!({"expression": question}).to_string()
}

fn openai_calls(question: &str, ids: [&str; 2]) -> String {
    let call = |index: usize, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        let mut call = json!({"index": index, "type": "function", "function": function});
        if !ids[index].is_empty() {
            call["id"] = ids[index].into();
        }
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    };
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let events = [call(0, "calculator", &arguments(question)), call(1, "my_tool", "{}"), end];
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>() + "data: [DONE]\n\n"
}

fn openai_text(text: &str) -> String {
    let event = json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]});
    format!("data: {event}\n\ndata: [DONE]\n\n")
}

fn anthropic(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn anthropic_calls(question: &str, ids: [&str; 2]) -> String {
    let block = |index: usize, name: &str| {
        let block = json!({"type": "tool_use", "id": ids[index], "name": name, "input": {}});
        json!({"type": "content_block_start", "index": index, "content_block": block})
    };
    let input = |index: usize, text: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": text});
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    };
    anthropic(&[
        block(0, "calculator"),
        input(0, &arguments(question)),
        block(1, "my_tool"),
        input(1, "{}"),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        json!({"type": "message_stop"}),
    ])
}

fn anthropic_text(text: &str) -> String {
    let block = json!({"type": "text", "text": text});
    anthropic(&[
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ])
}

fn body(messages: &[Value], stream: bool) -> Value {
    let tool = json!({"type": "function", "function": {"name": "my_tool", "parameters": {"type": "object"}}});
    json!({"model": "m", "messages": messages, "tools": [tool], "stream": stream})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Asks, and gives the call that is handed out.
async fn handed_out(app: &TestApp, key: &str, messages: &[Value], stream: bool) -> Value {
    let request = app.post("/v1/chat/completions").bearer_auth(key).json(&body(messages, stream));
    if !stream {
        let completion = answer(request).await.1;
        return completion["choices"][0]["message"]["tool_calls"][0].clone();
    }
    let text = request.send().await.unwrap().text().await.unwrap();
    let chunks = text.lines().filter_map(|line| line.strip_prefix("data: ")?.parse::<Value>().ok());
    let mut calls = chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].get(0).cloned());
    let mut call = calls.next().unwrap();
    call.as_object_mut().unwrap().remove("index");
    call
}

/// Comes back with the call's result, and gives what the model then says.
async fn answered(app: &TestApp, key: &str, before: &[Value], call: &Value) -> String {
    let turn = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "CLIENT"});
    let messages = [before, &[turn, result]].concat();
    let (status, completion) =
        answer(app.post("/v1/chat/completions").bearer_auth(key).json(&body(&messages, false))).await;
    assert_eq!(status, 200, "{completion}");
    completion["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

const CASES: [(&str, [&str; 2]); 4] =
    [("openai", ["", ""]), ("openai", ["k1", "k2"]), ("openai", ["k", "k"]), ("anthropic", ["toolu_1", "toolu_2"])];

#[tokio::test]
async fn conversations_whose_provider_repeats_its_ids_keep_their_own_results() {
    for (provider, ids) in CASES {
        let model = ModelServer::start(provider, ids).await;
        let app = model.gateway(provider, "").await;
        for stream in [false, true] {
            let questions = [[user("111+0")], [user("222+0")], [user("111+0")]];
            let mut calls = Vec::new();
            for question in &questions {
                calls.push(handed_out(&app, "none", question, stream).await);
            }
            let id = |call: &Value| call["id"].as_str().unwrap().to_owned();
            assert!(calls.iter().all(|call| id(call).len() == "call_".len() + 32), "{calls:?}");
            assert!(id(&calls[0]) != id(&calls[1]) && id(&calls[0]) != id(&calls[2]));
            for (question, (call, result)) in questions.iter().zip(calls.iter().zip(["111", "222", "111"])) {
                let reported = answered(&app, "none", question, call).await;
                assert_eq!(reported, format!("GOT {result} | CLIENT"), "{provider} {ids:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_provider_gets_its_own_ids_back_where_no_two_are_the_same() {
    for (provider, ids) in CASES {
        let model = ModelServer::start(provider, ids).await;
        let app = model.gateway(provider, "").await;
        let call = handed_out(&app, "none", &[user("1+1")], false).await;
        answered(&app, "none", &[user("1+1")], &call).await;
        let (calls, results) = model.ids_sent();
        assert_eq!(calls, results, "{provider} {ids:?}");
        let own = |given: &str, sent: &str| if given.is_empty() { is_short(sent) } else { sent == given };
        assert!(own(ids[0], &calls[0]), "{calls:?}");
        assert!(own(if ids[1] == ids[0] { "" } else { ids[1] }, &calls[1]), "{calls:?}");
    }
}

#[tokio::test]
async fn a_forged_or_foreign_id_finds_nothing() {
    let keys = "auth: {api_keys: [{id: ann, key: a}, {id: bob, key: b}]}\n";
    for ids in [["", ""], ["k1", "k2"]] {
        let model = ModelServer::start("openai", ids).await;
        let reason = "clients send turns of conversations that the model never had";
        *model.sent.lock().unwrap() = SentTurns::with_exception(reason);
        let app = model.gateway("openai", keys).await;
        let secret = [user("777+0")];
        let call = handed_out(&app, "a", &secret, false).await;
        for id in ["call_1_2", "k2", "call_1_1", ""] {
            let forged = json!({"id": id, "type": "function", "function": call["function"]});
            assert_eq!(answered(&app, "a", &secret, &forged).await, "GOT CLIENT", "{id:?}");
        }
        assert_eq!(answered(&app, "b", &secret, &call).await, "GOT CLIENT", "another caller");
        for other in [vec![user("1+1")], vec![user("777+0"), user("and?")], vec![user("a"), user("777+0")]] {
            assert_eq!(answered(&app, "a", &other, &call).await, "GOT CLIENT", "another conversation: {other:?}");
        }
        let prompted = [json!({"role": "system", "content": "Be brief."}), secret[0].clone()];
        assert_eq!(answered(&app, "a", &prompted, &call).await, "GOT 777 | CLIENT", "the same conversation");
        assert_eq!(answered(&app, "a", &secret, &call).await, "GOT 777 | CLIENT", "it still waits");
    }
}

/// As all providers take it, Mistral's models too.
fn is_short(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[tokio::test]
async fn with_another_store_the_clients_own_transcript_is_used() {
    let model = ModelServer::start("openai", ["k1", "k2"]).await;
    let app = model.gateway("openai", "").await;
    let call = handed_out(&app, "none", &[user("1+1")], false).await;
    app.stop().await;
    let app = model.gateway("openai", "").await;
    assert_eq!(answered(&app, "none", &[user("1+1")], &call).await, "GOT CLIENT");
    let (calls, results) = model.ids_sent();
    assert!(calls == results && calls.len() == 1 && is_short(&calls[0]), "{calls:?} {results:?}");
}
