//! `sekisho mcp serve`: the same over standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::check;
use super::{NEWER, OLDER};
use crate::app::{TestApp, config};
use crate::mcp_programs;
use crate::mcp_servers::yaml;

pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Server {
    pub(crate) fn start(yaml: &str) -> Self {
        Self::start_with(yaml, &[], &[])
    }

    /// One that passes messages on to the gateway at an address.
    fn bridge_to(url: &str, key: &str) -> Self {
        Self::start_with("{}", &["--server", url], &[("SEKISHO_API_KEY", key)])
    }

    fn start_with(yaml: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().unwrap();
        let config = directory.path().join("sekisho.yaml");
        std::fs::write(&config, yaml).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_sekisho"))
            .arg("--config")
            .arg(&config)
            .args(arguments)
            .args(["mcp", "serve"])
            .env("SEKISHO_STATE_DIRECTORY", directory.path().join("state"))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, directory }
    }

    /// What a client of the revision does first.
    pub(crate) fn begin(&mut self, revision: &str) {
        if revision == OLDER {
            let begun = self.ask(revision, 1, "initialize", super::client::initialize(revision));
            assert_eq!(begun["protocolVersion"], revision);
            self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
    }

    /// Closes the input, and waits for the end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        drop(self.input.take());
        self.ended()
    }

    /// Lets the gateway in the background end: no command finds it without its socket.
    pub(crate) fn end_gateway(&self) {
        std::fs::remove_file(self.directory.path().join("state/gateway.sock")).unwrap();
    }

    /// How it ends by itself.
    fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None if Instant::now() > until => panic!("it goes on without a client"),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    pub(crate) fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn hear(&mut self, revision: &str) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("only JSON is written there: {line:?}"));
        check(revision, "JSONRPCMessage", &message);
        message
    }

    pub(crate) fn ask(&mut self, revision: &str, id: u64, method: &str, mut params: Value) -> Value {
        if revision == NEWER {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": NEWER,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.hear(revision);
            // News may come between: the tools of the interpreter are there a little later.
            if message.get("id").is_some() {
                assert_eq!(message["id"], id, "{message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_client_that_starts_the_gateway_itself_uses_its_tools_until_it_closes_the_input() {
    for revision in [OLDER, NEWER] {
        let mut server = Server::start("{}");
        server.begin(revision);
        let listed = server.ask(revision, 2, "tools/list", json!({}));
        check(revision, "ListToolsResult", &listed);
        assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "calculator"));
        let call = json!({"name": "calculator", "arguments": {"expression": "6*7"}});
        let called = server.ask(revision, 3, "tools/call", call);
        check(revision, "CallToolResult", &called);
        assert_eq!(called["content"][0]["text"], "42");
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        assert!(status.contains("THP_enabled:\t0\n"), "its heap stays small: {status}");
        let ended = server.end();
        assert!(ended.success(), "{revision}: {ended}");
    }
}

#[test]
fn a_message_that_is_too_long_is_answered_with_an_error() {
    let mut server = Server::start("{}");
    server.begin(OLDER);
    for megabytes in [5, 60] {
        let text = "x".repeat(megabytes << 20);
        let call = json!({"jsonrpc": "2.0", "id": megabytes, "method": "tools/call", "params": {"name": "calculator", "arguments": {"expression": text}}});
        server.say(&call);
        let reply = std::iter::repeat_with(|| server.hear(OLDER)).find(|message| message.get("id").is_some()).unwrap();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(megabytes), &json!(-32600)), "{reply}");
        assert!(reply["error"]["message"].as_str().is_some_and(|message| message.contains("bytes")), "{reply}");
    }
    let called =
        server.ask(OLDER, 100, "tools/call", json!({"name": "calculator", "arguments": {"expression": "6*7"}}));
    assert_eq!(called["content"][0]["text"], "42");
    assert!(server.end().success());
}

#[test]
fn a_resource_a_prompt_and_a_completion_leave_a_line_in_the_log_like_a_tool() {
    let mut server = Server::start(&yaml(&[("m", mcp_programs::server("fine", ""))]));
    server.ask(OLDER, 1, "initialize", super::client::initialize(OLDER));
    server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let reference = json!({"type": "ref/prompt", "name": "m__greet"});
    let mut ids = 2..;
    for (method, params) in [
        ("prompts/get", json!({"name": "m__greet"})),
        ("resources/read", json!({"uri": "m+demo://one"})),
        ("completion/complete", json!({"ref": reference, "argument": {"name": "name", "value": "A"}})),
    ] {
        // Until the server behind has listed what it has.
        while server.ask(OLDER, ids.next().unwrap(), method, params.clone()).is_null() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(server.end().success());
    let log = || std::fs::read_to_string(server.directory.path().join("state/gateway.log")).unwrap();
    let succeeded = |name: &str| {
        let log = log();
        let ended = log.lines().filter(|line| line.contains("a tool call ended") && line.contains(name));
        ended.filter(|line| line.contains("success\":true")).count()
    };
    let until = Instant::now() + Duration::from_secs(10);
    for name in ["m__prompts_get", "m__resources_read", "m__complete"] {
        // The gateway still runs, and writes its log a little later.
        while succeeded(name) == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(succeeded(name), 1, "{name}:\n{}", log());
    }
    let log = log();
    assert!(!log.contains("demo://one"), "the requested URI is an argument, and not logged: {log}");
}

/// What stands beside a gateway of one's own: its name for a tool, and who may ask.
fn with_calculator_called(name: &str) -> String {
    format!(
        "auth: {{anonymous: never, api_keys: [{{id: ada, key: key-of-ada, roles: [admin]}}]}}\n\
         tools: {{overrides: {{calculator: {{rename: {name}}}}}}}"
    )
}

/// With `--server` the tools, the policies and the budgets are those of that gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_starts_a_program_uses_the_gateway_that_its_command_line_names() {
    let app = TestApp::with(&with_calculator_called("sums")).await;
    for revision in [OLDER, NEWER] {
        let mut server = Server::bridge_to(&app.url, "key-of-ada");
        tokio::task::block_in_place(|| {
            if revision == OLDER {
                let begun = server.ask(revision, 1, "initialize", super::client::initialize(revision));
                assert_eq!(begun["protocolVersion"], revision);
                server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            } else {
                server.ask(revision, 1, "server/discover", json!({}));
            }
            let listed = server.ask(revision, 2, "tools/list", json!({}));
            check(revision, "ListToolsResult", &listed);
            let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
            assert!(names.contains(&&json!("sums")) && !names.contains(&&json!("calculator")), "{names:?}");
            let call = json!({"name": "sums", "arguments": {"expression": "6*7"}});
            let called = server.ask(revision, 3, "tools/call", call);
            check(revision, "CallToolResult", &called);
            assert_eq!(called["content"][0]["text"], "42");
        });
        if revision == OLDER {
            // The gateway's own description reaches the client as well.
            let changed = with_calculator_called("totals");
            app.gateway.reload(config(&app.directory, &changed)).await;
            let news = tokio::task::block_in_place(|| server.hear(revision));
            assert_eq!(news["method"], "notifications/tools/list_changed", "{news}");
            app.gateway.reload(config(&app.directory, &with_calculator_called("sums"))).await;
        }
        drop(server.input.take());
        let ended = tokio::task::block_in_place(|| server.ended());
        assert!(ended.success(), "{revision}: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unusable_gateway_is_reported_to_the_client_and_by_the_exit_code() {
    let app = TestApp::with(&with_calculator_called("sums")).await;
    for (url, key, code) in [(&*app.url, "wrong", 3), ("http://127.0.0.1:1", "key-of-ada", 5)] {
        let mut server = Server::bridge_to(url, key);
        let (reply, ended) = tokio::task::block_in_place(|| {
            let begin =
                json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": super::client::initialize(OLDER)});
            server.say(&begin);
            (server.hear(OLDER), server.ended())
        });
        assert!(reply["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{reply}");
        assert_eq!((&reply["id"], ended.code()), (&json!(1), Some(code)), "{url}");
    }
}
