//! Runs that go on by themselves after their process ended.

use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::kills::{Bank, PAY};
use crate::app::answer;
use crate::cli::Serving;

/// As many as the gateway runs of one tenant at once.
const AT_ONCE: usize = 8;

/// The payments that were sent have no answer; the others are made after the restart.
#[tokio::test]
async fn twenty_background_runs_of_a_killed_gateway_all_end_and_each_pays_once() {
    let bank = Bank::with_script(PAY).await;
    bank.counter.is_silent.store(true, Ordering::SeqCst);
    let serving = bank.start();
    for _ in 0..20 {
        let (status, run) = answer(bank.post(&serving, "/api/runs", &json!({"user_input": "Pay."}))).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{run}");
    }
    while bank.counter.counts() != (AT_ONCE, 0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let list = listed(&bank, &serving).await;
    let count = |status: &str| list.iter().filter(|run| run["status"] == status).count();
    assert_eq!((count("running"), count("queued")), (AT_ONCE, 20 - AT_ONCE), "{list:?}");
    // Its process is killed with SIGKILL.
    drop(serving);
    bank.counter.is_silent.store(false, Ordering::SeqCst);
    let serving = bank.start();
    let ended = loop {
        let list = listed(&bank, &serving).await;
        if list.iter().all(|run| run["ended_at"].is_string()) {
            break list;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(ended.len(), 20);
    assert!(ended.iter().all(|run| run["status"] == "succeeded"), "{ended:?}");
    assert_eq!(bank.counter.counts(), (20, 0), "each effect once");
    let mut told = 0;
    for run in &ended {
        let said = bank.said(&serving, run["conversation_id"].as_str().unwrap()).await;
        told += usize::from(said.iter().any(|text| text.contains("may have happened")));
        assert_eq!(said.last().unwrap(), "assistant: Paid.", "{said:?}");
    }
    assert_eq!(told, AT_ONCE, "the models of those that had sent a payment know that it may have happened");
}

async fn listed(bank: &Bank, serving: &Serving) -> Vec<Value> {
    bank.get(serving, "/api/runs?limit=50").await["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn the_run_of_a_client_goes_on_by_itself_where_that_is_configured() {
    let bank = Bank::with_agent(PAY, "recover: auto, ").await;
    bank.counter.is_silent.store(true, Ordering::SeqCst);
    let serving = bank.start();
    let id = bank.create(&serving).await;
    bank.kill_when(serving, &id, (1, 0)).await;
    bank.counter.is_silent.store(false, Ordering::SeqCst);
    let serving = bank.start();
    let statuses = async |serving: &Serving| {
        let runs = bank.get(serving, &format!("/api/conversations/{id}/runs")).await;
        runs["runs"].as_array().unwrap().iter().map(|run| run["status"].clone()).collect::<Vec<_>>()
    };
    while statuses(&serving).await != ["succeeded", "interrupted"] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = bank.said(&serving, &id).await;
    assert!(said[3].contains("may have happened") && said[4] == "assistant: Paid.", "{said:?}");
    assert_eq!((bank.counter.counts(), said.len()), ((1, 0), 5), "{said:?}");
    // It has ended, and no other process takes it.
    drop(serving);
    let serving = bank.start();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(statuses(&serving).await, ["succeeded", "interrupted"]);
    assert_eq!(listed(&bank, &serving).await, [] as [Value; 0], "it is no run of `POST /api/runs`");
}

/// A process that is closed stops its runs; the next one goes on with those that no client waits for.
#[tokio::test]
async fn a_run_in_the_background_goes_on_after_a_restart_in_order() {
    let bank = Bank::with_script(&PAY.replace("[\"Paid.\"]", "[\"Paid.\"]\n    delay_seconds: 2")).await;
    let mut serving = bank.start();
    let (_, run) = answer(bank.post(&serving, "/api/runs", &json!({"user_input": "Pay."}))).await;
    while bank.counter.counts() != (1, 0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stopped = std::process::Command::new("kill").args(["-TERM", &serving.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    while serving.ended().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let serving = bank.start();
    let path = format!("/api/runs/{}", run["id"].as_str().unwrap());
    let ended = loop {
        let shown = bank.get(&serving, &path).await;
        if shown["ended_at"].is_string() {
            break shown;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((&ended["status"], &ended["result"]), (&json!("succeeded"), &json!("Paid.")), "{ended}");
    assert_eq!(bank.counter.counts(), (1, 0));
}
