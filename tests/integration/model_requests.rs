//! The requests of runs, plans, sub-agents, titles and summaries to a model, as its provider receives them: each is held against the
//! schema of the provider's own client.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::app::{TestApp, answer};
use crate::lock::until;

const ANTHROPIC: &str = include_str!("../fixtures/model_apis/anthropic.json");
const OPENAI: &str = include_str!("../fixtures/model_apis/openai.json");

/// A plan, an evaluation and an answer at once.
const TEXT: &str = r#"{"steps": ["Look."], "passed": true, "goal_reached": true}"#;

#[tokio::test]
async fn a_provider_accepts_each_request_of_runs_plans_sub_agents_titles_and_summaries() {
    for (provider, schema) in [("anthropic", ANTHROPIC), ("openai", OPENAI)] {
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
        for request in &requests {
            let violations: Vec<_> = validator.iter_errors(request).map(|error| error.to_string()).collect();
            assert!(violations.is_empty(), "{provider}: {violations:?}\n{request:#}");
        }
    }
}

fn is_summary(request: &Value) -> bool {
    request["max_tokens"] == 500
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
    let is_openai = request.get("stream_options").is_some();
    let text = request.to_string();
    let calls_task =
        text.contains("\"name\":\"Task\"") && !text.contains("tool_call_id") && !text.contains("tool_use_id");
    let arguments = json!({"description": "a look", "prompt": "Look.", "subagent_type": "looker"});
    let events = match (is_openai, calls_task) {
        (true, true) => {
            let function = json!({"name": "Task", "arguments": arguments.to_string()});
            let call = json!({"index": 0, "id": "t", "type": "function", "function": function});
            vec![json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})]
        }
        (true, false) => {
            vec![json!({"choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": "stop"}]})]
        }
        (false, true) => {
            let block = json!({"type": "tool_use", "id": "t", "name": "Task", "input": arguments});
            let stop = json!({"type": "content_block_stop", "index": 0});
            vec![json!({"type": "content_block_start", "index": 0, "content_block": block}), stop]
        }
        (false, false) => {
            let block = json!({"type": "text", "text": TEXT});
            vec![json!({"type": "content_block_start", "index": 0, "content_block": block})]
        }
    };
    let end = match is_openai {
        true => "data: [DONE]\n\n".to_owned(),
        false => {
            let delta =
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}});
            format!("data: {delta}\n\ndata: {}\n\n", json!({"type": "message_stop"}))
        }
    };
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>() + &end
}
