//! Runs that go on without a client.

use super::*;

/// One call is answered at once, then one is paid for.
const SCRIPT: &str = r#"
turns:
  - text: ["I pay."]
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: b, tool: bank__pay, arguments: '{}'}
  - text: ["Paid."]
"#;

/// A point, and the payments that have reached the bank once the run has ended. A call that was begun is not sent again: it may
/// have happened.
const CASES: [(&str, usize); 13] = [
    ("background.begins", 1),
    ("run.locked", 1),
    ("run.begun", 1),
    ("call.intent", 1),
    ("call.begun", 0),
    ("call.intent:2", 0),
    ("call.begun:2", 0),
    ("call.answered:2", 1),
    ("call.recorded:2", 1),
    ("run.ended", 1),
    ("run.storing", 1),
    ("run.stored", 1),
    ("background.ended", 1),
];

#[tokio::test]
async fn a_run_in_the_background_that_is_killed_at_any_step_ends_by_itself_and_pays_once() {
    play_all(CASES, |(point, payments)| play(Engine::Sqlite, point, payments)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_run_in_the_background_that_is_killed_at_any_step_ends_by_itself_and_pays_once() {
    play_all(CASES, |(point, payments)| play(Engine::PostgreSql, point, payments)).await;
}

async fn play(engine: Engine, point: &'static str, payments: usize) {
    let bank = Bank::new(engine, SCRIPT, "parallel_tool_calls: 1").await;
    let serving = bank.start(Some(point)).await;
    let body = json!({"user_input": "Pay."});
    // The process may end before the answer is sent.
    let _answered = bank.client.post(format!("{}/api/runs", serving.url)).json(&body).send().await;
    Bank::killed(serving, point).await;

    let serving = bank.start(None).await;
    let begun = Instant::now();
    let run = loop {
        let list = bank.get(&serving, "/api/runs").await;
        if list["items"][0]["ended_at"].is_string() {
            break list["items"][0].clone();
        }
        assert!(begun.elapsed() < slack(MAX_WAIT * 2), "{point}: {list}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(run["status"], "succeeded", "{point}: {run}");
    assert_eq!(bank.payments(), payments, "{point}: {:?}", bank.keys);
    let shown = bank.get(&serving, &format!("/api/runs/{}", run["id"].as_str().unwrap())).await;
    assert_eq!((&shown["result"], &shown["run_id"]), (&json!("Paid."), &run["run_id"]), "{point}: {shown}");
    let path = format!("/api/conversations/{}", run["conversation_id"].as_str().unwrap());
    let messages = bank.get(&serving, &format!("{path}/messages?limit=500")).await;
    let asked = |message: &&Value| message["message"]["user"].is_object();
    let asked = messages["messages"].as_array().unwrap().iter().filter(asked).count();
    assert_eq!(asked, 1, "{point}: the task is said once: {messages}");
}
