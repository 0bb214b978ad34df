//! Checks by third-party programs. Ignored by default: `scripts/test` installs what they need.

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
async fn schemathesis_finds_nothing_undescribed() {
    // Tools that answer with a server error, or not at all, are found by the links between routes.
    let hidden = ["sleep", "panic", "flood", "flaky"].map(|tool| format!("{tool}: {{hidden: true}}")).join(", ");
    let directory = tempfile::TempDir::new().unwrap();
    let script = directory.path().join("patient.yaml");
    // A conversation longer than any generated here: there is no model that could fail.
    std::fs::write(&script, format!("turns:\n{}", "  - text: [Hello.]\n".repeat(2_000))).unwrap();
    let agents = format!(
        "agent: {{default_profile: patient, profiles: {{patient: {{provider: replay, model: {}}}}}}}",
        script.display()
    );
    let app = TestApp::with(&format!("tools: {{overrides: {{{hidden}}}}}\n{agents}")).await;
    let program = std::env::var("SCHEMATHESIS").expect("SCHEMATHESIS names the program");
    let url = format!("{}/openapi.json", app.url);
    let judged = tokio::task::spawn_blocking(move || {
        Command::new(program)
            // Whether data is good is for each tool's own schema to say, which the description does not know;
            // and a batch tells what is wrong with one of its calls in that call's reply.
            .args(["run", &url, "--checks", "all"])
            .args(["--exclude-checks", "positive_data_acceptance,negative_data_rejection"])
            .args(["--max-examples", "40", "--seed", "1", "--request-timeout", "20"])
            .output()
            .unwrap()
    })
    .await
    .unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}
