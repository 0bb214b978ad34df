//! Runs of programs that are recorded, and played again from their files: with the same clocks and random numbers, and without a call.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PythonApp;
use crate::app::{answer, code};
use crate::approvals::KEYS;

/// Reads clocks and random numbers before its calls, between them and after them.
const PROGRAM: &str = "import random, time\n\
                       from host import tools\n\
                       first = tools.echo(at=time.time(), amount=random.random())\n\
                       waits = tools.gather(tools.sleep(ms=20), tools.sleep(ms=1))\n\
                       [first['echo'], waits, time.time(), time.monotonic(), random.random()]";

async fn app() -> PythonApp {
    let yaml = format!(
        "{KEYS}tools: {{overrides: {{python_executor: {{rate_limit: 1000000}}}}}}\nrecording: {{runs: true}}\n"
    );
    PythonApp::in_directory(TempDir::new().unwrap(), &yaml).await
}

async fn post(app: &PythonApp, path: &str, body: Value) -> (StatusCode, Value) {
    answer(app.app.post(path).bearer_auth("key-of-ann").json(&body)).await
}

async fn calls(app: &PythonApp) -> f64 {
    let mut calls = 0.0;
    for tool in ["echo", "sleep"] {
        calls +=
            app.app.metric(&format!("shannon_tool_executions_total{{status=\"success\",tool_name=\"{tool}\"}}")).await;
    }
    calls
}

#[tokio::test]
async fn a_program_is_played_again_to_the_same_result_and_calls_nothing() {
    let app = app().await;
    let (status, reply) = post(&app, "/tools/python_executor/execute", json!({"arguments": {"code": PROGRAM}})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let made = calls(&app).await;
    let run = reply["receipt"]["call_id"].as_str().unwrap();
    let path = format!("/recorded-runs/{run}");
    assert_eq!(answer(app.app.get(&path).bearer_auth("key-of-bob")).await.0, StatusCode::NOT_FOUND, "another caller");
    let (status, exported) = answer(app.app.get(&path).bearer_auth("key-of-ann")).await;
    assert_eq!(status, StatusCode::OK, "{exported}");
    let (status, again) = post(&app, "/recorded-runs/replay", json!({"file": exported["file"]})).await;
    assert_eq!((status, &again["output"]["result"]), (StatusCode::OK, &reply["output"]["result"]), "{again}");
    assert_eq!(again["receipt"]["nested"]["replayed"], 3);

    let file = exported["file"].as_str().unwrap();
    // Another answer to the shorter wait, which is in the result.
    let (answer_of_sleep, other) =
        ("\"answer\":{\"is_ok\":true,\"json\":\"1\"}", "\"answer\":{\"is_ok\":true,\"json\":\"2\"}");
    assert!(file.contains(answer_of_sleep), "{file}");
    let changed = json!({"file": file.replace(answer_of_sleep, other)});
    let (status, refused) = post(&app, "/recorded-runs/replay", changed).await;
    assert_eq!((status, code(&refused)), (StatusCode::CONFLICT, "replay_diverged"), "{refused}");
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("another digest")), "{refused}");
    // A program that makes another call than the one in the file.
    let missing = file.lines().filter(|line| !line.contains("\"tool\":\"echo\"")).collect::<Vec<_>>().join("\n");
    assert_ne!(missing.lines().count(), file.lines().count());
    let (status, refused) = post(&app, "/recorded-runs/replay", json!({"file": missing})).await;
    assert_eq!((status, code(&refused)), (StatusCode::CONFLICT, "replay_diverged"), "{refused}");
    // In a session, nothing would have the answers of the file.
    let in_session = file.replacen("\"arguments\":{", "\"arguments\":{\"session\":\"s\",", 1);
    assert_ne!(in_session, file);
    let (status, refused) = post(&app, "/recorded-runs/replay", json!({"file": in_session})).await;
    assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "{refused}");
    assert!((calls(&app).await - made).abs() < f64::EPSILON, "nothing was called again");
}
