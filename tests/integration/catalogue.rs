//! Sources of the catalogue: off until a caller has asked and an administrator has switched them on.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::cli::{sekisho, text};
use crate::mcp_programs::{running, server};

/// Counted by this file alone.
const MOOD: &str = "steady-of-the-catalogue";

/// Ann and Bob of a tenant with its administrator, Eve of another one, and the administrator of all. One server is always there.
fn yaml() -> String {
    format!(
        "auth:\n  anonymous: never\n  api_keys:\n    - {{id: ann, key: key-of-ann, tenant: acme}}\n    \
         - {{id: bob, key: key-of-bob, tenant: acme}}\n    \
         - {{id: ada, key: key-of-ada, tenant: acme, roles: [admin]}}\n    \
         - {{id: eve, key: key-of-eve, tenant: globex}}\n    \
         - {{id: gil, key: key-of-gil, tenant: globex, roles: [admin]}}\n    \
         - {{id: root, key: key-of-root, roles: [admin]}}\n\
         mcp:\n  servers:\n    extra: {extra}\n    plain: {plain}\n\
         catalogue: {{sources: {{'mcp:extra': A further server.}}}}\n",
        extra = server(MOOD, "labels: [x]"),
        plain = server("steady", "labels: [x]"),
    )
}

async fn app() -> TestApp {
    let app = TestApp::with(&yaml()).await;
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    app
}

async fn post(app: &TestApp, path: &str, caller: &str, body: Value) -> (StatusCode, Value) {
    answer(app.post(path).bearer_auth(format!("key-of-{caller}")).json(&body)).await
}

async fn get(app: &TestApp, path: &str, caller: &str) -> (StatusCode, Value) {
    answer(app.get(path).bearer_auth(format!("key-of-{caller}"))).await
}

/// The names of the tools of the source that a caller lists, once all servers have been connected.
async fn tools(app: &TestApp, caller: &str) -> Vec<String> {
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    let (_, listed) = get(app, "/tools/list", caller).await;
    let names = listed.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("extra__")).collect()
}

async fn state(app: &TestApp, caller: &str) -> Value {
    get(app, "/me/sources", caller).await.1["items"][0]["state"].clone()
}

/// The id of the request that a caller makes.
async fn ask(app: &TestApp, caller: &str) -> String {
    let (status, asked) = post(app, "/me/sources/mcp:extra", caller, json!({"reason": "for reviews"})).await;
    assert_eq!((status, &asked["state"]), (StatusCode::OK, &json!("asked")), "{asked}");
    asked["id"].as_str().unwrap().to_owned()
}

async fn decide(app: &TestApp, by: &str, id: &str, body: Value) -> (StatusCode, Value) {
    post(app, &format!("/admin/source-requests/{id}"), by, body).await
}

#[tokio::test]
async fn a_source_is_off_until_it_is_approved_and_again_once_that_is_withdrawn() {
    let app = app().await;
    for caller in ["ann", "ada", "root"] {
        assert!(tools(&app, caller).await.is_empty(), "{caller}");
    }
    assert_eq!(running(MOOD), 0, "a server that nobody has is not started");
    assert_eq!(state(&app, "ann").await, "off");

    let id = ask(&app, "ann").await;
    assert_eq!((ask(&app, "ann").await, state(&app, "ann").await), (id.clone(), json!("asked")), "it is one request");
    let (_, profile) = get(&app, "/admin/sources/mcp:extra", "ada").await;
    assert!(profile["sandbox"].as_str().unwrap().contains("network"), "{profile}");
    assert!(!profile["tools"].as_array().unwrap().is_empty(), "{profile}");
    for (by, status) in [("ann", StatusCode::FORBIDDEN), ("gil", StatusCode::NOT_FOUND)] {
        let (found, refused) = decide(&app, by, &id, json!({"decision": "approve"})).await;
        assert_eq!(found, status, "{by}: {refused}");
    }
    assert!(tools(&app, "ann").await.is_empty());
    let (status, refused) = decide(&app, "ada", &id, json!({"decision": "approve", "for": "key"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "her key is of the configuration: {refused}");

    let (status, approved) = decide(&app, "ada", &id, json!({"decision": "approve"})).await;
    assert_eq!((status, &approved["audience"]), (StatusCode::OK, &json!("user")), "{approved}");
    let own = tools(&app, "ann").await;
    assert!(!own.is_empty() && running(MOOD) > 0);
    assert_eq!(state(&app, "ann").await, "on");
    for caller in ["bob", "ada", "eve", "root"] {
        assert!(tools(&app, caller).await.is_empty(), "{caller}");
        let (_, refused) = post(&app, &format!("/tools/{}/execute", own[0]), caller, json!({"arguments": {}})).await;
        assert_eq!(code(&refused), "unknown_tool", "{caller}: {refused}");
    }

    let (status, _) = decide(&app, "root", &id, json!({"decision": "withdraw"})).await;
    assert_eq!(status, StatusCode::OK);
    let (_, refused) = post(&app, &format!("/tools/{}/execute", own[0]), "ann", json!({"arguments": {}})).await;
    assert_eq!(code(&refused), "unknown_tool", "at the next call: {refused}");
    assert!(tools(&app, "ann").await.is_empty());
    assert_eq!(state(&app, "ann").await, "withdrawn");
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    for event in
        ["source_requested", "source_switched_on", "source_switched_off", "ann of the tenant acme, for the user"]
    {
        assert!(trail.contains(event), "{event}: {trail}");
    }
}

#[tokio::test]
async fn a_source_is_switched_on_for_a_tenant_and_stays_so_after_a_restart() {
    let app = app().await;
    let id = ask(&app, "eve").await;
    let (status, _) = decide(&app, "gil", &id, json!({"decision": "approve", "for": "tenant"})).await;
    assert_eq!(status, StatusCode::OK);
    let directory = app.stop().await;
    let app = TestApp::in_directory(directory, &yaml()).await;
    for (caller, is_on) in [("eve", true), ("gil", true), ("ann", false), ("root", false)] {
        assert_eq!(!tools(&app, caller).await.is_empty(), is_on, "{caller}");
    }
    let id = ask(&app, "bob").await;
    assert_eq!(decide(&app, "ada", &id, json!({"decision": "refuse"})).await.0, StatusCode::OK);
    assert_eq!(state(&app, "bob").await, "refused");
    let (_, listed) = get(&app, "/admin/source-requests?state=refused", "ada").await;
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["caller"]), (1, &json!("bob")));
    let (_, all) = get(&app, "/admin/source-requests", "root").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
    let mut command = sekisho(&app.directory);
    command.args(["--server", &app.url, "catalogue"]).env("SEKISHO_API_KEY", "key-of-eve");
    let shown = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(text(&shown).contains("mcp:extra") && text(&shown).contains("on"), "{}", text(&shown));
}
