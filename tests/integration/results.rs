//! Results that are too large for a model: stored, answered by a preview with a handle, and read in parts.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::charges::served;
use crate::cli::{sekisho, text};
use crate::keys::as_holder;
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};
use crate::sent_turns::{SentTurns, append_only};

const YAML: &str = "
auth:
  api_keys:
    - {id: ada, key: key-of-ada}
    - {id: eve, key: key-of-eve}
mcp:
  endpoints:
    models: {tools: [json_query], results: handles}
    searched: {search: true, results: handles}
    programs: {tools: [json_query]}
";

/// Arguments of `json_query` with a result of some 100 KB.
fn squares() -> Value {
    json!({"query": "[].{id: @, text: 'a row of many'}", "data": (0..3_000).collect::<Vec<_>>()})
}

/// Calls `json_query` and prefers a handle.
async fn call(app: &TestApp, key: &str, session: Option<&str>) -> (Option<String>, Value) {
    let body = json!({"arguments": squares(), "session_id": session});
    let request = app.post("/tools/json_query/execute").bearer_auth(key).header("prefer", "handle").json(&body);
    let response = request.send().await.unwrap();
    let applied = response.headers().get("preference-applied").map(|value| value.to_str().unwrap().to_owned());
    (applied, response.json().await.unwrap())
}

async fn read(app: &TestApp, key: &str, path: &str) -> (StatusCode, Value) {
    as_holder(app, key, Method::GET, &format!("/results/{path}"), None).await
}

#[tokio::test]
async fn a_rest_reply_is_whole_unless_a_handle_is_preferred() {
    let app = TestApp::with(YAML).await;
    let (_, whole) = app.call("json_query", squares()).await;
    assert_eq!(whole["output"].as_array().unwrap().len(), 3_000);
    let (applied, reply) = call(&app, "key-of-ada", None).await;
    let preview = &reply["output"];
    assert_eq!(applied.as_deref(), Some("handle"));
    assert_eq!(preview["shape"], "[3000 × {id: number, text: string}]");
    assert_eq!(preview["first"][0], json!({"id": 0, "text": "a row of many"}));
    assert_eq!(preview["bytes"], whole["output"].to_string().len());
    assert!(reply["text"].as_str().unwrap().len() <= 8_192, "{reply}");
    let handle = preview["result_handle"].as_str().unwrap();
    assert!(handle.len() == 32 && preview["note"].as_str().unwrap().contains(&format!("GET /results/{handle}")));

    let (status, page) = read(&app, "key-of-ada", &format!("{handle}?offset=2998&limit=5")).await;
    assert_eq!(status, 200, "{page}");
    let rows = json!([{"id": 2998, "text": "a row of many"}, {"id": 2999, "text": "a row of many"}]);
    assert_eq!((&page["output"]["items"], &page["output"]["total"]), (&rows, &json!(3_000)));
    let (_, selected) = read(&app, "key-of-ada", &format!("{handle}?query=length(%40)")).await;
    assert_eq!(selected["output"]["value"], 3_000);
    let (_, found) = read(&app, "key-of-ada", &format!("{handle}?grep=%22id%22:29%5B0-9%5D%2C")).await;
    assert_eq!(found["output"]["total"], 10);
    let (_, small) = app.call("calculator", json!({"expression": "6*7"})).await;
    assert_eq!(small["output"], 42);
    assert!(app.metric("shannon_large_results_total{outcome=\"stored\"}").await >= 1.0);
}

#[tokio::test]
async fn a_handle_is_for_its_caller_and_session_alone_and_each_read_has_an_audit_line() {
    let app = TestApp::with(YAML).await;
    let (_, reply) = call(&app, "key-of-ada", Some("monday")).await;
    let handle = reply["output"]["result_handle"].as_str().unwrap().to_owned();
    for (key, path) in [
        ("key-of-eve", format!("{handle}?session_id=monday")),
        ("key-of-ada", handle.clone()),
        ("key-of-ada", format!("{handle}?session_id=tuesday")),
        ("key-of-ada", format!("{}?session_id=monday", "0".repeat(32))),
    ] {
        let (status, refused) = read(&app, key, &path).await;
        assert_eq!((status, code(&refused)), (StatusCode::NOT_FOUND, "unknown_result"), "{path}");
    }
    let (status, _) = read(&app, "key-of-ada", &format!("{handle}?session_id=monday&limit=1")).await;
    assert_eq!(status, 200);
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    let reads: Vec<_> = trail.lines().filter(|line| line.contains("\"read_result\"")).collect();
    assert_eq!(reads.len(), 5);
    assert!(reads[4].contains(&handle) && reads[4].contains("\"ada\""), "{}", reads[4]);
    assert!(reads[0].contains(&handle) && reads[0].contains("\"eve\""), "{}", reads[0]);

    // The store of the state directory has it after a restart.
    let again = TestApp::in_directory(directory, YAML).await;
    let (status, page) = read(&again, "key-of-ada", &format!("{handle}?session_id=monday&limit=1")).await;
    assert_eq!((status, &page["output"]["next_offset"]), (StatusCode::OK, &json!(1)), "{page}");
}

/// Several keys of one person are one caller.
#[tokio::test]
async fn another_key_of_the_same_person_reads_results_of_its_own_tools_alone() {
    let app = TestApp::with("auth: {api_keys: [{id: root, key: key-of-root, roles: [admin]}]}").await;
    let key = async |tools: Value| {
        let body = json!({"person": "ada", "tools": tools});
        let (_, created) = as_holder(&app, "key-of-root", Method::POST, "/admin/keys", Some(body)).await;
        created["token"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
    };
    let (wide, narrow) = (key(Value::Null).await, key(json!(["calculator"])).await);
    let (_, reply) = call(&app, &wide, None).await;
    let handle = reply["output"]["result_handle"].as_str().unwrap_or_else(|| panic!("{reply}"));
    for (key, expected, count) in [(&wide, StatusCode::OK, 1), (&narrow, StatusCode::NOT_FOUND, 0)] {
        let (status, page) = read(&app, key, &format!("{handle}?limit=1")).await;
        assert_eq!(status, expected, "{page}");
        // Nor by the reply that the other one got.
        let keyed = app.get(&format!("/results/{handle}?limit=1")).bearer_auth(key).header("idempotency-key", "k");
        assert_eq!(answer(keyed).await.0, expected);
        assert_eq!(listed(&read_list(&app, key, "").await.1).len(), count);
    }
}

async fn read_list(app: &TestApp, key: &str, query: &str) -> (StatusCode, Value) {
    as_holder(app, key, Method::GET, &format!("/results{query}"), None).await
}

/// Three results of Ada, of which one is in a session.
async fn three_results(app: &TestApp) -> Vec<String> {
    let mut handles = Vec::new();
    for session in [None, Some("monday"), None] {
        let (_, reply) = call(app, "key-of-ada", session).await;
        handles.push(reply["output"]["result_handle"].as_str().unwrap().to_owned());
    }
    handles.sort();
    handles
}

/// The handles of a page.
fn listed(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
    items.map(|item| item["handle"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_caller_lists_its_own_results_page_by_page() {
    let app = TestApp::with(YAML).await;
    let handles = three_results(&app).await;
    let list = async |key: &str, query: &str| read_list(&app, key, query).await;
    let (status, all) = list("key-of-ada", "").await;
    assert_eq!((status, &all["next"]), (StatusCode::OK, &Value::Null), "{all}");
    let mut found = listed(&all);
    found.sort();
    assert_eq!(found, handles);
    let items = all["items"].as_array().unwrap();
    assert_eq!(items.iter().filter(|item| item["in_session"] == true).count(), 1);
    for item in items {
        assert_eq!((&item["tool"], &item["content_type"]), (&json!("json_query"), &json!("application/json")));
        assert!(item["bytes"].as_u64().unwrap() > 90_000 && item["expires_at"].is_string(), "{item}");
    }
    let (_, first) = list("key-of-ada", "?limit=2").await;
    let (_, rest) = list("key-of-ada", &format!("?limit=2&after={}", first["next"].as_str().unwrap())).await;
    let mut found: Vec<_> = listed(&first).into_iter().chain(listed(&rest)).collect();
    found.sort();
    assert_eq!((found, &rest["next"]), (handles, &Value::Null));
    assert_eq!(list("key-of-eve", "").await.1, json!({"items": [], "next": null}));
    for query in ["?limit=0", "?limit=501", "?after=x", "?after=1-x", "?after=%00", "?after=99999999999999999999-a"] {
        let (status, refused) = list("key-of-ada", query).await;
        assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "{query}");
    }
}

#[tokio::test]
async fn the_command_line_lists_and_reads_results() {
    let app = TestApp::with(YAML).await;
    let handles = three_results(&app).await;
    let command = |arguments: &[&str]| {
        let mut command = sekisho(&app.directory);
        command.args(["--server", &app.url, "results"]).args(arguments).env("SEKISHO_API_KEY", "key-of-ada");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let output = command(&[]).await.unwrap();
    assert!(handles.iter().all(|handle| text(&output).contains(handle)), "{}", text(&output));
    let (_, all) = read_list(&app, "key-of-ada", "").await;
    let of_session = |wanted: bool| {
        let item = all["items"].as_array().unwrap().iter().find(|item| item["in_session"] == wanted);
        item.unwrap()["handle"].as_str().unwrap().to_owned()
    };
    let (plain, in_session) = (of_session(false), of_session(true));
    let (plain, in_session) = (plain.as_str(), in_session.as_str());
    for (arguments, exit, says) in [
        (&["show", plain, "--offset", "2999"][..], 0, "\"id\":2999"),
        (&["show", plain, "--limit", "1"], 0, "--offset 1"),
        (&["show", plain, "--query", "length(@)"], 0, "3000"),
        (&["show", plain, "--query", "[0].text"], 0, "a row of many"),
        (&["show", in_session, "--session", "monday", "--limit", "1"], 0, "\"id\":0"),
        (&["show", in_session], 3, "there is no result"),
    ] {
        let output = command(arguments).await.unwrap();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{arguments:?}: {}", text(&output));
    }
}

#[tokio::test]
async fn a_batch_prefers_handles_too_and_a_repeated_call_gets_the_same_one() {
    let app = TestApp::with(YAML).await;
    let calls = json!([{"tool_name": "json_query", "arguments": squares()}]);
    let request = app.post("/tools/batch-execute").bearer_auth("key-of-ada").header("prefer", "handle").json(&calls);
    let (_, replies) = answer(request).await;
    assert!(replies[0]["output"]["result_handle"].is_string(), "{replies}");
    let once = || {
        let body = json!({"arguments": squares()});
        let request = app.post("/tools/json_query/execute").bearer_auth("key-of-ada").header("prefer", "handle");
        answer(request.header("idempotency-key", "once").json(&body))
    };
    let (first, second) = (once().await.1, once().await.1);
    assert!(first["output"]["result_handle"].is_string());
    assert_eq!(first["output"], second["output"]);
}

#[tokio::test]
async fn an_mcp_endpoint_with_handles_lists_the_reader_and_no_output_schemas() {
    let app = TestApp::with(YAML).await;
    for revision in [NEWER, OLDER] {
        let connected = async |endpoint: &str, key: &str| {
            let client = McpClient::new(&app, revision, Some(key)).at_endpoint(endpoint);
            if revision == OLDER { client.introduced().await } else { client }
        };
        let models = connected("models", "key-of-ada").await;
        let listed = models.result("tools/list", json!({}), "ListToolsResult").await;
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["json_query", "read_result"], "{revision}");
        assert!(tools.iter().all(|tool| tool.get("outputSchema").is_none()), "{revision}: {listed}");

        let large = json!({"name": "json_query", "arguments": squares()});
        let result = models.result("tools/call", large.clone(), "CallToolResult").await;
        let preview = &result["structuredContent"];
        assert_eq!(result["content"][0]["text"].as_str().unwrap(), preview.to_string(), "{revision}");
        assert!(preview.to_string().len() <= 8_192, "{revision}");
        let arguments = json!({"handle": preview["result_handle"], "query": "[?id == `7`]"});
        let read = json!({"name": "read_result", "arguments": arguments});
        let page = models.result("tools/call", read.clone(), "CallToolResult").await;
        assert_eq!(page["structuredContent"]["items"], json!([{"id": 7, "text": "a row of many"}]), "{revision}");

        let other = connected("models", "key-of-eve").await;
        let refused = other.result("tools/call", read.clone(), "CallToolResult").await;
        assert_eq!(refused["structuredContent"]["error_info"]["code"], "unknown_result", "{revision}: {refused}");
        if revision == OLDER {
            let later = connected("models", "key-of-ada").await;
            let refused = later.result("tools/call", read, "CallToolResult").await;
            assert_eq!(refused["structuredContent"]["error_info"]["code"], "unknown_result", "of another session");
        }

        let programs = connected("programs", "key-of-ada").await;
        let listed = programs.result("tools/list", json!({}), "ListToolsResult").await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 1, "{revision}: {listed}");
        let whole = programs.result("tools/call", large, "CallToolResult").await;
        assert!(whole.get("structuredContent").is_none_or(Value::is_array), "{revision}: whole, or its text");
    }
    let searched = McpClient::new(&app, NEWER, Some("key-of-ada")).at_endpoint("searched");
    let listed = searched.result("tools/list", json!({}), "ListToolsResult").await;
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["call_tool", "describe_tool", "search_tools", "read_result"]);
    let (_, over_rest) = answer(app.get("/tools")).await;
    assert!(!over_rest.as_array().unwrap().contains(&json!("read_result")), "{over_rest}");
}

/// What the model was sent.
type Requests = Arc<Mutex<Vec<Value>>>;

/// A model that calls `json_query`, reads its result by the handle of the preview, and answers with what it read.
async fn chat(State(requests): State<Requests>, Json(request): Json<Value>) -> Response {
    let messages = request["messages"].as_array().unwrap().clone();
    requests.lock().unwrap().push(request);
    let results: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
    let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
    let delta = match results.as_slice() {
        [] => call_of("json_query", &squares()),
        [preview] => {
            let preview: Value = serde_json::from_str(&text(preview)).unwrap();
            call_of("read_result", &json!({"handle": preview["result_handle"], "query": "[-1].id"}))
        }
        [.., page] => json!({"content": text(page)}),
    };
    let reason = if delta.get("content").is_some() { "stop" } else { "tool_calls" };
    let chunks = [
        json!({"choices": [{"index": 0, "delta": delta}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    ];
    let body = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat() + "data: [DONE]\n\n";
    ([("content-type", "text/event-stream")], body).into_response()
}

fn call_of(tool: &str, arguments: &Value) -> Value {
    let function = json!({"name": tool, "arguments": arguments.to_string()});
    json!({"tool_calls": [{"index": 0, "id": format!("call_{tool}"), "type": "function", "function": function}]})
}

#[tokio::test]
async fn an_agent_gets_a_preview_and_reads_the_rest_by_its_handle() {
    let requests = Requests::default();
    let router = Router::new().route("/v1/chat/completions", post(chat)).with_state(Arc::clone(&requests));
    let url = served(append_only(router, SentTurns::default())).await;
    let profile =
        format!("{{provider: openai, model: m, base_url: '{url}/v1', api_key: k, tools: {{include: [json_query]}}}}");
    let app = TestApp::with(&format!("agent: {{profiles: {{reader: {profile}}}}}")).await;
    let body = json!({"model": "reader", "messages": [{"role": "user", "content": "How many?"}]});
    let (status, completion) = answer(app.post("/v1/chat/completions").json(&body)).await;
    assert_eq!(status, 200, "{completion}");
    let said = completion["choices"][0]["message"]["content"].as_str().unwrap();
    let page: Value = serde_json::from_str(said).unwrap();
    assert_eq!(page["value"], 2_999, "{said}");
    let requests = requests.lock().unwrap().clone();
    let tools: Vec<_> = requests[0]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(tools, ["json_query", "read_result"], "the profile includes the first alone");
    let sent = requests.iter().map(|request| request["messages"].to_string().len()).max().unwrap();
    // The model's own call has the data of 14 KB.
    assert!(sent < 60_000, "{sent} bytes were sent, of a result with 100 KB");
    // What the call returned has no session, and is read over REST by the same caller.
    let (status, _) = answer(app.get(&format!("/results/{}", handle_in(&requests[1])))).await;
    assert_eq!(status, 200);
}

fn handle_in(request: &Value) -> String {
    let last = request["messages"].as_array().unwrap().last().unwrap();
    let preview: Value = serde_json::from_str(last["content"].as_str().unwrap()).unwrap();
    preview["result_handle"].as_str().unwrap().to_owned()
}
