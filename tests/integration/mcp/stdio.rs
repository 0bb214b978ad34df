//! `sekisho mcp serve`: the same over standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::check;
use super::{NEWER, OLDER};

struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _directory: TempDir,
}

impl Server {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let config = directory.path().join("sekisho.yaml");
        std::fs::write(&config, "").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_sekisho"))
            .arg("--config")
            .arg(&config)
            .args(["mcp", "serve"])
            .env("SEKISHO_STATE_DIRECTORY", directory.path().join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, _directory: directory }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn hear(&mut self, revision: &str) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("only JSON is written there: {line:?}"));
        check(revision, "JSONRPCMessage", &message);
        message
    }

    fn ask(&mut self, revision: &str, id: u64, method: &str, mut params: Value) -> Value {
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
        let mut server = Server::start();
        if revision == OLDER {
            let begun = server.ask(revision, 1, "initialize", super::client::initialize(revision));
            assert_eq!(begun["protocolVersion"], revision);
            server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        let listed = server.ask(revision, 2, "tools/list", json!({}));
        check(revision, "ListToolsResult", &listed);
        assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "calculator"));
        let call = json!({"name": "calculator", "arguments": {"expression": "6*7"}});
        let called = server.ask(revision, 3, "tools/call", call);
        check(revision, "CallToolResult", &called);
        assert_eq!(called["content"][0]["text"], "42");
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        assert!(status.contains("THP_enabled:\t0\n"), "its heap stays small: {status}");
        drop(server.input.take());
        let until = Instant::now() + Duration::from_secs(10);
        let ended = loop {
            match server.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > until => panic!("{revision}: it goes on without a client"),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(ended.success(), "{revision}: {ended}");
    }
}
