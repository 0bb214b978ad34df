//! Shared by the tests of the stages: a scripted tool, and a pipeline around it.

mod flow;
mod guards;
mod shape;
mod transforms;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::*;
use crate::breaker::BreakerRules;
use crate::registry::Snapshot;
use crate::tool::{Attempt, Execution, Executor, ToolDefinition};
use crate::tool::{Metadata, Tool};
use sekisho_audit::Audit;
use sekisho_config::{AuditConfig, Config};
use sekisho_core::call::{CallResumption, Caller, ToolOutput, Upstream, Via};
use sekisho_core::error::{Blame, ErrorCode};
use sekisho_observe::metrics::Metrics;
use sekisho_store::Store;
use sekisho_store::test_support::test_store;

/// The result of a tool at its nth run, counted from 1.
type Answer = Box<dyn Fn(usize) -> Result<ToolOutput, CallError> + Send + Sync>;

/// A tool that answers with a given result after a given time.
pub(super) struct Scripted {
    pub(super) takes: Duration,
    pub(super) upstream: Option<Upstream>,
    pub(super) answer: Answer,
    /// Each run waits for a permit before it answers.
    pub(super) gate: Option<Arc<Semaphore>>,
    pub(super) hands_over: HandsOver,
}

/// When a tool sends its call to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandsOver {
    /// Never: the tool runs in the gateway.
    Nothing,
    /// Later than the test looks: the call is not sent yet.
    Later,
    /// When it is executed.
    AtOnce,
}

impl Scripted {
    pub(super) fn answering(answer: impl Fn(usize) -> Result<ToolOutput, CallError> + Send + Sync + 'static) -> Self {
        Self {
            takes: Duration::ZERO,
            upstream: Some(upstream()),
            answer: Box::new(answer),
            gate: None,
            hands_over: HandsOver::Nothing,
        }
    }
}

struct Counted {
    script: Scripted,
    runs: Arc<AtomicUsize>,
}

impl Executor for Counted {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if self.script.hands_over == HandsOver::AtOnce {
            attempt.call.progress.sending.flag().set();
        }
        Box::pin(async move {
            tokio::time::sleep(self.script.takes).await;
            if let Some(gate) = &self.script.gate {
                gate.acquire().await.unwrap().forget();
            }
            (self.script.answer)(run)
        })
    }

    fn marks_sent(&self) -> bool {
        self.script.hands_over != HandsOver::Nothing
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        self.script.upstream.clone()
    }
}

/// A pipeline with one tool, `scripted`, which costs ten cents and is idempotent.
pub(super) struct Checkpoint {
    pub(super) pipeline: Arc<Pipeline>,
    runs: Arc<AtomicUsize>,
    pub(super) state: TempDir,
}

impl Checkpoint {
    pub(super) fn around(script: Scripted) -> Self {
        Self::with(&Config::default(), Metadata::default(), script)
    }

    pub(super) fn with(config: &Config, metadata: Metadata, script: Scripted) -> Self {
        /// The store is opened on a runtime of its own, because a paused clock would advance while it is opened.
        static OPENING: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
        let sessions = config.session.clone();
        // By its name the store knows the test.
        let opening = std::thread::Builder::new().name(std::thread::current().name().unwrap_or_default().to_owned());
        let opened = opening.spawn(move || {
            OPENING.block_on(async {
                let store = test_store().await;
                (Replies::open(&sessions, store.clone()).await.unwrap(), store)
            })
        });
        let (replies, store) = opened.unwrap().join().unwrap();
        Self::with_replies(config, metadata, script, replies, store)
    }

    pub(super) async fn on(store: &Store, config: &Config, script: Scripted) -> Self {
        Self::of_tool_on(store, config, Metadata::default(), script).await
    }

    pub(super) async fn of_tool_on(store: &Store, config: &Config, metadata: Metadata, script: Scripted) -> Self {
        let replies = Replies::open(&config.session, store.clone()).await.unwrap();
        Self::with_replies(config, metadata, script, replies, store.clone())
    }

    fn with_replies(config: &Config, metadata: Metadata, script: Scripted, replies: Replies, store: Store) -> Self {
        let (state, runs) = (TempDir::new().unwrap(), Arc::new(AtomicUsize::new(0)));
        let metadata = Metadata { name: "scripted".into(), cost_per_use: cents(10), idempotent: true, ..metadata };
        let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let executor = Arc::new(Counted { script, runs: Arc::clone(&runs) });
        let definition = ToolDefinition { metadata, parameters: parameters.into(), output_schema: None, executor };
        let metrics = Arc::new(Metrics::new("test").unwrap());
        let snapshot = Snapshot::build(vec![definition], Vec::new(), &config.tools, &metrics).unwrap();
        let file = state.path().join("audit.jsonl");
        let audit =
            Audit::open(file, &AuditConfig { max_queued: 1_000, ..AuditConfig::default() }, Arc::default()).unwrap();
        let kept = Config { state_directory: Some(state.path().to_owned()), ..config.clone() };
        let results = Results::new(&kept, store.clone(), Arc::clone(&metrics));
        let journals = Journals::new(&kept, store.program_runs());
        let flow = Flow::new(&kept, &store, Arc::clone(&metrics));
        let approvals = Approvals::new(&kept, store, audit.clone(), Arc::clone(&metrics));
        let pipeline = Arc::new(Pipeline {
            registry: Arc::new(Registry::new(snapshot)),
            limits: Limits::new(&config.limits).unwrap(),
            policy: Policy::load(&config.policy).unwrap(),
            guards: GuardServices::new(&config.tools.guards),
            flow: Arc::new(flow),
            approvals: Arc::new(approvals),
            budget: Arc::new(Budgets::new(&config.budget)),
            breakers: Breakers::new(BreakerRules::new(&config.breaker, []), Arc::clone(&metrics)),
            retries: Retries::new(&config.execution),
            sessions: Sessions::new(&config.session),
            replies: Arc::new(replies),
            results: Arc::new(results),
            journals: Arc::new(journals),
            settlement: Settlement::new(metrics, audit, &config.recording.content),
        });
        Self { pipeline, runs, state }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    pub(super) fn tool(&self) -> Arc<Tool> {
        self.pipeline.registry.find("scripted", &Caller::anonymous()).unwrap()
    }

    /// The stage `execute`, with the proofs of the stages before it.
    pub(super) async fn execute(&self) -> Result<super::execute::Executed, CallError> {
        self.execute_call(call()).await
    }

    pub(super) async fn execute_call(&self, call: CallContext) -> Result<super::execute::Executed, CallError> {
        let Pipeline { settlement, policy, budget, retries, .. } = &*self.pipeline;
        let tool = self.tool();
        let arguments = tool.input.validate(Arguments::new()).unwrap();
        let permit = policy.authorize(&call, &tool, arguments).unwrap().without_approval().unwrap();
        let hold = budget.reserve(&call, &tool).await.unwrap();
        let breaker = self.pipeline.admit_upstream(&call, &tool, &permit).unwrap();
        let start = self.pipeline.start(&call, &tool, &permit, None).await.unwrap().unwrap();
        let mut scope = settlement.open(&call, &Arguments::new()).unwrap();
        let charging = Charging::begin(start, &call, hold, &mut scope).await.unwrap();
        retries.execute(&call, &tool, &permit, breaker, &charging).await
    }

    /// Records the failure of another call.
    pub(super) fn fail_upstream(&self) {
        self.pipeline.breakers.admit(Some(upstream()), "acme").unwrap().record(Some(&failure(Blame::Network)));
    }

    /// Closes the audit trail and returns its lines.
    pub(super) async fn lines(&self) -> Vec<serde_json::Value> {
        self.pipeline.settlement.audit.close().await;
        let text = std::fs::read_to_string(self.state.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(super) fn call() -> CallContext {
    CallContext::new("scripted", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
}

pub(super) fn upstream() -> Upstream {
    Upstream::new("https://api.example.com:443")
}

pub(super) fn failure(blame: Blame) -> CallError {
    CallError::new(ErrorCode::UpstreamError, "a failure for a test").blaming(blame)
}

pub(super) fn cents(cents: i64) -> rust_decimal::Decimal {
    rust_decimal::Decimal::new(cents, 2)
}

/// A call that panicked may have done its work: with a key, it is not run again.
#[tokio::test]
async fn a_call_that_panicked_reports_its_stage_and_is_not_run_again() {
    let checkpoint = Checkpoint::around(Scripted::answering(|_| panic!("the tool fell over")));
    for replayed in [false, true] {
        let call = CallContext {
            resumption: CallResumption { idempotency_key: Some("k".into()), ..CallResumption::default() },
            ..call()
        };
        let answered = checkpoint.pipeline.call(call, Arguments::new()).await;
        let error = answered.reply.outcome.as_ref().unwrap_err();
        assert_eq!((error.code(), error.stage()), (ErrorCode::Internal, Some(Stage::Execute)));
        assert_eq!(answered.replayed, replayed);
    }
    assert_eq!(checkpoint.runs(), 1);
}
