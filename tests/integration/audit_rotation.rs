//! The segments of the audit trail, and what becomes of it when others move it or cut it off.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use sekisho::testing::verify_audit;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};
use crate::slack::slack;

/// A gateway of the real program.
struct Running {
    serving: Serving,
    client: Client,
    file: PathBuf,
}

impl Running {
    fn start(directory: &TempDir, yaml: &str) -> Self {
        fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
        let serving = Serving::start_with(directory, &["--config", "sekisho.yaml"]);
        let client = Client::builder().no_proxy().build().unwrap();
        Self { serving, client, file: directory.path().join("state/audit.jsonl") }
    }

    async fn call(&self) -> StatusCode {
        let request = self.client.post(format!("{}/tools/calculator/execute", self.serving.url));
        request.json(&json!({"arguments": {"expression": "6*7"}})).send().await.unwrap().status()
    }

    async fn ready(&self) -> (StatusCode, Value) {
        let response = self.client.get(format!("{}/readyz", self.serving.url)).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    /// Waits until `/readyz` names this component.
    async fn until_degraded(&self, component: &str) -> (StatusCode, Value) {
        until(|| async {
            let (status, ready) = self.ready().await;
            ready["degraded"][component].is_string().then_some((status, ready))
        })
        .await
    }

    fn signal(&self, name: &str) {
        let pid = self.serving.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.serving.wait().success());
    }
}

async fn until<T, F: Future<Output = Option<T>>>(found: impl Fn() -> F) -> T {
    let end = Instant::now() + slack(Duration::from_secs(20));
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(Instant::now() < end, "it did not happen in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn segments(file: &Path) -> Vec<PathBuf> {
    let is_closed = |name: &str| name.starts_with("audit-0") && name.ends_with(".jsonl");
    let entries = fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut closed: Vec<_> =
        entries.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_closed)).collect();
    closed.sort();
    closed
}

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_under_load_starts_a_segment_and_loses_no_line() {
    let directory = TempDir::new().unwrap();
    let yaml = "limits: {caller_rate_limit: 1000000}\ntools: {overrides: {calculator: {rate_limit: 1000000}}}";
    let running = std::sync::Arc::new(Running::start(&directory, yaml));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (running, stop) = (running.clone(), stop.clone());
            tokio::spawn(async move {
                let mut calls = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(running.call().await, StatusCode::OK);
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for closed in 1..=3 {
        // A segment without calls is not closed.
        let written = || fs::read_to_string(&running.file).unwrap_or_default().lines().count();
        until(|| async { (written() > 2).then_some(()) }).await;
        running.signal("-HUP");
        until(|| async { (segments(&running.file).len() >= closed).then_some(()) }).await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    let file = running.file.clone();
    std::sync::Arc::into_inner(running).unwrap().stop();
    let files = [segments(&file), vec![file.clone()]].concat();
    let written = files.iter().flat_map(|file| lines(file)).filter(|line| line["call_id"].is_string()).count();
    assert_eq!(written, calls);
    let verified = verify_audit(&file).unwrap();
    assert_eq!((verified.segments, verified.damages.len()), (files.len(), 0));
    let shown = sekisho(&directory).args(["--json", "audit", "verify"]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["whole"], &shown["segments"]), (&json!(true), &json!(files.len())));
}

/// What is done to the file, and how it is called.
type Rotation = (&'static str, fn(&Path));

/// Both usual ways of rotating a log file.
const ROTATIONS: [Rotation; 2] = [
    ("rename", |file| fs::rename(file, file.with_extension("jsonl.1")).unwrap()),
    ("copytruncate", |file| {
        fs::copy(file, file.with_extension("jsonl.1")).unwrap();
        OpenOptions::new().write(true).open(file).unwrap().set_len(0).unwrap();
    }),
];

#[tokio::test]
async fn a_trail_that_others_rotate_is_stated_and_neither_calls_nor_the_next_start_fail() {
    for (what, rotate) in ROTATIONS {
        let directory = TempDir::new().unwrap();
        let running = Running::start(&directory, "audit: {durability: strict}");
        assert_eq!(running.call().await, StatusCode::OK);
        rotate(&running.file);
        running.signal("-HUP");
        let (status, ready) = running.until_degraded("audit_chain").await;
        assert_eq!((status, &ready["status"]), (StatusCode::OK, &json!("degraded")), "{what}: {ready}");
        assert_eq!(running.call().await, StatusCode::OK, "{what}");
        let file = running.file.clone();
        running.stop();

        let running = Running::start(&directory, "audit: {durability: strict}");
        assert_eq!(running.call().await, StatusCode::OK, "{what}: after the next start");
        assert!(running.ready().await.1["degraded"]["audit_chain"].is_null(), "{what}");
        running.stop();
        let verified = verify_audit(&file).unwrap();
        assert_eq!(verified.damages.len(), 1, "{what}");
        assert_eq!(verified.damages[0].stated.last_line, 1, "{what}");
        let shown = sekisho(&directory).args(["audit", "verify"]).output().unwrap();
        assert_eq!(shown.status.code(), Some(1), "{what}: lines are missing");
        assert!(text(&shown).contains("a new chain begins with line 2"), "{what}: {}", text(&shown));
    }
}

#[tokio::test]
async fn under_refuse_calls_and_the_next_start_are_refused() {
    for (what, rotate) in ROTATIONS {
        let directory = TempDir::new().unwrap();
        let running = Running::start(&directory, "audit: {durability: strict, on_damage: refuse}");
        assert_eq!(running.call().await, StatusCode::OK);
        rotate(&running.file);
        let (status, ready) = running.until_degraded("audit").await;
        assert_eq!((status, &ready["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("unavailable")), "{what}");
        assert_eq!(running.call().await, StatusCode::SERVICE_UNAVAILABLE, "{what}");
        running.stop();
        let started = sekisho(&directory).args(["serve", "--config", "sekisho.yaml"]).output().unwrap();
        assert_eq!(started.status.code(), Some(4), "{what}");
        assert!(text(&started).contains("audit.on_damage"), "{what}: {}", text(&started));
    }
}

#[tokio::test]
async fn a_trail_that_is_restored_without_its_head_goes_on_with_a_warning() {
    let directory = TempDir::new().unwrap();
    let running = Running::start(&directory, "audit: {on_damage: refuse}");
    assert_eq!(running.call().await, StatusCode::OK);
    let file = running.file.clone();
    running.stop();
    fs::remove_file(file.with_extension("jsonl.head")).unwrap();
    let called = sekisho(&directory).args(["call", "calculator", r#"{"expression": "1"}"#]).output().unwrap();
    assert_eq!(called.status.code(), Some(0), "{}", text(&called));
    assert!(text(&called).contains("has no head"), "{}", text(&called));
    assert!(verify_audit(&file).is_ok());
}
