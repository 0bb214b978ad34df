//! Tools that are components: in real worker processes, over REST and MCP, pinned, changed, hostile and broken.

mod attacks;
mod real;

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config, degraded};
use crate::approvals::run_example;
use crate::cli::{sekisho, text};
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::slack::slack;

const TOOLS: &str = include_str!("../components/tools.wat");
const COMMAND: &str = include_str!("../components/command.wat");
const BROKEN: &str = include_str!("../components/broken.yaml");

/// A gateway with components whose tools are approved.
struct OwnComponents {
    app: TestApp,
    yaml: String,
}

fn folder(directory: &TempDir) -> std::path::PathBuf {
    directory.path().join("components")
}

fn write(directory: &TempDir, name: &str, wat: &str) {
    fs::create_dir_all(folder(directory)).unwrap();
    fs::write(folder(directory).join(name), wat::parse_str(wat).unwrap()).unwrap();
}

/// The configuration, in the file that commands read: more about components, and other topics.
fn yaml(directory: &TempDir, more: &str, topics: &str) -> String {
    let (folder, lock) = (folder(directory), directory.path().join("tools.lock"));
    let yaml = format!(
        "components: {{directory: '{}'{more}}}\ntools: {{lock: '{}'}}\nsandbox: {{workers: 2}}\n{topics}",
        folder.display(),
        lock.display()
    );
    fs::write(directory.path().join("sekisho.yaml"), &yaml).unwrap();
    yaml
}

fn run(directory: &TempDir, arguments: &[&str]) -> std::process::Output {
    sekisho(directory).args(["--config", "sekisho.yaml"]).args(arguments).output().unwrap()
}

impl OwnComponents {
    /// Approves what is in the folder, and starts.
    async fn start(directory: TempDir, more: &str) -> Self {
        Self::with_topics(directory, more, "").await
    }

    async fn with_topics(directory: TempDir, more: &str, topics: &str) -> Self {
        let yaml = yaml(&directory, more, topics);
        let locked = run(&directory, &["lock"]);
        // It fails where a file cannot be used, whose tools are not pinned.
        assert!(directory.path().join("tools.lock").is_file(), "{}", text(&locked));
        let own = Self { app: TestApp::in_directory(directory, &yaml).await, yaml };
        own.settle().await;
        own
    }

    /// Waits until all files are compiled.
    async fn settle(&self) {
        let deadline = tokio::time::Instant::now() + slack(Duration::from_secs(60));
        loop {
            let degraded = degraded(&self.app).await;
            if !degraded.to_string().contains("is being compiled") {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{degraded}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn reload(&self) {
        self.app.gateway.reload(config(&self.app.directory, &self.yaml)).await;
        self.settle().await;
    }

    /// The output of a call that must go well.
    async fn output(&self, tool: &str, arguments: Value) -> Value {
        let (status, mut reply) = self.app.call(tool, arguments).await;
        assert!(status == StatusCode::OK && reply["success"] == true, "{status}: {reply}");
        reply["output"].take()
    }
}

#[tokio::test]
async fn a_component_is_called_over_rest_and_mcp_changed_and_approved_again() {
    let directory = TempDir::new().unwrap();
    write(&directory, "own.wasm", TOOLS);
    let wit = "package my:tools@0.1.0;\ninterface maths {\n  /// Half of an even number.\n  half: func(number: u32) -> result<u32, string>;\n}\n";
    fs::write(folder(&directory).join("own.wit"), wit).unwrap();
    let own = OwnComponents::start(directory, ", grants: {own: {env: {UNITS: metric}}}").await;
    for _ in 0..2 {
        assert_eq!(own.output("own__echo", json!({"the_text": "関所"})).await, "関所");
    }
    assert_eq!(own.output("own__maths__half", json!({"number": 8})).await, 4);
    assert_eq!(own.output("own__count_variables", json!({})).await, 1, "that which is granted");
    let (_, reply) = own.app.call("own__maths__half", json!({"number": 7})).await;
    assert_eq!((code(&reply), &reply["error"]), ("tool_error", &json!("odd")), "{reply}");
    let (status, reply) = own.app.call("own__maths__half", json!({"number": -1})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"), "{reply}");

    let client = McpClient::connect(&own.app, NEWER).await;
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    let tools = listed["tools"].as_array().unwrap();
    let half = tools.iter().find(|tool| tool["name"] == "own__maths__half").unwrap();
    assert_eq!(half["description"], "Half of an even number.");
    assert_eq!(
        (&half["inputSchema"]["required"], &half["annotations"]["readOnlyHint"]),
        (&json!(["number"]), &json!(true))
    );
    let call = json!({"name": "own__echo", "arguments": {"the_text": "by MCP"}});
    let called = client.result("tools/call", call, "CallToolResult").await;
    assert!(called.to_string().contains("by MCP"), "{called}");

    let changed = TOOLS.replace("(data (i32.const 64) \"odd\")", "(data (i32.const 64) \"ODD\")");
    write(&own.app.directory, "own.wasm", &changed);
    own.reload().await;
    let (_, reply) = own.app.call("own__maths__half", json!({"number": 7})).await;
    assert_eq!(code(&reply), "tool_changed", "{reply}");
    let approved = run(&own.app.directory, &["lock", "approve"]);
    assert!(approved.status.success(), "{}", text(&approved));
    own.reload().await;
    let (_, reply) = own.app.call("own__maths__half", json!({"number": 7})).await;
    assert_eq!(reply["error"], "ODD", "{reply}");

    fs::remove_file(folder(&own.app.directory).join("own.wasm")).unwrap();
    own.reload().await;
    let (status, reply) = own.app.call("own__echo", json!({"the_text": ""})).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"), "{reply}");
}

/// The first example of the page. Without jq it is not run.
#[test]
fn the_first_component_of_the_page_can_be_called() {
    const PAGE: &str = include_str!("../../docs/components.md");
    let Some(printed) = run_example(PAGE, "jq --version && curl --version") else { return };
    assert!(printed.lines().any(|line| line == "3"), "{printed}");
}

#[tokio::test]
async fn a_component_whose_folder_cannot_be_read_is_named_and_not_offered() {
    let (directory, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(&directory, "own.wasm", TOOLS);
    let inner = data.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let grants = format!(", grants: {{own: {{folders: {{/data: '{}'}}}}}}", data.path().display());
    let own = OwnComponents::start(directory, &grants).await;
    assert_eq!(own.output("own__echo", json!({"the_text": "a"})).await, "a");
    std::os::unix::fs::symlink("/etc/passwd", inner.join("link")).unwrap();
    own.reload().await;
    let degraded = degraded(&own.app).await;
    let reason = degraded["component:own"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("inner/link: links and devices are not read"), "{reason}");
    let (status, reply) = own.app.call("own__echo", json!({"the_text": "a"})).await;
    assert_ne!(status, StatusCode::OK, "{reply}");
    for arguments in [&["lock", "diff"][..], &["lock", "approve"]] {
        let compared = run(&own.app.directory, arguments);
        assert!(
            !compared.status.success() && text(&compared).contains("component:own cannot be"),
            "{}",
            text(&compared)
        );
    }
    let lock = fs::read_to_string(own.app.directory.path().join("tools.lock")).unwrap();
    assert!(lock.contains("own__echo"), "its pins are left alone: {lock}");
    fs::remove_file(inner.join("link")).unwrap();
    own.reload().await;
    assert_eq!(own.output("own__echo", json!({"the_text": "a"})).await, "a");
}

#[tokio::test]
async fn a_component_that_is_not_pinned_is_refused_with_what_to_run() {
    let directory = TempDir::new().unwrap();
    write(&directory, "own.wasm", TOOLS);
    let yaml = yaml(&directory, "", "").replace("tools: {lock:", "# tools: {lock:");
    let app = TestApp::in_directory(directory, &yaml).await;
    let degraded = degraded(&app).await;
    let reason = degraded["component:own"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(
        reason.contains("own.wasm: it is not pinned: run `sekisho lock`") && reason.contains("sha256:"),
        "{reason}"
    );
    assert_eq!(app.call("own__echo", json!({"the_text": ""})).await.0, StatusCode::NOT_FOUND);
}

const ASKS: &str = r#"
turns:
  - calls: [{id: a, tool: own__maths__half, arguments: '{"number": 8}'}]
  - calls: [{id: b, tool: own__maths__half, arguments: '{"number": 7}'}]
  - text: ["Half of 8 is 4."]
"#;

#[tokio::test]
async fn an_agent_calls_a_component() {
    let directory = TempDir::new().unwrap();
    write(&directory, "own.wasm", TOOLS);
    let script = directory.path().join("script.yaml");
    fs::write(&script, ASKS).unwrap();
    let profiles = format!("{{own: {{provider: replay, model: '{}'}}}}", script.display());
    let topics = format!("agent: {{default_profile: own, profiles: {profiles}}}\n");
    let own = OwnComponents::with_topics(directory, "", &topics).await;
    let (status, reply) = answer(own.app.post("/api/chat").json(&json!({"message": "What is half of 8?"}))).await;
    assert_eq!((status, &reply["reply"]), (StatusCode::OK, &json!("Half of 8 is 4.")), "{reply}");
    let calls = &reply["tool_calls"];
    assert_eq!((&calls[0]["text"], &calls[0]["success"]), (&json!("4"), &json!(true)), "{reply}");
    assert!(calls[1]["success"] == false && calls[1].to_string().contains("odd"), "{reply}");
}

#[tokio::test]
async fn a_command_takes_json_and_prints_json() {
    let directory = TempDir::new().unwrap();
    write(&directory, "mirror.wasm", COMMAND);
    let description = json!({"description": "Gives back what it gets.", "parameters": {"type": "object"}});
    fs::write(folder(&directory).join("mirror.json"), description.to_string()).unwrap();
    let own = OwnComponents::start(directory, "").await;
    assert_eq!(own.output("mirror__run", json!({"city": "Bern"})).await, json!({"city": "Bern"}));
    let (_, reply) = own.app.call("mirror__run", json!({})).await;
    assert_eq!(
        (code(&reply), &reply["error"]),
        ("tool_error", &json!("the command failed with exit(3): no arguments"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_functions_are_stopped_and_leave_the_others_alone() {
    let directory = TempDir::new().unwrap();
    write(&directory, "own.wasm", TOOLS);
    let own = OwnComponents::start(directory, "").await;
    let overrides = "overrides: {own__spin: {timeout_seconds: 1}, own__hoard: {memory_limit_mb: 128}}, lock:";
    let yaml = own.yaml.replace("lock:", overrides);
    own.app.gateway.reload(config(&own.app.directory, &yaml)).await;
    own.settle().await;
    let fine = async { own.output("own__echo", json!({"the_text": "fine"})).await };
    let (spin, ()) = tokio::join!(own.app.call("own__spin", json!({})), async { assert_eq!(fine.await, "fine") });
    assert!(["sandbox_timeout", "timeout"].contains(&code(&spin.1)), "{}", spin.1);
    for (tool, arguments, expected) in [
        ("own__hoard", json!({}), "sandbox_memory"),
        ("own__deep", json!({"n": 1}), "sandbox_trap"),
        ("own__crash", json!({}), "sandbox_trap"),
        ("own__outside", json!({}), "sandbox_trap"),
        ("own__long", json!({"bytes": 3_000_000}), "sandbox_output"),
    ] {
        let (_, reply) = own.app.call(tool, arguments).await;
        assert_eq!(code(&reply), expected, "{tool}: {reply}");
        assert_eq!(own.output("own__echo", json!({"the_text": tool})).await, tool);
    }
    assert_eq!(own.app.metric("shannon_sandbox_workers_lost_total").await, 0.0, "no worker had to be replaced");
}

fn put_broken(folder: &Path, case: &Value) {
    let name = case["name"].as_str().unwrap();
    let content = match (&case["text"], &case["bytes"]) {
        (Value::String(text), _) => wat::parse_str(text).unwrap_or_else(|error| panic!("{name}: {error}")),
        (_, Value::String(bytes)) => BASE64_STANDARD.decode(bytes).unwrap(),
        _ => panic!("{name} has no content"),
    };
    fs::write(folder.join(format!("{name}.wasm")), content).unwrap();
    for kind in ["wit", "json"] {
        if let Some(text) = case[kind].as_str() {
            fs::write(folder.join(format!("{name}.{kind}")), text).unwrap();
        }
    }
}

#[tokio::test]
async fn broken_components_are_named_and_leave_the_others() {
    let directory = TempDir::new().unwrap();
    write(&directory, "own.wasm", TOOLS);
    let cases: Vec<Value> = serde_saphyr::from_str(BROKEN).unwrap();
    cases.iter().for_each(|case| put_broken(&folder(&directory), case));
    let own = OwnComponents::start(directory, ", grants: {wether: {clocks: true}}").await;
    let degraded = degraded(&own.app).await;
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let reason = degraded[format!("component:{name}")].as_str().unwrap_or_else(|| panic!("{name}: {degraded}"));
        assert!(reason.starts_with(&format!("{name}.wasm: ")), "{reason}");
        for says in case["says"].as_array().unwrap() {
            assert!(reason.contains(says.as_str().unwrap()), "{case}\n{reason}");
        }
    }
    assert_eq!(own.output("own__echo", json!({"the_text": "fine"})).await, "fine");
    let checked = sekisho(&own.app.directory).args(["--config", "sekisho.yaml", "--json", "check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    let findings: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let of = |part: &str| findings.as_array().unwrap().iter().find(|finding| finding["part"] == part).unwrap().clone();
    assert_eq!(of("component:own")["ok"], true, "{findings}");
    assert!(of("component:clock")["says"].as_str().unwrap().contains("grants.clock.clocks: true"));
    assert!(of("components.grants.wether")["says"].as_str().unwrap().contains("\"wether\""), "{findings}");
}
