//! Calls that wait together: one question, which lists all of them, and one decision about all, some or none.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::runs::{agent_that, conversation, execute, ok, restarted, runs_of, said};
use super::{ASKS, KEYS, decide, show};
use crate::app::{TestApp, answer, code};
use crate::audit_events::lines;
use crate::charges::served;
use crate::lock::until;
use crate::policy::with_policy_and;

/// A turn of the model with eight calls that need approval.
fn eight_calls() -> String {
    let calls = (1..=8).map(|n| format!("      - {{id: c{n}, tool: echo, arguments: '{{\"n\": {n}}}'}}\n"));
    format!("turns:\n  - calls:\n{}  - text: [\"Done.\"]\n", calls.collect::<String>())
}

/// The address of a receiver of webhooks, and what it gets.
async fn receiver() -> (String, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
    let (sender, received) = tokio::sync::mpsc::unbounded_channel();
    let take = move |body: String| {
        sender.send(serde_json::from_str::<Value>(&body).unwrap()).unwrap();
        async { "" }
    };
    (served(axum::Router::new().route("/hook", axum::routing::post(take))).await, received)
}

/// The states of these approvals.
async fn states(app: &TestApp, ids: &[&str]) -> Vec<String> {
    let mut states = Vec::new();
    for id in ids {
        states.push(show(app, "key-of-boss", id).await.1["status"].as_str().unwrap().to_owned());
    }
    states
}

#[tokio::test]
async fn eight_calls_of_a_turn_are_one_question_and_some_are_struck_out_in_one_decision() {
    let (url, mut told) = receiver().await;
    let webhook =
        format!("approvals: {{webhook: {{url: '{url}/hook', secret: whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3}}}}\n");
    let app = agent_that(&eight_calls(), &format!("{ASKS}{webhook}")).await;
    let conversation = conversation(&app).await;
    let paused = ok(execute(&app, &conversation, &json!({"user_input": "Pay."}))).await;
    assert_eq!(paused["approvals"].as_array().unwrap().len(), 8, "{paused}");
    let asked = told.recv().await.unwrap();
    assert_eq!(asked["type"], "approval.pending", "{asked}");
    // Nobody has decided when the gateway stops.
    let app = restarted(app).await;
    let list = ok(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["calls"]), (1, &json!(8)), "{list}");
    let id = list["items"][0]["id"].as_str().unwrap();
    let (_, shown) = show(&app, "key-of-boss", id).await;
    let calls: Vec<_> = std::iter::once(&shown).chain(shown["with"].as_array().unwrap()).collect();
    let mut by_number: BTreeMap<i64, &str> = BTreeMap::new();
    for call in &calls {
        assert_eq!(call["arguments_sha256"].as_str().unwrap().len(), 64, "{call}");
        by_number.insert(call["arguments"]["n"].as_i64().unwrap(), call["id"].as_str().unwrap());
    }
    assert_eq!(by_number.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8], "{shown}");
    let (_, own) = show(&app, "key-of-ann", id).await;
    assert_eq!((&own["calls"], own["with"][0].get("arguments")), (&json!(8), None), "{own}");
    // An approver of another tenant sees none of it.
    assert_eq!(show(&app, "key-of-far", id).await.0, StatusCode::NOT_FOUND);
    let ids: Vec<_> = (1..=8).map(|n| by_number[&n]).collect();
    let body = json!({"reason": "too much", "with": ids[1..6], "deny": ids[6..]});
    assert_eq!(decide(&app, "key-of-far", ids[0], "approve", body.clone()).await.0, StatusCode::NOT_FOUND);
    let (status, decided) = decide(&app, "key-of-boss", ids[0], "approve", body).await;
    assert_eq!((status, decided["with"].as_array().unwrap().len()), (StatusCode::OK, 7), "{decided}");
    let mut expected = vec!["approved"; 6];
    expected.extend(["denied"; 2]);
    assert_eq!(states(&app, &ids).await, expected);
    let mut notices = BTreeMap::<String, u32>::new();
    for _ in 0..8 {
        let notice = told.recv().await.unwrap();
        *notices.entry(notice["type"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(notices, BTreeMap::from([("approval.approved".into(), 6), ("approval.denied".into(), 2)]));
    assert_eq!(ok(execute(&app, &conversation, &json!({}))).await["result"], "Done.");
    assert_eq!(runs_of(&app, "echo").await, 6.0);
    let refused: Vec<_> =
        said(&app, &conversation).await.into_iter().filter(|text| text.contains("too much")).collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    let lines = lines(app.stop().await.path());
    let given = |event: &str| lines.iter().filter(|line| line["event"] == event && line["success"] == true).count();
    assert_eq!((given("approval_given"), given("approval_denied"), given("approval_used")), (6, 2, 6));
}

/// The approval of a call of the session `s`.
async fn ask(app: &TestApp, n: u32) -> String {
    let (status, reply) = answer(call(app, n)).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"), "{reply}");
    reply["error_info"]["approval"]["id"].as_str().unwrap().to_owned()
}

fn call(app: &TestApp, n: u32) -> reqwest::RequestBuilder {
    let body = json!({"tool_name": "echo", "parameters": {"n": n}, "session_context": {"session_id": "s"}});
    app.post("/tools/execute").bearer_auth("key-of-ann").json(&body)
}

#[tokio::test]
async fn a_decision_about_several_is_made_as_a_whole_and_for_no_other_call() {
    const RULES: &str =
        "package tools\ndeny[\"never\"] { false }\nrequire_approval[\"costly\"] { input.tool == \"echo\" }\n";
    const APPROVERS: &str = "package approvals\ndeny[\"too much\"] { input.approval.arguments.n > 7 }\n";
    let app = with_policy_and(RULES, KEYS).await;
    std::fs::write(app.directory.path().join("policies/approvals.rego"), APPROVERS).unwrap();
    app.gateway.reload((**app.gateway.configuration().current()).clone()).await;
    let (one, two, three, eight) = (ask(&app, 1).await, ask(&app, 2).await, ask(&app, 3).await, ask(&app, 8).await);
    let all = [&*one, &two, &three, &eight];
    for (body, says) in [
        // Who may not approve one of them approves none.
        (json!({"with": [two, eight]}), "too much"),
        (json!({"with": [two, two]}), "is named twice"),
        (json!({"with": [two], "deny": [two]}), "is named twice"),
        (json!({"with": [one]}), "is named twice"),
        (json!({"with": [two], "deny": ["none"]}), "does not wait with this one"),
        (json!({"with": vec![&two; 51]}), "at most 50 others"),
        (json!({"with": [two], "scope": "minutes"}), "needs `minutes`"),
    ] {
        let (status, refused) = decide(&app, "key-of-boss", &one, "approve", body.clone()).await;
        assert!(status.is_client_error() && refused["error"].as_str().unwrap().contains(says), "{body}: {refused}");
        assert_eq!(states(&app, &all).await, ["pending"; 4], "{body}");
    }
    let (_, refused) = decide(&app, "key-of-boss", &one, "approve", json!({"with": [eight]})).await;
    let details = refused["error_info"]["details"].as_array().unwrap();
    assert!(details.iter().any(|detail| detail["path"] == json!(eight)), "it says which one: {refused}");
    let (status, denied) = decide(&app, "key-of-boss", &two, "deny", json!({"with": [eight]})).await;
    assert_eq!(status, StatusCode::OK, "{denied}");
    // A decided call waits no more.
    let (status, refused) = decide(&app, "key-of-boss", &one, "approve", json!({"with": [three, two]})).await;
    assert!(status == StatusCode::BAD_REQUEST && refused["error"].as_str().unwrap().contains("does not wait with"));
    assert_eq!(states(&app, &all).await, ["pending", "denied", "pending", "denied"]);
    let (status, decided) = decide(&app, "key-of-boss", &one, "approve", json!({"with": [three]})).await;
    assert_eq!(status, StatusCode::OK, "{decided}");
    // Each approval is for its own call.
    for (id, n, expected) in
        [(&one, 3, "approval_mismatch"), (&three, 4, "approval_mismatch"), (&two, 2, "approval_denied")]
    {
        let (_, refused) = answer(call(&app, n).header("x-approval-id", id)).await;
        assert_eq!(code(&refused), expected, "{refused}");
    }
    for (id, n) in [(&three, 3), (&one, 1)] {
        let (status, made) = answer(call(&app, n).header("x-approval-id", id)).await;
        assert_eq!((status, &made["output"]["echo"]), (StatusCode::OK, &json!({"n": n})), "{made}");
    }
    assert_eq!(runs_of(&app, "echo").await, 2.0);
}

/// A step of a plan with three calls that need approval.
const PLAN: &str = r#"
turns: []
plan:
  planner: [[{text: ['{"steps": ["pay"]}']}]]
  attempts:
    - - calls:
          - {id: a, tool: echo, arguments: '{"n": 1}'}
          - {id: b, tool: echo, arguments: '{"n": 2}'}
          - {id: c, tool: echo, arguments: '{"n": 3}'}
      - {text: ["The first and the third one were paid, and the second one was not, as the approver wanted."]}
  evaluator: [[{text: ['{"passed": true, "reason": "It was decided so."}']}]]
  answer: [{text: ["Done."]}]
"#;

#[tokio::test]
async fn calls_of_a_step_of_a_plan_are_one_question_while_the_plan_waits() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("plan.yaml");
    std::fs::write(&script, PLAN).unwrap();
    let profile = format!("{{provider: replay, model: '{}', planner: {{preset: steps}}}}", script.display());
    let yaml = format!("{KEYS}{ASKS}agent: {{default_profile: planned, profiles: {{planned: {profile}}}}}\n");
    let app = TestApp::in_directory(directory, &yaml).await;
    let (status, plan) = answer(app.post("/api/plans").bearer_auth("key-of-ann").json(&json!({"goal": "Pay."}))).await;
    assert_eq!(status, StatusCode::CREATED, "{plan}");
    let item = until(async || {
        let list = ok(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
        let items = list["items"].as_array().unwrap();
        items.iter().find(|item| item["calls"] == 3).map(|item| item["id"].as_str().unwrap().to_owned())
    });
    let item = item.await;
    let (_, shown) = show(&app, "key-of-boss", &item).await;
    let calls: Vec<_> = std::iter::once(&shown).chain(shown["with"].as_array().unwrap()).collect();
    let of = |n: i64| calls.iter().find(|call| call["arguments"]["n"] == n).unwrap()["id"].as_str().unwrap();
    let body = json!({"with": [of(3)], "deny": [of(2)]});
    let (status, decided) = decide(&app, "key-of-boss", of(1), "approve", body).await;
    assert_eq!(status, StatusCode::OK, "{decided}");
    let id = plan["id"].as_str().unwrap();
    until(async || {
        let plan = ok(app.get(&format!("/api/plans/{id}")).bearer_auth("key-of-ann")).await;
        (plan["status"] == "finished").then_some(())
    })
    .await;
    assert_eq!(runs_of(&app, "echo").await, 2.0);
}
