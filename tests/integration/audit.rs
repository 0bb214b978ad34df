//! The audit trail, as the service leaves it.

use serde_json::{Value, json};

use sekisho::testing::{ReceiptVerifier, public_keys};

use crate::app::{TestApp, answer};

#[tokio::test]
async fn every_call_leaves_one_line_and_the_chain_is_whole() {
    let app = TestApp::start().await;
    app.call("calculator", json!({"expression": "40+2"})).await;
    app.call("calculator", json!({})).await;
    app.call("no_such_tool", json!({"password": "hunter2"})).await;
    app.call("panic", json!({})).await;
    let directory = app.stop().await;
    let file = directory.path().join("state/audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reported: Vec<_> = lines.iter().map(|line| (line["status"].as_str().unwrap(), line["code"].as_str())).collect();
    assert_eq!(
        reported,
        [
            ("success", None),
            ("refused", Some("invalid_arguments")),
            ("refused", Some("unknown_tool")),
            ("error", Some("internal"))
        ]
    );
    assert!(!text.contains("hunter2") && !text.contains("40+2"), "arguments are not written down, their digest is");
    assert_eq!(sekisho::testing::verify_audit(&file).unwrap().lines, 4);
}

#[tokio::test]
async fn the_receipt_of_a_call_proves_its_line_to_who_has_the_public_key() {
    let app = TestApp::start().await;
    let (_, reply) = app.call("calculator", json!({"expression": "40+2"})).await;
    let id = &reply["receipt"]["call_id"];
    let response = app.get(&format!("/receipts/{}", id.as_str().unwrap())).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"text/plain; charset=utf-8".parse().unwrap())
    );
    let receipt = response.text().await.unwrap();
    let (status, unknown) = answer(app.get("/receipts/01890a5d-ac96-774b-bcce-b302099a8057")).await;
    assert_eq!((status.as_u16(), &unknown["error_info"]["code"]), (404, &json!("not_found")), "{unknown}");
    let directory = app.stop().await;
    let keys = public_keys(&directory.path().join("state/audit.jsonl")).unwrap();
    let proven = ReceiptVerifier::new(keys).verify(&receipt).unwrap();
    let line: Value = serde_json::from_str(&proven.line).unwrap();
    assert_eq!((&line["call_id"], &line["status"]), (id, &json!("success")));
    assert_eq!(line["policy_version"], reply["receipt"]["policy"]["version"]);
}

#[tokio::test]
async fn a_restart_goes_on_with_the_chain() {
    let app = TestApp::start().await;
    app.call("calculator", json!({"expression": "1"})).await;
    let app = TestApp::in_directory(app.stop().await, "").await;
    app.call("calculator", json!({"expression": "2"})).await;
    let directory = app.stop().await;
    assert_eq!(sekisho::testing::verify_audit(&directory.path().join("state/audit.jsonl")).unwrap().lines, 2);
}

#[tokio::test]
async fn under_strict_durability_a_reply_means_the_line_is_on_disk() {
    let app = TestApp::with("audit: {durability: strict}").await;
    for n in 1..=5 {
        app.call("calculator", json!({"expression": "1"})).await;
        let text = std::fs::read_to_string(app.directory.path().join("state/audit.jsonl")).unwrap();
        assert_eq!(text.lines().count(), n);
    }
}

#[tokio::test]
async fn a_call_cut_off_by_the_end_of_the_grace_period_has_its_line() {
    let app = TestApp::with("server: {shutdown_grace_seconds: 0}").await;
    let request = app.post("/tools/sleep/execute").json(&json!({"arguments": {"ms": 60_000}}));
    let call = tokio::spawn(request.send());
    while app.gateway.pipeline.limits.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    let directory = app.stop().await;
    assert!(call.await.unwrap().is_err());
    let text = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["status"], "cancelled");
}
