//! `POST /tools/select`: tools for a task.

use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};

#[tokio::test]
async fn the_tools_that_fit_a_task_are_named_the_best_first() {
    let app = TestApp::start().await;
    let request = app.post("/tools/select").json(&json!({"task": "what time is it in another zone", "max_tools": 1}));
    let (status, selection) = answer(request).await;
    assert_eq!(status, 200);
    assert_eq!(selection, json!({"selected_tools": ["current_time"], "calls": [], "provider_used": "search"}));
}

#[tokio::test]
async fn dangerous_tools_are_selected_only_on_request() {
    let keys = "auth: {api_keys: [{id: ada, key: k, roles: [operator, admin]}]}";
    let app = TestApp::with(keys).await;
    for (exclude, named) in [(None, false), (Some(true), false), (Some(false), true)] {
        let mut body = json!({"task": "write a file", "max_tools": 10});
        if let Some(exclude) = exclude {
            body["exclude_dangerous"] = exclude.into();
        }
        let (_, selection) = answer(app.post("/tools/select").bearer_auth("k").json(&body)).await;
        let tools = selection["selected_tools"].as_array().unwrap();
        assert_eq!(tools.contains(&"file_write".into()), named, "{selection}");
        assert!(tools.contains(&"file_read".into()), "{selection}");
    }
}

#[tokio::test]
async fn two_are_selected_by_default_and_context_is_used() {
    let app = TestApp::start().await;
    let (_, selection) = answer(app.post("/tools/select").json(&json!({"task": "read, list or fetch a file"}))).await;
    assert_eq!(selection["selected_tools"].as_array().unwrap().len(), 2);
    let body = json!({"task": "help", "context": {"hint": "arithmetic", "attempt": 1}, "max_tools": 1});
    let (_, selection) = answer(app.post("/tools/select").json(&body)).await;
    assert_eq!(selection["selected_tools"], json!(["calculator"]));
}

#[tokio::test]
async fn an_empty_task_is_refused_with_a_remedy() {
    let app = TestApp::start().await;
    let bad: [Value; 5] = [
        json!({}),
        json!({"task": "  "}),
        json!({"task": "x".repeat(20_000)}),
        json!({"task": "x", "max_tools": 0}),
        json!({"task": "x", "no_such_key": 1}),
    ];
    for body in bad {
        let (status, reply) = answer(app.post("/tools/select").json(&body)).await;
        assert_eq!((status.as_u16(), code(&reply)), (400, "invalid_request"), "{reply}");
    }
}
