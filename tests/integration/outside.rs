//! Checks by third-party programs. Ignored by default: `scripts/compat` installs what they need.

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

/// The description is valid, has no finding of a linter, and clients in two languages that are generated from it call
/// the gateway.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Spectral, openapi-spec-validator and generators, in the folder OPENAPI_TOOLS"]
async fn generated_clients_call_the_gateway() {
    let tools = std::path::PathBuf::from(std::env::var("OPENAPI_TOOLS").unwrap());
    let (python, node) = (tools.join("python/bin"), tools.join("node_modules/.bin"));
    let app = TestApp::start().await;
    let directory = tempfile::TempDir::new().unwrap();
    let folder = directory.path();
    let document = app.get("/openapi.json").send().await.unwrap().text().await.unwrap();
    std::fs::write(folder.join("openapi.json"), document).unwrap();
    std::fs::write(folder.join("ruleset.yaml"), "extends: [\"spectral:oas\"]").unwrap();
    std::fs::write(folder.join("package.json"), r#"{"type": "module"}"#).unwrap();
    std::os::unix::fs::symlink(tools.join("node_modules"), folder.join("node_modules")).unwrap();
    for (name, text) in [
        ("call_tool.py", include_str!("../../examples/openapi-clients/call_tool.py")),
        ("call-tool.ts", include_str!("../../examples/openapi-clients/call-tool.ts")),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let run = |program: std::path::PathBuf, arguments: &[&str]| {
        let mut command = Command::new(program);
        let ran = command.args(arguments).current_dir(folder).env("SEKISHO_URL", &app.url).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{command:?}: {said}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    run(python.join("openapi-spec-validator"), &["openapi.json"]);
    run(node.join("spectral"), &["lint", "--ruleset", "ruleset.yaml", "--fail-severity", "warn", "openapi.json"]);
    let generate = ["generate", "--path", "openapi.json", "--meta", "none", "--output-path", "sekisho_client"];
    run(python.join("openapi-python-client"), &generate);
    run(node.join("openapi-typescript"), &["openapi.json", "-o", "sekisho.d.ts"]);
    run(node.join("tsc"), &["--strict", "--target", "es2022", "--module", "nodenext", "call-tool.ts"]);
    let call = ["calculator", r#"{"expression": "6*7"}"#];
    assert_eq!(run(python.join("python"), &["call_tool.py", call[0], call[1]]), "42\n");
    assert_eq!(run("node".into(), &["call-tool.js", call[0], call[1]]), "42\n");
}
