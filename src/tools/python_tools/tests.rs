//! Against a fake sandbox: the results of files, and of the ends of calls.

mod packages;
mod shared;
mod waiting;

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use rust_decimal::Decimal;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use sekisho_calls::tool::{Attempt, ToolDefinition};
use sekisho_config::SandboxConfig;
use sekisho_core::call::{Arguments, CallContext, Caller, Deadline, ToolOutput, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{Captured, End, FunctionCall, Job, ModuleTask, Outcome, Usage};
use sekisho_sandbox::{CallSession, Changing, RunPython, Running};

/// The result of a file whose functions are all there.
const TRIED: &str = r#"{"missing": [], "is_repeatable": true}"#;

/// Keeps the jobs that it was given, and answers with its fixed outcomes, or as for a file with one function.
#[derive(Default)]
struct StandIn {
    answers: Mutex<VecDeque<Result<Outcome, CallError>>>,
    jobs: Mutex<Vec<Job>>,
    /// How long each answer takes.
    delay: Duration,
    /// The packages that modules were given.
    packages: Mutex<Vec<String>>,
}

impl RunPython for StandIn {
    fn run<'a>(&'a self, _: &'a CallContext, _: &'a Arguments, job: Job, _: Deadline) -> Running<'a> {
        let result = match &job.module {
            Some(ModuleTask::Read { .. }) => found(&json!([function("now", &json!({}))]), &json!([])),
            _ => TRIED.to_owned(),
        };
        self.jobs.lock().push(job);
        let answer = self.answers.lock().pop_front();
        let answer = answer.unwrap_or_else(|| Ok(outcome(End::Exited { code: 0 }, Some(&result))));
        let delay = self.delay;
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            answer
        })
    }

    fn run_in_session<'a>(&'a self, _: &'a CallContext, _: CallSession<'a>, _: Job, _: Deadline) -> Running<'a> {
        unreachable!("functions run in no session")
    }

    fn has_sessions(&self) -> bool {
        false
    }

    fn use_packages<'a>(&'a self, packages: &'a Packages) -> Changing<'a> {
        self.packages.lock().push(packages.sum());
        Box::pin(async {})
    }
}

fn function(name: &str, more: &Value) -> Value {
    let mut function = json!({
        "function": name, "name": name, "line": 3, "description": "What it does.", "converts": false,
        "parameters": {"type": "object"}, "output": {"type": "integer"},
    });
    function.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    function
}

fn found(tools: &Value, problems: &Value) -> String {
    json!({"tools": tools, "problems": problems}).to_string()
}

fn outcome(end: End, result: Option<&str>) -> Outcome {
    let usage = Usage { wall_time: Duration::from_millis(2), peak_memory_bytes: 9 << 20, ..Usage::default() };
    Outcome {
        end,
        result: result.map(str::to_owned),
        stdout: Captured::default(),
        stderr: Captured::default(),
        files: Vec::new(),
        images: Vec::new(),
        usage,
        session_bytes: None,
        read: None,
    }
}

fn exited(result: &str) -> Result<Outcome, CallError> {
    Ok(outcome(End::Exited { code: 0 }, Some(result)))
}

fn raised(kind: &str, line: Option<u32>) -> Result<Outcome, CallError> {
    let (kind, message, traceback) = (kind.to_owned(), "no such city".to_owned(), String::new());
    Ok(outcome(End::Exception { kind, message, traceback, line, column: None }, None))
}

/// A folder, and the sandbox that reads it.
struct Folder {
    folder: TempDir,
    config: PythonToolsConfig,
    sandbox: SandboxConfig,
    stand_in: Arc<StandIn>,
}

impl Folder {
    fn new(answers: Vec<Result<Outcome, CallError>>) -> Self {
        Self::slow(answers, Duration::ZERO)
    }

    /// Where each answer takes some time.
    fn slow(answers: Vec<Result<Outcome, CallError>>, delay: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weather.py"), "text").unwrap();
        let config = PythonToolsConfig { directory: Some(folder.path().to_owned()), ..PythonToolsConfig::default() };
        let answers = Mutex::new(answers.into());
        let stand_in = Arc::new(StandIn { answers, delay, ..StandIn::default() });
        Self { folder, config, sandbox: SandboxConfig::default(), stand_in }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn read(&self, before: &PythonTools) -> PythonTools {
        let run = Arc::clone(&self.stand_in) as Arc<dyn RunPython>;
        PythonTools::read(&self.config, &FunctionRunner::new(&self.sandbox, run), before).await
    }

    fn jobs(&self) -> usize {
        self.stand_in.jobs.lock().len()
    }
}

async fn call(tool: &ToolDefinition, arguments: Value) -> Result<ToolOutput, CallError> {
    let call = CallContext::new("weather__now", Arc::new(Caller::anonymous()), Via::Rest);
    let attempt = Attempt {
        call: &call,
        deadline: Deadline::after(Duration::from_secs(10)),
        memory_limit_bytes: 512 << 20,
        max_output_bytes: 1 << 20,
    };
    tool.executor.execute(attempt, arguments.as_object().unwrap()).await
}

#[tokio::test]
async fn a_function_is_a_tool_with_what_its_decorator_says() {
    let more = json!({"name": "current", "cost_usd": "0.001", "rate_limit": 5, "timeout_seconds": 3, "labels": ["a"],
        "dangerous": true, "needs": ["calculator"]});
    let functions = found(&json!([function("now", &more), function("later", &json!({}))]), &json!([]));
    let mut folder = Folder::new(vec![exited(&functions), exited(TRIED)]);
    folder.config.settings = [("weather".to_owned(), Map::from_iter([("x".to_owned(), "y".into())]))].into();
    let tools = folder.read(&PythonTools::default()).await;
    let offer = tools.tools();
    let [now, later] = &offer.tools[..] else { panic!("{offer:?}") };
    let metadata = &now.metadata;
    assert_eq!((&*metadata.name, &*metadata.source, metadata.dangerous), ("weather__current", "python:weather", true));
    assert_eq!((metadata.rate_limit, metadata.timeout_seconds, &metadata.labels[..]), (5, 3, &["a".to_owned()][..]));
    assert_eq!((metadata.cost_per_use, metadata.idempotent, metadata.effects), (Decimal::new(1, 3), false, None));
    assert!(later.metadata.idempotent && later.metadata.effects.unwrap().read_only);
    assert!(later.executor.sandboxed() && later.executor.marks_sent());
    assert!(metadata.version.starts_with("1.0.0+") && metadata.version == later.metadata.version, "by the file's text");
    assert!(tools.problems().is_empty() && offer.unavailable.is_empty());
    let verdicts: Vec<_> = tools.verdicts().collect();
    assert_eq!(verdicts, [("python:weather".to_owned(), Ok("weather__current, weather__later".to_owned()))]);

    folder.stand_in.answers.lock().push_back(exited(r#"{"value": 7}"#));
    let output = call(now, json!({"city": "Bern"})).await.unwrap();
    assert_eq!((output.value, &output.metadata["peak_memory_bytes"]), (json!(7), &json!(9 << 20)));
    folder.stand_in.answers.lock().push_back(exited(r#"{"value": null}"#));
    assert_eq!(call(later, json!({})).await.unwrap().value, Value::Null);
    let jobs = folder.stand_in.jobs.lock();
    let [read, tried, first, second] = &jobs[..] else { panic!("{} jobs", jobs.len()) };
    assert_eq!(read.module, Some(ModuleTask::Read { file: "weather.py".to_owned(), shared: "{}".to_owned() }));
    let settings = r#"{"x":"y"}"#.to_owned();
    let functions = vec!["now".to_owned(), "later".to_owned()];
    let (file, shared) = ("weather.py".to_owned(), "{}".to_owned());
    assert_eq!(tried.module, Some(ModuleTask::Try { file, functions, settings: settings.clone(), shared }));
    let expected = FunctionCall {
        file: "weather.py".to_owned(),
        function: "now".to_owned(),
        arguments: r#"{"city":"Bern"}"#.to_owned(),
        settings,
        shared: "{}".to_owned(),
        needs: vec!["calculator".to_owned()],
        converts: false,
    };
    assert_eq!((&first.module, &*first.code), (&Some(ModuleTask::Call(expected)), "text"));
    let calls = [read, tried, first, second].map(|job| job.limits.tool_calls);
    assert_eq!(calls, [0, 0, 1_000, 0], "only what needs tools may call some");
}

#[tokio::test]
async fn a_function_that_cannot_be_a_tool_leaves_the_others() {
    let long = function("long", &json!({"name": "x".repeat(60)}));
    let problems = json!([{"function": "later", "line": 9, "message": "`x` has no annotation: write x: int"}]);
    let functions = found(&json!([function("now", &json!({})), long, function("gone", &json!({}))]), &problems);
    let folder = Folder::new(vec![exited(&functions), exited(r#"{"missing": ["gone"], "is_repeatable": true}"#)]);
    let tools = folder.read(&PythonTools::default()).await;
    let offer = tools.tools();
    assert_eq!(offer.tools.iter().map(|tool| &*tool.metadata.name).collect::<Vec<_>>(), ["weather__now"]);
    let missing: Vec<_> = offer.unavailable.iter().map(|missing| (&*missing.name, &*missing.reason)).collect();
    assert_eq!(missing[0], ("weather__later", "weather.py:9: `x` has no annotation: write x: int"));
    assert!(missing[1].1.starts_with("weather.py:3: ") && missing[1].1.contains("with another one"), "{missing:?}");
    assert!(missing[2].1.contains("`gone` is no function any more"), "{missing:?}");
    assert!(tools.problems().is_empty(), "it is reported with its tools");
    assert!(tools.verdicts().next().unwrap().1.unwrap_err().contains("write x: int"));
}

#[tokio::test]
async fn a_file_that_cannot_be_used_says_why() {
    let whole = found(&json!([]), &json!([{"line": 2, "message": "expected ':': correct the Python here"}]));
    let read = || exited(&found(&json!([function("now", &json!({}))]), &json!([])));
    let later = json!([{"function": "later", "line": 2, "message": "write @tool(name='x')"}]);
    let lost = || Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"));
    let steers = End::Exception {
        kind: "ValueError".to_owned(),
        message: "two\n\u{1b}[2Jlines".to_owned(),
        traceback: String::new(),
        line: Some(7),
        column: None,
    };
    for (answers, says) in [
        (vec![exited(&whole)], "weather.py:2: expected ':': correct the Python here"),
        (vec![exited("no json")], "weather.py: it cannot be read: "),
        (vec![raised("RecursionError", None)], "weather.py: it cannot be read: RecursionError: no such city"),
        (vec![Ok(outcome(End::Trap("unreachable".into()), None))], "the interpreter crashed"),
        (vec![lost(), lost()], "weather.py: the worker exited"),
        (vec![Ok(outcome(End::Output("result_bytes".into()), None))], "too long together: write several files"),
        (vec![read(), raised("KeyError", Some(7))], "weather.py:7: KeyError: no such city"),
        (
            vec![exited(&found(&json!([]), &later)), raised("TypeError", Some(2))],
            "weather.py:2: write @tool(name='x'); weather.py:2: TypeError: no such city",
        ),
        (vec![read(), Ok(outcome(steers, None))], "weather.py:7: ValueError: two  [2Jlines"),
        (vec![read(), Ok(outcome(End::Exited { code: 3 }, None))], "with exit(3)"),
        (vec![read(), Ok(outcome(End::Timeout, None))], "takes longer than 10 s"),
        (vec![read(), Ok(outcome(End::Memory, None))], "exceeded its memory limit"),
    ] {
        let folder = Folder::new(answers);
        let tools = folder.read(&PythonTools::default()).await;
        let problem = tools.problems()["python:weather"].clone();
        assert!(problem.contains(says), "{says}: {problem}");
        let offer = tools.tools();
        assert!(offer.tools.is_empty() && !tools.is_waiting(), "{says}");
        assert_eq!((&*offer.unavailable[0].name, &offer.unavailable[0].reason), ("weather__*", &problem));
        assert!(tools.has_file("python:weather") && !tools.has_file("python_tools"));
    }
}

#[tokio::test]
async fn only_what_has_changed_is_read_again() {
    let folder = Folder::new(Vec::new());
    fs::write(folder.path().join("other.py"), "text").unwrap();
    let first = folder.read(&PythonTools::default()).await;
    assert_eq!((folder.jobs(), first.tools().tools.len()), (4, 2));
    let second = folder.read(&first).await;
    assert_eq!(folder.jobs(), 4);
    let executor = |tools: &PythonTools, at: usize| Arc::clone(&tools.tools().tools[at].executor);
    assert!(Arc::ptr_eq(&executor(&first, 1), &executor(&second, 1)), "the registry keeps what it compiled");
    fs::write(folder.path().join("weather.py"), "changed").unwrap();
    fs::remove_file(folder.path().join("other.py")).unwrap();
    let third = folder.read(&second).await;
    assert_eq!((folder.jobs(), third.tools().tools.len()), (6, 1));
    assert_eq!(third.sources().collect::<Vec<_>>(), ["python:weather"]);
}

#[tokio::test]
async fn other_settings_are_another_version() {
    let mut folder = Folder::new(Vec::new());
    let first = folder.read(&PythonTools::default()).await;
    folder.config.settings = [("weather".to_owned(), Map::from_iter([("x".to_owned(), "y".into())]))].into();
    let second = folder.read(&first).await;
    let version = |tools: &PythonTools| tools.tools().tools[0].metadata.version.clone();
    assert_ne!(version(&first), version(&second));
    assert_eq!(version(&second), version(&folder.read(&PythonTools::default()).await));
}

#[tokio::test]
async fn without_a_folder_there_are_none_and_one_that_is_missing_is_reported() {
    let mut folder = Folder::new(Vec::new());
    folder.config.directory = Some(folder.path().join("nowhere"));
    let tools = folder.read(&PythonTools::default()).await;
    assert!(tools.problems()["python_tools"].contains("nowhere cannot be read"));
    assert!(tools.verdicts().next().unwrap().1.is_err());
    folder.config.directory = None;
    let tools = folder.read(&PythonTools::default()).await;
    assert!(tools.problems().is_empty() && tools.tools().tools.is_empty());
}

#[tokio::test]
async fn without_code_mode_what_needs_tools_is_no_tool() {
    let functions = found(&json!([function("now", &json!({"needs": ["calculator"]}))]), &json!([]));
    let mut folder = Folder::new(vec![exited(&functions), exited(TRIED)]);
    folder.sandbox.code_mode.enabled = false;
    let tools = folder.read(&PythonTools::default()).await;
    let offer = tools.tools();
    assert!(offer.tools.is_empty() && offer.unavailable[0].reason.contains("`sandbox.code_mode.enabled` is false"));
}

#[tokio::test]
async fn a_call_that_fails_names_the_line_in_the_file() {
    let folder = Folder::new(Vec::new());
    let tools = folder.read(&PythonTools::default()).await;
    let offer = tools.tools();
    let tool = &offer.tools[0];
    let printed = Outcome {
        stdout: Captured { bytes: vec![b'x'; 5_000], total: 6_000 },
        ..raised("ValueError", Some(12)).unwrap()
    };
    for (answer, code, says) in [
        (Ok(printed), ErrorCode::ToolError, "ValueError: no such city (weather.py, line 12)"),
        (raised("TypeError", None), ErrorCode::ToolError, "TypeError: no such city"),
        (Ok(outcome(End::Exited { code: 0 }, None)), ErrorCode::ToolError, "ended the interpreter with exit(0)"),
        (Ok(outcome(End::Timeout, None)), ErrorCode::SandboxTimeout, "time: `timeout_seconds` in its @tool"),
        (Ok(outcome(End::Memory, None)), ErrorCode::SandboxMemory, "memory limit"),
        (Ok(outcome(End::Output("result_bytes".into()), None)), ErrorCode::SandboxOutput, "return less"),
        (exited("{}"), ErrorCode::SandboxTrap, "tampered"),
        (
            exited(r#"{"invalid": {"path": "/day", "message": "no date"}}"#),
            ErrorCode::InvalidArguments,
            "`/day`: no date",
        ),
    ] {
        folder.stand_in.answers.lock().push_back(answer);
        let error = call(tool, json!({})).await.unwrap_err();
        assert_eq!(error.code(), code, "{says}");
        assert!(error.message().contains(says), "{says}: {}", error.message());
        if says.contains("line 12") {
            assert_eq!((&*error.details()[0].path, &*error.details()[0].rule), ("weather.py:12", "ValueError"));
            let stdout = error.output().unwrap()["stdout"].as_str().unwrap();
            assert!(stdout.ends_with("x… (4096 of 6000 bytes)") && error.output().unwrap()["stderr"].is_null());
        }
    }
}
