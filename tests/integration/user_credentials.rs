//! Callers who store a credential for an upstream (`identity: stored`).

use std::fs::File;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::cli::{sekisho, text};
use crate::console_open_id::Browser;
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::user_sign_in::{self, app_with, needed, says, wait_for_tools};
use crate::user_upstream::Upstream;

/// As for callers who sign in; the API takes a key in a header of its own.
fn yaml(upstream: &Upstream, elsewhere: &Upstream) -> String {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Me", "version": "1"}, "servers": [{"url": upstream.url}],
        "components": {"securitySchemes": {
            "a_query": {"type": "apiKey", "in": "query", "name": "key"},
            "unused": {"type": "http", "scheme": "bearer"},
            "user": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}},
        "security": [{"a_query": []}, {"user": []}],
        "paths": {
            "/me": {"get": {"operationId": "me", "responses": {"200": {"description": "who"}}}},
            "/{name}": {"servers": [{"url": elsewhere.url}], "get": {"operationId": "other",
                "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "who"}}}},
        },
    });
    let signed_in = user_sign_in::yaml(upstream);
    let (before, _) = signed_in.split_once("openapi: {collections").unwrap();
    let before = before.replace("identity: per_user", "identity: stored");
    format!("{before}openapi: {{collections: {{api: {{spec_inline: '{document}', identity: stored}}}}}}\n")
}

/// An upstream that knows a key of Ann and one of Bob.
async fn upstream() -> Upstream {
    let upstream = Upstream::start().await;
    for user in ["ann", "bob"] {
        upstream.know(&format!("s3cret-of-{user}"), user);
    }
    upstream
}

async fn store(app: &TestApp, source: &str, caller: &str, body: Value) -> (StatusCode, Value) {
    let request = app.post(&format!("/me/credentials/{source}")).bearer_auth(format!("key-of-{caller}"));
    answer(request.json(&body)).await
}

async fn remove(app: &TestApp, source: &str, caller: &str) -> StatusCode {
    let url = format!("{}/me/credentials/{source}", app.url);
    app.client.delete(url).bearer_auth(format!("key-of-{caller}")).send().await.unwrap().status()
}

fn key_of(user: &str) -> Value {
    json!({"kind": "key", "secret": format!("s3cret-of-{user}")})
}

#[tokio::test]
async fn each_caller_acts_with_the_credential_that_it_stored_and_nobody_reads_it() {
    let (upstream, elsewhere) = (upstream().await, upstream().await);
    let app = app_with(&yaml(&upstream, &elsewhere)).await;
    for (source, tool, test) in [("mcp:far", "far__whoami", "passed"), ("openapi:api", "api__me", "none")] {
        let first = if source == "mcp:far" { "far__sign_in" } else { tool };
        assert_eq!(needed(&app, first, "ann").await["source"], source);
        for user in ["ann", "bob"] {
            let (status, stored) = store(&app, source, user, key_of(user)).await;
            assert_eq!((status, &stored["test"]), (StatusCode::CREATED, &json!(test)), "{stored}");
        }
        wait_for_tools(&app).await;
        for (user, other) in [("ann", "bob"), ("bob", "ann")] {
            let said = says(&app, tool, user).await;
            assert!(said.contains(user) && !said.contains(other), "{tool} {user}: {said}");
        }
    }
    // The same API at another server, which would know the key.
    let request = app.post("/tools/api__other/execute").bearer_auth("key-of-ann");
    let (_, refused) = answer(request.json(&json!({"arguments": {"name": "me"}}))).await;
    assert!(
        refused["success"] == false && refused["text"].as_str().unwrap().contains("401"),
        "it got no credential: {refused}"
    );
    let (_, listed) = answer(app.get("/me/credentials").bearer_auth("key-of-ann")).await;
    let items = listed["items"].as_array().unwrap();
    assert!(items.len() == 2 && items.iter().all(|item| item["last_used_at"].is_string()), "{listed}");
    assert!(!listed.to_string().contains("s3cret"), "{listed}");
    // Neither an administrator's nor those of another tenant.
    for other in ["ada", "root"] {
        let (_, listed) = answer(app.get("/me/credentials").bearer_auth(format!("key-of-{other}"))).await;
        assert_eq!(listed["items"], json!([]), "{other}");
        assert_eq!(remove(&app, "mcp:far", other).await, StatusCode::NOT_FOUND, "{other}");
    }
    let secret = app.directory.path().join("secret.txt");
    std::fs::write(&secret, "s3cret-of-ann\n").unwrap();
    let command = |arguments: &[&str]| {
        let mut command = sekisho(&app.directory);
        command.args(["--server", &app.url, "sign-ins"]).args(arguments).stdin(File::open(&secret).unwrap());
        command.env("SEKISHO_API_KEY", "key-of-ann");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let stored = command(&["store", "mcp:far"]).await.unwrap();
    assert!(text(&stored).contains("its test call: passed"), "{}", text(&stored));
    let listed = text(&command(&["credentials"]).await.unwrap());
    assert!(listed.contains("mcp:far") && listed.contains("openapi:api") && !listed.contains("s3cret"), "{listed}");
    assert_eq!(remove(&app, "openapi:api", "ann").await, StatusCode::NO_CONTENT);
    needed(&app, "api__me", "ann").await;

    let directory = app.stop().await;
    let app = TestApp::in_directory(directory, &yaml(&upstream, &elsewhere)).await;
    wait_for_tools(&app).await;
    assert!(says(&app, "far__whoami", "ann").await.contains("ann"), "after a restart");
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    for said in ["credential_stored", "key, created", "key, replaced", "credential_removed"] {
        assert!(trail.contains(said), "{said}: {trail}");
    }
    for entry in std::fs::read_dir(directory.path().join("state")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(9).any(|bytes| bytes == b"s3cret-of"), "it is sealed");
    }
}

#[tokio::test]
async fn a_credential_that_cannot_be_used_is_refused_and_not_kept() {
    let (upstream, elsewhere) = (upstream().await, upstream().await);
    let app = app_with(&yaml(&upstream, &elsewhere)).await;
    let yesterday = json!({"kind": "key", "secret": "s3cret", "expires_at": "2026-01-01T00:00:00Z"});
    for (source, body, status) in [
        ("mcp:near", key_of("ann"), StatusCode::NOT_FOUND),
        ("far", key_of("ann"), StatusCode::NOT_FOUND),
        ("mcp:far", json!({"kind": "key", "secret": "s3cret-of-nobody"}), StatusCode::BAD_REQUEST),
        ("mcp:far", json!({"kind": "key", "secret": ""}), StatusCode::BAD_REQUEST),
        ("mcp:far", json!({"kind": "basic", "secret": "s3cret"}), StatusCode::BAD_REQUEST),
        ("openapi:api", json!({"kind": "basic", "username": "ann", "secret": "s3cret"}), StatusCode::BAD_REQUEST),
        ("openapi:api", json!({"kind": "header", "secret": "s3cret\r\nX-Admin: 1"}), StatusCode::BAD_REQUEST),
        ("openapi:api", yesterday, StatusCode::BAD_REQUEST),
    ] {
        let (found, refused) = store(&app, source, "ann", body).await;
        assert_eq!(found, status, "{source}: {refused}");
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }
    let (_, listed) = answer(app.get("/me/credentials").bearer_auth("key-of-ann")).await;
    assert_eq!(listed["items"], json!([]), "nothing is kept");
    // One that the upstream refuses later is forgotten, and the call says where another is stored.
    store(&app, "openapi:api", "ann", key_of("ann")).await;
    assert!(says(&app, "api__me", "ann").await.contains("ann"));
    upstream.expire("ann");
    needed(&app, "api__me", "ann").await;
    app.stop().await;
}

#[tokio::test]
async fn the_page_of_a_refused_call_asks_for_the_credential_and_the_call_of_an_mcp_client_goes_on() {
    let (upstream, elsewhere) = (upstream().await, upstream().await);
    let app = app_with(&yaml(&upstream, &elsewhere)).await;
    let client = McpClient::new(&app, NEWER, Some("key-of-ann")).with_capabilities(json!({"elicitation": {"url": {}}}));
    let call = json!({"name": "far__sign_in", "arguments": {}});
    let asked = client.result("tools/call", call.clone(), "InputRequiredResult").await;
    let params = &asked["inputRequests"]["sign_in"]["params"];
    assert!(params["message"].as_str().unwrap().starts_with("Store your credential for mcp:far"), "{asked}");
    let mut again = call.clone();
    again["inputResponses"] = json!({"sign_in": {"action": "accept"}});
    again["requestState"] = asked["requestState"].clone();
    let (_, needed) = answer(app.post("/sign-ins/mcp:far").bearer_auth("key-of-ann")).await;
    assert_eq!(needed["url"], params["url"], "it is the same page");
    let (page, one_time) = (user_sign_in::page(&app, &needed), needed["code"].as_str().unwrap());
    let store = async {
        let mut browser = Browser::new();
        let shown = browser.send(&page, None).await.text().await.unwrap();
        assert!(shown.contains("name=\"secret\"") && shown.contains("type=\"password\""), "{shown}");
        let written = "kind=key&username=&expires=&secret=s3cret-of-ann";
        let refused = browser.send(&page, Some(&format!("code=BBBB-BBBB&{written}"))).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        let wrong = browser.send(&page, Some(&format!("code={one_time}&kind=key&secret="))).await;
        assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
        let stored = browser.send(&page, Some(&format!("code={one_time}&{written}"))).await;
        assert_eq!(stored.status(), StatusCode::OK, "{}", stored.text().await.unwrap());
        let again = browser.send(&page, Some(&format!("code={one_time}&{written}"))).await;
        assert_eq!(again.status(), StatusCode::NOT_FOUND, "the page is used once");
    };
    let (answered, ()) = tokio::join!(client.result("tools/call", again, "CallToolResult"), store);
    assert_eq!(answered["structuredContent"]["signed_in"], true, "{answered}");
    wait_for_tools(&app).await;
    assert!(says(&app, "far__whoami", "ann").await.contains("ann"));
    app.stop().await;
}
