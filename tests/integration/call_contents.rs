//! The arguments and results of calls: kept where it is configured, sealed and after all rules, opened by administrators of the tenant alone
//! with a line in the audit trail, tried again and compared.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS, check_markup};
use crate::lock::until;

/// With an administrator of each tenant. Rules hide a part of the arguments and a part of the results of `echo`.
fn yaml() -> String {
    let administrators = "  api_keys:\n    - {id: ada, key: key-of-ada, tenant: acme, roles: [admin]}\n    \
                          - {id: max, key: key-of-max, tenant: other, roles: [admin]}\n";
    format!(
        "{}recording: {{content: {{tools: [echo, fail, calc*], max_bytes: 4096}}}}\n\
         tools:\n  overrides: {{sleep: {{audit_arguments: full}}}}\n  transform:\n    arguments: [{{name: sent, tools: [echo], paths: ['$.token']}}]\n    \
         results: [{{name: answered, tools: [echo], paths: ['$.echo.note']}}]\n",
        KEYS.replace("  api_keys:\n", administrators)
    )
}

/// The id of a call.
async fn call(app: &TestApp, key: &str, tool: &str, arguments: Value) -> String {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth(key);
    let (_, reply) = answer(request.json(&json!({"arguments": arguments}))).await;
    reply["receipt"]["call_id"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

async fn content(app: &TestApp, key: &str, id: &str) -> (StatusCode, Value) {
    answer(app.get(&format!("/admin/calls/{id}/content")).bearer_auth(key)).await
}

/// Who opened which call, the latest first.
async fn openings(app: &TestApp) -> Vec<(String, String)> {
    let request = app.get("/admin/events?event=call_content_opened").bearer_auth("key-of-root");
    let (_, page) = answer(request).await;
    let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    page["items"].as_array().unwrap().iter().map(|event| (text(event, "caller"), text(event, "subject"))).collect()
}

#[tokio::test]
async fn contents_are_sealed_and_opened_by_administrators_of_the_tenant_with_an_event() {
    let app = TestApp::with(&yaml()).await;
    let arguments = json!({"text": "hunter2", "token": "t0ps3cret", "note": "n0te"});
    let echoed = call(&app, "key-of-ann", "echo", arguments).await;
    for (key, expected) in [
        ("key-of-ann", StatusCode::FORBIDDEN),
        ("key-of-vic", StatusCode::FORBIDDEN),
        ("key-of-nobody", StatusCode::NOT_FOUND),
        ("key-of-eve", StatusCode::NOT_FOUND),
        ("key-of-max", StatusCode::NOT_FOUND),
    ] {
        let (status, body) = content(&app, key, &echoed).await;
        assert_eq!(status, expected, "{key}: {body}");
        assert!(!body.to_string().contains("hunter2"), "{key}: {body}");
    }
    assert!(openings(&app).await.is_empty());
    let (status, body) = content(&app, "key-of-ada", &echoed).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["arguments"], json!({"text": "hunter2", "token": "[redacted]", "note": "n0te"}));
    assert_eq!((&body["result"]["echo"]["text"], &body["tool"]), (&json!("hunter2"), &json!("echo")), "{body}");
    assert!(!body["result"].to_string().contains("n0te") && !body.to_string().contains("t0ps3cret"), "{body}");
    assert_eq!(content(&app, "key-of-root", &echoed).await.0, StatusCode::OK);
    let opened = |who: &str| (who.to_owned(), echoed.clone());
    assert_eq!(openings(&app).await, [opened("root"), opened("ada")]);

    let failed = call(&app, "key-of-ann", "fail", json!({})).await;
    let (_, body) = content(&app, "key-of-ada", &failed).await;
    assert_eq!((&body["arguments"], &body["result"]), (&json!({}), &json!({"tried": true})), "{body}");
    let large = call(&app, "key-of-ann", "echo", json!({"text": "x".repeat(5_000)})).await;
    let (_, body) = content(&app, "key-of-ada", &large).await;
    let (arguments, result) = (&body["arguments_too_large"], &body["result_too_large"]);
    assert_eq!((arguments, result, &body["arguments"]), (&json!(true), &json!(true), &Value::Null), "{body}");
    let not_kept = call(&app, "key-of-ann", "upstream", json!({})).await;
    let (status, body) = content(&app, "key-of-ada", &not_kept).await;
    assert!(status == StatusCode::NOT_FOUND && body.to_string().contains("recording.content"), "{body}");

    // The audit trail has the arguments of this tool.
    let in_trail = call(&app, "key-of-ann", "sleep", json!({"ms": 1, "why": "tea"})).await;
    let body = until(async || {
        let (status, body) = content(&app, "key-of-ada", &in_trail).await;
        (status == StatusCode::OK).then_some(body)
    });
    assert_eq!(body.await["arguments"], json!({"ms": 1, "why": "tea"}));
    assert_eq!(content(&app, "key-of-max", &in_trail).await.0, StatusCode::NOT_FOUND);
    assert_eq!(content(&app, "key-of-ann", &in_trail).await.0, StatusCode::FORBIDDEN);

    let directory = app.stop().await;
    for file in ["sekisho.calls.db", "sekisho.calls.db-wal", "sekisho.db", "sekisho.db-wal", "audit.jsonl"] {
        let bytes = std::fs::read(directory.path().join("state").join(file)).unwrap_or_default();
        assert!(!bytes.windows(7).any(|part| part == b"hunter2"), "{file}");
    }
    let app = TestApp::in_directory(directory, &yaml()).await;
    assert_eq!(content(&app, "key-of-ada", &echoed).await.1["arguments"]["text"], "hunter2");
}

#[tokio::test]
async fn the_page_of_a_call_opens_its_content_fills_the_form_in_and_compares() {
    let app = TestApp::with(&yaml()).await;
    let first = call(&app, "key-of-ann", "echo", json!({"text": "hunter2"})).await;
    let second = call(&app, "key-of-ann", "echo", json!({"text": "correct horse"})).await;
    let computed = call(&app, "key-of-ann", "calculator", json!({"expression": "6*7"})).await;
    let (ada, ann) = (Browser::signed_in(&app, "key-of-ada").await, Browser::signed_in(&app, "key-of-ann").await);
    let path = format!("/console/calls/{first}");
    let page = ada.page(&path).await;
    check_markup(&page);
    assert!(page.contains("?content=open#content") && !page.contains("hunter2"), "{page}");
    assert!(openings(&app).await.is_empty());
    let page = ada.page(&format!("{path}?content=open")).await;
    check_markup(&page);
    assert!(page.contains("hunter2") && page.contains("sekisho --server"), "{page}");
    assert!(page.contains(&format!("/console/tools/echo?call={first}#try")), "{page}");
    assert_eq!(openings(&app).await, [("ada".to_owned(), first.clone())]);
    for page in [ann.page(&path).await, ann.page(&format!("{path}?content=open")).await] {
        assert!(!page.contains("?content=open#content") && !page.contains("hunter2"), "{page}");
    }

    let tool = ada.page("/console/tools/calculator").await;
    let filled = ada.page(&format!("/console/tools/calculator?call={computed}")).await;
    check_markup(&filled);
    // In the four snippets, and in the form.
    assert!(filled.matches("6*7").count() > tool.matches("6*7").count() + 4, "{filled}");
    let refused = ann.get(&format!("/console/tools/calculator?call={computed}")).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);

    let page = ada.page(&format!("{path}/compare?with={second}")).await;
    check_markup(&page);
    assert!(page.contains("/arguments/text") && page.contains("hunter2") && page.contains("correct horse"), "{page}");
    let page = ada.page(&format!("{path}/compare?with={first}")).await;
    assert!(page.contains("are equal") && !page.contains("hunter2"), "{page}");
    let max = Browser::signed_in(&app, "key-of-max").await;
    for other in [format!("{path}/compare?with={second}"), format!("/console/tools/calculator?call={computed}")] {
        assert_eq!(max.get(&other).send().await.unwrap().status(), StatusCode::NOT_FOUND, "{other}");
    }
}
