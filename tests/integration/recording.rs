//! Runs of agents that are recorded, exported and played again, and policies that are evaluated about recorded decisions.

use std::fs;
use std::path::{Path, PathBuf};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::cli::{sekisho, text};

const KEYS: &str = "auth: {anonymous: never, api_keys: [{id: ann, key: key-of-ann}, {id: bob, key: key-of-bob}]}\n";

/// Calls a tool, and answers.
const SCRIPT: &str =
    "turns:\n- calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"6*7\"}'}]\n- text: [It is 42.]\n";

async fn app(recording: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("talk.yaml");
    fs::write(&script, SCRIPT).unwrap();
    let agent =
        format!("{{default_profile: talk, profiles: {{talk: {{provider: replay, model: '{}'}}}}}}", script.display());
    TestApp::in_directory(directory, &format!("{KEYS}agent: {agent}\nrecording: {recording}\n")).await
}

/// Runs the agent in a conversation; the id of the run.
async fn ran(app: &TestApp) -> String {
    let (_, conversation) = answer(app.post("/api/conversations").bearer_auth("key-of-ann").json(&json!({}))).await;
    let id = conversation["id"].as_str().unwrap_or_else(|| panic!("{conversation}")).to_owned();
    let run = app.post(&format!("/api/conversations/{id}/execute")).bearer_auth("key-of-ann");
    let (status, reply) = answer(run.json(&json!({"user_input": "What is 6*7?", "stream": false}))).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let (_, runs) = answer(app.get(&format!("/api/conversations/{id}/runs")).bearer_auth("key-of-ann")).await;
    runs["runs"][0]["id"].as_str().unwrap_or_else(|| panic!("{runs}")).to_owned()
}

async fn get(app: &TestApp, path: &str, key: &str) -> (StatusCode, Value) {
    answer(app.get(path).bearer_auth(key)).await
}

/// The run of the agent as a file, and its folder.
async fn exported(app: &TestApp) -> (TempDir, PathBuf) {
    let run = ran(app).await;
    let (status, body) = get(app, &format!("/recorded-runs/{run}"), "key-of-ann").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.jsonl");
    fs::write(&file, body["file"].as_str().unwrap()).unwrap();
    (folder, file)
}

fn replay(folder: &TempDir, file: &Path, options: &[&str]) -> (Option<i32>, Value) {
    let mut command = sekisho(folder);
    let output = command.args(["--json", "runs", "replay", file.to_str().unwrap()]).args(options).output().unwrap();
    let shown = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| Value::String(text(&output)));
    (output.status.code(), shown)
}

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn nothing_is_recorded_by_default() {
    let app = app("{}").await;
    ran(&app).await;
    let (status, page) = get(&app, "/recorded-runs", "key-of-ann").await;
    assert_eq!((status, &page["items"]), (StatusCode::OK, &json!([])));
}

#[tokio::test]
async fn a_recorded_run_is_its_callers_and_is_played_again_without_a_gateway() {
    let app = app("{runs: true}").await;
    let (folder, file) = exported(&app).await;
    let (_, page) = get(&app, "/recorded-runs", "key-of-ann").await;
    let listed = &page["items"][0];
    assert_eq!((&listed["kind"], &listed["name"]), (&json!("agent"), &json!("talk")), "{page}");
    let path = format!("/recorded-runs/{}", listed["id"].as_str().unwrap());
    assert_eq!(get(&app, &path, "key-of-bob").await.0, StatusCode::NOT_FOUND, "of another caller");
    assert_eq!(get(&app, "/recorded-runs", "key-of-bob").await.1["items"], json!([]));
    let (_, sealed) = get(&app, &format!("{path}?sealed=true"), "key-of-ann").await;
    let open =
        async |key: &str, body: &Value| answer(app.post("/recorded-runs/open").bearer_auth(key).json(body)).await;
    assert!(!sealed["file"].as_str().unwrap().contains("calculator"), "{sealed}");
    assert_eq!(open("key-of-ann", &sealed).await.1["file"], fs::read_to_string(&file).unwrap());
    assert_eq!(open("key-of-bob", &sealed).await.0, StatusCode::BAD_REQUEST, "of another caller");
    let lines = lines(&file);
    let kinds: Vec<_> = lines.iter().map(|line| line["line"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["header", "agent_input", "model_answer", "tool_call", "model_answer", "end"]);
    assert_eq!(lines[3]["arguments"], json!({"expression": "6*7"}));
    // The script and the gateway are not needed, and not there.
    drop(app);
    let (code, shown) = replay(&folder, &file, &[]);
    assert_eq!((code, &shown["equal"], &shown["answer"]), (Some(0), &json!(true), &json!("It is 42.")), "{shown}");
    assert_eq!((&shown["further_requests"], &shown["further_calls"]), (&json!(0), &json!(0)));
    assert_eq!(shown["result_sha256"], lines[5]["result_sha256"]);
}

#[tokio::test]
async fn a_file_that_was_changed_differs_and_a_changed_call_goes_on() {
    let app = app("{runs: true}").await;
    let (folder, file) = exported(&app).await;
    let call = lines(&file)[3]["id"].as_str().unwrap().to_owned();
    let other = fs::read_to_string(&file).unwrap().replace("\"text\":\"42\"", "\"text\":\"43\"");
    let changed = folder.path().join("changed.jsonl");
    fs::write(&changed, other).unwrap();
    let (code, shown) = replay(&folder, &changed, &[]);
    assert_eq!((code, &shown["equal"]), (Some(1), &json!(false)), "{shown}");
    let script = folder.path().join("other.yaml");
    fs::write(&script, SCRIPT.replace("It is 42.", "It is 43.")).unwrap();
    let (change, model) = (format!("call={call}"), format!("replay:{}", script.display()));
    let (code, shown) = replay(&folder, &file, &["--change", &change, "output=43", "--model", &model]);
    assert_eq!((code, &shown["answer"]), (Some(0), &json!("It is 43.")), "{shown}");
    let (code, shown) = replay(&folder, &file, &["--change", "call=nobody", "output=43"]);
    assert!(code == Some(2) && shown.as_str().is_some_and(|text| text.contains("calculator")), "{shown}");
}

#[tokio::test]
async fn other_policies_are_evaluated_about_recorded_decisions() {
    let app = app("{decisions: true}").await;
    for key in ["key-of-ann", "key-of-bob"] {
        let call = app.post("/tools/calculator/execute").bearer_auth(key);
        let (status, reply) = answer(call.json(&json!({"arguments": {"expression": "1+1"}}))).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    let trail = app.gateway.configuration().current().audit_file();
    let folder = TempDir::new().unwrap();
    let write = |name: &str, condition: &str| {
        let policies = folder.path().join(name);
        fs::create_dir(&policies).unwrap();
        let rego = format!("package tools\nimport rego.v1\ndeny contains \"not ann\" if {{ {condition} }}\n");
        fs::write(policies.join("a.rego"), rego).unwrap();
        policies.display().to_string()
    };
    let (stricter, same) = (write("stricter", "input.user.id == \"ann\""), write("same", "input.user.id == \"eve\""));
    let replay = |policies: &str| {
        let arguments = ["--json", "policy", "replay", policies, "--since", "1d", "--file", trail.to_str().unwrap()];
        let output = sekisho(&folder).args(arguments).output().unwrap();
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
        (output.status.code(), shown)
    };
    // A line is on the disk within 50 ms.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while replay(&same).1["decisions"] != 2 {
        assert!(std::time::Instant::now() < until, "two lines");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(replay(&same).0, Some(0));
    let (code, shown) = replay(&stricter);
    assert_eq!(
        (code, &shown["same"], &shown["changed"], &shown["unknown"]),
        (Some(1), &json!(1), &json!(1), &json!(0))
    );
    let change = &shown["changes"][0];
    assert_eq!(
        (&change["before"], &change["after"], &change["rule"], &change["tool"]),
        (&json!("allow"), &json!("deny"), &json!("not ann"), &json!("calculator")),
        "{shown}"
    );
}

#[tokio::test]
async fn policies_beside_the_live_ones_are_counted_and_decide_nothing() {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("shadow");
    fs::create_dir(&policies).unwrap();
    fs::write(
        policies.join("a.rego"),
        "package tools\nimport rego.v1\ndeny contains \"no\" if input.tool == \"calculator\"\n",
    )
    .unwrap();
    let app = TestApp::in_directory(directory, &format!("policy: {{shadow: '{}'}}\n", policies.display())).await;
    let call = app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "1+1"}}));
    let (status, reply) = answer(call).await;
    assert_eq!((status, &reply["output"]), (StatusCode::OK, &json!(2)), "{reply}");
    let differences = "shannon_policy_shadow_differences_total{decision=\"allow\",shadow=\"deny\"}";
    assert!((app.metric(differences).await - 1.0).abs() < f64::EPSILON);
}
