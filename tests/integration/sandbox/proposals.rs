//! Programs that propose their effects: one approval for all of them, each of which is made once.

use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PythonApp;
use crate::app::{answer, code};
use crate::approvals::KEYS;
use crate::console::{Browser, check_markup};
use crate::console_agents::submitted;

/// Calculates, and makes two calls that need approval, of which the second one has values of the first one.
const PROPOSES: &str = "from host import tools\n\
                        total = tools.calculator(expression='6*7')\n\
                        first = tools.echo(n=total)\n\
                        second = tools.echo(after=first['run'], note=f\"n is {first['echo']['n']}\")\n\
                        print(first['echo']['n'])\n\
                        [first['echo']['n'], second['echo']['note']]";

async fn app() -> PythonApp {
    let limits = "python_executor: {rate_limit: 1000000}";
    let yaml = format!("{KEYS}tools: {{overrides: {{{limits}, echo: {{approval: always}}}}}}\n");
    PythonApp::in_directory(TempDir::new().unwrap(), &yaml).await
}

fn propose(app: &PythonApp, key: &str, program: &str) -> RequestBuilder {
    let body = json!({"arguments": {"code": program, "mode": "propose"}});
    app.app.post("/tools/python_executor/execute").bearer_auth(key).json(&body)
}

fn resume(app: &PythonApp, key: &str, run: &str) -> RequestBuilder {
    app.app.post(&format!("/runs/{run}/resume")).bearer_auth(key)
}

/// The run and the approval for which it waits.
fn waiting(reply: &Value) -> (String, String) {
    assert_eq!(code(reply), "approval_required", "{reply}");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    (text(&reply["error_info"]["run"]), text(&reply["error_info"]["approval"]["id"]))
}

async fn decide(app: &PythonApp, approval: &str, what: &str, body: Value) -> (StatusCode, Value) {
    let request = app.app.post(&format!("/approvals/{approval}/{what}")).bearer_auth("key-of-boss");
    answer(request.json(&body)).await
}

async fn echoes(app: &PythonApp) -> f64 {
    app.app.metric("shannon_tool_executions_total{status=\"success\",tool_name=\"echo\"}").await
}

#[tokio::test]
async fn all_effects_of_a_program_are_one_question_and_are_made_once_it_is_answered() {
    let app = app().await;
    let (run, approval) = waiting(&answer(propose(&app, "key-of-ann", PROPOSES)).await.1);
    let (_, shown) = answer(app.app.get(&format!("/approvals/{approval}")).bearer_auth("key-of-boss")).await;
    assert_eq!((&shown["kind"], &shown["tool"]), (&json!("effects"), &json!("program_effects")), "{shown}");
    let effects = shown["arguments"]["effects"].as_array().unwrap();
    let of = |effect: &Value| (effect["call"].clone(), effect["tool"].clone(), effect["refers_to"].clone());
    let expected = [(json!(2), json!("echo"), json!([])), (json!(3), json!("echo"), json!([2]))];
    assert_eq!(effects.iter().map(of).collect::<Vec<_>>(), expected, "{shown}");
    assert_eq!(effects[0]["reasons"], json!(["echo always needs approval"]));
    assert_eq!(shown["arguments"]["reads"][0]["tool"], "calculator");
    assert_eq!(echoes(&app).await, 0.0);
    for stranger in ["key-of-bob", "key-of-far"] {
        assert_eq!(answer(resume(&app, stranger, &run)).await.0, StatusCode::NOT_FOUND, "{stranger}");
    }
    assert_eq!(waiting(&answer(resume(&app, "key-of-ann", &run)).await.1).1, approval, "nobody has decided");
    assert_eq!(decide(&app, &approval, "approve", json!({})).await.1["status"], "approved");
    let (status, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!([42, "n is 42"])), "{reply}");
    assert_eq!((&reply["output"]["stdout"], echoes(&app).await), (&json!("42\n"), 2.0));
    assert_eq!(answer(resume(&app, "key-of-ann", &run)).await.0, StatusCode::NOT_FOUND, "it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_who_commit_at_once_one_does() {
    let app = Arc::new(app().await);
    let (run, approval) = waiting(&answer(propose(&app, "key-of-ann", PROPOSES)).await.1);
    decide(&app, &approval, "approve", json!({})).await;
    let commits = (0..8).map(|_| {
        let (app, run) = (Arc::clone(&app), run.clone());
        tokio::spawn(async move { answer(resume(&app, "key-of-ann", &run)).await })
    });
    let replies: Vec<_> = join_all(commits).await.into_iter().map(Result::unwrap).collect();
    let made = replies.iter().filter(|(status, _)| *status == StatusCode::OK).count();
    assert_eq!((made, echoes(&app).await), (1, 2.0), "{replies:?}");
}

#[tokio::test]
async fn an_approver_strikes_out_what_nothing_else_needs_and_the_rest_is_made() {
    let app = app().await;
    let (run, approval) = waiting(&answer(propose(&app, "key-of-ann", PROPOSES)).await.1);
    for (body, message) in [
        (json!({"strike": [2]}), "effect 3 needs a value of effect 2"),
        (json!({"strike": [2, 3]}), "leaves no effect"),
        (json!({"strike": [7]}), "no effect 7"),
        (json!({"arguments": {}}), "cannot be changed"),
        (json!({"scope": "minutes", "minutes": 5}), "approved once"),
    ] {
        let (status, refused) = decide(&app, &approval, "approve", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
        assert!(refused["error"].as_str().unwrap().contains(message), "{message}: {refused}");
    }
    // The console shows the list, and has a field for each effect.
    let boss = Browser::signed_in(&app.app, "key-of-boss").await;
    let path = format!("/console/approvals/{approval}");
    let page = boss.page(&path).await;
    check_markup(&page);
    assert!(page.contains("echo always needs approval") && page.contains("name=\"strike\" value=\"3\""), "{page}");
    let form = [("act", "approve"), ("strike", "3"), ("reason", "")];
    assert_eq!(submitted(&boss, &path, &form).await, path);
    let (status, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!([42, null])), "{reply}");
    assert_eq!(echoes(&app).await, 1.0);
}

#[tokio::test]
async fn effects_that_are_denied_are_not_made() {
    let app = app().await;
    let (run, approval) = waiting(&answer(propose(&app, "key-of-ann", PROPOSES)).await.1);
    decide(&app, &approval, "deny", json!({"reason": "no"})).await;
    let (_, reply) = answer(resume(&app, "key-of-ann", &run)).await;
    assert_eq!((code(&reply), echoes(&app).await), ("approval_denied", 0.0), "{reply}");
}

#[tokio::test]
async fn a_program_that_decides_by_a_value_that_is_not_known_ends_and_one_in_a_session_cannot_propose() {
    let app = app().await;
    let (_, reply) =
        answer(propose(&app, "key-of-ann", "from host import tools\nif tools.echo()['run'] > 1:\n  tools.echo()"))
            .await;
    assert_eq!(code(&reply), "tool_error", "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("known once the effect is made"), "{reply}");
    let body = json!({"arguments": {"code": PROPOSES, "mode": "propose", "session": "s"}});
    let request = app.app.post("/tools/python_executor/execute").bearer_auth("key-of-ann").json(&body);
    assert_eq!(code(&answer(request).await.1), "invalid_arguments");
    assert_eq!(echoes(&app).await, 0.0);
}

#[tokio::test]
async fn another_run_of_an_equal_program_needs_an_approval_of_its_own() {
    let app = app().await;
    let (first, approval) = waiting(&answer(propose(&app, "key-of-ann", PROPOSES)).await.1);
    let (second, other) = waiting(&answer(propose(&app, "key-of-ann", PROPOSES)).await.1);
    assert_ne!(approval, other);
    decide(&app, &approval, "approve", json!({})).await;
    assert_eq!(answer(resume(&app, "key-of-ann", &first)).await.0, StatusCode::OK);
    assert_eq!(waiting(&answer(resume(&app, "key-of-ann", &second)).await.1), (second, other));
    assert_eq!(echoes(&app).await, 2.0);
}
