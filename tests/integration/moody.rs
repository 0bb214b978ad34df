//! An MCP server with moods: this very test binary, started again as a program.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// The entry of such a server in an `mcpServers` file.
pub(crate) fn entry(mood: &str) -> Value {
    program("moody::speak_mcp", &json!({"MOOD": mood}))
}

/// The same for the configuration, in one line of YAML, with `more` settings.
pub(crate) fn server(mood: &str, more: &str) -> String {
    settings(&entry(mood), more)
}

/// The settings of a server that a function of this test binary is, with an environment and `more` settings.
pub(crate) fn started(function: &str, environment: &Value, more: &str) -> String {
    settings(&program(function, environment), more)
}

fn settings(entry: &Value, more: &str) -> String {
    let entry = entry.to_string();
    format!("{}, {more}}}", entry.strip_suffix('}').unwrap())
}

fn program(function: &str, environment: &Value) -> Value {
    json!({
        "command": std::env::current_exe().unwrap(),
        "args": [function, "--exact", "--ignored", "--nocapture", "-q", "--test-threads=2"],
        "env": environment,
    })
}

/// A server that offers what a file says (JSON, a list of tools, or `tools` and `prompts`), and tells whenever the
/// file changed.
pub(crate) fn server_of(file: &Path) -> String {
    server(&format!("told-{}", file.display()), "")
}

/// Programs with this mood that run now. Moods that are counted are each one test's own.
pub(crate) fn running(mood: &str) -> usize {
    processes(mood).len()
}

/// The ids of such programs.
pub(crate) fn processes(mood: &str) -> Vec<String> {
    let wanted = format!("MOOD={mood}\0");
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let has_mood = |environment: Vec<u8>| environment.windows(wanted.len()).any(|found| found == wanted.as_bytes());
    let with_mood = processes.filter(|process| fs::read(process.path().join("environ")).is_ok_and(has_mood));
    with_mood.map(|process| process.file_name().into_string().unwrap()).collect()
}

#[test]
#[ignore = "no test: what the tests of MCP servers start as a program"]
fn speak_mcp() {
    let Ok(mood) = std::env::var("MOOD") else { return };
    let (mood, place) = mood.split_once('-').unwrap_or((&mood, ""));
    if mood == "told" {
        let tools = place.to_owned();
        std::thread::spawn(move || tell_changes(&tools));
    }
    let mut server = Moody { mood: mood.to_owned(), place: place.to_owned(), lists: 0 };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        server.hear(&message);
    }
    std::process::exit(0);
}

struct Moody {
    mood: String,
    /// What follows the mood, after a dash.
    place: String,
    lists: usize,
}

impl Moody {
    fn hear(&mut self, message: &Value) {
        let Some(id) = message.get("id") else { return };
        let mood = self.mood.as_str();
        match message["method"].as_str().unwrap_or_default() {
            "server/discover" if mood == "deaf" => {}
            "initialize" | "server/discover" if mood == "mute" => {}
            _ if mood == "garbage" => say_line("Welcome! I do not speak JSON."),
            "initialize" => answer(id, &initialized()),
            "ping" => answer(id, &json!({})),
            "tools/list" if mood == "endless" => {
                self.lists += 1;
                answer(id, &json!({"tools": [], "nextCursor": self.lists.to_string()}));
            }
            "tools/list" => {
                self.lists += 1;
                answer(id, &json!({"tools": self.tools()}));
                if mood == "changes" && self.lists < 5 {
                    say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                }
            }
            "resources/list" => answer(id, &json!({"resources": [{"uri": "demo://one", "name": "one"}]})),
            "resources/templates/list" => {
                answer(id, &json!({"resourceTemplates": [{"uriTemplate": "demo://{n}", "name": "any"}]}));
            }
            "resources/read" => read(id, &message["params"]["uri"]),
            "resources/subscribe" | "resources/unsubscribe" => answer(id, &json!({})),
            "completion/complete" => {
                let reference = &message["params"]["ref"];
                answer(id, &json!({"completion": {"values": [reference.to_string()]}}));
            }
            "prompts/list" => answer(id, &json!({"prompts": self.prompts()})),
            "prompts/get" => {
                let text = format!("Hello {}", message["params"]["arguments"]["name"]);
                let content = json!({"type": "text", "text": text});
                answer(id, &json!({"messages": [{"role": "user", "content": content}]}));
            }
            "tools/call" => self.call(id, &message["params"]),
            method => say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": method}})),
        }
    }

    fn tools(&self) -> Vec<Value> {
        let named = |name: &str| {
            json!({
                "name": name, "description": "Says it again.", "inputSchema": {"type": "object"},
                "annotations": {"idempotentHint": true},
            })
        };
        match self.mood.as_str() {
            "thousands" => (0..10_000).map(|n| named(&format!("tool_{n}"))).collect(),
            "told" => match self.reported() {
                Value::Array(tools) => tools,
                reported => reported["tools"].as_array().unwrap().clone(),
            },
            "changes" => vec![named(&format!("tool_{}", self.lists))],
            _ => ["echo", "fail", "picture", "refuse", "pid"].map(named).to_vec(),
        }
    }

    fn prompts(&self) -> Value {
        let reported = if self.mood == "told" { self.reported()["prompts"].clone() } else { Value::Null };
        if reported.is_array() { reported } else { json!([{"name": "greet"}]) }
    }

    fn reported(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.place).unwrap()).unwrap()
    }

    fn call(&self, id: &Value, params: &Value) {
        let text = params["arguments"].to_string();
        let result = match params["name"].as_str().unwrap_or_default() {
            "fail" => json!({"content": [{"type": "text", "text": "it did not work"}], "isError": true}),
            "picture" => json!({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
            "pid" => json!({"content": [], "structuredContent": {"pid": std::process::id()}}),
            "refuse" => {
                let error = json!({"code": -32602, "message": "no such city"});
                return say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            _ => json!({"content": [{"type": "text", "text": text}]}),
        };
        match self.mood.as_str() {
            "dies" => std::process::exit(3),
            // Only where it has not done so before.
            "stumbles" if fs::File::create_new(&self.place).is_ok() => std::process::exit(3),
            "silent" => {}
            // What its caller names has changed.
            "watched" => {
                let params = json!({"uri": params["arguments"]["uri"]});
                say(&json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}));
                answer(id, &result);
            }
            "twice" => {
                answer(id, &result);
                answer(id, &result);
            }
            "wrong" => answer(&json!("nobody's"), &result),
            "half" => {
                let mut output = io::stdout().lock();
                output.write_all(b"{\"jsonrpc\": \"2.0\", \"id\": ").unwrap();
                output.flush().unwrap();
                std::process::exit(0);
            }
            "drip" => {
                let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
                let mut output = io::stdout().lock();
                for piece in line.as_bytes().chunks(8) {
                    output.write_all(piece).unwrap();
                    output.flush().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            "long" => {
                let mut output = io::stdout().lock();
                while output.write_all(&[b'x'; 1 << 16]).is_ok() {}
            }
            "flood" => {
                for n in 0..1_000 {
                    let data = json!({"level": "info", "data": n});
                    say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": data}));
                    say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                }
                answer(id, &result);
            }
            _ => answer(id, &result),
        }
    }
}

/// A resource that there is not, one that the server fails to read, a large one, or any other.
fn read(id: &Value, uri: &Value) {
    let error = match uri.as_str().unwrap_or_default() {
        "demo://gone" => json!({"code": -32002, "message": "it is gone", "data": {"since": 1970}}),
        "demo://broken" => json!({"code": -32603, "message": "it is broken"}),
        "demo://large" => return answer(id, &json!({"contents": [{"uri": uri, "text": "x".repeat(3 << 20)}]})),
        _ => return answer(id, &json!({"contents": [{"uri": uri, "text": format!("what {uri} says")}]})),
    };
    say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
}

fn tell_changes(tools: &str) {
    let mut known = fs::read(tools).unwrap_or_default();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let now = fs::read(tools).unwrap_or_default();
        if now != known && serde_json::from_slice::<Value>(&now).is_ok() {
            known = now;
            say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        }
    }
}

fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {
            "tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}, "completions": {},
        },
        "serverInfo": {"name": "moody", "version": "1"},
        "instructions": "Be patient with it.",
    })
}

fn answer(id: &Value, result: &Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

pub(crate) fn say(message: &Value) {
    say_line(&message.to_string());
}

fn say_line(line: &str) {
    let mut output = io::stdout().lock();
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}
