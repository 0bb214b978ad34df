//! The requests of programs, against a pipeline that keeps the calls and refuses them.

mod calls;
mod descriptions;
mod programs;
mod proposals;
mod runs;

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;

use super::*;
use sekisho_calls::approval::{Proposal, ProposedEffect};
use sekisho_calls::journals::Journals;
use sekisho_calls::pipeline::Answered;
use sekisho_calls::policy::{CallerTools, Policy};
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{Attempt, Execution, Executor, Metadata, ToolDefinition};
use sekisho_config::{PolicyConfig, ToolsConfig};
use sekisho_core::call::Caller;
use sekisho_core::error::{ErrorCode, NeededApproval};
use sekisho_guest_protocol::ReadSoFar;
use sekisho_observe::metrics::Metrics;

struct NeverRun;

impl Executor for NeverRun {
    fn execute<'a>(&'a self, _: Attempt<'a>, _: &'a Arguments) -> Execution<'a> {
        unreachable!("every call is refused")
    }
}

struct Refusing {
    policy: Policy,
    snapshot: Arc<Snapshot>,
    made: Mutex<Vec<(CallContext, Arguments)>>,
}

impl Refusing {
    fn new() -> Arc<Self> {
        let tool = |name: &str| ToolDefinition {
            metadata: Metadata {
                name: name.into(),
                description: format!("Adds to {name}.\nMore."),
                roles: if name == "secret" { vec!["admin".into()] } else { Vec::new() },
                ..Metadata::default()
            },
            parameters: json!({"type": "object"}).into(),
            output_schema: None,
            executor: Arc::new(NeverRun),
        };
        let tools = ["a-b", "a_b", "add", "c-d", "hang", "secret"].map(tool).to_vec();
        let metrics = Metrics::new("test").unwrap();
        let snapshot = Snapshot::build(tools, Vec::new(), &ToolsConfig::default(), &metrics).unwrap();
        let policy = Policy::load(&PolicyConfig::default()).unwrap();
        Arc::new(Self { policy, snapshot: Arc::new(snapshot), made: Mutex::default() })
    }
}

impl ToolPipeline for Refusing {
    fn call(self: Arc<Self>, call: CallContext, arguments: Arguments) -> BoxFuture<'static, Answered> {
        Box::pin(async move {
            let hangs = call.tool == "hang" || call.resumption.approval.is_some() && arguments.contains_key("hang");
            let error = match call.tool == "c-d" && call.resumption.approval.is_none() {
                true => CallError::new(ErrorCode::ApprovalRequired, "ask").needing(approval()),
                false => CallError::new(ErrorCode::Denied, "refused"),
            };
            let answered = Answered::refused(&call, error);
            self.made.lock().push((call, arguments));
            if hangs {
                std::future::pending::<()>().await;
            }
            answered
        })
    }

    fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools {
        self.policy.tools_for(&self.snapshot, caller)
    }

    fn price(&self, _: &CallContext) -> Decimal {
        Decimal::new(3, 2)
    }

    fn check_access(&self, tool: &str, caller: &Arc<Caller>) -> Result<(), CallError> {
        self.policy.check_access(self.snapshot.find(tool, caller)?, caller)
    }

    fn may_repeat(&self, tool: &str, _: &Arc<Caller>) -> bool {
        tool == "add"
    }

    fn changes_nothing(&self, tool: &str, _: &Arc<Caller>) -> bool {
        tool == "add"
    }

    fn proposed(
        self: Arc<Self>,
        _: CallContext,
        _: Arguments,
    ) -> BoxFuture<'static, Result<ProposedEffect, CallError>> {
        unreachable!("no program proposes effects here")
    }

    fn effects_of(
        self: Arc<Self>,
        _: Arc<str>,
        _: Arc<Caller>,
    ) -> BoxFuture<'static, Result<(Proposal, Option<Proposal>), CallError>> {
        unreachable!("no program proposes effects here")
    }

    fn policy_version(&self) -> Arc<str> {
        self.policy.version()
    }

    fn journals(&self) -> Option<Arc<Journals>> {
        None
    }
}

/// The approval that `c-d` needs.
fn approval() -> NeededApproval {
    NeededApproval { id: "a-1".into(), expires_at: String::new(), url: "https://gateway.example/a-1".into() }
}

fn outer() -> CallContext {
    CallContext::new("python_executor", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
}

fn tools<'a>(pipeline: &Arc<Refusing>, call: &'a CallContext, max_calls: u32) -> ProgramTools<'a> {
    tools_of(pipeline, call, max_calls, None)
}

fn tools_of<'a>(
    pipeline: &Arc<Refusing>,
    call: &'a CallContext,
    max_calls: u32,
    journal: Option<RunJournal>,
) -> ProgramTools<'a> {
    let pipeline = Arc::clone(pipeline) as Arc<dyn ToolPipeline>;
    let run = ProgramRun { journal, ..ProgramRun::without_journal(Some(pipeline), call) };
    ProgramTools::new(run, call, "program", max_calls, Deadline::after(Duration::from_secs(9))).unwrap()
}

fn ask(tools: &ProgramTools<'_>, question: ToolQuestion) -> Option<(bool, Value)> {
    let reply = tools.answer(ToolRequest { number: 7, question, read: ReadSoFar::default() }).now_or_never()??;
    assert_eq!(reply.number, 7);
    Some((reply.is_ok, serde_json::from_slice(&reply.json).unwrap()))
}

fn call(tools: &ProgramTools<'_>, ordinal: u32, tool: &str, arguments: &str) -> Value {
    let question = ToolQuestion::Call { ordinal, tool: tool.into(), arguments: arguments.into() };
    let (is_ok, error) = ask(tools, question).unwrap();
    assert!(!is_ok, "{error}");
    serde_json::from_str(error["message"].as_str().unwrap()).unwrap()
}
