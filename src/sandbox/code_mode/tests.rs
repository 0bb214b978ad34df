//! What programs ask, against a pipeline that keeps the calls and refuses them.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;

use super::*;
use crate::config::{Config, PolicyConfig, ToolsConfig};
use crate::core::call::Caller;
use crate::core::error::{ErrorCode, NeededApproval};
use crate::core::until::until;
use crate::infra::metrics::Metrics;
use crate::infra::store::test_support::test_store;
use crate::journals::{Journals, Reading, RunEnd, decode, encode};
use crate::pipeline::Answered;
use crate::policy::{CallerTools, Policy};
use crate::registry::Snapshot;
use crate::sandbox::protocol::{End, FunctionCall, GuestFile, Job, ModuleTask, ReadSoFar, ReadStanding};
use crate::sandbox::worker_handle::tests::job;
use crate::tool::{Attempt, Execution, Executor, Metadata, ToolDefinition};

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
            let hangs = call.tool == "hang" || call.approval.is_some() && arguments.contains_key("hang");
            let error = match call.tool == "c-d" && call.approval.is_none() {
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

    fn journals(&self) -> Option<Arc<Journals>> {
        None
    }
}

/// What `c-d` needs.
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

#[test]
fn a_call_of_a_program_is_its_callers_with_nothing_more() {
    let (pipeline, mut outer) = (Refusing::new(), outer());
    outer.scopes.agent = Some("agent".into());
    outer.nested_scope = outer.nested_scope.narrowed(&[], ["secret".to_owned()]);
    let tools = tools(&pipeline, &outer, 9);
    assert_eq!(call(&tools, 0, "add", r#"{"x": 1}"#)["code"], "denied");
    let made = pipeline.made.lock();
    let (inner, arguments) = &made[0];
    assert_eq!(
        (inner.tool.as_str(), inner.via, inner.depth, arguments["x"].as_u64()),
        ("add", Via::Sandbox, 1, Some(1))
    );
    assert!(Arc::ptr_eq(&inner.caller, &outer.caller) && inner.must_end_by == Some(tools.deadline.0));
    assert_eq!(inner.nested_scope, outer.nested_scope);
    let parent = inner.parent.as_ref().unwrap();
    let program: [u8; 32] = Sha256::digest("program").into();
    assert_eq!((parent.id, parent.program), (outer.id, program));
    let scopes = &inner.scopes;
    assert_eq!((scopes.agent.as_deref(), scopes.request.clone()), (Some("agent"), Some(format!("call:{}", outer.id))));
    assert_eq!((scopes.spent_before, inner.idempotency_key.as_ref()), (Decimal::new(3, 2), None));
    drop(made);
    let list = serde_json::to_value(outer.nested.take()).unwrap();
    assert_eq!((&list["count"], &list["calls"][0]["code"]), (&json!(1), &json!("denied")));
    assert_eq!(list["calls"][0]["tool"], "add");
}

/// A policy that admits a program by its digest admits it only where nothing ran before it.
#[test]
fn a_program_in_a_session_has_the_digest_of_those_before_it_too() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let digest_after = |earlier| {
        let pipeline = Arc::clone(&pipeline) as Arc<dyn ToolPipeline>;
        let run = ProgramRun { earlier, ..ProgramRun::without_journal(Some(pipeline), &outer) };
        let deadline = Deadline::after(Duration::from_secs(9));
        ProgramTools::new(run, &outer, "program", 9, deadline).unwrap().parent.program
    };
    let (alone, planted) = (digest_after(None), digest_of(None, "planted"));
    assert_eq!(alone, <[u8; 32]>::from(Sha256::digest("program")));
    let after = digest_after(Some(planted));
    assert!(after != alone && after != planted && after == digest_of(Some(planted), "program"));
}

#[test]
fn a_call_that_is_sent_again_with_its_key_makes_calls_with_the_same_keys() {
    let pipeline = Refusing::new();
    for key in [Some("one"), Some("one"), Some("other"), None] {
        let mut outer = outer();
        outer.idempotency_key = key.map(str::to_owned);
        let tools = tools(&pipeline, &outer, 9);
        call(&tools, 0, "add", r#"{"x": 1, "y": 2}"#);
        call(&tools, 1, "add", r#"{"y": 2, "x": 1}"#);
        call(&tools, 0, "add", r#"{"y": 2, "x": 1.0}"#);
    }
    let made = pipeline.made.lock();
    let keys: Vec<_> = made.iter().map(|(call, _)| call.upstream_key.as_deref().unwrap()).collect();
    assert_eq!(keys[0..3], keys[3..6]);
    assert!(keys[0] == keys[2] && keys[0] != keys[1], "by position and arguments, however they are written");
    assert!(keys[6] != keys[0] && keys[9] != keys[0]);
    for (call, _) in made.iter() {
        let own = call.idempotency_key.as_deref();
        assert!(own.is_none() || own == call.upstream_key.as_deref());
    }
    assert_eq!(made.iter().filter(|(call, _)| call.idempotency_key.is_none()).count(), 3);
}

/// Also when the call that resumes the run has no key: the first one may be sent again with its key.
#[test]
fn calls_of_a_resumed_run_have_the_keys_of_the_call_that_began_it() {
    let pipeline = Refusing::new();
    let began = CallContext { idempotency_key: Some("one".into()), ..outer() };
    call(&tools(&pipeline, &began, 9), 0, "add", "{}");
    let resumes = outer();
    let shared = Arc::clone(&pipeline) as Arc<dyn ToolPipeline>;
    let run = ProgramRun { keys: keys_of(&began), ..ProgramRun::without_journal(Some(shared), &resumes) };
    let resumed = ProgramTools::new(run, &resumes, "program", 9, Deadline::after(Duration::from_secs(9))).unwrap();
    call(&resumed, 0, "add", "{}");
    let made = pipeline.made.lock();
    assert!(made[0].0.idempotency_key.is_some() && made[0].0.idempotency_key == made[1].0.idempotency_key);
}

#[test]
fn wrong_arguments_and_too_many_calls_do_not_reach_the_pipeline() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let one = tools(&pipeline, &outer, 2);
    for wrong in ["[]", "7", r#"{"a": 1, "a": 2}"#, "{\"a\": \"\\ud800\"}", r#"{"a": 18446744073709551616}"#] {
        assert_eq!(call(&one, 0, "add", wrong)["code"], "invalid_arguments", "{wrong}");
    }
    call(&one, 0, "add", "{}");
    // A program that it runs has no calls of its own.
    let inner = CallContext { depth: 1, parent: Some(Arc::clone(&one.parent)), ..self::outer() };
    let other = tools(&pipeline, &inner, 2);
    call(&other, 0, "add", "{}");
    for tools in [&one, &other] {
        assert_eq!(call(tools, 1, "add", "{}")["code"], "budget_exceeded");
    }
    assert_eq!(pipeline.made.lock().len(), 2);
}

#[test]
fn a_call_that_the_program_does_not_wait_for_is_listed_as_cancelled() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let tools = tools(&pipeline, &outer, 9);
    let question = ToolQuestion::Call { ordinal: 0, tool: "hang".into(), arguments: "{}".into() };
    assert!(ask(&tools, question).is_none());
    let list = serde_json::to_value(outer.nested.take()).unwrap();
    assert_eq!((&list["calls"][0]["tool"], &list["calls"][0]["code"]), (&json!("hang"), &json!("cancelled")));
}

#[test]
fn tools_are_described_as_far_as_the_caller_may_use_them() {
    let (pipeline, mut outer) = (Refusing::new(), outer());
    outer.nested_scope = outer.nested_scope.narrowed(&[], ["add".to_owned()]);
    let tools = tools(&pipeline, &outer, 9);
    let (is_ok, described) = ask(&tools, ToolQuestion::DescribeIdentifier("c_d".into())).unwrap();
    assert!(is_ok && described["name"] == "c-d" && described["inputSchema"]["type"] == "object", "{described}");
    for name in ["secret", "add", "nope", "c_d"] {
        let (is_ok, error) = ask(&tools, ToolQuestion::Describe(name.into())).unwrap();
        assert!(!is_ok && error["kind"] == "unknown_tool", "{name}: {error}");
    }
    let (is_ok, error) = ask(&tools, ToolQuestion::DescribeIdentifier("a_b".into())).unwrap();
    assert!(!is_ok && error["message"].as_str().unwrap().contains(r#"tools[\"a-b\"]"#), "{error}");
    let (_, found) = ask(&tools, ToolQuestion::Search { query: "adds".into(), limit: u32::MAX }).unwrap();
    let mut found: Vec<_> =
        found.as_array().unwrap().iter().map(|hit| (hit["name"].as_str(), &hit["ambiguous"])).collect();
    found.sort_by_key(|(name, _)| *name);
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(found, [(Some("a-b"), &yes), (Some("a_b"), &yes), (Some("c-d"), &no), (Some("hang"), &no)]);
    let (_, one) = ask(&tools, ToolQuestion::Search { query: "adds".into(), limit: 1 }).unwrap();
    assert!(one.as_array().unwrap().len() == 1 && one[0]["description"].as_str().unwrap().ends_with('.'), "{one}");
}

#[test]
fn hostile_bytes_as_the_input_of_a_program() {
    let files = vec![GuestFile { path: "a/b.csv".to_owned(), content: vec![1, 2, 3] }];
    let (keys, code) = (keys_of(&outer()), digest_of(None, "program"));
    let input = encode(&ProgramInput { profile: "data".to_owned(), files, keys, code }).unwrap();
    crate::core::fuzz::feed(&[&input], |bytes| {
        let _ = decode::<ProgramInput>(bytes);
    });
}

/// A run goes on with what it began with.
#[test]
fn a_function_with_other_settings_or_packages_is_other_code() {
    let digest = |settings: &str, packages: &str, arguments: &str| {
        let module = ModuleTask::Call(FunctionCall {
            file: "weather.py".to_owned(),
            function: "now".to_owned(),
            arguments: arguments.to_owned(),
            settings: settings.to_owned(),
            needs: Vec::new(),
            converts: false,
        });
        digest_of_job(&Job { module: Some(module), packages: packages.into(), ..job("code") })
    };
    assert_eq!(digest("{}", "", "{}"), digest("{}", "", r#"{"x":1}"#));
    assert_ne!(digest("{}", "", "{}"), digest(r#"{"x":1}"#, "", "{}"));
    assert_ne!(digest("{}", "", "{}"), digest("{}", "other", "{}"));
    assert_eq!(digest_of_job(&job("code")), digest_of(None, "code"));
}

#[test]
fn a_function_has_the_tools_that_it_needs_and_no_others() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let run = ProgramRun::without_journal(Some(Arc::clone(&pipeline) as Arc<dyn ToolPipeline>), &outer);
    let run = ProgramRun { scope: outer.nested_scope.needing(&["add".to_owned()]), ..run };
    let tools = ProgramTools::new(run, &outer, "code", 9, Deadline::after(Duration::from_secs(9))).unwrap();
    for (name, is_needed) in [("add", true), ("c-d", false), ("hang", false)] {
        let (is_ok, described) = ask(&tools, ToolQuestion::Describe(name.into())).unwrap();
        assert_eq!(is_ok, is_needed, "{name}: {described}");
    }
    let (_, found) = ask(&tools, ToolQuestion::Search { query: "adds".into(), limit: 9 }).unwrap();
    assert_eq!((found.as_array().unwrap().len(), &found[0]["name"]), (1, &json!("add")));
    call(&tools, 0, "add", "{}");
    let made = pipeline.made.lock();
    // The pipeline finds no other tool for the call, nor for those of the code that it runs.
    assert!(made[0].0.nested_scope.admits("add") && !made[0].0.nested_scope.admits("c-d"));
}

/// The journals of a gateway, and a run that the caller begins in them.
async fn journals() -> (tempfile::TempDir, Arc<Journals>) {
    let state = tempfile::tempdir().unwrap();
    let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
    (state, Arc::new(Journals::new(&config, test_store().await)))
}

/// The reply to a call, as the JSON of its error; none when the run is to end.
async fn call_in_run(tools: &ProgramTools<'_>, number: u32, tool: &str, readings: Vec<Reading>) -> Option<Value> {
    let question = ToolQuestion::Call { ordinal: number, tool: tool.into(), arguments: r#"{"x": 1}"#.into() };
    let read = ReadSoFar { readings, standing: ReadStanding::Recorded };
    let reply = tools.answer(ToolRequest { number, question, read }).await?;
    assert_eq!((reply.number, reply.is_ok), (number, false));
    Some(serde_json::from_slice(&reply.json).unwrap())
}

fn ended(end: End) -> Result<Outcome, CallError> {
    Ok(Outcome::without_output(end))
}

#[tokio::test]
async fn a_run_that_needs_an_approval_ends_and_is_resumed_without_calling_anything_twice() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    let first = call_in_run(&tools, 0, "a-b", vec![Reading::Real(7)]).await.unwrap();
    tools.journal.as_ref().unwrap().charge(Decimal::new(5, 2));
    let second = call_in_run(&tools, 1, "add", Vec::new()).await.unwrap();
    assert_eq!(call_in_run(&tools, 2, "c-d", Vec::new()).await, None);
    assert!(tools.is_to_end());
    let error = tools.end(ended(End::Cancelled)).await.unwrap_err();
    let id = outer.id.to_string();
    assert_eq!((error.code(), error.run().map(|run| &**run)), (ErrorCode::ApprovalRequired, Some(&*id)));
    assert_eq!(error.approval(), Some(&approval()));

    let again = self::outer();
    let (journal, past) = journals.resume(&again, &Arguments::new(), &id).await.unwrap();
    assert_eq!(past.readings, [Reading::Real(7)]);
    let tools = tools_of(&pipeline, &again, 9, Some(journal));
    assert_eq!(tools.scopes.request, Some(format!("call:{id}")), "it is one request");
    assert_eq!(tools.scopes.spent_before, Decimal::new(8, 2), "also where nobody knows of it any more");
    assert_eq!(call_in_run(&tools, 0, "a-b", Vec::new()).await.unwrap(), first);
    assert_eq!(call_in_run(&tools, 1, "add", Vec::new()).await.unwrap(), second);
    assert_eq!(call_in_run(&tools, 2, "c-d", Vec::new()).await.unwrap()["kind"], "denied");
    assert!(tools.end(ended(End::Exited { code: 0 })).await.is_ok());
    let of_call =
        |(call, _): &(CallContext, Arguments)| (call.tool.clone(), call.approval.as_deref().map(str::to_owned));
    let made: Vec<_> = pipeline.made.lock().iter().map(of_call).collect();
    let approved = ("c-d".to_owned(), Some("a-1".to_owned()));
    let [first, second, third] = ["a-b", "add", "c-d"].map(|tool| (tool.to_owned(), None));
    assert_eq!(made, [first, second, third, approved]);
    let list = serde_json::to_value(again.nested.take()).unwrap();
    assert_eq!((&list["count"], &list["replayed"]), (&json!(1), &json!(2)));
    let gone = journals.resume(&again, &Arguments::new(), &id).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound, "it has ended");
}

#[tokio::test]
async fn a_replay_that_differs_ends_the_run_and_leaves_it_as_it_was() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    for number in 0..2 {
        call_in_run(&tools, number, "a-b", Vec::new()).await.unwrap();
    }
    let failed = tools.end(Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"))).await.unwrap_err();
    assert!(failed.code() == ErrorCode::SandboxTrap && failed.run().is_some() && failed.message().contains("/resume"));
    let id = outer.id.to_string();
    let resumed = async || {
        let journal = journals.resume(&outer, &Arguments::new(), &id).await.unwrap().0;
        tools_of(&pipeline, &outer, 9, Some(journal))
    };
    let tools = resumed().await;
    assert_eq!(call_in_run(&tools, 0, "add", Vec::new()).await, None, "another tool");
    let diverged = tools.end(ended(End::Cancelled)).await.unwrap_err();
    assert_eq!(diverged.code(), ErrorCode::ReplayDiverged);

    let tools = resumed().await;
    let question = ToolQuestion::Call { ordinal: 0, tool: "a-b".into(), arguments: r#"{"x": 2}"#.into() };
    assert!(tools.answer(ToolRequest { number: 0, question, read: ReadSoFar::default() }).await.is_none());
    assert_eq!(tools.end(ended(End::Cancelled)).await.unwrap_err().code(), ErrorCode::ReplayDiverged);

    let tools = resumed().await;
    let question = ToolQuestion::Call { ordinal: 0, tool: "a-b".into(), arguments: r#"{ "x" : 1.0 }"#.into() };
    let read = ReadSoFar { standing: ReadStanding::Diverged, ..ReadSoFar::default() };
    assert!(tools.answer(ToolRequest { number: 0, question: question.clone(), read }).await.is_none());
    assert_eq!(tools.end(ended(End::Cancelled)).await.unwrap_err().code(), ErrorCode::ReplayDiverged);

    let tools = resumed().await;
    let read = ReadSoFar::default();
    assert!(tools.answer(ToolRequest { number: 0, question, read }).await.is_some(), "written in another way");
    let early = tools.end(ended(End::Exited { code: 0 })).await.unwrap_err();
    assert_eq!(early.code(), ErrorCode::ReplayDiverged, "it has left a call out");
    assert_eq!(pipeline.made.lock().len(), 2, "nothing was called again");
}

#[tokio::test]
async fn a_run_without_a_whole_journal_says_that_it_cannot_be_resumed() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    let question = ToolQuestion::Call { ordinal: 0, tool: "add".into(), arguments: "{}".into() };
    let read = ReadSoFar { standing: ReadStanding::TooManyReadings, ..ReadSoFar::default() };
    assert!(tools.answer(ToolRequest { number: 0, question, read }).await.is_some(), "the program goes on");
    assert_eq!(call_in_run(&tools, 1, "c-d", Vec::new()).await, None);
    let error = tools.end(ended(End::Cancelled)).await.unwrap_err();
    assert_eq!((error.code(), error.run(), error.approval()), (ErrorCode::ApprovalRequired, None, None));
    assert!(error.message().contains("10000 times") && error.message().contains("X-Approval-Id: a-1"), "{error}");
    let without = self::tools(&pipeline, &outer, 9);
    let refused = call_in_run(&without, 0, "c-d", Vec::new()).await.unwrap();
    assert!(refused["message"].as_str().unwrap().contains("approval_required"), "as in a session: {refused}");
}

/// Calls that are under way end, and their answers are in the journal.
#[tokio::test]
async fn calls_beside_one_that_needs_an_approval_end_first() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    let (ask, asked) = mpsc::channel(9);
    for (number, tool) in (0..).zip(["a-b", "c-d", "a-b"]) {
        let question = ToolQuestion::Call { ordinal: number, tool: tool.into(), arguments: "{}".into() };
        ask.send(ToolRequest { number, question, read: ReadSoFar::default() }).await.unwrap();
    }
    assert!(answer_all(asked, &tools, |_| {}).await.is_err());
    assert!(tools.end(ended(End::Cancelled)).await.is_err());
    let (_, past) = journals.resume(&outer, &Arguments::new(), &outer.id.to_string()).await.unwrap();
    for (number, request) in &past.requests {
        assert_eq!((request.answer.is_some(), request.approval.is_some()), (*number != 1, *number == 1));
    }
}

/// As after `kill -9` while it runs: what its approval allows is not asked.
#[tokio::test]
async fn an_approved_call_that_was_sent_is_not_sent_again() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let request = || {
        let question = ToolQuestion::Call { ordinal: 0, tool: "c-d".into(), arguments: r#"{"hang": 1}"#.into() };
        ToolRequest { number: 0, question, read: ReadSoFar::default() }
    };
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    assert!(tools.answer(request()).await.is_none());
    tools.end(ended(End::Cancelled)).await.unwrap_err();
    let id = outer.id.to_string();
    let resumed = async || {
        let journal = journals.resume(&outer, &Arguments::new(), &id).await.unwrap().0;
        tools_of(&pipeline, &outer, 9, Some(journal))
    };
    let tools = resumed().await;
    tokio::select! {
        answered = tools.answer(request()) => panic!("it has no answer: {answered:?}"),
        () = until("the call is made again", async || pipeline.made.lock().len() == 2) => {}
    }
    tools.end(Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"))).await.unwrap_err();
    let tools = resumed().await;
    let reply = tools.answer(request()).await.unwrap();
    assert!(!reply.is_ok && String::from_utf8(reply.json).unwrap().contains("unknown_outcome"));
    assert_eq!(pipeline.made.lock().len(), 2);
}

/// As if the caller had had the role of `secret` before.
#[tokio::test]
async fn answers_of_tools_that_the_caller_may_not_use_any_more_are_not_given_again() {
    let (pipeline, (_state, journals)) = (Refusing::new(), journals().await);
    for (tool, is_ok, json, is_given) in [
        ("secret", true, "1", false),
        ("secret", false, r#"{"kind":"tool_error","message":"{}"}"#, false),
        ("secret", false, r#"{"kind":"unknown_tool","message":"{}"}"#, true),
        ("gone", true, "1", false),
        ("add", true, "1", true),
    ] {
        let outer = outer();
        let question = ToolQuestion::Call { ordinal: 0, tool: tool.into(), arguments: "{}".into() };
        let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
        journal.find(0, &Wanted::of(question.clone()).question(), false, (Vec::new(), false));
        journal.answer(0, is_ok, json);
        assert!(journal.end(RunEnd::Stopped { approval: None }).await);
        let (journal, _) = journals.resume(&outer, &Arguments::new(), &outer.id.to_string()).await.unwrap();
        let tools = tools_of(&pipeline, &outer, 9, Some(journal));
        let reply = tools.answer(ToolRequest { number: 0, question, read: ReadSoFar::default() }).await;
        let given = reply.map(|reply| (reply.is_ok, reply.json));
        assert_eq!(given, is_given.then(|| (is_ok, json.into())), "{tool}: {json}");
        if !is_given {
            let refused = tools.end(ended(End::Cancelled)).await.unwrap_err();
            assert!(refused.code() == ErrorCode::UnknownTool && refused.message().contains(tool), "{refused}");
        }
    }
    assert!(pipeline.made.lock().is_empty());
}
