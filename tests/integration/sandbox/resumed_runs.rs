//! Runs of programs that stop and go on: for an approval, after a crash of a worker, and after `kill -9` of the gateway.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::load::kill;
use super::{ALONE, PythonApp, workers};
use crate::app::{TestApp, answer, code};
use crate::approvals::{KEYS, run_example};
use crate::charges::{LOOPBACK, served};
use crate::cli::{Serving, sekisho};
use crate::slack::slack;

const IMPORT: &str = "from host import tools, ToolError\n";

/// Pays an amount that it draws, after two calls in parallel. `echo` needs approval.
const PAYS: &str = "import random, time\n\
                    amount, begun, at = random.randrange(10 ** 9), time.monotonic(), time.time()\n\
                    waits = tools.gather(tools.sleep(ms=30), tools.sleep(ms=1))\n\
                    time.sleep(.01)\n\
                    paid = tools.echo(amount=amount, at=at)\n\
                    [paid['echo']['amount'] == amount, waits, time.monotonic() >= begun]";

async fn app() -> PythonApp {
    let limits = "python_executor: {rate_limit: 1000000}";
    let yaml = format!("{KEYS}tools: {{overrides: {{{limits}, echo: {{approval: always}}}}}}\n");
    PythonApp::in_directory(TempDir::new().unwrap(), &yaml).await
}

fn send(app: &PythonApp, program: &str) -> RequestBuilder {
    let body = json!({"arguments": {"code": format!("{IMPORT}{program}")}});
    app.app.post("/tools/python_executor/execute").bearer_auth("key-of-ann").json(&body)
}

fn resume(app: &PythonApp, key: &str, run: &str) -> RequestBuilder {
    app.app.post(&format!("/runs/{run}/resume")).bearer_auth(key)
}

/// The run that a program stops, and the approval that it waits for.
async fn stopped(app: &PythonApp, program: &str) -> (String, String) {
    let (status, reply) = answer(send(app, program)).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"), "{reply}");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    let info = &reply["error_info"];
    assert_eq!(info["run"], reply["receipt"]["call_id"], "the id of the call that began it");
    (text(&info["run"]), text(&info["approval"]["id"]))
}

async fn decide(app: &TestApp, approval: &str, what: &str) {
    let request = app.post(&format!("/approvals/{approval}/{what}")).bearer_auth("key-of-boss");
    let (status, body) = answer(request.json(&json!({"reason": "no"}))).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

async fn runs_of(app: &PythonApp, tool: &str) -> f64 {
    app.app.metric(&format!("shannon_tool_executions_total{{status=\"success\",tool_name=\"{tool}\"}}")).await
}

#[tokio::test]
async fn a_program_that_needs_an_approval_goes_on_when_it_is_resumed() {
    let app = app().await;
    let (run, approval) = stopped(&app, PAYS).await;
    let (_, listed) = answer(app.app.get("/runs").bearer_auth("key-of-ann")).await;
    let first = &listed["runs"][0];
    assert_eq!((&first["id"], &first["state"], &first["approval"]), (&json!(run), &json!("stopped"), &json!(approval)));
    let (status, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((status, &reply["error_info"]["approval"]["id"]), (StatusCode::FORBIDDEN, &json!(approval)), "{reply}");
    assert_eq!(answer(resume(&app, "key-of-bob", &run)).await.0, StatusCode::NOT_FOUND, "another caller");
    decide(&app.app, &approval, "approve").await;
    let (status, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!([true, [30, 1], true])), "{reply}");
    let nested = &reply["receipt"]["nested"];
    assert_eq!((&nested["count"], &nested["replayed"]), (&json!(1), &json!(2)));
    assert_eq!(nested["calls"][0]["tool"], "echo");
    assert_eq!((runs_of(&app, "sleep").await, runs_of(&app, "echo").await), (2.0, 1.0));
    assert_eq!(answer(resume(&app, "key-of-ann", &run)).await.0, StatusCode::NOT_FOUND, "it has ended");
}

#[tokio::test]
async fn the_same_call_with_its_approval_goes_on_too_and_another_one_does_not() {
    let app = app().await;
    let (_, approval) = stopped(&app, PAYS).await;
    decide(&app.app, &approval, "approve").await;
    let other = PAYS.replace("10 ** 9", "10 ** 8");
    let (status, reply) = answer(send(&app, &other).header("x-approval-id", &approval)).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_mismatch"), "{reply}");
    let (status, reply) = answer(send(&app, PAYS).header("x-approval-id", &approval)).await;
    assert_eq!((status, &reply["output"]["result"][0]), (StatusCode::OK, &json!(true)), "{reply}");
    assert_eq!((runs_of(&app, "sleep").await, runs_of(&app, "echo").await), (2.0, 1.0));
}

/// Each of its calls needs an approval, and none runs the program from the beginning.
#[tokio::test]
async fn a_program_that_a_person_must_approve_is_resumed_by_an_approval_of_its_own() {
    // The client that waits until programs can be run has no key.
    const RULES: &str = "package tools\nimport rego.v1\n\
                         deny contains \"never\" if { false }\n\
                         asked := {\"echo\", \"python_executor\"}\n\
                         require_approval contains \"ask first\" if {\n\
                         input.tool in asked\ninput.user.id == \"ann\"\n}\n";
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(policies.join("tools.rego"), RULES).unwrap();
    let limits = "tools: {overrides: {python_executor: {rate_limit: 1000000}}}";
    let yaml = format!("{KEYS}{limits}\npolicy: {{directory: '{}'}}\n", policies.display());
    let app = PythonApp::in_directory(directory, &yaml).await;
    let needed = async |approval: Option<&str>| {
        let request = send(&app, PAYS);
        let request = approval.iter().fold(request, |request, id| request.header("x-approval-id", *id));
        let (_, reply) = answer(request).await;
        assert_eq!(code(&reply), "approval_required", "{reply}");
        let info = &reply["error_info"];
        (info["approval"]["id"].as_str().unwrap().to_owned(), info["run"].as_str().map(str::to_owned))
    };
    let (first, run) = needed(None).await;
    assert_eq!(run, None);
    decide(&app.app, &first, "approve").await;
    let (of_echo, run) = needed(Some(first.as_str())).await;
    let run = run.unwrap();
    assert_eq!(needed(Some(first.as_str())).await, (of_echo.clone(), Some(run)), "its reply, again");
    decide(&app.app, &of_echo, "approve").await;
    let (second, _) = needed(Some(of_echo.as_str())).await;
    assert!(second != first && second != of_echo);
    decide(&app.app, &second, "approve").await;
    let (status, reply) = answer(send(&app, PAYS).header("x-approval-id", &second)).await;
    assert_eq!((status, &reply["output"]["result"][0]), (StatusCode::OK, &json!(true)), "{reply}");
    assert_eq!((runs_of(&app, "sleep").await, runs_of(&app, "echo").await), (2.0, 1.0));
}

#[tokio::test]
async fn a_client_that_waits_gets_the_result_once_it_is_approved() {
    let app = app().await;
    let request = send(&app, PAYS).header("prefer", "wait=60");
    let waiting = tokio::spawn(answer(request));
    let begun = Instant::now();
    let approval = loop {
        assert!(begun.elapsed() < slack(Duration::from_secs(20)), "it asks");
        let (_, listed) = answer(app.app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
        if let Some(id) = listed["approvals"][0]["id"].as_str() {
            break id.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    decide(&app.app, &approval, "approve").await;
    let (status, reply) = waiting.await.unwrap();
    assert_eq!((status, &reply["output"]["result"][0]), (StatusCode::OK, &json!(true)), "{reply}");
    assert_eq!((runs_of(&app, "sleep").await, runs_of(&app, "echo").await), (2.0, 1.0));
}

#[tokio::test]
async fn a_program_reads_that_its_call_was_denied() {
    let app = app().await;
    let program = "try:\n  tools.echo()\nexcept ToolError as error:\n  kept = error.code\nkept";
    let (run, approval) = stopped(&app, program).await;
    decide(&app.app, &approval, "deny").await;
    let (status, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!("approval_denied")), "{reply}");
}

#[tokio::test]
async fn a_program_with_several_calls_to_approve_stops_at_each() {
    let app = app().await;
    let program = "[tools.echo(n=n)['echo']['n'] for n in range(3)]";
    let (run, mut approval) = stopped(&app, program).await;
    for _ in 0..2 {
        decide(&app.app, &approval, "approve").await;
        let (_, reply) = answer(resume(&app, "key-of-ann", &run)).await;
        assert_eq!((code(&reply), &reply["error_info"]["run"]), ("approval_required", &json!(run)), "{reply}");
        reply["error_info"]["approval"]["id"].as_str().unwrap().clone_into(&mut approval);
    }
    decide(&app.app, &approval, "approve").await;
    let (_, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((&reply["output"]["result"], runs_of(&app, "echo").await), (&json!([0, 1, 2]), 3.0), "{reply}");
}

#[tokio::test]
async fn a_program_that_reads_the_clock_too_often_says_that_it_cannot_be_resumed() {
    let app = app().await;
    let program = "import time\nfor _ in range(10_001): time.monotonic()\ntools.echo()";
    let (status, reply) = answer(send(&app, program)).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"), "{reply}");
    let message = reply["error"].as_str().unwrap();
    assert!(message.contains("cannot be resumed") && message.contains("10000 times"), "{message}");
    assert_eq!(reply["error_info"]["run"], Value::Null);
    let large = "import os\nfor _ in range(5): os.urandom(1 << 20)\ntools.echo()";
    let (_, reply) = answer(send(&app, large)).await;
    assert!(reply["error"].as_str().unwrap().contains("4 MiB"), "{reply}");
}

/// In a session, what its interpreter has of earlier programs is in no journal.
#[tokio::test]
async fn in_a_session_the_program_gets_the_refusal() {
    let app = app().await;
    let program = "try:\n  tools.echo()\nexcept ToolError as error:\n  kept = error.code\nkept";
    let body = json!({"arguments": {"code": format!("{IMPORT}{program}"), "session": "s"}});
    let request = app.app.post("/tools/python_executor/execute").bearer_auth("key-of-ann").json(&body);
    let (_, reply) = answer(request).await;
    assert_eq!(reply["output"]["result"], "approval_required", "{reply}");
}

#[tokio::test]
async fn a_program_whose_worker_crashes_is_resumed_and_calls_nothing_twice() {
    let app = app().await;
    let program = "for _ in range(4): tools.sleep(ms=1)\n\
                   try:\n  tools.sleep(ms=60000)\nexcept ToolError as error:\n  kept = error.code\nkept";
    let running = tokio::spawn(answer(send(&app, program)));
    let begun = Instant::now();
    while runs_of(&app, "sleep").await < 4.0 || app.app.metric("shannon_calls_in_flight").await < 2.0 {
        assert!(begun.elapsed() < slack(Duration::from_secs(20)), "the last call is made");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    workers().into_iter().for_each(kill);
    let (_, reply) = running.await.unwrap();
    assert_eq!(code(&reply), "sandbox_trap", "{reply}");
    let run = reply["error_info"]["run"].as_str().unwrap();
    // Another worker may be found dead by this: the run can be resumed again.
    let resumed = async || {
        let begun = Instant::now();
        loop {
            let (status, reply) = answer(resume(&app, "key-of-ann", run)).await;
            if reply["error_info"]["code"] != "sandbox_trap" {
                break (status, reply);
            }
            assert!(begun.elapsed() < slack(Duration::from_secs(20)), "{reply}");
        }
    };
    assert_eq!(code(&resumed().await.1), "unknown_outcome", "it stays stopped");
    for (key, expected) in [("key-of-bob", StatusCode::NOT_FOUND), ("key-of-ann", StatusCode::OK)] {
        let settle = app.app.post(&format!("/runs/{run}/settle")).bearer_auth(key);
        let (status, settled) = answer(settle.json(&json!({"outcome": "unknown"}))).await;
        assert_eq!(status, expected, "{key}: {settled}");
    }
    let (status, reply) = resumed().await;
    assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!("unknown_outcome")), "{reply}");
    assert_eq!(runs_of(&app, "sleep").await, 4.0, "none was made again");
}

/// The example of the page. Without jq it is not run.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_page_runs() {
    const PAGE: &str = include_str!("../../../docs/code-mode.md");
    let _alone = ALONE.lock().await;
    let (_, section) = PAGE.split_once("## Approvals and crashes").unwrap();
    let run = || run_example(section, "jq --version && curl --version");
    let Some(printed) = tokio::task::spawn_blocking(run).await.unwrap() else { return };
    assert!(printed.contains("\"approved\"\n") && printed.contains("\"replayed\": 1"), "{printed}");
}

/// The real program with a bank that counts payments.
struct Bank {
    directory: TempDir,
    payments: Arc<AtomicUsize>,
    client: Client,
}

impl Bank {
    async fn new() -> Self {
        let (directory, payments) = (TempDir::new().unwrap(), Arc::new(AtomicUsize::new(0)));
        let paid = Arc::clone(&payments);
        let take = move || {
            paid.fetch_add(1, Ordering::SeqCst);
            async { "paid" }
        };
        let content = json!({"text/plain": {"schema": {"type": "string"}}});
        let responses = json!({"200": {"description": "done", "content": content}});
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "Bank", "version": "1"},
            "servers": [{"url": served(Router::new().route("/pay", post(take))).await}],
            "paths": {"/pay": {"post": {"operationId": "pay", "responses": responses}}},
        });
        let file = directory.path().join("bank.json");
        std::fs::write(&file, document.to_string()).unwrap();
        let yaml = format!(
            "outbound: {{{LOOPBACK}}}\nopenapi: {{collections: {{bank: {{spec_file: '{}'}}}}}}\n",
            file.display()
        );
        std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
        Self { directory, payments, client: Client::builder().no_proxy().build().unwrap() }
    }

    async fn start(&self, fatal: Option<&str>) -> Serving {
        let mut program = sekisho(&self.directory);
        program.envs(fatal.map(|point| ("SEKISHO_FAILPOINT", point)));
        let serving = tokio::task::spawn_blocking(|| Serving::run(program, &["--config", "sekisho.yaml"]));
        let serving = serving.await.unwrap();
        let begun = Instant::now();
        while answer(self.run(&serving, "1")).await.0 != StatusCode::OK {
            assert!(begun.elapsed() < slack(Duration::from_secs(30)), "it can run programs");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        serving
    }

    fn run(&self, serving: &Serving, program: &str) -> RequestBuilder {
        let request = self.client.post(format!("{}/tools/python_executor/execute", serving.url));
        request.json(&json!({"arguments": {"code": format!("{IMPORT}{program}")}}))
    }

    fn payments(&self) -> usize {
        self.payments.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_gateway_is_killed_is_resumed_and_calls_nothing_twice() {
    let _alone = ALONE.lock().await;
    let program = "kept = []\nfor _ in range(5):\n  try:\n    tools.bank__pay()\n    kept.append('paid')\n  \
                   except ToolError as error:\n    kept.append(error.code)\nkept";
    // Each payment is written before it is sent, and before its program gets the answer.
    for (point, paid_before, outcomes, paid) in [
        ("journal.writing:4", 2, ["paid", "unknown_outcome", "paid", "paid", "paid"], 5),
        ("journal.written:3", 1, ["paid", "unknown_outcome", "paid", "paid", "paid"], 4),
        ("journal.written:4", 2, ["paid", "paid", "paid", "paid", "paid"], 5),
    ] {
        let bank = Bank::new().await;
        let mut serving = bank.start(Some(point)).await;
        assert!(bank.run(&serving, program).send().await.is_err(), "{point}");
        let status = tokio::task::spawn_blocking(move || serving.wait()).await.unwrap();
        assert_eq!((status.signal(), bank.payments()), (Some(9), paid_before), "{point}");
        let serving = bank.start(None).await;
        let (_, listed) = answer(bank.client.get(format!("{}/runs", serving.url))).await;
        let run = listed["runs"][0]["id"].as_str().unwrap_or_else(|| panic!("{point}: {listed}"));
        let resume = || bank.client.post(format!("{}/runs/{run}/resume", serving.url));
        if outcomes.contains(&"unknown_outcome") {
            let (status, reply) = answer(resume()).await;
            assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "unknown_outcome"), "{point}: {reply}");
            let settle = bank.client.post(format!("{}/runs/{run}/settle", serving.url));
            let (status, settled) = answer(settle.json(&json!({"outcome": "unknown"}))).await;
            assert_eq!((status, &settled["unknown_calls"]), (StatusCode::OK, &json!([])), "{point}: {settled}");
        }
        let (status, reply) = answer(resume()).await;
        assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!(outcomes)), "{point}: {reply}");
        assert_eq!(bank.payments(), paid, "{point}");
        assert_eq!(answer(resume()).await.0, StatusCode::NOT_FOUND, "{point}: it has ended");
    }
}

/// A program as models write it, which catches nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_ends_once_its_call_of_unknown_outcome_is_settled() {
    let _alone = ALONE.lock().await;
    let program = "kept = [tools.bank__pay() for _ in range(3)]\nlen(kept), kept[1]";
    for (point, settlement, paid) in [
        // The second payment was made, and its answer is lost.
        ("journal.writing:4", json!({"call": 2, "outcome": "made", "answer": {"receipt": 7}}), 3),
        // It was not sent.
        ("journal.written:3", json!({"outcome": "not_made"}), 3),
    ] {
        let bank = Bank::new().await;
        let mut serving = bank.start(Some(point)).await;
        assert!(bank.run(&serving, program).send().await.is_err(), "{point}");
        tokio::task::spawn_blocking(move || serving.wait()).await.unwrap();
        let serving = bank.start(None).await;
        let (_, listed) = answer(bank.client.get(format!("{}/runs", serving.url))).await;
        let run = listed["items"][0]["id"].as_str().unwrap_or_else(|| panic!("{point}: {listed}"));
        let at = |what: &str| format!("{}/runs/{run}{what}", serving.url);
        let (status, stopped) = answer(bank.client.post(at("/resume"))).await;
        assert_eq!((status, &stopped["error_info"]["run"]), (StatusCode::CONFLICT, &json!(run)), "{point}: {stopped}");
        let (_, shown) = answer(bank.client.get(at(""))).await;
        let unknown = &shown["unknown_calls"][0];
        assert_eq!((&unknown["call"], &unknown["tool"]), (&json!(2), &json!("bank__pay")), "{point}: {shown}");
        let wrong = json!({"outcome": "not_made", "answer": 7});
        let (status, refused) = answer(bank.client.post(at("/settle")).json(&wrong)).await;
        assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "{refused}");
        let (status, settled) = answer(bank.client.post(at("/settle")).json(&settlement)).await;
        assert_eq!((status, &settled["unknown_calls"]), (StatusCode::OK, &json!([])), "{point}: {settled}");
        let (status, reply) = answer(bank.client.post(at("/resume"))).await;
        assert_eq!((status, &reply["output"]["result"][0]), (StatusCode::OK, &json!(3)), "{point}: {reply}");
        if settlement["outcome"] == "made" {
            assert_eq!(reply["output"]["result"][1], json!({"receipt": 7}));
        }
        assert_eq!(bank.payments(), paid, "{point}");
    }
}
