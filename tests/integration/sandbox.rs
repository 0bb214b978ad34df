//! Untrusted Python through the whole service: the real interpreter in real worker processes.
//!
//! They need the interpreter set up (`scripts/setup_python_wasi.sh`, which `scripts/test` runs first) and
//! fail without it, saying so.

mod attacks;
mod calls;
mod code_mode;
mod command;
mod console;
mod examples;
mod flow;
mod isolation;
mod load;
mod profiles;
mod programs;
mod proposals;
mod python_tools;
mod recorded_runs;
mod resumed_runs;
mod sent_bytes;
mod sessions;
mod snippets;
mod stored_results;

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::app::{TestApp, answer};
use crate::slack::slack;

/// Deadlines are to be kept and worker processes counted: one of these tests at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A gateway whose workers are ready.
struct PythonApp {
    app: TestApp,
    _alone: MutexGuard<'static, ()>,
}

impl PythonApp {
    async fn start() -> Self {
        Self::with("", "").await
    }

    /// With settings of the tool, and of the sandbox, as the inside of a YAML mapping.
    async fn with(tool: &str, sandbox: &str) -> Self {
        let yaml = format!(
            "{{tools: {{overrides: {{python_executor: {{rate_limit: 1000000, {tool}}}}}}}, sandbox: {{{sandbox}}}}}"
        );
        Self::in_directory(TempDir::new().unwrap(), &yaml).await
    }

    async fn in_directory(directory: TempDir, yaml: &str) -> Self {
        let alone = ALONE.lock().await;
        let app = Self { app: TestApp::in_directory(directory, yaml).await, _alone: alone };
        app.wait_until_ready().await;
        app
    }

    /// Runs a program that must go well, and gives the tool's output.
    async fn run(&self, code: &str) -> Value {
        self.run_with(json!({"code": code})).await
    }

    async fn run_with(&self, arguments: Value) -> Value {
        let (status, mut reply) = self.call(arguments).await;
        assert!(status == StatusCode::OK && reply["success"] == true, "{status}: {reply}");
        reply["output"].take()
    }

    async fn call(&self, arguments: Value) -> (StatusCode, Value) {
        self.app.call("python_executor", arguments).await
    }

    async fn wait_until_ready(&self) {
        let patience = tokio::time::Instant::now() + slack(Duration::from_secs(30));
        loop {
            let (status, reply) = self.call(json!({"code": ""})).await;
            if status == StatusCode::OK {
                return;
            }
            let (_, ready) = answer(self.app.get("/readyz")).await;
            let is_late = tokio::time::Instant::now() > patience;
            assert!(ready["degraded"]["sandbox"].is_null() && !is_late, "{ready}\n{reply}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        self.app.metric(&format!("shannon_sandbox_{name}")).await
    }

    /// Waits until no run is left, and gives how long that took.
    async fn idle(&self) -> Duration {
        let begun = tokio::time::Instant::now();
        while self.metric("runs_live").await > 0.0 {
            assert!(begun.elapsed() < slack(Duration::from_secs(20)), "a run is left");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        begun.elapsed()
    }
}

/// A field of `/proc/<pid>/status`.
fn status_of(pid: u32, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The worker processes of this test's gateway.
fn workers() -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_worker = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.ends_with(b"sandbox\0worker\0") && status_of(*pid, "PPid") == Some(std::process::id().into())
    };
    ids.filter(is_worker).collect()
}
