//! Against a fake sandbox: the contents of a job, and the result of each way it can end.

use parking_lot::Mutex;

use super::*;
use crate::builtin::file_write;
use sekisho_config::WorkspaceConfig;
use sekisho_core::call::{CallContext, Caller, Deadline, InterpreterSession, SessionEnd, ToolOutput, Via};
use sekisho_guest_protocol::{Captured, End, Outcome, Usage};
use sekisho_interpreters::packages::Packages;
use sekisho_sandbox::{Changing, Running};

/// Keeps the job it was given, and answers with its fixed outcome.
struct StandIn {
    outcome: Outcome,
    job: Mutex<Option<Job>>,
}

impl RunPython for StandIn {
    fn run<'a>(&'a self, _: &'a CallContext, _: &'a Arguments, job: Job, _: Deadline) -> Running<'a> {
        *self.job.lock() = Some(job);
        Box::pin(async { Ok(self.outcome.clone()) })
    }

    fn run_in_session<'a>(
        &'a self,
        call: &'a CallContext,
        session: CallSession<'a>,
        job: Job,
        _: Deadline,
    ) -> Running<'a> {
        call.progress.interpreter.set(InterpreterSession {
            name: session.name.into(),
            generation: 3,
            is_new: false,
            is_resumed: false,
            previous_end: None,
            end: Some(SessionEnd::Timeout).filter(|_| self.outcome.end == End::Timeout),
            is_checkpointed: session.every_call.then_some(true),
            not_stored: None,
        });
        *self.job.lock() = Some(job);
        Box::pin(async { Ok(self.outcome.clone()) })
    }

    fn has_sessions(&self) -> bool {
        true
    }

    fn use_packages<'a>(&'a self, _: &'a Packages) -> Changing<'a> {
        unreachable!("programs have none")
    }
}

fn config() -> SandboxConfig {
    SandboxConfig { data_files: vec!["/data/rates.csv".into()], ..SandboxConfig::default() }
}

fn outcome(end: End) -> Outcome {
    Outcome {
        end,
        result: Some("[1]".into()),
        stdout: Captured { bytes: b"said\n".to_vec(), total: 9 },
        stderr: Captured::default(),
        files: vec![GuestFile { path: "a/b.txt".into(), content: b"ab".to_vec() }],
        images: vec![b"PNG".to_vec()],
        usage: Usage {
            wall_time: Duration::from_millis(1500),
            cpu_time: Duration::from_micros(1250),
            longest_step: Duration::from_millis(1),
            peak_memory_bytes: 40 << 20,
            read_time_or_random: false,
        },
        session_bytes: None,
        read: None,
    }
}

/// The answer of the tool, and the job that it made.
async fn execute(outcome: Outcome, arguments: Value) -> (Result<ToolOutput, CallError>, Option<Job>) {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(folder.path().into(), &WorkspaceConfig::default());
    execute_in(&workspaces, None, outcome, arguments).await
}

async fn execute_in(
    workspaces: &Workspaces,
    session: Option<Arc<Session>>,
    outcome: Outcome,
    arguments: Value,
) -> (Result<ToolOutput, CallError>, Option<Job>) {
    let stand_in = Arc::new(StandIn { outcome, job: Mutex::default() });
    let tool = definition(&config(), &["base", "data", "plot"], stand_in.clone(), workspaces);
    let mut call = CallContext::new("python_executor", Arc::new(Caller::anonymous()), Via::Rest);
    call.origin.session = session;
    let attempt = Attempt {
        call: &call,
        deadline: Deadline::after(Duration::from_secs(10)),
        memory_limit_bytes: 512 << 20,
        max_output_bytes: 1 << 20,
    };
    let answer = tool.executor.execute(attempt, arguments.as_object().unwrap()).await;
    let job = stand_in.job.lock().take();
    (answer, job)
}

#[tokio::test]
async fn a_call_in_a_session_says_so_and_what_became_of_it() {
    let arguments = json!({"code": "[1]", "session": "monday"});
    let (answer, _) = execute(outcome(End::Exited { code: 0 }), arguments.clone()).await;
    let value = answer.unwrap().value;
    assert_eq!(value["session"], json!({"name": "monday", "generation": 3, "is_new": false}));
    assert!(jsonschema::is_valid(&output_schema(), &value));
    let (answer, _) = execute(outcome(End::Timeout), arguments).await;
    let error = answer.unwrap_err();
    assert!(error.message().contains("; the session `monday` has ended, because a program in it ran too long"));
    assert!(error.output().unwrap()["session"]["note"].is_string());
}

#[tokio::test]
async fn checkpoints_are_asked_for_in_a_session() {
    let arguments = json!({"code": "[1]", "session": "monday", "checkpoint": "every_call"});
    let (answer, _) = execute(outcome(End::Exited { code: 0 }), arguments).await;
    assert_eq!(answer.unwrap().value["session"]["is_checkpointed"], true);
    let arguments = json!({"code": "1", "checkpoint": "every_call"});
    let (answer, job) = execute(outcome(End::Exited { code: 0 }), arguments).await;
    assert!(answer.unwrap_err().code() == ErrorCode::InvalidArguments && job.is_none());
}

#[tokio::test]
async fn a_run_that_ends_well_answers_with_all_it_left_and_used() {
    for code in [0, 3] {
        let (answer, _) = execute(outcome(End::Exited { code }), json!({"code": "[1]"})).await;
        let answer = answer.unwrap();
        let expected = json!({
            "result": [1],
            "stdout": "said\n\n… (5 of 9 bytes)",
            "stderr": "",
            "exit_code": code,
            "files": [{"path": "a/b.txt", "content_base64": "YWI="}],
            "images": [{"media_type": "image/png", "content_base64": "UE5H"}],
            "usage": {"wall_ms": 1500.0, "cpu_ms": 1.25, "peak_memory_bytes": 40 << 20, "output_bytes": 9},
        });
        assert_eq!(answer.value, expected);
        assert_eq!(Value::from(answer.metadata), expected["usage"]);
        assert!(jsonschema::is_valid(&output_schema(), &expected));
    }
}

#[tokio::test]
async fn each_end_has_its_error_and_keeps_what_was_produced() {
    let ends = [
        (End::Timeout, ErrorCode::SandboxTimeout, "after 1.5 s"),
        (End::Memory, ErrorCode::SandboxMemory, "40 MiB"),
        (End::Output("file_bytes".into()), ErrorCode::SandboxOutput, "16777216 bytes (`sandbox.max_file_bytes`)"),
        (
            End::Output("result_bytes".into()),
            ErrorCode::SandboxOutput,
            "1048576 bytes of JSON (`sandbox.max_result_bytes`)",
        ),
        (End::Output("random_bytes".into()), ErrorCode::SandboxOutput, "16777216 random bytes"),
        (End::Trap("wasm trap: at /root/x.rs".into()), ErrorCode::SandboxTrap, "crashed"),
    ];
    for (end, code, words) in ends {
        let (answer, _) = execute(outcome(end), json!({"code": "x"})).await;
        let error = answer.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.message().contains(words) && !error.message().contains("/root"), "{}", error.message());
        let output = error.output().unwrap();
        assert_eq!((&output["files"][0]["path"], &output["exit_code"]), (&json!("a/b.txt"), &Value::Null));
    }
}

#[tokio::test]
async fn an_exception_is_the_programs_own_with_its_place() {
    let end = End::Exception {
        kind: "SyntaxError".into(),
        message: "expected ':'".into(),
        traceback: "  File \"<code>\", line 2\n".into(),
        line: Some(2),
        column: Some(5),
    };
    let (answer, _) = execute(outcome(end), json!({"code": "x"})).await;
    let error = answer.unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::ToolError, "  File \"<code>\", line 2"));
    let expected =
        Detail { path: "/code".into(), rule: "SyntaxError".into(), message: "line 2, column 5: expected ':'".into() };
    assert_eq!((error.details(), &error.output().unwrap()["exit_code"]), (&[expected][..], &json!(1)));
}

#[tokio::test]
async fn a_failed_run_keeps_to_the_output_limit() {
    let files = (0..2).map(|n| GuestFile { path: format!("{n}"), content: vec![0; 1 << 20] }).collect();
    let failed = Outcome { files, ..outcome(End::Timeout) };
    let (answer, _) = execute(failed, json!({"code": "x"})).await;
    let error = answer.unwrap_err();
    let output = error.output().unwrap();
    assert_eq!((&output["files"], &output["images"], &output["result"]), (&json!([]), &json!([]), &json!([1])));
    assert!(output["stderr"].as_str().unwrap().contains("1048576 are allowed"), "{output}");
    let endless = Captured { bytes: vec![b'x'; 2 << 20], total: 2 << 20 };
    let (answer, _) = execute(Outcome { stdout: endless, ..outcome(End::Timeout) }, json!({"code": "x"})).await;
    assert_eq!(answer.unwrap_err().output(), None);
}

#[tokio::test]
async fn a_run_sees_its_sessions_workspace_behind_the_files_of_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(folder.path().into(), &WorkspaceConfig::default());
    let session = Arc::new(Session::new(&Caller::anonymous(), "monday"));
    let write = file_write::definition(&workspaces);
    for path in ["own.csv", "sent.csv", "rates.csv", "sent/inner.csv"] {
        let mut call = CallContext::new("file_write", Arc::new(Caller::anonymous()), Via::Rest);
        call.origin.session = Some(Arc::clone(&session));
        let arguments = json!({"path": path, "content": "written"});
        let attempt = Attempt {
            call: &call,
            deadline: Deadline::after(Duration::from_secs(10)),
            memory_limit_bytes: 1 << 20,
            max_output_bytes: 1 << 20,
        };
        write.executor.execute(attempt, arguments.as_object().unwrap()).await.unwrap();
    }
    let arguments = json!({"code": "1", "files": [{"path": "sent.csv", "text": "sent"}, {"path": "sent", "text": ""}]});
    let ended = outcome(End::Exited { code: 0 });
    let job = execute_in(&workspaces, Some(session), ended.clone(), arguments.clone()).await.1.unwrap();
    let files: Vec<_> = job.files.iter().map(|file| (file.path.as_str(), file.content.as_slice())).collect();
    assert_eq!(files, [("sent.csv", &b"sent"[..]), ("sent", b""), ("own.csv", b"written")]);
    let other = Arc::new(Session::new(&Caller::anonymous(), "tuesday"));
    let job = execute_in(&workspaces, Some(other), ended, arguments).await.1.unwrap();
    assert_eq!(job.files.len(), 2, "each session has its own");
}

#[tokio::test]
async fn a_result_that_is_no_json_is_not_passed_on() {
    let forged = Outcome { result: Some("[NaN".into()), ..outcome(End::Exited { code: 0 }) };
    let (answer, _) = execute(forged, json!({"code": "x"})).await;
    assert_eq!(answer.unwrap_err().code(), ErrorCode::SandboxTrap);
}

#[tokio::test]
async fn a_job_has_the_callers_program_and_ends_before_its_call() {
    let arguments = json!({
        "code": "1", "stdin": "in", "profile": "data",
        "files": [{"path": "a/t.csv", "text": "x"}, {"path": "b", "content_base64": "YWI="}],
    });
    let job = execute(outcome(End::Exited { code: 0 }), arguments).await.1.unwrap();
    assert_eq!((job.code.as_str(), job.stdin.as_slice(), job.profile.as_str()), ("1", b"in".as_slice(), "data"));
    let file = |path: &str, content: &[u8]| GuestFile { path: path.into(), content: content.to_vec() };
    assert_eq!(job.files, [file("a/t.csv", b"x"), file("b", b"ab")]);
    assert_eq!(job.limits.memory_bytes, 512 << 20);
    assert!(job.limits.wall_time < Duration::from_secs(10) && job.limits.wall_time > Duration::from_secs(9));
    let short = json!({"code": "1", "timeout_seconds": 0.5});
    let job = execute(outcome(End::Exited { code: 0 }), short).await.1.unwrap();
    assert_eq!(job.limits.wall_time, Duration::from_millis(500));
}

#[tokio::test]
async fn files_that_would_leave_input_or_are_not_base64_run_nothing() {
    let wrong = [
        (json!({"path": "../x", "text": ""}), "/files/0/path"),
        (json!({"path": "/etc/passwd", "text": ""}), "/files/0/path"),
        (json!({"path": "a//b", "text": ""}), "/files/0/path"),
        (json!({"path": "a\u{0}", "text": ""}), "/files/0/path"),
        (json!({"path": "a", "content_base64": "*"}), "/files/0/content_base64"),
        (json!({"path": "a"}), "/files/0/text"),
    ];
    for (file, place) in wrong {
        refuses(json!([file]), place).await;
    }
}

#[tokio::test]
async fn no_file_replaces_another() {
    let file = |path: &str| json!({"path": path, "text": ""});
    let clashes = [
        json!([file("a"), file("a")]),
        json!([file("a"), file("a/b")]),
        json!([file("a/b/c"), file("a/b")]),
        json!([file("b"), file("rates.csv")]),
    ];
    for files in clashes {
        refuses(files, "/files/1/path").await;
    }
    let beside = json!({"code": "1", "files": [file("a"), file("ab"), file("c/a"), file("c/b")]});
    assert_eq!(execute(outcome(End::Exited { code: 0 }), beside).await.1.unwrap().files.len(), 4);
}

/// Nothing runs, and the error has its position.
async fn refuses(files: Value, place: &str) {
    let (answer, job) = execute(outcome(End::Timeout), json!({"code": "1", "files": files})).await;
    let error = answer.unwrap_err();
    assert_eq!((error.code(), error.details()[0].path.as_str()), (ErrorCode::InvalidArguments, place));
    assert!(job.is_none());
}
