//! The program that is driven: its configuration, how it is started, and what is brought about once before anything is
//! counted.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{CALLERS, LANES};
use super::samples::Samples;
use super::upstream::{self, Upstream};
use crate::app::answer;
use crate::cli::{Serving, sekisho};
use crate::mcp_programs::server;
use crate::mcp_servers::yaml;
use crate::slack::slack;

/// Pause between two looks at something that is waited for.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// How long a start may take: of the workers, of MCP servers.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Tenants of the callers.
const TENANTS: usize = 5;

/// High limits where a sort needs success, low ones where a refusal is wanted. Whatever is kept for a time is kept for
/// 8 s, and results, whose rows tell that all else is gone, for 10 s. A policy may take 2 s, so that no call is refused
/// because the machine is busy.
const SETTINGS: &str = "
server: {mcp: {session_idle_seconds: 8}}
console: {roles: {viewer: [support]}}
session: {idle_seconds: 8, max_per_caller: 20, idempotency_seconds: 8, max_idempotency_keys: 200}
budget: {scope_idle_seconds: 8}
results: {max_inline_bytes: 8192, lifetime_seconds: 10}
breaker: {consecutive_failures: 4000000000, min_requests: 4000000000}
outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}
policy: {directory: policies, timeout_ms: 2000}
sandbox: {workers: 2, sessions: {idle_seconds: 8}}
tools:
  overrides:
    calculator: {rate_limit: 1000000}
    json_query: {rate_limit: 1000000}
    read_result: {rate_limit: 1000000}
    python_executor: {rate_limit: 1000000}
    file_write: {rate_limit: 1000000}
    file_read: {rate_limit: 1000000}
    shared__pid: {rate_limit: 1}
    shared__picture: {cost_per_use: '1'}
    shop__wrong: {output_schema: enforce}
    shop__long: {max_output_bytes: 1000}
    shop__pay: {approval: always}
";

/// The allocators, Rust's and the one of code in C: one arena for all threads, and freed pages go back at once. Otherwise an arena keeps
/// what it has freed until one of its threads asks for memory again, and threads come and go: the figure would be chance.
const ALLOCATORS: [(&str, &str); 2] =
    [("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0"), ("MALLOC_ARENA_MAX", "1")];

/// It reads nothing but the tool, so that decisions are cached as with most policies.
const POLICY: &str = "package tools\ndeny[\"not here\"] { input.tool == \"shared__fail\" }\n";

/// A model that speaks for a while and calls no tool: whoever leaves it has not made half a call.
const CHATTY: &str = "turns: [{text: ['One, ', 'two, ', 'three, ', 'four.'], delay_seconds: 0.02}]\n";

/// Tools from outside, which are offered some time after the start.
const OUTSIDE: [&str; 4] = ["shared__echo", "own__echo", "broken__echo", "shop__item"];

/// One process of the program, with a state directory of its own.
pub(super) struct SoakGateway {
    pub(super) upstream: Upstream,
    /// One call at a time waits for an approval, so that the gauge of those who wait says when it does.
    pub(super) waits: tokio::sync::Mutex<()>,
    numbers: AtomicUsize,
    /// Its connections end with their requests, so that they are in no figure.
    probe: Client,
    serving: Serving,
    directory: TempDir,
}

impl SoakGateway {
    pub(super) async fn start() -> Arc<Self> {
        let (directory, upstream) = (TempDir::new().unwrap(), Upstream::start().await);
        write_files(&directory, &upstream.url);
        let mut program = sekisho(&directory);
        program.envs(ALLOCATORS);
        let serving = tokio::task::spawn_blocking(|| Serving::run(program, &["--config", "sekisho.yaml"]));
        let probe = Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Arc::new(Self {
            upstream,
            waits: tokio::sync::Mutex::default(),
            numbers: AtomicUsize::new(0),
            probe,
            serving: serving.await.unwrap(),
            directory,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.serving.url
    }

    /// The id of its process.
    pub(super) fn id(&self) -> u32 {
        self.serving.id()
    }

    pub(super) fn database(&self) -> PathBuf {
        self.directory.path().join("state/sekisho.db")
    }

    /// The first of so many numbers that no other call has.
    pub(super) fn take_numbers(&self, count: usize) -> usize {
        self.numbers.fetch_add(count, Ordering::Relaxed)
    }

    /// The metrics as they are now.
    pub(super) async fn samples(&self) -> Samples {
        let response = self.probe.get(format!("{}/metrics", self.url())).send().await.unwrap();
        Samples::new(response.text().await.unwrap())
    }

    /// Waits until all tools are offered, and brings about what happens once: workers of both classes, an open circuit,
    /// and a caller whose rate is used up.
    pub(super) async fn prepare(&self) {
        until("all tools are offered", START_TIMEOUT, async || self.offers_all().await).await;
        self.wait_for_python("print(6*7)").await;
        // Callers whose runs hold a worker for long get others, which are started with the first such run.
        for _ in 0..2 {
            self.wait_for_python("x = bytearray(b'x') * (150 << 20)\nlen(x)").await;
        }
        // A server that is down refuses with the same code, at another stage.
        // To all tenants, once it is open to two.
        for caller in ["caller-0", "caller-1"] {
            let is_open =
                async || self.call(caller, "broken__echo", json!({})).await.1["error_info"]["stage"] == "breaker";
            until("the circuit is open", START_TIMEOUT, is_open).await;
        }
        let (status, reply) = self.call("limited", "shared__pid", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }

    async fn offers_all(&self) -> bool {
        let (_, names) = answer(keyed(self.probe.get(format!("{}/tools/list", self.url())), "root")).await;
        let names: Vec<String> = serde_json::from_value(names).unwrap();
        OUTSIDE.iter().all(|tool| names.iter().any(|name| name == tool))
    }

    /// Sends a program until it succeeds: the workers are started with the first one.
    async fn wait_for_python(&self, program: &str) {
        let end = Instant::now() + slack(START_TIMEOUT);
        loop {
            let (status, reply) = self.python(program).await;
            if status == StatusCode::OK && reply["success"] == true {
                return;
            }
            let (_, ready) = answer(self.probe.get(format!("{}/readyz", self.url()))).await;
            assert!(Instant::now() < end, "run scripts/setup_python_wasi.sh first: {ready}\n{reply}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn python(&self, code: &str) -> (StatusCode, Value) {
        self.call("root", "python_executor", json!({"code": code})).await
    }

    async fn call(&self, caller: &str, tool: &str, arguments: Value) -> (StatusCode, Value) {
        let request = self.probe.post(format!("{}/tools/{tool}/execute", self.url()));
        answer(keyed(request, caller).json(&json!({"arguments": arguments}))).await
    }
}

fn keyed(request: RequestBuilder, caller: &str) -> RequestBuilder {
    request.bearer_auth(key_of(caller))
}

pub(super) fn key_of(caller: &str) -> String {
    format!("key-of-{caller}")
}

/// Looks again and again whether it is so, and fails when it does not come to be.
pub(super) async fn until(what: &str, bound: Duration, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + slack(bound);
    while !is_so().await {
        assert!(Instant::now() < end, "it did not come to be: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The configuration, and the files that it names.
fn write_files(directory: &TempDir, upstream: &str) {
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    std::fs::create_dir(directory.path().join("policies")).unwrap();
    file("policies/tools.rego", POLICY);
    let document = file("shop.json", &upstream::document(upstream).to_string());
    let weather = file("weather.yaml", include_str!("../../../config/examples/weather.yaml"));
    let chatty = file("chatty.yaml", CHATTY);
    let fast = "rate_limit: 1000000";
    let servers = yaml(&[
        ("shared", server("fine", &format!("share: all, {fast}"))),
        ("own", server("fine", &format!("max_sessions: 32, session_idle_seconds: 8, {fast}"))),
        ("broken", server("dies", &format!("breaker: {{consecutive_failures: 1, recovery_seconds: 86400}}, {fast}"))),
    ]);
    let collections = format!("openapi: {{collections: {{shop: {{spec_file: '{document}', {fast}}}}}}}\n");
    let profile = |name: &str, script: &str| format!("    {name}: {{provider: replay, model: '{script}'}}\n");
    let agents = ["agent:\n  default_profile: weather\n  profiles:\n".to_owned(), profile("weather", &weather)];
    let agents = agents.concat() + &profile("chatty", &chatty);
    file("sekisho.yaml", &[SETTINGS, &keys(), &servers, &collections, &agents].concat());
}

/// Callers of several tenants; one for each lane, which signs in to the console, asks for approvals and has sessions of
/// Python; and those with a part of their own.
fn keys() -> String {
    let mut keys = "auth:\n  api_keys:\n".to_owned();
    let mut add = |id: &str, more: &str| writeln!(keys, "    - {{id: {id}, key: {}{more}}}", key_of(id)).unwrap();
    for n in 0..CALLERS {
        add(&format!("caller-{n}"), &format!(", tenant: tenant-{}", n % TENANTS));
    }
    for lane in 0..LANES {
        add(&format!("lane-{lane}"), ", tenant: lanes, roles: [support]");
    }
    add("boss", ", tenant: lanes, roles: [approver]");
    add("limited", "");
    add("writer", ", roles: [operator, admin]");
    add("root", ", roles: [admin]");
    keys
}
