//! The requests of runs, plans, sub-agents, titles and summaries to a model, as its provider receives them: each is held against the
//! schema of the provider's own client.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::app::{TestApp, answer};
use crate::lock::until;
use crate::sent_turns::SentTurns;

const ANTHROPIC: &str = include_str!("../fixtures/model_apis/anthropic.json");
const OPENAI: &str = include_str!("../fixtures/model_apis/openai.json");
const RESPONSES: &str = include_str!("../fixtures/model_apis/openai_responses.json");
const GEMINI: &str = include_str!("../fixtures/model_apis/gemini.json");

/// A plan, an evaluation and an answer at once.
const TEXT: &str = r#"{"steps": ["Look."], "passed": true, "goal_reached": true}"#;

#[tokio::test]
async fn a_provider_accepts_each_request_of_runs_plans_sub_agents_titles_and_summaries() {
    for (provider, schema) in
        [("anthropic", ANTHROPIC), ("openai", OPENAI), ("openai, wire: responses", RESPONSES), ("gemini", GEMINI)]
    {
        let (app, requests) = gateway(provider).await;
        let question = json!([{"role": "user", "content": "What is there?"}]);
        let form = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}});
        for (model, more) in
            [("starter", json!({})), ("plain", json!({"response_format": form})), ("planned", json!({}))]
        {
            let mut body = json!({"model": model, "messages": question});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let request = app.post("/v1/chat/completions").header("x-openwebui-chat-id", model).json(&body);
            let (status, reply) = answer(request).await;
            assert_eq!((status.as_u16(), &reply["choices"][0]["message"]["content"]), (200, &json!(TEXT)), "{model}");
        }
        let (status, reply) = answer(app.post("/api/chat").json(&json!({"message": "Hi.", "model": "starter"}))).await;
        assert_eq!((status.as_u16(), &reply["reply"]), (200, &json!(TEXT)), "{reply}");
        let (status, _) = answer(app.post("/tools/select").json(&json!({"task": "add numbers"}))).await;
        assert_eq!(status, 200);
        // A summary follows its answer.
        until(async || requests.lock().unwrap().iter().any(is_summary).then_some(())).await;

        let requests = requests.lock().unwrap().clone();
        let has_tools = |request: &&Value| request.get("tools").is_some();
        assert!(requests.iter().any(|request| has_tools(&request)), "{provider}: no request with tools");
        assert!(!requests.iter().all(|request| has_tools(&request)), "{provider}: no request without tools");
        let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        let mut turns = SentTurns::default();
        requests.iter().for_each(|request| turns.add(request));
        turns.check();
        for request in &requests {
            let violations: Vec<_> = validator.iter_errors(request).map(|error| error.to_string()).collect();
            assert!(violations.is_empty(), "{provider}: {violations:?}\n{request:#}");
        }
    }
}

fn is_summary(request: &Value) -> bool {
    let places = ["/max_tokens", "/max_output_tokens", "/generationConfig/maxOutputTokens"];
    places.iter().any(|place| request.pointer(place).is_some_and(|tokens| *tokens == 500))
}

/// A gateway with an agent that starts a sub-agent, one without tools, and one that plans, and the requests to their model.
async fn gateway(provider: &str) -> (TestApp, Arc<Mutex<Vec<Value>>>) {
    let requests = Arc::<Mutex<Vec<Value>>>::default();
    let seen = Arc::clone(&requests);
    let respond = move |request: Bytes| async move {
        let request: Value = serde_json::from_slice(&request).unwrap();
        let body = answer_to(&request);
        seen.lock().unwrap().push(request);
        ([("content-type", "text/event-stream")], body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model =
        format!("provider: {provider}, model: m, base_url: 'http://{}/v1', api_key: k", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(respond)).await });
    let yaml = format!(
        "agent:\n  default_profile: plain\n  subagents: {{types: {{looker: {{description: Looks., prompt: Look., tools: {{exclude: ['*']}}}}}}}}\n  profiles:\n    \
         starter: {{{model}, subagents: [looker]}}\n    plain: {{{model}, tools: {{exclude: ['*']}}}}\n    \
         planned: {{{model}, planner: {{preset: plan_and_act}}}}\n"
    );
    (TestApp::with(&yaml).await, requests)
}

/// A call of the tool `Task` where it is offered and was not called yet, else a text.
fn answer_to(request: &Value) -> String {
    const RESULTS: [&str; 4] = ["tool_call_id", "tool_use_id", "function_call_output", "functionResponse"];
    let text = request.to_string();
    let calls_task = text.contains("\"name\":\"Task\"") && !RESULTS.iter().any(|result| text.contains(result));
    let has = |member: &str| request.get(member).is_some();
    let events = if has("stream_options") {
        of_chat_completions(calls_task)
    } else if has("input") {
        of_responses(calls_task)
    } else if has("contents") {
        of_gemini(calls_task)
    } else {
        of_anthropic(calls_task)
    };
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn arguments() -> Value {
    json!({"description": "a look", "prompt": "Look.", "subagent_type": "looker"})
}

fn of_chat_completions(calls_task: bool) -> Vec<Value> {
    let function = json!({"name": "Task", "arguments": arguments().to_string()});
    let call = json!({"index": 0, "id": "t", "type": "function", "function": function});
    let (delta, reason) = match calls_task {
        true => (json!({"tool_calls": [call]}), "tool_calls"),
        false => (json!({"content": TEXT}), "stop"),
    };
    vec![json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})]
}

fn of_responses(calls_task: bool) -> Vec<Value> {
    let item = match calls_task {
        true => {
            json!({"type": "function_call", "call_id": "t", "name": "Task", "arguments": arguments().to_string()})
        }
        false => json!({"type": "message", "content": [{"type": "output_text", "text": TEXT}]}),
    };
    vec![
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ]
}

fn of_gemini(calls_task: bool) -> Vec<Value> {
    let part = match calls_task {
        true => json!({"functionCall": {"name": "Task", "args": arguments()}, "thoughtSignature": "c2ln"}),
        false => json!({"text": TEXT}),
    };
    vec![json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]})]
}

fn of_anthropic(calls_task: bool) -> Vec<Value> {
    let block = match calls_task {
        true => json!({"type": "tool_use", "id": "t", "name": "Task", "input": arguments()}),
        false => json!({"type": "text", "text": TEXT}),
    };
    let delta = json!({"stop_reason": "end_turn"});
    vec![
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ]
}
