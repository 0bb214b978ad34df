//! `kill -9` of the real program in each state of an approved call, on both engines.

use std::os::unix::process::ExitStatusExt;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::KEYS;
use crate::app::{answer, code};
use crate::cli::{Serving, sekisho};
use crate::store_database::TestDatabase;

struct Program {
    directory: TempDir,
    client: Client,
}

impl Program {
    /// `store`: the settings of a database.
    fn new(store: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let asks = "tools: {overrides: {calculator: {approval: always}}}\n";
        std::fs::write(directory.path().join("sekisho.yaml"), format!("{store}{KEYS}{asks}")).unwrap();
        Self { directory, client: Client::builder().no_proxy().build().unwrap() }
    }

    async fn start(&self, fatal: Option<&str>) -> Serving {
        let mut program = sekisho(&self.directory);
        program.envs(fatal.map(|point| ("SEKISHO_FAILPOINT", point)));
        tokio::task::spawn_blocking(|| Serving::run(program, &["--config", "sekisho.yaml"])).await.unwrap()
    }

    fn call(&self, serving: &Serving) -> RequestBuilder {
        let request = self.client.post(format!("{}/tools/calculator/execute", serving.url)).bearer_auth("key-of-ann");
        request.json(&json!({"arguments": {"expression": "6*7"}}))
    }

    /// The id of the approval that the call asks for.
    async fn ask(&self, serving: &Serving) -> String {
        let (_, refused) = answer(self.call(serving)).await;
        refused["error_info"]["approval"]["id"].as_str().unwrap_or_else(|| panic!("{refused}")).to_owned()
    }

    async fn approve(&self, serving: &Serving, id: &str) {
        let approve = self.client.post(format!("{}/approvals/{id}/approve", serving.url)).bearer_auth("key-of-boss");
        assert_eq!(answer(approve.json(&json!({}))).await.0, StatusCode::OK);
    }

    async fn state_of(&self, serving: &Serving, id: &str) -> Value {
        let request = self.client.get(format!("{}/approvals/{id}", serving.url)).bearer_auth("key-of-boss");
        answer(request).await.1["status"].clone()
    }

    /// Kills the program where an approved call is at this point; what a retry gets then, and the state.
    async fn killed_at(&self, point: &str) -> (StatusCode, Value, Value) {
        let mut serving = self.start(Some(point)).await;
        let id = self.ask(&serving).await;
        self.approve(&serving, &id).await;
        assert!(self.call(&serving).header("x-approval-id", &id).send().await.is_err(), "{point}");
        let status = tokio::task::spawn_blocking(move || serving.wait()).await.unwrap();
        assert_eq!(status.signal(), Some(9), "{point}");
        let serving = self.start(None).await;
        let (status, reply) = answer(self.call(&serving).header("x-approval-id", &id)).await;
        (status, reply, self.state_of(&serving, &id).await)
    }

    /// Kills the program in each state that an approval has between two requests.
    async fn killed_between_requests(&self) {
        let serving = self.start(None).await;
        let id = self.ask(&serving).await;
        // As by `kill -9`.
        drop(serving);
        let serving = self.start(None).await;
        assert_eq!(self.state_of(&serving, &id).await, "pending");
        assert_eq!(self.ask(&serving).await, id, "the same request");
        self.approve(&serving, &id).await;
        drop(serving);
        let mut calls = Vec::new();
        for state in ["approved", "done"] {
            let serving = self.start(None).await;
            assert_eq!(self.state_of(&serving, &id).await, state);
            let (status, reply) = answer(self.call(&serving).header("x-approval-id", &id)).await;
            assert_eq!((status, &reply["output"]), (StatusCode::OK, &json!(42)), "{state}: {reply}");
            calls.push(reply["receipt"]["call_id"].clone());
        }
        assert_eq!(calls[0], calls[1], "the call has run once");
    }
}

async fn a_crash_leaves_an_approval_as_it_was(store: impl AsyncFn() -> String) {
    // Before the call is about to be sent, it is still approved, and runs.
    let (status, reply, state) = Program::new(&store().await).killed_at("approval.starting").await;
    assert_eq!((status, &reply["output"], state), (StatusCode::OK, &json!(42), json!("done")), "{reply}");
    // From then on nobody knows, and it never runs again by itself.
    for point in ["approval.executing", "approval.ending"] {
        let (status, reply, state) = Program::new(&store().await).killed_at(point).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "unknown_outcome"), "{point}: {reply}");
        assert_eq!(state, "unknown", "{point}");
    }
    // It has ended, and the reply was not kept yet.
    let (status, reply, state) = Program::new(&store().await).killed_at("approval.ended").await;
    assert_eq!((status, state), (StatusCode::CONFLICT, json!("done")), "{reply}");
}

async fn of_postgresql() -> String {
    TestDatabase::new().await.settings(&format!("secrets: {{key: {}}}\n", "0a".repeat(32)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_killed_between_requests_keeps_each_state() {
    Program::new("").killed_between_requests().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_program_that_is_killed_between_requests_keeps_each_state() {
    Program::new(&of_postgresql().await).killed_between_requests().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_never_makes_an_approved_call_twice() {
    a_crash_leaves_an_approval_as_it_was(async || String::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_killed_program_never_makes_an_approved_call_twice() {
    a_crash_leaves_an_approval_as_it_was(of_postgresql).await;
}
