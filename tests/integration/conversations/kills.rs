//! `kill -9` of the real program at steps of a run: nothing answered is lost, nothing is repeated that must not be, and the
//! conversation is free at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::describe;
use crate::app::answer;
use crate::charges::{LOOPBACK, served};
use crate::cli::Serving;

/// An upstream that counts, and whose answers can be held back.
#[derive(Clone, Default)]
pub(super) struct Counter {
    paid: Arc<AtomicUsize>,
    read: Arc<AtomicUsize>,
    pub(super) is_silent: Arc<AtomicBool>,
}

impl Counter {
    async fn answer(self, count: Arc<AtomicUsize>, text: &'static str) -> &'static str {
        count.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        text
    }

    async fn serve(&self) -> String {
        let (pay, read) = (self.clone(), self.clone());
        let pay = post(move || {
            let counter = pay.clone();
            let count = Arc::clone(&counter.paid);
            counter.answer(count, "paid")
        });
        let read = get(move || {
            let counter = read.clone();
            let count = Arc::clone(&counter.read);
            counter.answer(count, "a rate")
        });
        served(Router::new().route("/pay", pay).route("/rate", read)).await
    }

    pub(super) fn counts(&self) -> (usize, usize) {
        (self.paid.load(Ordering::SeqCst), self.read.load(Ordering::SeqCst))
    }
}

/// The real program with a bank, whose state outlives it.
pub(super) struct Bank {
    directory: TempDir,
    pub(super) counter: Counter,
    client: Client,
}

impl Bank {
    pub(super) async fn with_script(script: &str) -> Self {
        Self::with_agent(script, "").await
    }

    /// With further settings of agents.
    pub(super) async fn with_agent(script: &str, agent: &str) -> Self {
        let (directory, counter) = (TempDir::new().unwrap(), Counter::default());
        let text = json!({"200": {"description": "done", "content": {"text/plain": {"schema": {"type": "string"}}}}});
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "Bank", "version": "1"},
            "servers": [{"url": counter.serve().await}],
            "paths": {
                "/pay": {"post": {"operationId": "pay", "responses": text}},
                "/rate": {"get": {"operationId": "rate", "responses": text}},
            },
        });
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (document, script) = (file("bank.json", &document.to_string()), file("script.yaml", script));
        let yaml = format!(
            "outbound: {{{LOOPBACK}}}\n\
             budget: {{max_cost_per_caller_per_day: '1'}}\n\
             policy: {{timeout_ms: 60000}}\n\
             openapi: {{collections: {{bank: {{spec_file: '{document}', base_cost_per_use: '0.01', timeout_seconds: 60}}}}}}\n\
             agent: {{{agent}default_profile: teller, profiles: {{teller: {{provider: replay, model: '{script}', parallel_tool_calls: 1}}}}}}\n"
        );
        file("sekisho.yaml", &yaml);
        let client = Client::builder().no_proxy().build().unwrap();
        Self { directory, counter, client }
    }

    pub(super) fn start(&self) -> Serving {
        Serving::start_with(&self.directory, &["--config", "sekisho.yaml"])
    }

    pub(super) async fn create(&self, serving: &Serving) -> String {
        let (status, created) = answer(self.post(serving, "/api/conversations", &json!({}))).await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        created["id"].as_str().unwrap().to_owned()
    }

    pub(super) fn post(&self, serving: &Serving, path: &str, body: &Value) -> RequestBuilder {
        self.client.post(format!("{}{path}", serving.url)).json(body)
    }

    fn execute(&self, serving: &Serving, id: &str, input: &str) -> RequestBuilder {
        self.post(serving, &format!("/api/conversations/{id}/execute"), &json!({"user_input": input}))
    }

    pub(super) async fn get(&self, serving: &Serving, path: &str) -> Value {
        let (status, body) = answer(self.client.get(format!("{}{path}", serving.url))).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    pub(super) async fn said(&self, serving: &Serving, id: &str) -> Vec<String> {
        let page = self.get(serving, &format!("/api/conversations/{id}/messages")).await;
        page["messages"].as_array().unwrap().iter().map(|entry| describe(&entry["message"])).collect()
    }

    /// Runs until the upstream has these requests, and kills the program.
    pub(super) async fn kill_when(&self, serving: Serving, id: &str, counts: (usize, usize)) {
        let request = self.execute(&serving, id, "Pay.");
        self.kill_during(serving, request, counts).await;
    }

    /// Sends a request, and kills the program once the upstream has these requests.
    async fn kill_during(&self, serving: Serving, request: RequestBuilder, counts: (usize, usize)) {
        let reached = async {
            while self.counter.counts() != counts {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = request.send() => panic!("{answer:?}"),
            () = reached => {}
        }
        // Its process is killed with SIGKILL.
        drop(serving);
    }

    async fn status_of_last_run(&self, serving: &Serving, id: &str) -> Value {
        let runs = self.get(serving, &format!("/api/conversations/{id}/runs")).await;
        runs["runs"][0]["status"].clone()
    }

    /// The next start writes the end of the run in the background.
    async fn wait_for_recovery(&self, serving: &Serving, id: &str) {
        while self.status_of_last_run(serving, id).await == "running" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// One call is answered, then one is sent and has no answer.
pub(super) const PAY: &str = r#"
turns:
  - text: ["I pay."]
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: b, tool: bank__pay, arguments: '{}'}
  - text: ["Paid."]
"#;

#[tokio::test]
async fn a_call_between_intent_and_outcome_is_not_repeated_and_the_model_is_told() {
    let bank = Bank::with_script(PAY).await;
    bank.counter.is_silent.store(true, Ordering::SeqCst);
    let serving = bank.start();
    let id = bank.create(&serving).await;
    bank.kill_when(serving, &id, (1, 0)).await;
    bank.counter.is_silent.store(false, Ordering::SeqCst);
    let serving = bank.start();
    bank.wait_for_recovery(&serving, &id).await;
    assert_eq!(bank.status_of_last_run(&serving, &id).await, "interrupted");
    assert_eq!(
        bank.said(&serving, &id).await,
        ["user: Pay.", "assistant: I pay. [calculator] [bank__pay]", "tool: 42"]
    );
    let begun = std::time::Instant::now();
    let (status, reply) = answer(bank.execute(&serving, &id, "Did it work?")).await;
    assert_eq!((status, &reply["result"]), (StatusCode::OK, &json!("Paid.")), "{reply}");
    assert!(begun.elapsed() < Duration::from_secs(4), "the lock was free");
    let said = bank.said(&serving, &id).await;
    assert!(said[3].contains("may have happened"), "{said:?}");
    assert_eq!(bank.counter.counts(), (1, 0), "no effect is repeated");
    let calls = bank.get(&serving, "/api/logs/tool_executions").await;
    let contents: Vec<_> = calls["rows"].as_array().unwrap().iter().map(|row| &row["content"]).collect();
    assert_eq!(contents, [&json!("42"), &Value::Null]);
}

/// Whether it was made is not known, and nothing is done again.
#[tokio::test]
async fn a_turn_with_a_key_whose_process_was_killed_is_not_run_again() {
    let bank = Bank::with_script(PAY).await;
    bank.counter.is_silent.store(true, Ordering::SeqCst);
    let serving = bank.start();
    let id = bank.create(&serving).await;
    let keyed = |serving: &Serving, key: &str| bank.execute(serving, &id, "Pay.").header("idempotency-key", key);
    let request = keyed(&serving, "k-1");
    bank.kill_during(serving, request, (1, 0)).await;
    bank.counter.is_silent.store(false, Ordering::SeqCst);
    let serving = bank.start();
    for _ in 0..2 {
        let (status, reply) = answer(keyed(&serving, "k-1")).await;
        assert_eq!((status, &reply["error_info"]["code"]), (StatusCode::CONFLICT, &json!("unknown_outcome")));
    }
    assert_eq!(bank.counter.counts(), (1, 0), "no effect is repeated");
    bank.wait_for_recovery(&serving, &id).await;
    let runs = bank.get(&serving, &format!("/api/conversations/{id}/runs")).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
}

/// Reading twice does no harm.
#[tokio::test]
async fn a_call_of_an_idempotent_tool_is_repeated_by_the_next_run() {
    let bank = Bank::with_script(&PAY.replace("bank__pay", "bank__rate")).await;
    bank.counter.is_silent.store(true, Ordering::SeqCst);
    let serving = bank.start();
    let id = bank.create(&serving).await;
    bank.kill_when(serving, &id, (0, 1)).await;
    bank.counter.is_silent.store(false, Ordering::SeqCst);
    let serving = bank.start();
    let (status, reply) = answer(bank.execute(&serving, &id, "Go on.")).await;
    assert_eq!((status, &reply["result"]), (StatusCode::OK, &json!("Paid.")), "{reply}");
    assert_eq!(bank.counter.counts(), (0, 2));
    let said = bank.said(&serving, &id).await;
    assert_eq!((&*said[2], said[3].contains("a rate")), ("tool: 42", true), "{said:?}");
    let calls = bank.get(&serving, "/api/logs/tool_executions").await;
    assert_eq!(calls["rows"].as_array().unwrap().len(), 2, "it is one call");
}

/// The model takes its time after an answer.
#[tokio::test]
async fn a_run_that_is_killed_while_the_model_answers_keeps_its_calls_and_is_charged_once() {
    let script = PAY.replace("{id: a, tool: calculator, arguments: '{\"expression\": \"6*7\"}'}\n      - ", "");
    let bank = Bank::with_script(&script.replace("[\"Paid.\"]", "[\"Paid.\"]\n    delay_seconds: 3")).await;
    let serving = bank.start();
    let id = bank.create(&serving).await;
    let answered = async {
        loop {
            let calls = bank.get(&serving, "/api/logs/tool_executions").await;
            if calls["rows"][0]["content"].is_string() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = bank.execute(&serving, &id, "Pay.").send() => panic!("{answer:?}"),
        () = answered => {}
    }
    drop(serving);
    let serving = bank.start();
    let (_, reply) = answer(bank.execute(&serving, &id, "Did it work?")).await;
    assert_eq!(reply["result"], "Paid.", "{reply}");
    let said = bank.said(&serving, &id).await;
    assert!(said[2].starts_with("tool: ") && said[2].contains("paid"), "{said:?}");
    assert_eq!(bank.counter.counts(), (1, 0));
    let usage = bank.get(&serving, "/api/logs/usage").await;
    let rows: Vec<_> =
        usage["rows"].as_array().unwrap().iter().map(|row| (&row["num_turns"], &row["tool_calls"])).collect();
    assert_eq!(rows.len(), 2, "{usage}");
}

/// At any moment: the run has ended with all that it stores, or with nothing of it.
#[tokio::test]
async fn whenever_it_is_killed_a_run_is_stored_whole_or_as_interrupted() {
    let bank =
        Bank::with_script("turns: [{text: [one]}, {text: [two]}, {text: [three]}, {text: [four]}, {text: [five]}]")
            .await;
    let mut serving = bank.start();
    let id = bank.create(&serving).await;
    for milliseconds in [0, 2, 5, 15] {
        let request = bank.execute(&serving, &id, "Say.").send();
        let _cut_off = tokio::time::timeout(Duration::from_millis(milliseconds), request).await;
        drop(serving);
        serving = bank.start();
        bank.wait_for_recovery(&serving, &id).await;
        let runs = bank.get(&serving, &format!("/api/conversations/{id}/runs?limit=500")).await;
        let messages = bank.get(&serving, &format!("/api/conversations/{id}/messages?limit=500")).await;
        let usage = bank.get(&serving, "/api/logs/usage?limit=500").await;
        for run in runs["runs"].as_array().unwrap() {
            let of_run =
                |rows: &Value| rows.as_array().unwrap().iter().filter(|row| row["run_id"] == run["id"]).count();
            let stored = (of_run(&messages["messages"]), of_run(&usage["rows"]));
            let expected = match run["status"].as_str().unwrap() {
                "succeeded" => (2, 1),
                // What it was charged before the kill is stored.
                "interrupted" => (1, stored.1.min(1)),
                // The client had gone before the process did.
                "cancelled" => (stored.0, 1),
                other => panic!("{other}"),
            };
            assert_eq!(stored, expected, "{run}");
        }
    }
    let (status, reply) = answer(bank.execute(&serving, &id, "Say.")).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
}
