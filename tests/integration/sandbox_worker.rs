//! The worker process, driven over its socket as the gateway does, with small modules in place of Python.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sekisho::sandbox::compiled::CompiledFolder;
use sekisho::sandbox::engine::{Pool, engine, fingerprint};
use sekisho::sandbox::frame::{
    End, Frames, FromWorker, GuestFile, Job, JobId, JobLimits, Load, Outcome, ToWorker, encode,
};
use sekisho::sandbox::interpreter::Kind;
use sekisho::sandbox::prepare::{Prepared, PreparedProfile};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Longer than anything here takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a reactor's `turn` does, by the name of its profile. The program's first byte stands at 4096.
const TURNS: [(&str, &str); 5] = [
    ("quick", "(i32.const 0)"),
    ("endless", "(loop (br 0)) (i32.const 0)"),
    // Sleeps for an hour.
    ("asleep", "(call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))"),
    ("broken", "unreachable"),
    // 0 when this is the first run of this memory, 1 when an earlier run wrote to it.
    ("writes", "(i32.load8_u (i32.const 60000)) (i32.store8 (i32.const 60000) (i32.const 1))"),
];

struct Worker {
    child: Child,
    messages: Frames<OwnedReadHalf>,
    gateway: OwnedWriteHalf,
    missing_walls: Vec<String>,
    _files: TempDir,
}

fn module(turn: &str) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            ;; A subscription to the monotonic clock, for 3600 s.
            (data (i32.const 16) "\01")
            (data (i32.const 24) "\00\a0\b8\30\46\03")
            (func (export "host_alloc") (param i32) (result i32) (i32.const 4096))
            (func (export "turn") (param i32 i32) (result i32) {turn}))"#
    )
}

fn prepared(files: &TempDir) -> Prepared {
    let engine = engine(Pool::default()).unwrap();
    let folder = CompiledFolder::open(&files.path().join("compiled"), &fingerprint(&engine)).unwrap();
    let profiles = TURNS.map(|(name, turn)| {
        let compiled = engine.precompile_module(&wat::parse_str(module(turn)).unwrap()).unwrap();
        PreparedProfile { name: name.to_owned(), compiled: folder.store(name, &compiled).unwrap() }
    });
    Prepared {
        kind: Kind::Reactor,
        arguments: vec!["python".to_owned()],
        environment: [].into(),
        mounts: Vec::new(),
        profiles: profiles.into(),
    }
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
        let interpreter = prepared(&files);
        let (gateway, child) = spawn();
        let (messages, mut gateway) = gateway.into_split();
        let mut messages = Frames::new(messages);
        let load = Load { interpreter, instances: 40, data_files: Vec::new() };
        gateway.write_all(&encode(&ToWorker::Load(Box::new(load))).unwrap()).await.unwrap();
        let ready = timeout(PATIENCE, messages.next()).await.unwrap().unwrap();
        let Some(FromWorker::Ready { missing_walls }) = ready else { panic!("{ready:?}") };
        Self { child, messages, gateway, missing_walls, _files: files }
    }

    async fn tell(&mut self, message: &ToWorker) {
        self.gateway.write_all(&encode(message).unwrap()).await.unwrap();
    }

    async fn begin(&mut self, id: JobId, profile: &str) {
        self.tell(&ToWorker::Run(Box::new(job(id, profile)))).await;
    }

    async fn done(&mut self) -> (JobId, Outcome) {
        match timeout(PATIENCE, self.messages.next()).await.unwrap().unwrap() {
            Some(FromWorker::Done(id, outcome)) => (id, *outcome),
            other => panic!("{other:?}"),
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
        stdin: Vec::new(),
        files: Vec::new(),
        limits: JobLimits {
            wall_time: Duration::from_millis(300),
            memory_bytes: 16 << 20,
            stream_bytes: 1 << 10,
            result_bytes: 1 << 10,
            file_bytes: 1 << 10,
            max_files: 10,
            max_open_files: 10,
            random_bytes: 10,
            host_calls: 10,
        },
    }
}

#[tokio::test]
async fn a_worker_stands_behind_all_walls_and_runs_jobs_until_the_gateway_is_gone() {
    let mut worker = Worker::start().await;
    assert_eq!(worker.missing_walls, [""; 0]);
    for _ in 0..3 {
        assert_eq!(worker.run("quick").await.end, End::Exited { code: 0 });
    }
    assert_eq!(worker.run("endless").await.end, End::Timeout);
    assert_eq!(worker.run("asleep").await.end, End::Timeout);
    assert!(matches!(worker.run("broken").await.end, End::Trap(_)));
    assert!(matches!(worker.run("nameless").await.end, End::Trap(_)));
    drop(worker.gateway);
    let status = timeout(PATIENCE, worker.child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn every_run_has_a_memory_that_nobody_wrote_to() {
    let mut worker = Worker::start().await;
    for _ in 0..50 {
        assert_eq!(worker.run("writes").await.end, End::Exited { code: 0 });
    }
}

#[tokio::test]
async fn a_cancelled_job_stops_at_once_whatever_else_runs() {
    let mut worker = Worker::start().await;
    for id in 1..=20 {
        worker.begin(id, if id % 2 == 0 { "endless" } else { "asleep" }).await;
    }
    for id in [20, 1, 2, 19] {
        let asked = Instant::now();
        worker.tell(&ToWorker::Cancel(id)).await;
        let (done, outcome) = worker.done().await;
        assert_eq!((done, outcome.end), (id, End::Cancelled));
        assert!(asked.elapsed() < Duration::from_millis(100), "{id}: {:?}", asked.elapsed());
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
async fn what_cannot_be_placed_fails_its_job_alone() {
    let mut worker = Worker::start().await;
    let twice = GuestFile { path: "a".to_owned(), content: Vec::new() };
    let job = Job { files: vec![twice.clone(), twice], ..job(5, "quick") };
    worker.tell(&ToWorker::Run(Box::new(job))).await;
    assert!(matches!(worker.done().await, (5, Outcome { end: End::Trap(reason), .. }) if reason.contains("exists")));
    assert_eq!(worker.run("quick").await.end, End::Exited { code: 0 });
}

#[tokio::test]
async fn a_worker_that_does_not_understand_the_gateway_ends() {
    let frames = [vec![255; 8], encode(&ToWorker::Cancel(1)).unwrap(), vec![3, 0, 0, 0, 9, 9, 9]];
    for frame in frames {
        let (mut gateway, child) = spawn();
        gateway.write_all(&frame).await.unwrap();
        let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(1), "{frame:?}");
        assert!(output.stderr.starts_with(b"sekisho: "), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn a_compiled_file_that_others_can_touch_is_not_loaded() {
    let files = TempDir::new().unwrap();
    let interpreter = prepared(&files);
    let path = &interpreter.profiles[0].compiled;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    for bad in [path.clone(), PathBuf::from("/etc/passwd"), files.path().join("missing")] {
        let mut interpreter = interpreter.clone();
        interpreter.profiles[0].compiled = bad;
        let (mut gateway, child) = spawn();
        let load = Load { interpreter, instances: 1, data_files: Vec::new() };
        gateway.write_all(&encode(&ToWorker::Load(Box::new(load))).unwrap()).await.unwrap();
        let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be loaded"));
    }
}
