//! `sekisho backup` beside a running gateway, and `sekisho restore`.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::cli::{Serving, sekisho, text};

/// Each answer waits for its line of the trail.
const SETTINGS: &str = "{audit: {durability: strict}, tools: {overrides: {file_write: {roles: [], dangerous: false}}}}";

async fn run(directory: &TempDir, arguments: &[&str]) -> Output {
    let mut command = sekisho(directory);
    command.args(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn call(app: &TestApp, key: usize) -> (StatusCode, bool, Value) {
    let request = app.post("/tools/echo/execute").header("idempotency-key", format!("k-{key}"));
    let response = request.json(&json!({"arguments": {"n": key}})).send().await.unwrap();
    let replayed = response.headers().contains_key("idempotency-replayed");
    (response.status(), replayed, response.json().await.unwrap())
}

/// Calls go on while the backup is made: what was answered before it is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_busy_gateway_has_what_was_answered_before_and_is_restored() {
    let app = Arc::new(TestApp::with(SETTINGS).await);
    let upload = app.client.put(format!("{}/sessions/s/files/a%2Fb.txt", app.url)).body("today");
    assert_eq!(answer(upload).await.0, StatusCode::OK);
    let (sent, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let calling = tokio::spawn({
        let (app, sent, ends) = (Arc::clone(&app), Arc::clone(&sent), Arc::clone(&ends));
        async move {
            let mut ids = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                let (status, _, reply) = call(&app, ids.len()).await;
                assert_eq!(status, StatusCode::OK, "{reply}");
                ids.push(reply["receipt"]["call_id"].as_str().unwrap().to_owned());
                sent.store(ids.len(), Ordering::SeqCst);
            }
            ids
        }
    });
    while sent.load(Ordering::SeqCst) < 50 {
        tokio::task::yield_now().await;
    }
    let before = sent.load(Ordering::SeqCst);
    let written = run(&app.directory, &["backup", "monday.zip"]).await;
    ends.store(true, Ordering::SeqCst);
    let ids = calling.await.unwrap();
    assert!(written.status.success(), "{}", text(&written));
    assert!(text(&written).contains("files of sessions: 1"), "{}", text(&written));
    let again = run(&app.directory, &["backup", "monday.zip"]).await;
    assert!(again.status.code() == Some(1) && text(&again).contains("exists already"), "{}", text(&again));
    let archive = app.directory.path().join("monday.zip");

    let restored = TempDir::new().unwrap();
    let archive = archive.to_str().unwrap();
    let done = run(&restored, &["--json", "restore", archive]).await;
    assert!(done.status.success(), "{}", text(&done));
    let verified = run(&restored, &["--json", "audit", "verify"]).await;
    let verified: Value = serde_json::from_slice(&verified.stdout).unwrap();
    let contents: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&verified["whole"], &verified["lines"]), (&json!(true), &contents["audit_lines"]));
    let exported = text(&run(&restored, &["audit", "export"]).await);
    let found: BTreeSet<_> = ids.iter().filter(|id| exported.contains(id.as_str())).collect();
    assert!(
        ids[..before].iter().all(|id| found.contains(id)),
        "{before} of {} before, {} in it",
        ids.len(),
        found.len()
    );
    let refused = run(&restored, &["restore", archive]).await;
    assert!(refused.status.code() == Some(1) && text(&refused).contains("exists already"), "{}", text(&refused));

    let there = TestApp::in_directory(restored, SETTINGS).await;
    let (_, read) = answer(
        there.post("/tools/file_read/execute").json(&json!({"arguments": {"path": "a/b.txt"}, "session_id": "s"})),
    )
    .await;
    assert_eq!(read["output"]["content"], "today", "{read}");
    for key in [0, before - 1] {
        let (status, replayed, reply) = call(&there, key).await;
        assert_eq!((status, replayed), (StatusCode::OK, true), "{reply}");
        assert_eq!(reply["receipt"]["call_id"], ids[key].as_str());
    }
    drop(there.stop().await);
}

#[test]
fn nothing_is_restored_to_the_state_directory_of_a_running_gateway() {
    let directory = TempDir::new().unwrap();
    let _serving = Serving::start(&directory);
    let run = |arguments: &[&str]| sekisho(&directory).args(arguments).output().unwrap();
    let written = run(&["backup", "monday.zip"]);
    assert!(written.status.success(), "{}", text(&written));
    let refused = run(&["restore", "monday.zip"]);
    assert!(refused.status.code() == Some(1) && text(&refused).contains("another process"), "{}", text(&refused));
}
