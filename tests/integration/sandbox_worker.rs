//! The worker process, driven over its socket as the gateway does, with small modules in place of Python.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho::testing::protocol::{
    End, Frames, FromWorker, GuestFile, Job, JobId, JobLimits, JobSession, Load, Outcome, SessionEntry, ToWorker,
    encode,
};
use sekisho::testing::{CompiledFolder, InstancePool, InterpreterKind, Prepared, PreparedProfile, engine, fingerprint};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::slack::slack;

/// Longer than anything here takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a reactor does with its program, by the name of its profile.
const PROGRAMS: [(&str, &str); 10] = [
    ("quick", "(i32.const 0)"),
    // Reports its end, too.
    ("whole", "(drop (call $call (i32.const 320) (i32.const 52) (i32.const 128) (i32.const 132))) (i32.const 0)"),
    ("endless", "(loop (br 0)) (i32.const 0)"),
    // Sleeps for an hour.
    ("asleep", "(call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))"),
    // The second program of an instance does not end.
    (
        "counts",
        "(i32.store8 (i32.const 60000) (i32.add (i32.load8_u (i32.const 60000)) (i32.const 1)))
         (loop (br_if 0 (i32.eq (i32.load8_u (i32.const 60000)) (i32.const 2))))
         (drop (call $call (i32.const 320) (i32.const 52) (i32.const 128) (i32.const 132))) (i32.const 0)",
    ),
    ("broken", "unreachable"),
    ("recursive", "(call $deep)"),
    ("greedy", "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable"),
    // Exits with what an earlier run of this memory wrote there.
    ("writes", "(i32.load8_u (i32.const 60000)) (i32.store8 (i32.const 60000) (i32.const 1))"),
    (
        "chatty",
        "(loop (drop (call $call (i32.const 256) (i32.const 18) (i32.const 128) (i32.const 132))) (br 0)) (i32.const 0)",
    ),
];

struct Worker {
    child: Child,
    messages: Frames<OwnedReadHalf>,
    gateway: OwnedWriteHalf,
    missing_protections: Vec<String>,
    _files: TempDir,
}

/// A reactor that fetches its program, and then does this.
fn module(program: &str) -> String {
    reactor(&format!("(drop (call $call (i32.const 256) (i32.const 18) (i32.const 128) (i32.const 132))) {program}"))
}

fn reactor(turn: &str) -> String {
    format!(
        r#"(module
            (import "host" "call" (func $call (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") (export "__wizer_memory_0") 1)
            ;; A subscription to the monotonic clock, for 3600 s.
            (data (i32.const 16) "\01")
            (data (i32.const 24) "\00\a0\b8\30\46\03")
            (data (i32.const 256) "{{\"v\":1,\"op\":\"job\"}}")
            (data (i32.const 320) "{{\"v\":1,\"op\":\"done\",\"end\":{{\"kind\":\"exited\",\"code\":0}}}}")
            (func (export "host_alloc") (param i32) (result i32) (i32.const 4096))
            (func $deep (result i32) (i32.add (call $deep) (i32.const 1)))
            (func (export "turn") (param i32 i32) (result i32) {turn}))"#
    )
}

fn prepared<'t>(
    files: &TempDir,
    kind: InterpreterKind,
    texts: impl IntoIterator<Item = (&'t str, String)>,
) -> Prepared {
    let engine = engine(InstancePool::default()).unwrap();
    let folder = CompiledFolder::open(&files.path().join("compiled"), &fingerprint(&engine)).unwrap();
    let profiles = texts.into_iter().map(|(name, text)| {
        let compiled = engine.precompile_module(&wat::parse_str(text).unwrap()).unwrap();
        PreparedProfile { name: name.to_owned(), compiled: folder.store(name, &compiled).unwrap(), snapshot: None }
    });
    let profiles = profiles.collect();
    let arguments = vec!["python".to_owned()];
    Prepared { kind, arguments, environment: [].into(), mounts: Vec::new(), table_elements: 10, profiles }
}

fn reactors(files: &TempDir) -> Prepared {
    prepared(files, InterpreterKind::Reactor, PROGRAMS.map(|(name, program)| (name, module(program))))
}

/// The result of a worker that receives this message first.
async fn end_after(frame: &[u8]) -> (Option<i32>, String) {
    let (mut gateway, child) = spawn();
    gateway.write_all(frame).await.unwrap();
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn load(interpreter: Prepared) -> Vec<u8> {
    let (data_files, packages) = (Vec::new(), Vec::new());
    encode(&ToWorker::Load(Box::new(Load { interpreter, instances: 40, data_files, packages }))).unwrap()
}

fn spawn() -> (UnixStream, Child) {
    let (ours, theirs) = BlockingStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_sekisho"))
        .args(["sandbox", "worker"])
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    (UnixStream::from_std(ours).unwrap(), child)
}

impl Worker {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let interpreter = reactors(&files);
        Self::with(files, interpreter).await
    }

    async fn with(files: TempDir, interpreter: Prepared) -> Self {
        let (gateway, child) = spawn();
        let (messages, mut gateway) = gateway.into_split();
        let mut messages = Frames::new(messages);
        gateway.write_all(&load(interpreter)).await.unwrap();
        let ready = timeout(PATIENCE, messages.next()).await.unwrap().unwrap();
        let Some(FromWorker::Ready(greeting)) = ready else { panic!("{ready:?}") };
        Self { child, messages, gateway, missing_protections: greeting.missing_protections, _files: files }
    }

    async fn tell(&mut self, message: &ToWorker) {
        self.gateway.write_all(&encode(message).unwrap()).await.unwrap();
    }

    async fn begin(&mut self, id: JobId, profile: &str) {
        self.tell(&ToWorker::Run(Box::new(job(id, profile)))).await;
    }

    async fn done(&mut self) -> (JobId, Outcome) {
        loop {
            match timeout(PATIENCE, self.messages.next()).await.unwrap().unwrap() {
                Some(FromWorker::Done(id, outcome)) => return (id, *outcome),
                Some(FromWorker::Sleeping(..)) => {}
                Some(FromWorker::Waking(id)) => self.tell(&ToWorker::Continue(id)).await,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn run(&mut self, profile: &str) -> Outcome {
        self.begin(1, profile).await;
        let (id, outcome) = self.done().await;
        assert_eq!(id, 1);
        outcome
    }
}

fn job(id: JobId, profile: &str) -> Job {
    Job {
        id,
        profile: profile.to_owned(),
        code: String::new(),
        module: None,
        packages: Arc::default(),
        stdin: Vec::new(),
        files: Vec::new(),
        limits: JobLimits {
            wall_time: Duration::from_millis(300),
            total_time: Duration::from_millis(300),
            memory_bytes: 16 << 20,
            stream_bytes: 1 << 10,
            result_bytes: 1 << 10,
            image_bytes: 1 << 20,
            file_bytes: 1 << 10,
            max_files: 10,
            max_open_files: 10,
            random_bytes: 10,
            host_calls: 10,
            tool_calls: 0,
            state_bytes: 0,
        },
        session: None,
        past: None,
        proposes: false,
        reads_to_end: false,
        image: None,
    }
}

#[tokio::test]
async fn a_worker_has_all_protections_and_runs_jobs_until_the_gateway_exits() {
    let mut worker = Worker::start().await;
    let lacks_scan = !sekisho::testing::can_scan_pages();
    assert_eq!(worker.missing_protections.len(), usize::from(lacks_scan), "{:?}", worker.missing_protections);
    for _ in 0..3 {
        assert_eq!(worker.run("quick").await.end, End::Exited { code: 0 });
    }
    assert_eq!(worker.run("endless").await.end, End::Timeout);
    assert_eq!(worker.run("asleep").await.end, End::Timeout);
    for profile in ["broken", "recursive", "nameless"] {
        let end = worker.run(profile).await.end;
        assert!(matches!(end, End::Trap(_)), "{profile}: {end:?}");
    }
    let greedy = worker.run("greedy").await;
    assert_eq!((greedy.end, greedy.usage.peak_memory_bytes), (End::Memory, 16 << 20));
    assert_eq!(worker.run("chatty").await.end, End::Output("host_calls".to_owned()));
    assert_eq!(worker.run("quick").await.end, End::Exited { code: 0 });
    drop(worker.gateway);
    let status = timeout(PATIENCE, worker.child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

/// Of each thread. The bounding set cannot be emptied by a worker that did not begin as root, and needs not be.
#[tokio::test]
async fn a_worker_has_no_capability_left() {
    let worker = Worker::start().await;
    let threads = std::fs::read_dir(format!("/proc/{}/task", worker.child.id().unwrap())).unwrap();
    let mut seen = 0;
    for thread in threads {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let none = format!("{set}:\t0000000000000000");
            assert!(status.lines().any(|line| line == none), "{set} is not empty:\n{status}");
        }
        seen += 1;
    }
    assert!(seen > 0);
}

#[tokio::test]
async fn every_run_has_fresh_memory() {
    let mut worker = Worker::start().await;
    for _ in 0..50 {
        assert_eq!(worker.run("writes").await.end, End::Exited { code: 0 });
    }
}

#[tokio::test]
async fn a_cancelled_job_stops_at_once_beside_other_jobs() {
    let mut worker = Worker::start().await;
    for id in 1..=20 {
        worker.begin(id, if id % 2 == 0 { "endless" } else { "asleep" }).await;
    }
    for id in [20, 1, 2, 19] {
        let started = Instant::now();
        worker.tell(&ToWorker::Cancel(id)).await;
        let (done, outcome) = worker.done().await;
        assert_eq!((done, outcome.end), (id, End::Cancelled));
        assert!(started.elapsed() < slack(Duration::from_millis(100)), "{id}: {:?}", started.elapsed());
    }
    for _ in 0..16 {
        assert_eq!(worker.done().await.1.end, End::Timeout);
    }
    worker.tell(&ToWorker::Cancel(7)).await;
    assert_eq!(worker.run("quick").await.end, End::Exited { code: 0 }, "one that is over is not answered again");
}

#[tokio::test]
async fn a_short_job_does_not_wait_for_endless_ones() {
    let mut worker = Worker::start().await;
    for id in 2..=11 {
        worker.begin(id, "endless").await;
    }
    worker.begin(1, "quick").await;
    assert_eq!(worker.done().await.0, 1);
}

#[tokio::test]
async fn a_session_is_entered_again_until_it_ends() {
    let mut worker = Worker::start().await;
    let in_session = |id, session, entry, profile| {
        let job = Job { session: Some(JobSession { id: session, entry }), ..job(id, profile) };
        ToWorker::Run(Box::new(job))
    };
    for (id, entry) in [(1, SessionEntry::Begin), (2, SessionEntry::Continue), (3, SessionEntry::Inspect)] {
        worker.tell(&in_session(id, 7, entry, "whole")).await;
        let (done, outcome) = worker.done().await;
        assert_eq!((done, &outcome.end), (id, &End::Exited { code: 0 }));
        assert!(
            outcome.session_bytes.is_some_and(|bytes| (1..=70_000).contains(&bytes)),
            "of its one page, and the folders: {outcome:?}"
        );
    }
    worker.tell(&ToWorker::EndSession(7)).await;
    worker.tell(&in_session(4, 8, SessionEntry::Begin, "endless")).await;
    let (_, outcome) = worker.done().await;
    assert_eq!((outcome.end, outcome.session_bytes), (End::Timeout, None), "a limit ends it");
    worker.tell(&in_session(9, 9, SessionEntry::Begin, "quick")).await;
    assert_eq!(worker.done().await.1.session_bytes, None, "it has not reported its end");
    for (id, session) in [(5, 7), (6, 8), (10, 9)] {
        worker.tell(&in_session(id, session, SessionEntry::Continue, "quick")).await;
        let (_, outcome) = worker.done().await;
        assert!(matches!(&outcome.end, End::Trap(reason) if reason.contains("no session")), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_session_goes_on_from_the_state_before_a_program_that_exceeds_a_limit() {
    let mut worker = Worker::start().await;
    let in_session = |id, entry, state_bytes| {
        let job = job(id, "counts");
        let limits = JobLimits { state_bytes, ..job.limits };
        ToWorker::Run(Box::new(Job { session: Some(JobSession { id: 7, entry }), limits, ..job }))
    };
    worker.tell(&in_session(1, SessionEntry::Begin, 0)).await;
    assert_eq!(worker.done().await.1.end, End::Exited { code: 0 });
    for id in [2, 3] {
        worker.tell(&in_session(id, SessionEntry::Continue, 1 << 20)).await;
        let (done, outcome) = worker.done().await;
        assert_eq!((done, &outcome.end), (id, &End::Timeout), "the second program, each time");
        assert!(outcome.session_bytes.is_some(), "{outcome:?}");
    }
    worker.tell(&in_session(4, SessionEntry::Continue, 1)).await;
    let (_, outcome) = worker.done().await;
    assert_eq!((outcome.end, outcome.session_bytes), (End::Timeout, None), "it holds more than one byte");
}

#[tokio::test]
async fn what_cannot_be_placed_fails_its_job_alone() {
    let mut worker = Worker::start().await;
    let twice = GuestFile { path: "a".to_owned(), content: Vec::new() };
    let job = Job { files: vec![twice.clone(), twice], ..job(5, "quick") };
    worker.tell(&ToWorker::Run(Box::new(job))).await;
    assert!(matches!(worker.done().await, (5, Outcome { end: End::Trap(reason), .. }) if reason.contains("exists")));
    assert_eq!(worker.run("quick").await.end, End::Exited { code: 0 });
}

#[tokio::test]
async fn a_command_gets_the_path_of_its_program() {
    let files = TempDir::new().unwrap();
    // Exits with how many arguments there are: `python`, `-c`, and the text that fetches and runs the program.
    let command = r#"(module
        (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start")
            (drop (call $sizes (i32.const 0) (i32.const 4)))
            (call $exit (i32.load (i32.const 0)))))"#;
    let interpreter = prepared(&files, InterpreterKind::Command, [("base", command.to_owned())]);
    let mut worker = Worker::with(files, interpreter).await;
    worker.tell(&ToWorker::Run(Box::new(Job { code: "print(1)".to_owned(), ..job(1, "base") }))).await;
    assert_eq!(worker.done().await.1.end, End::Exited { code: 3 });
}

#[tokio::test]
async fn a_worker_with_another_protocol_exits() {
    for frame in [vec![255; 8], encode(&ToWorker::Cancel(1)).unwrap(), vec![3, 0, 0, 0, 9, 9, 9]] {
        let (code, reported) = end_after(&frame).await;
        assert_eq!(code, Some(1), "{frame:?}");
        assert!(reported.starts_with("sekisho: "), "{reported}");
    }
}

#[tokio::test]
async fn a_compiled_file_that_others_can_touch_is_not_loaded() {
    let files = TempDir::new().unwrap();
    let interpreter = reactors(&files);
    let path = &interpreter.profiles[0].compiled;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o646)).unwrap();
    for bad in [path.clone(), PathBuf::from("/etc/passwd"), files.path().join("missing")] {
        let mut interpreter = interpreter.clone();
        interpreter.profiles[0].compiled = bad;
        let (code, reported) = end_after(&load(interpreter)).await;
        assert_eq!(code, Some(1));
        assert!(reported.contains("cannot be loaded"), "{reported}");
    }
}

#[tokio::test]
async fn an_interpreter_that_requests_no_program_is_refused() {
    let files = TempDir::new().unwrap();
    let interpreter = prepared(&files, InterpreterKind::Reactor, [("base", reactor("(i32.const 7)"))]);
    let (code, reported) = end_after(&load(interpreter)).await;
    assert_eq!(code, Some(1));
    assert!(reported.contains("did not request a program"), "{reported}");
}

/// E26.
#[tokio::test]
async fn an_interpreter_with_a_larger_table_than_its_manifest_has_is_refused() {
    let files = TempDir::new().unwrap();
    let with_table = |elements: u32| {
        let text = reactor("(i32.const 7)");
        text.replacen("(memory ", &format!("(table {elements} funcref) (memory "), 1)
    };
    for (elements, problem) in [(10, "did not request a program"), (11, "has a table of 11 elements, of at most 10")] {
        let text = with_table(elements);
        assert!(text.contains("(table "), "{text}");
        let interpreter = prepared(&files, InterpreterKind::Reactor, [("base", text)]);
        let (code, reported) = end_after(&load(interpreter)).await;
        assert!(code == Some(1) && reported.contains(problem), "{elements}: {reported}");
    }
}
