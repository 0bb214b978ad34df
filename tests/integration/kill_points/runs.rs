//! Runs of conversations.

use super::*;

/// One call is answered at once, then one is paid for.
const SCRIPT: &str = r#"
title: A payment
turns:
  - text: ["I pay."]
    usage: {prompt_tokens: 101, completion_tokens: 13}
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: b, tool: bank__pay, arguments: '{}'}
  - text: ["Paid."]
    usage: {prompt_tokens: 103, completion_tokens: 17}
  - text: ["It is paid."]
"#;

/// A point, and what a run that is killed there leaves.
#[derive(Debug, Clone, Copy)]
struct Case {
    point: &'static str,
    left: Left,
    /// Payments that reached the bank before the kill.
    sent: usize,
    /// Payments that have reached it after the next run.
    payments: usize,
    /// Payments that are charged then: also one that was about to be sent.
    charged: usize,
}

/// The row of the killed run and the answers of its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Left {
    NoRun,
    /// Interrupted, with so many answered calls.
    Answered(usize),
    Succeeded,
}

const fn case(point: &'static str, left: Left, sent: usize, payments: usize) -> Case {
    Case { point, left, sent, payments, charged: payments }
}

/// Killed between the reservation of a payment and its sending.
const fn about_to_pay(point: &'static str) -> Case {
    Case { charged: 1, ..case(point, Left::Answered(1), 0, 0) }
}

/// In the order in which a run reaches them. A call that was begun is never sent again: it may have happened.
const CASES: [Case; 24] = [
    case("run.received", Left::NoRun, 0, 1),
    case("run.checked", Left::NoRun, 0, 1),
    case("run.locked", Left::NoRun, 0, 1),
    case("run.begun", Left::Answered(0), 0, 1),
    case("run.options", Left::Answered(0), 0, 1),
    case("run.agent", Left::Answered(0), 0, 1),
    // The model's turn is about to be sent, and is being answered.
    case("charge.reserved", Left::Answered(0), 0, 1),
    case("turn.piece", Left::Answered(0), 0, 1),
    case("run.event", Left::Answered(0), 0, 1),
    case("call.intent", Left::Answered(0), 0, 1),
    case("call.begun", Left::Answered(0), 0, 0),
    case("call.answered", Left::Answered(0), 0, 0),
    case("call.recorded", Left::Answered(1), 0, 0),
    case("call.intent:2", Left::Answered(1), 0, 0),
    case("call.begun:2", Left::Answered(1), 0, 0),
    about_to_pay("charge.reserved:2"),
    case("call.answered:2", Left::Answered(1), 1, 1),
    case("call.recorded:2", Left::Answered(2), 1, 1),
    case("charge.reserved:3", Left::Answered(2), 1, 1),
    case("run.event:5", Left::Answered(2), 1, 1),
    case("run.ended", Left::Answered(2), 1, 1),
    case("run.storing", Left::Answered(2), 1, 1),
    case("run.stored", Left::Succeeded, 1, 1),
    case("run.released", Left::Succeeded, 1, 1),
];

#[tokio::test]
async fn a_run_that_is_killed_at_any_step_leaves_whole_transactions_and_repeats_nothing() {
    play_all(CASES, |case| play(Engine::Sqlite, case)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_run_that_is_killed_at_any_step_leaves_whole_transactions_and_repeats_nothing() {
    play_all(CASES, |case| play(Engine::PostgreSql, case)).await;
}

/// Its reply is sent before, and may be lost with the process.
#[tokio::test]
async fn a_run_that_is_killed_while_its_title_is_made_is_whole_and_keeps_the_first_line() {
    let bank = Bank::new(Engine::Sqlite, SCRIPT, "parallel_tool_calls: 1").await;
    let serving = bank.start(Some("run.titled")).await;
    let (_, created) = bank.send(&serving, Method::POST, "/api/conversations", json!({})).await;
    let path = format!("/api/conversations/{}", created["id"].as_str().unwrap());
    let execute = bank.client.post(format!("{}{path}/execute", serving.url)).json(&json!({"user_input": "Pay."}));
    let _reply = execute.send().await;
    Bank::killed(serving, "run.titled").await;
    check_charges(&bank, "run.titled").await;
    let serving = bank.start(None).await;
    titled(&bank, &serving, &path, "Pay.").await;
    let runs = bank.get(&serving, &format!("{path}/runs")).await;
    assert_eq!(runs["runs"][0]["status"], "succeeded", "{runs}");
    assert_eq!(next_run(&bank, &serving, &path).await["title"], "Pay.");
    assert_eq!(bank.payments(), 1);
}

/// The bank is asked twice, and can know the second request by its key.
#[tokio::test]
async fn a_call_that_is_repeated_after_a_kill_has_the_key_of_the_first_one() {
    let script = SCRIPT.replace("bank__pay", "bank__settle");
    let bank = Bank::new(Engine::Sqlite, &script, "parallel_tool_calls: 1").await;
    let serving = bank.start(Some("call.answered:2")).await;
    let (_, created) = bank.send(&serving, Method::POST, "/api/conversations", json!({})).await;
    let path = format!("/api/conversations/{}", created["id"].as_str().unwrap());
    let execute = bank.client.post(format!("{}{path}/execute", serving.url)).json(&json!({"user_input": "Pay."}));
    assert!(execute.send().await.is_err());
    Bank::killed(serving, "call.answered:2").await;
    let serving = bank.start(None).await;
    assert_eq!(next_run(&bank, &serving, &path).await["result"], "Paid.");
    let keys = bank.keys.lock();
    assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{keys:?}");
}

async fn play(engine: Engine, case: Case) {
    let point = case.point;
    let bank = Bank::new(engine, SCRIPT, "parallel_tool_calls: 1").await;
    let serving = bank.start(Some(point)).await;
    let (status, created) = bank.send(&serving, Method::POST, "/api/conversations", json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{point}: {created}");
    let path = format!("/api/conversations/{}", created["id"].as_str().unwrap());
    let execute = bank.client.post(format!("{}{path}/execute", serving.url)).json(&json!({"user_input": "Pay."}));
    assert!(execute.send().await.is_err(), "{point}: the connection ends with the process");
    Bank::killed(serving, point).await;
    assert_eq!(bank.payments(), case.sent, "{point}");
    check_charges(&bank, point).await;

    let serving = bank.start(None).await;
    let begun = Instant::now();
    let reply = next_run(&bank, &serving, &path).await;
    assert_eq!(reply["status"], "succeeded", "{point}: {reply}");
    let max = if engine == Engine::Sqlite { Duration::from_secs(4) } else { MAX_WAIT };
    assert!(begun.elapsed() < slack(max), "{point}: the lock was held for {:?}", begun.elapsed());
    assert_eq!(bank.payments(), case.payments, "{point}: {:?}", bank.keys);
    check_rows(&bank, &serving, &path, case).await;
    // The model makes a title after the run that stored the first line of its input.
    titled(&bank, &serving, &path, if case.left == Left::Succeeded { "Pay." } else { "A payment" }).await;
    let used = bank.sum("SELECT cost_usd FROM usage_logs").await;
    let paid = price() * Decimal::from(case.charged);
    assert_eq!(bank.charged().await, used + paid, "{point}: {used} and {paid}");
    assert!(bank.stored("SELECT id FROM reserved_charges").await.is_empty(), "{point}");
    check_first_turn(&bank, point).await;
}

async fn titled(bank: &Bank, serving: &Serving, path: &str, title: &str) {
    let begun = Instant::now();
    loop {
        let conversation = bank.get(serving, path).await;
        if conversation["title"] == title {
            return;
        }
        assert!(begun.elapsed() < slack(MAX_WAIT), "{title}: {conversation}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first turn of the killed run costs what it is reported to, or if that is not known, what was reserved.
async fn check_first_turn(bank: &Bank, point: &str) {
    let of_first = "(SELECT id FROM conversation_runs WHERE number = 1)";
    let costs = bank.sum(&format!("SELECT cost_usd FROM usage_logs WHERE run = {of_first}")).await;
    let least = Decimal::new(20, 2);
    match point {
        "charge.reserved" | "turn.piece" => assert!(costs > least, "{point}: {costs}"),
        "call.begun" | "call.recorded" => assert_eq!(costs, Decimal::new(114, 4), "{point}"),
        _ => {}
    }
}

async fn check_rows(bank: &Bank, serving: &Serving, path: &str, Case { point, left, .. }: Case) {
    let runs = bank.get(serving, &format!("{path}/runs")).await;
    let statuses: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    let messages = bank.get(serving, &format!("{path}/messages?limit=500")).await;
    let first = runs["runs"].as_array().unwrap().last().unwrap()["id"].clone();
    let of_first = messages["messages"].as_array().unwrap().iter().filter(|message| message["run_id"] == first);
    let answers = of_first.filter(|message| message["message"]["tool"].is_object()).count();
    let found = match statuses[..] {
        ["succeeded"] => Left::NoRun,
        ["succeeded", "interrupted"] => Left::Answered(answers),
        ["succeeded", "succeeded"] => Left::Succeeded,
        _ => panic!("{point}: {runs}"),
    };
    assert_eq!(found, left, "{point}: {messages}");
    let every = messages["messages"].as_array().unwrap();
    let (calls, answers) =
        (count(every, "call"), every.iter().filter(|entry| entry["message"]["tool"].is_object()).count());
    assert_eq!(calls, answers, "{point}: each call has one answer: {messages}");
}

fn count(messages: &[Value], part: &str) -> usize {
    let parts = messages.iter().filter_map(|entry| entry["message"]["assistant"]["parts"].as_array()).flatten();
    parts.filter(|found| found[part].is_object()).count()
}

/// To the last digit: what the models of runs used, and the payments whose answers are stored.
async fn check_charges(bank: &Bank, point: &str) {
    let used = bank.sum("SELECT cost_usd FROM usage_logs").await;
    let paid = bank.stored("SELECT run FROM tool_execution_logs WHERE tool_name = 'bank__pay' AND output IS NOT NULL");
    let paid = price() * Decimal::from(paid.await.len());
    assert_eq!(bank.charged().await, used + paid, "{point}: {used} and {paid}");
}
