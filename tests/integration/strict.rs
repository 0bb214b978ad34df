//! An MCP server of one revision of the protocol that lists its tools in pages and validates every message against
//! that revision's schema: this test binary, started again as a program.

use std::io::{self, BufRead};

use serde_json::{Map, Value, json};

use crate::mcp::client::violations;
use crate::moody::{say, started};

const NEWER: &str = "2026-07-28";

/// Its entry in the configuration, in one line of YAML, with `more` settings.
pub(crate) fn server(revision: &str, more: &str) -> String {
    started("strict::speak_one_revision", &json!({"REVISION": revision}), more)
}

#[test]
#[ignore = "no test: what the tests of MCP servers start as a program"]
fn speak_one_revision() {
    let Ok(revision) = std::env::var("REVISION") else { return };
    let mut server = Strict { revision, consulting: None, violations: Vec::new() };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(message) => server.hear(&message),
            Err(error) => server.violations.push(format!("{error}: {line}")),
        }
    }
    std::process::exit(0);
}

struct Strict {
    revision: String,
    /// The call that waits for the client's model.
    consulting: Option<Value>,
    /// The received messages that violate the protocol.
    violations: Vec<String>,
}

impl Strict {
    fn is_newer(&self) -> bool {
        self.revision == NEWER
    }

    fn hear(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        // A client that supports both handshakes tries the newer one first.
        let revision = if method == "server/discover" { NEWER } else { &self.revision };
        let kind = match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) => "ClientRequest",
            (Some(_), None) => "ClientNotification",
            _ => "JSONRPCMessage",
        };
        self.violations.extend(violations(revision, kind, message));
        let Some(id) = message.get("id") else { return };
        let params = &message["params"];
        match method {
            "" => self.consulted(message),
            "server/discover" if self.is_newer() => {
                let capabilities =
                    json!({"tools": {}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}});
                let discovered = json!({
                    "supportedVersions": [NEWER], "capabilities": capabilities,
                    "serverInfo": {"name": "strict", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
                });
                self.answer(id, discovered);
            }
            "initialize" if !self.is_newer() => {
                let capabilities = json!({"tools": {}, "resources": {}, "prompts": {}, "logging": {}});
                let server = json!({"name": "strict", "version": "1"});
                self.answer(
                    id,
                    json!({"protocolVersion": self.revision, "capabilities": capabilities, "serverInfo": server}),
                );
            }
            "ping" if !self.is_newer() => self.answer(id, json!({})),
            "tools/list" => {
                let page = tools(params["cursor"].as_str());
                self.answer(id, page);
            }
            "tools/call" => self.call(id, params),
            "resources/list" => self.answer(id, json!({"resources": [{"uri": "demo://one", "name": "one"}]})),
            "resources/templates/list" => self.answer(id, json!({"resourceTemplates": []})),
            "resources/read" => {
                self.answer(id, json!({"contents": [{"uri": params["uri"], "text": "one"}]}));
            }
            "prompts/list" => self.answer(id, json!({"prompts": [{"name": "greet"}]})),
            "prompts/get" => {
                let content = json!({"type": "text", "text": "Hello"});
                self.answer(id, json!({"messages": [{"role": "user", "content": content}]}));
            }
            "completion/complete" => self.answer(id, json!({"completion": {"values": ["Ada"]}})),
            method => {
                let error = json!({"code": -32601, "message": format!("no {method} in {}", self.revision)});
                say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        }
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        match params["name"].as_str().unwrap_or_default() {
            "sound" => {
                self.answer(id, json!({"content": [{"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}]}));
            }
            "log" => {
                if !self.is_newer() || params["_meta"].get("io.modelcontextprotocol/logLevel").is_some() {
                    let reported = json!({"level": "warning", "logger": "strict", "data": {"left": 3}});
                    say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": reported}));
                }
                self.answer(id, text("logged"));
            }
            "consult" if self.is_newer() => match params["inputResponses"].get("model") {
                Some(reported) => self.answer(id, text(reported["content"]["text"].as_str().unwrap_or("nothing"))),
                None => {
                    self.answer(id, json!({"resultType": "input_required", "inputRequests": {"model": question()}}));
                }
            },
            "consult" => {
                self.consulting = Some(id.clone());
                let mut asked = question();
                asked["jsonrpc"] = json!("2.0");
                asked["id"] = json!("question");
                say(&asked);
            }
            "violations" => self.answer(id, text(&self.violations.join("\n"))),
            _ => self.answer(id, text(&params["arguments"].to_string())),
        }
    }

    /// The answer to its question, or why there is none.
    fn consulted(&mut self, message: &Value) {
        let Some(call) = self.consulting.take() else { return };
        let reported = match message.pointer("/result/content/text") {
            Some(text) => json!({"content": [{"type": "text", "text": text}]}),
            None => json!({"content": [{"type": "text", "text": message["error"].to_string()}], "isError": true}),
        };
        self.answer(&call, reported);
    }

    fn answer(&self, id: &Value, mut result: Value) {
        if self.is_newer() {
            let mut newer = Map::from_iter([("resultType".to_owned(), json!("complete"))]);
            newer.extend([("ttlMs".to_owned(), json!(0)), ("cacheScope".to_owned(), json!("private"))]);
            newer.extend(result.as_object().cloned().unwrap_or_default());
            result = Value::Object(newer);
        }
        say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
}

/// Two tools a page.
fn tools(cursor: Option<&str>) -> Value {
    const PAGES: [[&str; 2]; 3] = [["echo", "sound"], ["log", "consult"], ["violations", "last"]];
    let at = cursor.and_then(|cursor| cursor.strip_prefix("page ")?.parse().ok()).unwrap_or(0);
    let tools = PAGES[at].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    let mut page = json!({"tools": tools});
    if at + 1 < PAGES.len() {
        page["nextCursor"] = json!(format!("page {}", at + 1));
    }
    page
}

fn question() -> Value {
    let content = json!({"type": "text", "text": "Which city?"});
    let params = json!({"messages": [{"role": "user", "content": content}], "maxTokens": 10});
    json!({"method": "sampling/createMessage", "params": params})
}
