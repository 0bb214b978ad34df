//! Plans.

use super::*;

/// The first step pays, the second one fails and is changed.
fn script() -> String {
    let long = "The bank was paid one time, and it says so in a letter of more than fifty characters.";
    let said =
        |texts: Value| json!([{"text": [texts.to_string()], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}]);
    let pay = json!([{"id": "a", "tool": "bank__pay", "arguments": "{}"}]);
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 5});
    json!({"turns": [], "plan": {
        "planner": [
            said(json!({"steps": ["pay", "report"], "success_criteria": "paid"})),
            said(json!({"decision": "modify", "reason": "no report", "steps": ["report again"]})),
        ],
        "attempts": [
            [{"calls": pay, "usage": usage}, {"text": [long], "usage": usage}],
            [{"text": ["ERROR: no paper"], "usage": usage}],
            [{"text": [long], "usage": usage}],
        ],
        "evaluator": [said(json!({"passed": true})), said(json!({"passed": true}))],
        "answer": [{"text": ["It is paid."], "usage": usage}],
    }})
    .to_string()
}

/// A point, the payments before and after, and whether the answer of the payment is stored at the kill.
type Case = (&'static str, usize, usize, bool);

const CASES: [Case; 22] = [
    ("plan.PlannerInit", 0, 1, false),
    ("plan.PlannerInit.visited", 0, 1, false),
    // The planner's request is about to be sent, and is being answered.
    ("charge.reserved", 0, 1, false),
    ("turn.piece", 0, 1, false),
    ("plan.ExecutorDispatch", 0, 1, false),
    ("plan.ExecutorDispatch.visited", 0, 1, false),
    ("plan.ExecutorRunMcp", 0, 1, false),
    ("plan.call.intent", 0, 1, false),
    // It may have happened, and is not sent.
    ("plan.call.begun", 0, 0, false),
    ("plan.call.answered", 1, 1, false),
    ("plan.call.recorded", 1, 1, true),
    ("plan.ExecutorRunMcp.visited", 1, 1, true),
    ("plan.ExecutorProcessResult", 1, 1, true),
    ("plan.ExecutorProcessResult.visited", 1, 1, true),
    ("plan.MemoryUpdate", 1, 1, true),
    ("plan.MemoryUpdate.visited", 1, 1, true),
    ("plan.PlannerEvaluate", 1, 1, true),
    ("plan.PlannerEvaluate.visited", 1, 1, true),
    ("plan.PlannerReplanning", 1, 1, true),
    ("plan.PlannerReplanning.visited", 1, 1, true),
    ("plan.End", 1, 1, true),
    ("plan.End.visited", 1, 1, true),
];

#[tokio::test]
async fn a_plan_that_is_killed_at_any_node_goes_on_there_and_repeats_nothing() {
    play_all(CASES, |case| play(Engine::Sqlite, case)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_plan_that_is_killed_at_any_node_goes_on_there_and_repeats_nothing() {
    play_all(CASES, |case| play(Engine::PostgreSql, case)).await;
}

#[tokio::test]
async fn a_plan_of_a_conversation_that_is_killed_at_any_node_goes_on_there_and_the_conversation_is_free() {
    play_all(CASES, |case| play_in_conversation(Engine::Sqlite, case)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_plan_of_a_conversation_that_is_killed_at_any_node_goes_on_there() {
    play_all(CASES, |case| play_in_conversation(Engine::PostgreSql, case)).await;
}

async fn play(engine: Engine, (point, sent, payments, is_recorded): Case) {
    let bank = Bank::new(engine, &script(), "planner: {preset: plan_and_act}").await;
    let serving = bank.start(Some(point)).await;
    let plan = json!({"goal": "Pay, and report"});
    // The reply to the request may be lost with the process.
    let _reply = bank.client.post(format!("{}/api/plans", serving.url)).json(&plan).send().await;
    Bank::killed(serving, point).await;
    assert_eq!(bank.payments(), sent, "{point}");
    check_charges(&bank, point, is_recorded).await;

    let serving = bank.start(None).await;
    let plans = bank.get(&serving, "/api/plans").await;
    let path = format!("/api/plans/{}", plans["plans"][0]["id"].as_str().unwrap());
    reached(&bank, &serving, &path, "paused").await;
    let (status, plan) = bank.send(&serving, Method::POST, &format!("{path}/continue"), json!({})).await;
    assert_eq!(status, StatusCode::OK, "{point}: {plan}");
    let done = reached(&bank, &serving, &path, "finished").await;
    assert_eq!(
        (&done["answer"], done["plan"].as_array().unwrap().len()),
        (&json!("It is paid."), 2),
        "{point}: {done}"
    );
    assert_eq!(bank.payments(), payments, "{point}: {:?}", bank.keys);
    let calls = done["plan"].as_array().unwrap().iter().flat_map(|step| step["calls"].as_array().unwrap());
    let failed: Vec<_> = calls.filter(|call| call["failed"] == true).collect();
    assert!(failed.is_empty(), "{point}: a call that may have happened has not failed: {failed:?}");
    assert_eq!(done["usage"]["tool_calls"], 1, "{point}: a call counts once, also one that may have happened: {done}");
    check_charges(&bank, point, payments > 0).await;
    assert!(bank.stored("SELECT id FROM reserved_charges").await.is_empty(), "{point}");
}

/// The killed run is interrupted, and keeps what it was charged; what its plan uses later is the plan's.
async fn play_in_conversation(engine: Engine, (point, sent, payments, _): Case) {
    let bank = Bank::new(engine, &script(), "planner: {preset: plan_and_act}").await;
    let serving = bank.start(Some(point)).await;
    let (_, created) = bank.send(&serving, Method::POST, "/api/conversations", json!({"title": "A payment"})).await;
    let conversation = format!("/api/conversations/{}", created["id"].as_str().unwrap());
    let input = json!({"user_input": "Pay, and report"});
    let execute = bank.client.post(format!("{}{conversation}/execute", serving.url)).json(&input);
    assert!(execute.send().await.is_err(), "{point}: the connection ends with the process");
    Bank::killed(serving, point).await;
    assert_eq!(bank.payments(), sent, "{point}");
    let used = bank.sum("SELECT cost_usd FROM usage_logs").await;
    assert_eq!(bank.charged().await, used + price() * Decimal::from(sent), "{point}");
    let before = used_by_first_plan(&bank).await;

    let serving = bank.start(None).await;
    let plans = bank.get(&serving, "/api/plans").await;
    let path = format!("/api/plans/{}", plans["plans"][0]["id"].as_str().unwrap());
    reached(&bank, &serving, &path, "paused").await;
    let (status, plan) = bank.send(&serving, Method::POST, &format!("{path}/continue"), json!({})).await;
    assert_eq!(status, StatusCode::OK, "{point}: {plan}");
    reached(&bank, &serving, &path, "finished").await;
    assert_eq!(bank.payments(), payments, "{point}: {:?}", bank.keys);

    // Another plan, which pays again.
    let reply = next_run(&bank, &serving, &conversation).await;
    assert_eq!((&reply["status"], &reply["result"]), (&json!("succeeded"), &json!("It is paid.")), "{point}: {reply}");
    let runs = bank.get(&serving, &format!("{conversation}/runs")).await;
    let statuses: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["succeeded", "interrupted"], "{point}");
    assert_eq!(bank.payments(), payments + 1, "{point}");
    let used = bank.sum("SELECT cost_usd FROM usage_logs").await + used_by_first_plan(&bank).await - before;
    assert_eq!(bank.charged().await, used + price() * Decimal::from(payments + 1), "{point}");
    assert!(bank.stored("SELECT id FROM reserved_charges").await.is_empty(), "{point}");
}

async fn used_by_first_plan(bank: &Bank) -> Decimal {
    let states = bank.stored("SELECT state FROM plans ORDER BY created LIMIT 1").await;
    let state: Value = serde_json::from_str(&states[0]).unwrap();
    state["used"]["cost_usd"].to_string().trim_matches('"').parse().unwrap()
}

async fn reached(bank: &Bank, serving: &Serving, path: &str, status: &str) -> Value {
    let begun = Instant::now();
    loop {
        let plan = bank.get(serving, path).await;
        if plan["status"] == status {
            return plan;
        }
        assert!(begun.elapsed() < slack(MAX_WAIT), "{status}: {plan}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// To the last digit: what the models of the plan used, and the payment whose answer is stored.
async fn check_charges(bank: &Bank, point: &str, is_paid: bool) {
    let used = used_by_first_plan(bank).await;
    let paid = if is_paid { price() } else { Decimal::ZERO };
    assert_eq!(bank.charged().await, used + paid, "{point}: {used} and {paid}");
}
