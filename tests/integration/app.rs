//! One running gateway for a test: a real listener on loopback, a state directory of its own.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use sekisho::{
    AgentService, Arguments, Attempt, Blame, BoundListeners, CallError, Config, Environment, ErrorCode, Execution,
    Executor, Gateway, Metadata, Source, SourceTools, ToolDefinition, ToolOutput, Upstream, serve,
};
use sekisho_core::database_clock::DatabaseClock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::lock::until;

pub(crate) struct TestApp {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl TestApp {
    /// The defaults, on a port of its own.
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// The defaults, changed by some YAML.
    pub(crate) async fn with(yaml: &str) -> Self {
        let directory = TempDir::new().unwrap();
        Self::in_directory(directory, yaml).await
    }

    pub(crate) async fn in_directory(directory: TempDir, yaml: &str) -> Self {
        Self::with_tools_of(directory, yaml, vec![Box::new(TestTools)]).await
    }

    pub(crate) async fn with_tools_of(directory: TempDir, yaml: &str, sources: Vec<Box<dyn Source>>) -> Self {
        let config = config(&directory, yaml);
        Box::pin(Self::serving(directory, config, sources, None)).await
    }

    /// With the date of prompts by a clock of the test.
    pub(crate) async fn by_clock(yaml: &str, clock: Arc<DatabaseClock>) -> Self {
        let directory = TempDir::new().unwrap();
        let config = config(&directory, yaml);
        Box::pin(Self::serving(directory, config, vec![Box::new(TestTools)], Some(clock))).await
    }

    pub(crate) async fn with_config(directory: TempDir, config: Config) -> Self {
        Box::pin(Self::serving(directory, config, vec![Box::new(TestTools)], None)).await
    }

    async fn serving(
        directory: TempDir,
        mut config: Config,
        sources: Vec<Box<dyn Source>>,
        clock: Option<Arc<DatabaseClock>>,
    ) -> Self {
        let listening = BoundListeners::bind(&config).await.unwrap();
        let address = listening.address().unwrap();
        let url = format!("http://{address}");
        // A public address with the port 0 is the one that is listened on.
        if let Some(public) = config.server.mcp.public_url.as_mut().filter(|public| public.port() == Some(0)) {
            public.set_port(Some(address.port())).unwrap();
        }
        let gateway = Gateway::with_sources(config, sources).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn({
            let clock = clock.unwrap_or_else(|| Arc::clone(gateway.store().clock()));
            let agents = AgentService::by_clock(&gateway, clock).unwrap();
            async move { serve(listening, &agents, async { _ = stopped.await }).await }
        });
        let client = Client::builder().no_proxy().build().unwrap();
        Self { gateway, url, client, directory, stop: Some(stop), serving: Some(serving) }
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.url))
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.url))
    }

    /// Calls a tool and gives the status and the reply.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> (StatusCode, Value) {
        let request = self.post(&format!("/tools/{tool}/execute")).json(&json!({"arguments": arguments}));
        answer(request).await
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").send().await.unwrap().text().await.unwrap()
    }

    /// The value of one metric line, given as `name{labels}`; zero when there is none.
    pub(crate) async fn metric(&self, line: &str) -> f64 {
        let text = self.metrics().await;
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0.0)
    }

    /// Stops serving, waits for the end, and leaves the state directory.
    pub(crate) async fn stop(mut self) -> TempDir {
        self.stop.take().unwrap().send(()).unwrap();
        self.serving.take().unwrap().await.unwrap();
        self.gateway.close().await;
        // A program that another test starts has the lock, too, from the fork to the start of its image.
        if let Ok(lock) = File::open(self.directory.path().join("state/gateway.lock")) {
            until(async || lock.try_lock().ok()).await;
        }
        self.directory
    }
}

/// Sends a request; gives the status and the JSON of the body.
pub(crate) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: the body is not JSON: {text}"));
    (status, body)
}

/// What is degraded beside the sandbox, which is so until its interpreter is set up.
pub(crate) async fn degraded(app: &TestApp) -> Value {
    let (_, mut body) = answer(app.get("/readyz")).await;
    let mut degraded = body["degraded"].take();
    if let Some(degraded) = degraded.as_object_mut() {
        degraded.remove("sandbox");
    }
    degraded
}

/// The code of a refused or failed call.
pub(crate) fn code(reply: &Value) -> &str {
    reply["error_info"]["code"].as_str().unwrap_or_else(|| panic!("no error code in {reply}"))
}

pub(crate) fn config(directory: &TempDir, yaml: &str) -> Config {
    let file = directory.path().join("sekisho.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut config = Config::load(Some(&file), &environment()).unwrap_or_else(|errors| panic!("{errors:?}"));
    config.state_directory = Some(directory.path().join("state"));
    config.server.listen.set_port(0);
    config.sandbox.program = Some(env!("CARGO_BIN_EXE_sekisho").into());
    config
}

/// Nothing of the machine's own environment reaches a test.
pub(crate) fn environment() -> Environment {
    Environment::default()
}

/// Tools that behave as a test needs.
struct TestTools;

impl Source for TestTools {
    fn name(&self) -> &str {
        "test"
    }

    fn tools(&self) -> SourceTools {
        let tools = ["echo", "sleep", "panic", "fail", "flaky", "upstream", "misfit", "flood", "paid"];
        SourceTools { tools: tools.into_iter().map(test_tool).collect(), unavailable: Vec::new() }
    }
}

fn test_tool(name: &'static str) -> ToolDefinition {
    let metadata = Metadata {
        name: name.into(),
        description: format!("Behaves as its name says: {name}."),
        source: "test".into(),
        rate_limit: 1_000_000,
        idempotent: name == "flaky",
        cost_per_use: if name == "paid" { "0.1".parse().unwrap() } else { Default::default() },
        ..Metadata::default()
    };
    ToolDefinition {
        metadata,
        parameters: json!({"type": "object"}).into(),
        output_schema: (name == "misfit").then(|| json!({"type": "integer"})),
        executor: Arc::new(TestTool { name, runs: AtomicUsize::new(0) }),
    }
}

struct TestTool {
    name: &'static str,
    runs: AtomicUsize,
}

impl Executor for TestTool {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            match self.name {
                "sleep" => {
                    let millis = arguments.get("ms").and_then(Value::as_u64).unwrap_or(60_000);
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    Ok(json!(millis).into())
                }
                "panic" => panic!("a tool that panics"),
                "fail" => Err(CallError::tool("it did not work").with_output(json!({"tried": true}))),
                // Fails on the network until the third attempt.
                "flaky" if run < 3 => Err(network_failure()),
                "upstream" => match arguments.get("answer").and_then(Value::as_str) {
                    Some("down") => Err(network_failure()),
                    Some("not_found") => Err(CallError::tool("404: no such pet")),
                    _ => Ok(json!("fine").into()),
                },
                "misfit" => Ok(json!("not an integer").into()),
                "flood" => Ok(json!("x".repeat(2 << 20)).into()),
                _ => Ok(ToolOutput::from(json!({"echo": arguments, "run": run}))),
            }
        })
    }

    fn upstream(&self, arguments: &Arguments) -> Option<Upstream> {
        let host = arguments.get("host").and_then(Value::as_str).unwrap_or("upstream.test");
        matches!(self.name, "upstream" | "flaky").then(|| Upstream::new(format!("https://{host}:443")))
    }
}

fn network_failure() -> CallError {
    CallError::new(ErrorCode::UpstreamError, "the connection was reset").blaming(Blame::Network)
}
