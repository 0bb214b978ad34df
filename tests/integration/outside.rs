//! Judged by programs that are not ours. Ignored unless asked for: `scripts/test` installs what they need.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::app::TestApp;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs promtool (Debian package prometheus)"]
async fn promtool_accepts_the_metrics() {
    let app = TestApp::start().await;
    app.call("calculator", json!({"expression": "1"})).await;
    app.call("upstream", json!({"answer": "down"})).await;
    let text = app.metrics().await;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let judged = promtool.wait_with_output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs schemathesis, named by the variable SCHEMATHESIS"]
async fn schemathesis_finds_no_server_error() {
    let app = TestApp::with("tools: {overrides: {sleep: {hidden: true}, panic: {hidden: true}}}").await;
    let program = std::env::var("SCHEMATHESIS").expect("SCHEMATHESIS names the program");
    let url = format!("{}/openapi.json", app.url);
    let judged = tokio::task::spawn_blocking(move || {
        Command::new(program)
            .args(["run", &url, "--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"])
            .args(["--max-examples", "40", "--seed", "1", "--request-timeout", "20"])
            .output()
            .unwrap()
    })
    .await
    .unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}
