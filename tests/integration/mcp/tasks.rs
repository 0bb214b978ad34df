//! Tasks, of 2025-11-25 and of the extension of 2026-07-28: tools that servers run as tasks, and tasks of this gateway.

use std::time::Duration;

use sekisho::Source;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{McpClient, initialize};
use super::tools::ConversingTools;
use super::{NEWER, OLDER};
use crate::app::{TestApp, answer};
use crate::extended::{KINDS, Reach, gateway, settings};

fn arguments(topic: &str) -> Value {
    json!({"arguments": {"topic": topic}})
}

async fn call(app: &TestApp, tool: &str, topic: &str) -> Value {
    answer(app.post(&format!("/tools/m__{tool}/execute")).json(&arguments(topic))).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_requires_a_task_is_called_by_clients_that_have_none() {
    for kind in KINDS {
        let app = gateway(&[("m", settings(kind, "share: all").await)], "").await;
        let reply = call(&app, "report", "bees").await;
        assert_eq!(reply["text"], "report of bees", "{kind:?}: {reply}");
        for revision in [NEWER, OLDER] {
            let client = McpClient::connect(&app, revision).await;
            let params = json!({"name": "m__report", "arguments": {"topic": "ants"}});
            let called = client.result("tools/call", params, "CallToolResult").await;
            assert_eq!(called["content"][0]["text"], "report of ants", "{kind:?} {revision}: {called}");
            assert_eq!(called.get("_meta"), None, "the server's id of the task is unknown here: {called}");
        }
        let reply = call(&app, "broken", "bees").await;
        let message = reply["error_info"]["message"].as_str().unwrap();
        assert!(message.contains("the report is broken"), "{kind:?}: {reply}");
        assert_eq!(call(&app, "either", "").await["text"], "without a task", "{kind:?}");
        assert_eq!(call(&app, "cancelled", "").await["text"], "0", "{kind:?}: what is done is not cancelled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_call_ends_first_is_cancelled() {
    for kind in KINDS {
        let limits = "tools: {overrides: {m__endless: {timeout_seconds: 1}}}\n";
        let app = gateway(&[("m", settings(kind, "share: all").await)], limits).await;
        let reply = call(&app, "endless", "").await;
        assert_eq!(reply["error_info"]["code"], "timeout", "{kind:?}: {reply}");
        let cancelled = async {
            while call(&app, "cancelled", "").await["text"] != "1" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), cancelled).await.expect("a cancelled task");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_asks_the_client_of_its_call() {
    let kinds = KINDS.into_iter().filter(|(_, is_newer)| *is_newer);
    for kind in kinds {
        let app = gateway(&[("m", settings(kind, "").await)], "").await;
        let client = McpClient::connect(&app, OLDER).await;
        let params = json!({"name": "m__asks", "arguments": {}});
        let messages = client
            .converse("tools/call", params, |question| {
                assert_eq!(question["params"]["message"], "Who?");
                json!({"action": "accept", "content": {"a": "Ada"}})
            })
            .await;
        let reply = messages.last().unwrap();
        assert_eq!(reply["result"]["content"][0]["text"], "asks of Ada", "{kind:?}: {reply}");
    }
}

/// Two callers.
const CALLERS: &str = "auth: {api_keys: [{id: ann, key: key-of-ann}, {id: bob, key: key-of-bob}]}\n";

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A gateway with a server of 2025-11-25.
async fn with_callers() -> TestApp {
    gateway(&[("m", settings((Reach::Http, false), "share: all").await)], CALLERS).await
}

/// The task that a client of a session has created.
async fn created(client: &McpClient, tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {"topic": "bees"}, "task": {"ttl": 60_000}});
    client.result("tools/call", params, "CreateTaskResult").await["task"].clone()
}

async fn status(client: &McpClient, task: &Value) -> Value {
    client.reply("tasks/get", json!({"taskId": task["taskId"]})).await["result"].clone()
}

/// The task as soon as it has this status.
async fn until(client: &McpClient, task: &Value, wanted: &str) -> Value {
    let polling = async {
        loop {
            let shown = status(client, task).await;
            if shown["status"] == wanted {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), polling).await.unwrap_or_else(|_| panic!("never {wanted}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_session_gets_a_task_and_its_result_later() {
    let app = with_callers().await;
    let client = McpClient::connect_as(&app, OLDER, Some("key-of-ann")).await;
    let other = McpClient::connect_as(&app, OLDER, Some("key-of-bob")).await;
    let task = created(&client, "m__report").await;
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)), "{task}");
    let id = json!({"taskId": task["taskId"]});
    let result = client.result("tasks/result", id.clone(), "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "report of bees", "{result}");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], id, "{result}");
    let shown = client.result("tasks/get", id.clone(), "GetTaskResult").await;
    assert_eq!(shown["status"], "completed", "{shown}");
    let broken = created(&client, "m__broken").await;
    let failed = client.result("tasks/result", json!({"taskId": broken["taskId"]}), "CallToolResult").await;
    assert_eq!(failed["isError"], true, "{failed}");
    assert_eq!(status(&client, &broken).await["status"], "failed");
    let listed = client.result("tasks/list", json!({}), "ListTasksResult").await;
    let ids: Vec<_> = listed["tasks"].as_array().unwrap().iter().map(|task| &task["taskId"]).collect();
    assert_eq!(ids, [&task["taskId"], &broken["taskId"]]);
    // For another caller it does not exist.
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let (own, unknown) = (other.reply(method, id.clone()).await, json!({"taskId": "unknown"}));
        assert_eq!(own["error"]["code"], -32602, "{method}: {own}");
        assert_eq!(own["error"], other.reply(method, unknown).await["error"], "{method}");
    }
    assert_eq!(other.result("tasks/list", json!({}), "ListTasksResult").await["tasks"], json!([]));
    let ended = client.reply("tasks/cancel", id.clone()).await;
    assert_eq!(ended["error"]["code"], -32602, "{ended}");
    let line = "shannon_tool_executions_total{status=\"success\",tool_name=\"m__report\"}";
    assert_eq!(app.metric(line).await, 1.0, "it passed the stages of every call");
    // What was answered remains when its session ends.
    client.end().await;
    let again = McpClient::connect_as(&app, OLDER, Some("key-of-ann")).await;
    let result = again.result("tasks/result", id, "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "report of bees", "{result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_is_cancelled_at_its_server_too() {
    let app = with_callers().await;
    let older = McpClient::connect_as(&app, OLDER, Some("key-of-ann")).await;
    let task = created(&older, "m__endless").await;
    // A poll has reached the server.
    let calls = async |client: &McpClient| {
        let params = json!({"name": "m__cancelled", "arguments": {}});
        client.reply("tools/call", params).await["result"]["content"][0]["text"].clone()
    };
    let cancelled = async |client: &McpClient, expected: &str| {
        let waiting = async {
            while calls(client).await != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("the server was told");
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    let shown = older.result("tasks/cancel", json!({"taskId": task["taskId"]}), "CancelTaskResult").await;
    assert_eq!(shown["status"], "cancelled", "{shown}");
    cancelled(&older, "1").await;
    let ended = older.reply("tasks/result", json!({"taskId": task["taskId"]})).await;
    assert!(ended["error"]["message"].as_str().unwrap().contains("cancelled"), "{ended}");
    let newer = McpClient::connect_with(&app, NEWER, json!({"extensions": {TASKS: {}}})).await.with_key("key-of-ann");
    let params = json!({"name": "m__endless", "arguments": {}});
    let task = newer.reply("tools/call", params).await["result"].clone();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let reply = newer.reply("tasks/cancel", json!({"taskId": task["taskId"]})).await;
    assert_eq!(reply["result"], json!({"resultType": "complete"}), "{reply}");
    assert_eq!(status(&newer, &task).await["status"], "cancelled");
    cancelled(&newer, "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_becomes_a_task_when_its_server_makes_it_one() {
    let app = gateway(&[("m", settings((Reach::Http, true), "").await)], "").await;
    let client = McpClient::connect_with(&app, NEWER, json!({"extensions": {TASKS: {}}})).await;
    let at_once = client.reply("tools/call", json!({"name": "m__plain", "arguments": {}})).await;
    assert_eq!(at_once["result"]["resultType"], "complete", "{at_once}");
    let task = client.reply("tools/call", json!({"name": "m__asks", "arguments": {}})).await["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    let shown = until(&client, &task, "input_required").await;
    let (key, question) = shown["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!("Who?")));
    let answer = json!({"action": "accept", "content": {"a": "Ada"}});
    let params = json!({"taskId": task["taskId"], "inputResponses": {key.as_str(): answer}});
    let reply = client.reply("tasks/update", params).await;
    assert_eq!(reply["result"], json!({"resultType": "complete"}), "{reply}");
    let shown = until(&client, &task, "completed").await;
    assert_eq!(shown["result"]["content"][0]["text"], "asks of Ada", "{shown}");
    assert!(shown["result"].get("_meta").is_none() && shown.get("ttl").is_none(), "{shown}");
    // Requests about tasks are for clients that declare them.
    let plain = McpClient::connect(&app, NEWER).await;
    let refused = plain.reply("tasks/get", json!({"taskId": task["taskId"]})).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    assert!(refused["error"]["data"]["requiredCapabilities"]["extensions"][TASKS].is_object(), "{refused}");
    let called = plain.reply("tools/call", json!({"name": "m__report", "arguments": {}})).await;
    assert_eq!(called["result"]["content"][0]["text"], "report of ", "{called}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_reports_the_states_of_tasks() {
    let app = gateway(&[("m", settings((Reach::Http, true), "").await)], CALLERS).await;
    let with_tasks = json!({"extensions": {TASKS: {}}});
    let ann = McpClient::connect_with(&app, NEWER, with_tasks.clone()).await.with_key("key-of-ann");
    let bob = McpClient::connect_with(&app, NEWER, with_tasks).await.with_key("key-of-bob");
    let task = ann.reply("tools/call", json!({"name": "m__asks", "arguments": {}})).await["result"].clone();
    let shown = until(&ann, &task, "input_required").await;
    let filter = json!({"taskIds": [task["taskId"], "unknown"]});
    let (mut heard, acknowledged) = ann.listen_to(filter.clone()).await;
    assert_eq!(acknowledged["params"]["notifications"]["taskIds"], json!([task["taskId"]]), "{acknowledged}");
    let subscription = &acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert!(!subscription.is_null(), "{acknowledged}");
    let first = heard.next_of("notifications/tasks").await["params"].clone();
    assert_eq!((&first["status"], &first["inputRequests"]), (&json!("input_required"), &shown["inputRequests"]));
    assert_eq!(&first["_meta"]["io.modelcontextprotocol/subscriptionId"], subscription, "{first}");
    let key = shown["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answer = json!({"action": "accept", "content": {"a": "Ada"}});
    ann.reply("tasks/update", json!({"taskId": task["taskId"], "inputResponses": {key.as_str(): answer}})).await;
    let completed = loop {
        let state = heard.next_of("notifications/tasks").await["params"].clone();
        if state["status"] == "completed" {
            break state;
        }
    };
    assert_eq!(completed["result"]["content"][0]["text"], "asks of Ada", "{completed}");
    // For another caller it does not exist, and a client must declare that it knows tasks.
    let (_, of_bob) = bob.listen_to(filter.clone()).await;
    assert_eq!(of_bob["params"]["notifications"]["taskIds"], json!([]), "{of_bob}");
    let plain = McpClient::connect_as(&app, NEWER, Some("key-of-ann")).await;
    let refused = plain.reply("subscriptions/listen", json!({"notifications": filter})).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let refused = ann.reply("subscriptions/listen", json!({"notifications": {"taskIds": "all"}})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_handshakes_say_what_runs_as_a_task() {
    let app = with_callers().await;
    let client = McpClient::connect_as(&app, OLDER, Some("key-of-ann")).await;
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    let support = |name: &str| {
        let tools = listed["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}"));
        tool.get("execution").cloned()
    };
    let optional = Some(json!({"taskSupport": "optional"}));
    for (name, expected) in [
        ("m__report", &optional),
        ("m__either", &optional),
        ("m__plain", &None),
        ("m__board", &None),
        ("calculator", &optional),
    ] {
        assert_eq!(&support(name), expected, "{name}");
    }
    for tool in ["m__plain", "m__board"] {
        let refused = client.reply("tools/call", json!({"name": tool, "arguments": {}, "task": {}})).await;
        assert_eq!(refused["error"]["code"], -32601, "{tool}: {refused}");
    }
    let params = json!({"name": "calculator", "arguments": {"expression": "6*7"}, "task": {}});
    let task = client.result("tools/call", params, "CreateTaskResult").await["task"].clone();
    let result = client.result("tasks/result", json!({"taskId": task["taskId"]}), "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "42", "{result}");
    let initialized = client.reply("initialize", initialize(OLDER)).await;
    let announced = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(initialized["result"]["capabilities"]["tasks"], announced, "{initialized}");
    let newer = McpClient::connect_as(&app, NEWER, Some("key-of-ann")).await;
    let discovered = newer.result("server/discover", json!({}), "DiscoverResult").await;
    assert!(discovered["capabilities"]["extensions"][TASKS].is_object(), "{discovered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_becomes_a_task_when_it_takes_long_and_its_questions_come_before() {
    let tools = || -> Vec<Box<dyn Source>> { vec![Box::new(ConversingTools)] };
    let app = TestApp::with_tools_of(TempDir::new().unwrap(), "", tools()).await;
    let client = McpClient::connect_with(&app, NEWER, json!({"extensions": {TASKS: {}}})).await;
    let asked = client.reply("tools/call", json!({"name": "ask_name", "arguments": {}})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let app = TestApp::start().await;
    let client = McpClient::connect_with(&app, NEWER, json!({"extensions": {TASKS: {}}})).await;
    let call = |milliseconds: u64| json!({"name": "sleep", "arguments": {"ms": milliseconds}});
    let short = client.reply("tools/call", call(1)).await;
    assert_eq!(short["result"]["content"][0]["text"], "1", "{short}");
    let task = client.reply("tools/call", call(900)).await["result"].clone();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let shown = until(&client, &task, "completed").await;
    assert_eq!(shown["result"]["content"][0]["text"], "900", "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_a_session_asks_and_notifies_its_client_on_the_standing_stream() {
    let app = TestApp::with_tools_of(TempDir::new().unwrap(), "", vec![Box::new(ConversingTools)]).await;
    let client = McpClient::connect(&app, OLDER).await;
    let mut stream = client.listen(json!({})).await;
    let task = created(&client, "ask_name").await;
    let id = json!({"taskId": task["taskId"]});
    let asks = stream.next_of("notifications/tasks/status").await;
    client.check("TaskStatusNotification", &asks);
    assert_eq!((&asks["params"]["status"], &asks["params"]["taskId"]), (&json!("input_required"), &task["taskId"]));
    let question = stream.next_of("elicitation/create").await;
    assert_eq!(question["params"]["_meta"]["io.modelcontextprotocol/related-task"], id, "{question}");
    assert_eq!(status(&client, &task).await["status"], "input_required");
    client.answer(&question, json!({"action": "accept", "content": {"name": "Ada"}})).await;
    let ended = stream.next_of("notifications/tasks/status").await;
    assert_eq!(ended["params"]["status"], "completed", "{ended}");
    let result = client.result("tasks/result", id, "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "Hello, Ada!", "{result}");
}
