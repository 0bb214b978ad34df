//! A gateway with a tool of every kind of source, behind an external policy that keeps what it was asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sekisho::{Arguments, Attempt, Execution, Executor, Metadata, Source, SourceTools, ToolDefinition, ToolOutput};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::kinds::{KINDS, Kind};
use super::upstreams::Upstreams;
use crate::app::{TestApp, answer};
use crate::cli::{sekisho, text};
use crate::mcp_servers::ready;
use crate::sandbox::{ALONE, PythonApp};
use crate::slack::slack;

const COMMAND: &str = include_str!("../../../components/command.wat");
const FETCHER: &str = include_str!("../../../components/fetch.wat");

/// Passes on all that it sees; and calls any tool.
const FUNCTIONS: &str = r#"
import os
import sys
from host import settings, tool, tools

@tool(needs=["seen"])
def show(text: str) -> dict:
    tools.seen(text=text, argv=list(sys.argv), environment=dict(os.environ), settings=dict(settings), folder=sorted(os.listdir(".")))
    return {"text": text}

@tool(needs=NEEDS)
def call(name: str, arguments: dict, note: str = "") -> dict:
    return {"got": tools[name](**arguments)}
"#;

pub(super) struct World {
    pub(super) app: PythonApp,
    pub(super) upstreams: Upstreams,
    /// What the program has read.
    lines: PathBuf,
}

impl World {
    pub(super) async fn start() -> Self {
        let upstreams = Upstreams::start().await;
        let directory = TempDir::new().unwrap();
        let lines = directory.path().join("lines");
        write_sources(directory.path(), &upstreams.url);
        let yaml = settings(directory.path(), &upstreams.url);
        std::fs::write(directory.path().join("sekisho.yaml"), &yaml).unwrap();
        let directory = locked(directory).await;
        let alone = ALONE.lock().await;
        let sources: Vec<Box<dyn Source>> = vec![Box::new(Seen(upstreams.clone()))];
        let app = PythonApp { app: TestApp::with_tools_of(directory, &yaml, sources).await, _alone: alone };
        let world = Self { app, upstreams, lines };
        world.settle().await;
        world
    }

    /// Registers the function, approves it and what else is new, and waits until all tools are there.
    async fn settle(&self) {
        self.app.wait_until_ready().await;
        ready(&self.app.app).await;
        let url = format!("{}/function", self.upstreams.url);
        let registration = json!({"name": "function", "url": url, "func_name": "f", "description": "Does it."});
        self.administrate("/tools/mcp/register", &registration).await;
        let found = answer(self.app.app.get("/admin/lock").bearer_auth("key-of-ann")).await.1;
        let approved = |found: &Value| {
            let name = &found["tool"];
            assert!(name.is_string(), "{found}");
            json!({"tool": name, "hash": found["hash"]})
        };
        let approvals: Vec<_> = found["differences"].as_array().unwrap().iter().map(approved).collect();
        if !approvals.is_empty() {
            self.administrate("/admin/lock/approve", &json!({"approvals": approvals})).await;
        }
        let all_there = async {
            while !self.lacks().await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let is_there = tokio::time::timeout(slack(Duration::from_secs(60)), all_there).await.is_ok();
        assert!(is_there, "{:?} {:?}", self.lacks().await, self.app.app.gateway.readiness.degraded());
    }

    async fn administrate(&self, path: &str, body: &Value) {
        let (status, reply) = answer(self.app.app.post(path).bearer_auth("key-of-ann").json(body)).await;
        assert!(status.is_success(), "{path}: {reply}");
    }

    async fn lacks(&self) -> Vec<&'static str> {
        let (_, names) = answer(self.app.app.get("/tools/list").bearer_auth("key-of-ann")).await;
        let has = |tool: &str| names.as_array().unwrap().iter().any(|name| name == tool);
        Kind::tools().chain(["own__call", "seen"]).filter(|tool| !has(tool)).collect()
    }

    /// The lines that the program has read, from this byte on.
    pub(super) fn lines_from(&self, begin: usize) -> Vec<String> {
        let text = std::fs::read_to_string(&self.lines).unwrap_or_default();
        text[begin..].lines().map(str::to_owned).collect()
    }

    pub(super) fn read_so_far(&self) -> usize {
        std::fs::metadata(&self.lines).map_or(0, |file| usize::try_from(file.len()).unwrap())
    }
}

fn write_sources(directory: &Path, url: &str) {
    for folder in ["functions", "components"] {
        std::fs::create_dir(directory.join(folder)).unwrap();
    }
    let write = |name: &str, content: &[u8]| std::fs::write(directory.join(name), content).unwrap();
    let needs: Vec<_> = Kind::tools_of_programs().collect();
    write("functions/own.py", FUNCTIONS.replace("NEEDS", &json!(needs).to_string()).as_bytes());
    write("components/mirror.wasm", &wat::parse_str(COMMAND).unwrap());
    let description = json!({"description": "Gives back what it gets.", "parameters": {"type": "object"}});
    write("components/mirror.json", description.to_string().as_bytes());
    let authority = url.trim_start_matches("http://");
    let fetcher = FETCHER.replace("AUTHORITY_LENGTH", &authority.len().to_string());
    let fetcher = wat::parse_str(fetcher.replace("\"AUTHORITY\"", &format!("\"{authority}\""))).unwrap();
    write("components/fetcher.wasm", &fetcher);
    write("api.json", document(url).to_string().as_bytes());
}

fn document(url: &str) -> Value {
    let text = || json!({"type": "string"});
    let parameter =
        |name: &str, place: &str| json!({"name": name, "in": place, "required": place == "path", "schema": text()});
    let properties = json!({"account_id": text(), "startTime": text(), "metrics": text(), "more": {"type": "object"}});
    let schema = json!({"type": "object", "properties": properties});
    let query = json!({
        "operationId": "query",
        "parameters": [
            parameter("id", "path"), parameter("q", "query"), parameter("X-Kind", "header"), parameter("place", "cookie"),
        ],
        "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "done"}},
    });
    let info = json!({"title": "An API", "version": "1"});
    json!({"openapi": "3.1.0", "info": info, "servers": [{"url": url}], "paths": {"/query/{id}": {"post": query}}})
}

fn settings(directory: &Path, url: &str) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let rates: Vec<_> = KINDS.iter().map(|kind| format!("{}: {{rate_limit: 1000000}}", kind.tool)).collect();
    // Each line is in the file before the program reads it.
    let script = "{ tee /dev/fd/4 >> \"$1\"; } 4>&1 | \"$0\" moody";
    let program = json!({
        "command": "/bin/sh", "args": ["-c", script, env!("CARGO_BIN_EXE_mcp-test-server"), at("lines")],
        "env": {"MOOD": "fine"},
    });
    let model = format!("provider: openai, model: m, base_url: '{url}/v1', api_key: k");
    format!(
        "auth: {{api_keys: [{{id: ann, key: key-of-ann, roles: [operator, admin]}}, {{id: bob, key: key-of-bob, roles: [operator, admin]}}]}}
policy: {{external: {{url: '{url}/v1/data/tools', timeout_ms: 20000, send_arguments: true}}}}
outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1], mcp_allowed_domains: [127.0.0.1]}}
openapi:
  collections: {{api: {{spec_file: '{api}', vendor_adapter: vendor}}}}
  adapters:
    vendor:
      keys: {{from: startTime}}
      values: {{metrics: {{users: 'di:users'}}}}
      defaults: {{step: day}}
      inject: {{account_id: account}}
      headers: {{X-Vendor: v1}}
mcp:
  servers: {{far: {{url: '{url}/sessions/mcp'}}, near: {{url: '{url}/stateless/mcp'}}, program: {program}}}
  endpoints: {{coded: {{code_mode: true}}}}
python_tools: {{directory: '{functions}'}}
components:
  directory: '{components}'
  grants: {{fetcher: {{http: ['{authority}'], allow_networks: [127.0.0.1/32]}}}}
sandbox: {{workers: 2}}
budget: {{max_tokens_per_run: 100000000}}
tools:
  lock: '{lock}'
  web_fetch: {{allow_networks: [127.0.0.0/8], allow_ports: [{port}]}}
  web_search: {{provider: searxng, base_url: '{url}'}}
  overrides: {{own__call: {{rate_limit: 1000000}}, {rates}}}
agent:
  default_profile: plain
  profiles:
    plain: {{{model}}}
    other: {{{model}}}
    planned: {{{model}, planner: {{preset: steps}}}}
",
        api = at("api.json"),
        functions = at("functions"),
        components = at("components"),
        lock = at("tools.lock"),
        rates = rates.join(", "),
        authority = url.trim_start_matches("http://"),
        port = url.rsplit(':').next().unwrap(),
    )
}

/// The folder with a lock of what is there.
async fn locked(directory: TempDir) -> TempDir {
    let run = move || {
        let printed = sekisho(&directory).args(["--config", "sekisho.yaml", "lock"]).output().unwrap();
        assert!(directory.path().join("tools.lock").is_file(), "{}", text(&printed));
        directory
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// The tool `seen`, to which a function passes on what it sees.
struct Seen(Upstreams);

impl Source for Seen {
    fn name(&self) -> &str {
        "test"
    }

    fn tools(&self) -> SourceTools {
        let metadata = Metadata {
            name: "seen".into(),
            description: "Keeps what it gets.".into(),
            source: "test".into(),
            rate_limit: 1_000_000,
            ..Metadata::default()
        };
        let executor = Arc::new(Keeper(self.0.clone()));
        let parameters = json!({"type": "object"}).into();
        let tool = ToolDefinition { metadata, parameters, output_schema: None, executor };
        SourceTools { tools: vec![tool], unavailable: Vec::new() }
    }
}

struct Keeper(Upstreams);

impl Executor for Keeper {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        self.0.see(Value::Object(arguments.clone()).to_string());
        Box::pin(async { Ok(ToolOutput::from(json!("kept"))) })
    }
}
