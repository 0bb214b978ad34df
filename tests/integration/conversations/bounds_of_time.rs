//! Which run goes on when several ask at once, and for how long.

use std::time::{Duration, Instant};

use sekisho::testing::Store;
use serde_json::json;
use tempfile::TempDir;

use super::{create, ended, events, get, hello, names, ran, streamed, until};
use crate::agents::with_scripts;
use crate::app::TestApp;
use crate::slack::slack;

/// Of three requests, the second and third of which interrupt, the last one goes on, whichever gets the lock first.
#[tokio::test]
async fn of_requests_that_interrupt_the_last_one_goes_on() {
    let app = with_scripts(&[("slow", "turns: [{text: [one], delay_seconds: 60}]")]).await;
    let id = create(&app, json!({"agent": "slow"})).await;
    let mut first = streamed(&app, &id, &hello()).send().await.unwrap();
    until(&mut first, |event| event.name == "system").await;
    let interrupting = json!({"user_input": "Now?", "on_busy": "interrupt"});
    // Its run exists once the headers are here.
    let second = streamed(&app, &id, &interrupting).send().await.unwrap();
    let of_second = second.headers()["x-run-id"].to_str().unwrap().to_owned();
    let third = ran(&app, &id, json!({"user_input": "Now!", "on_busy": "interrupt", "model": "weather"})).await;
    assert_eq!(third["status"], "succeeded", "{third}");
    let told = second.text().await.unwrap();
    assert!(told.contains("a later request of the conversation interrupted the run"), "{told}");
    let runs = get(&app, &format!("/api/conversations/{id}/runs")).await;
    let runs = runs["runs"].as_array().unwrap();
    assert_eq!(runs[0]["status"], "succeeded", "{runs:?}");
    assert!(runs[1..].iter().all(|run| run["status"] == "cancelled"), "{of_second}: {runs:?}");
}

/// As when its process was suspended for longer than its lock is held.
#[tokio::test]
async fn a_run_that_lost_its_lock_ends_with_an_error_that_says_so() {
    let app = with_scripts(&[("slow", "turns: [{text: [one], delay_seconds: 1}]")]).await;
    let id = create(&app, json!({"agent": "slow"})).await;
    let mut run = streamed(&app, &id, &hello()).send().await.unwrap();
    until(&mut run, |event| event.name == "system").await;
    let store = Store::open_file(&app.directory.path().join("state/sekisho.db")).await.unwrap();
    for table in ["conversations", "work"] {
        store.change_rows(&format!("UPDATE {table} SET holder = 'other', fence = fence + 1")).await;
    }
    let told = until(&mut run, |event| event.name == "error").await;
    let error = &told.last().unwrap().data;
    assert_eq!((&error["code"], &error["retryable"]), (&json!("CONVERSATION_LOCKED"), &json!(true)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("lost the lock of its conversation"), "{error}");
}

/// Each part of the plan is done within the second that the profile allows, all of them are not.
#[tokio::test]
async fn the_time_limit_of_a_run_is_one_of_its_whole_plan() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("plan.yaml");
    let said = |text: &str| json!([{"text": [text], "delay_seconds": 0.7}]);
    let long = "A result that is longer than the fifty characters below which it is evaluated.";
    let plan = json!({
        "planner": [said(r#"{"steps": ["a", "b", "c"]}"#)],
        "attempts": [said(long), said(long), said(long)],
        "answer": said("done"),
    });
    std::fs::write(&script, json!({"turns": [], "plan": plan}).to_string()).unwrap();
    let yaml = format!(
        "agent: {{default_profile: planned, profiles: {{planned: {{provider: replay, model: '{}', max_run_seconds: 1, \
         planner: {{preset: steps}}}}}}}}\n",
        script.display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let id = create(&app, json!({})).await;
    let begun = Instant::now();
    let told = events(streamed(&app, &id, &hello())).await;
    assert!(begun.elapsed() < slack(Duration::from_secs(3)), "{:?}: it takes 3.5 s", begun.elapsed());
    assert_eq!(names(&told)[told.len() - 2..], ["result", "system"], "{told:?}");
    let result = &told[told.len() - 2].data;
    assert_eq!(
        (&result["is_error"], &result["errors"][0]),
        (&json!(true), &json!("the run took too long and was stopped"))
    );
    let run = ended(&app, told[0].data["run_id"].as_str().unwrap()).await;
    assert_eq!(run["status"], "timed_out", "{run}");
}
