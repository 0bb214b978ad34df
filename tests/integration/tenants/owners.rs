//! What an administrator of a tenant registers or stores is that tenant's alone, in every way in.

use std::fmt::Write as _;

use axum::Router;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::callers::{ADA, ANN, Caller, EVE, GIL, ROOT};
use crate::app::{TestApp, answer, code};
use crate::charges::served;
use crate::console::Browser;
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};
use crate::mcp_programs::server;
use crate::mcp_servers::{ready, yaml as servers};
use crate::openapi::document;

/// All that may not see what is of the tenant acme.
const OTHERS: [Caller; 3] = [EVE, GIL, ROOT];

/// The tenants acme and globex, and `default`; `more` is the rest of the configuration.
pub(super) fn yaml(more: &str) -> String {
    let mut keys = String::new();
    for Caller { id, key, tenant, roles, .. } in [ADA, ANN, EVE, GIL, ROOT] {
        writeln!(keys, "    - {{id: {id}, key: {key}, tenant: {tenant}, roles: [{roles}]}}").unwrap();
    }
    format!(
        "auth:\n  anonymous: never\n  api_keys:\n{keys}\
         console: {{roles: {{admin: [admin]}}}}\n\
         outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1], openapi_allowed_domains: [127.0.0.1]}}\n\
         {more}\n"
    )
}

async fn send(app: &TestApp, by: Caller, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = app.client.request(method, format!("{}{path}", app.url)).bearer_auth(by.key);
    answer(if body.is_null() { request } else { request.json(body) }).await
}

pub(super) async fn get(app: &TestApp, by: Caller, path: &str) -> (StatusCode, Value) {
    send(app, by, Method::GET, path, &Value::Null).await
}

pub(super) async fn post(app: &TestApp, by: Caller, path: &str, body: Value) -> (StatusCode, Value) {
    send(app, by, Method::POST, path, &body).await
}

pub(super) async fn remove(app: &TestApp, by: Caller, path: &str) -> (StatusCode, Value) {
    send(app, by, Method::DELETE, path, &Value::Null).await
}

pub(super) async fn call(app: &TestApp, by: Caller, tool: &str, arguments: Value) -> (StatusCode, Value) {
    post(app, by, &format!("/tools/{tool}/execute"), json!({"arguments": arguments})).await
}

/// A gateway with a server whose tools, prompts and resources another one offers.
async fn upstream() -> TestApp {
    let app = TestApp::with(&servers(&[("moody", server("fine", ""))])).await;
    ready(&app).await;
    app
}

/// Registers the upstream as `crm`.
async fn register(app: &TestApp, by: Caller, upstream: &TestApp) -> (StatusCode, Value) {
    post(app, by, "/tools/mcp/register", json!({"name": "crm", "url": format!("{}/mcp", upstream.url)})).await
}

const ECHO: &str = "crm__moody__echo";

async fn is_called_by_acme_alone(app: &TestApp) {
    let (status, reply) = call(app, ANN, ECHO, json!({"city": "Bern"})).await;
    assert_eq!((status, reply["success"].as_bool()), (StatusCode::OK, Some(true)), "{reply}");
    for other in OTHERS {
        let (status, reply) = call(app, other, ECHO, json!({"city": "Bern"})).await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"), "{}: {reply}", other.id);
        assert!(!reply["error_info"]["alternatives"].to_string().contains("crm"), "{reply}");
        assert_eq!(get(app, other, &format!("/tools/{ECHO}/schema")).await.0, StatusCode::NOT_FOUND, "{}", other.id);
    }
}

#[tokio::test]
async fn a_server_of_a_tenant_is_called_by_its_callers_and_unknown_to_others() {
    let (upstream, app) = (upstream().await, TestApp::with(&yaml("")).await);
    let (status, reply) = register(&app, ADA, &upstream).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(reply["tools"].as_array().unwrap().contains(&json!(ECHO)), "{reply}");
    is_called_by_acme_alone(&app).await;

    // Those of the tenant alone administer it, but those of `default`; the name is nobody else's.
    for (by, method, path, expected) in [
        (GIL, Method::DELETE, "/admin/servers/mcp/crm", StatusCode::NOT_FOUND),
        (GIL, Method::POST, "/admin/servers/mcp/crm/reconnect", StatusCode::NOT_FOUND),
        (GIL, Method::POST, "/tools/mcp/crm/sign_in", StatusCode::NOT_FOUND),
        (ANN, Method::DELETE, "/admin/servers/mcp/crm", StatusCode::FORBIDDEN),
        (ADA, Method::POST, "/admin/servers/mcp/crm/reconnect", StatusCode::OK),
        (ROOT, Method::POST, "/admin/servers/mcp/crm/reconnect", StatusCode::OK),
    ] {
        let (status, reply) = send(&app, by, method, path, &Value::Null).await;
        assert_eq!(status, expected, "{path} by {}: {reply}", by.id);
    }
    for by in [GIL, ROOT] {
        let (status, reply) = register(&app, by, &upstream).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{}: {reply}", by.id);
        assert!(!reply.to_string().contains("acme"), "{reply}");
    }
    let (_, found) = get(&app, ADA, "/admin/servers/mcp/crm").await;
    assert_eq!((&found["tenant"], &found["registered"]), (&json!("acme"), &json!(true)), "{found}");

    let app = TestApp::in_directory(app.stop().await, &yaml("")).await;
    ready(&app).await;
    is_called_by_acme_alone(&app).await;
    assert_eq!(remove(&app, ADA, "/admin/servers/mcp/crm").await.0, StatusCode::OK);
    assert_eq!(call(&app, ANN, ECHO, json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(register(&app, GIL, &upstream).await.0, StatusCode::OK);
    assert_eq!(call(&app, EVE, ECHO, json!({"city": "Bern"})).await.0, StatusCode::OK);
    assert_eq!(call(&app, ANN, ECHO, json!({})).await.0, StatusCode::NOT_FOUND);
    app.stop().await;
    upstream.stop().await;
}

/// Every list that has what a server of the tenant offers, or the server itself.
#[tokio::test]
async fn no_list_of_another_tenant_has_a_server_of_a_tenant() {
    let (upstream, app) = (upstream().await, TestApp::with(&yaml("")).await);
    assert_eq!(register(&app, ADA, &upstream).await.0, StatusCode::OK);
    for path in [
        "/tools/list",
        "/tools/list?detail=full",
        "/tools/schemas",
        "/tools/search?q=moody+echo",
        "/api/v1/tools",
        "/admin/servers",
    ] {
        let seen = async |by: Caller| get(&app, by, path).await.1.to_string().contains("crm");
        assert!(seen(ANN).await, "{path}");
        for other in [EVE, GIL] {
            assert!(!seen(other).await, "{path} by {}", other.id);
        }
        // An administrator of `default` administers the servers of all tenants, and calls none of their tools.
        assert_eq!(seen(ROOT).await, path == "/admin/servers", "{path}");
    }
    for path in ["/console/tools", "/console/servers"] {
        let (ada, gil) = (Browser::signed_in(&app, ADA.key).await, Browser::signed_in(&app, GIL.key).await);
        assert!(ada.page(path).await.contains("crm") && !gil.page(path).await.contains("crm"), "{path}");
    }
    let connect = async |by: Caller| McpClient::connect_as(&app, OLDER, Some(by.key)).await;
    let (ann, others) = (connect(ANN).await, [connect(EVE).await, connect(GIL).await, connect(ROOT).await]);
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let own = ann.reply(method, json!({})).await.to_string();
        assert!(own.contains("crm") || own.contains("moody"), "{method}: {own}");
        for other in &others {
            let found = other.reply(method, json!({})).await.to_string();
            assert!(!found.contains("crm") && !found.contains("moody"), "{method}: {found}");
        }
    }
    let prompt = ann.reply("prompts/list", json!({})).await["result"]["prompts"][0]["name"].clone();
    let resource = ann.reply("resources/list", json!({})).await["result"]["resources"][0]["uri"].clone();
    let completed = json!({"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": "a", "value": ""}});
    for (method, params) in [
        ("tools/call", json!({"name": ECHO, "arguments": {}})),
        ("prompts/get", json!({"name": prompt})),
        ("resources/read", json!({"uri": resource})),
        ("completion/complete", completed),
    ] {
        for by in OTHERS {
            let sessionless = McpClient::new(&app, NEWER, Some(by.key));
            let (_, reply) = sessionless.send(method, params.clone()).await;
            let refused = reply.get("error").is_some() || reply["result"]["isError"] == true;
            assert!(refused && reply.to_string().contains("there is no"), "{method} by {}: {reply}", by.id);
        }
    }
    app.stop().await;
    upstream.stop().await;
}

/// The lists of clients of other tenants stay as they are: they are not told to read them again.
#[tokio::test]
async fn clients_of_other_tenants_are_not_notified_of_the_lists_of_a_tenants_server() {
    let (upstream, app) = (upstream().await, TestApp::with(&yaml("")).await);
    let listening = async |by: Caller| {
        let wanted = json!({"promptsListChanged": true, "toolsListChanged": true});
        McpClient::new(&app, NEWER, Some(by.key)).listen(wanted).await
    };
    let (mut ann, mut eve) = (listening(ANN).await, listening(EVE).await);
    assert_eq!(register(&app, ADA, &upstream).await.0, StatusCode::OK);
    ann.next_of("notifications/prompts/list_changed").await;
    let other = json!({"name": "other", "url": format!("{}/mcp", upstream.url)});
    assert_eq!(post(&app, GIL, "/tools/mcp/register", other).await.0, StatusCode::OK);
    let mut lists_of_prompts = 0;
    loop {
        let message = eve.next().await.unwrap();
        match message["method"].as_str() {
            Some("notifications/prompts/list_changed") => lists_of_prompts += 1,
            Some("notifications/tools/list_changed") => break,
            _ => {}
        }
    }
    assert!(lists_of_prompts <= 1, "one of another tenant's server, too: {lists_of_prompts}");
    drop((ann, eve));
    app.stop().await;
    upstream.stop().await;
}

#[tokio::test]
async fn a_server_of_a_tenant_that_is_down_is_shown_to_its_administrators_and_not_in_readiness() {
    let (upstream, app) = (upstream().await, TestApp::with(&yaml("")).await);
    assert_eq!(register(&app, ADA, &upstream).await.0, StatusCode::OK);
    let directory = app.stop().await;
    upstream.stop().await;
    let app = TestApp::in_directory(directory, &yaml("")).await;
    ready(&app).await;
    let (_, shown) = get(&app, ADA, "/admin/servers/mcp/crm").await;
    assert_eq!(shown["state"], "down", "{shown}");
    assert_eq!(get(&app, ROOT, "/admin/servers/mcp/crm").await.1["tenant"], "acme");
    assert_eq!(get(&app, GIL, "/admin/servers/mcp/crm").await.0, StatusCode::NOT_FOUND);
    for (by, path) in [(EVE, "/readyz"), (ADA, "/readyz"), (GIL, "/admin/overview")] {
        let (_, found) = get(&app, by, path).await;
        assert!(!found.to_string().contains("crm"), "{path}: {found}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_collection_of_a_tenant_is_for_its_callers_and_takes_no_name_and_no_secret_of_others() {
    let upstream = TestApp::start().await;
    let shared = format!(
        "openapi: {{secrets: {{KEY: hunter2}}, collections: {{taken: {{spec_inline: '{}'}}}}}}",
        document(&upstream.url)
    );
    let app = TestApp::with(&yaml(&shared)).await;
    let register = async |by: Caller, name: &str, more: Value| {
        let mut body = json!({"name": name, "spec_inline": document(&upstream.url).to_string()});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post(&app, by, "/tools/openapi/register", body).await
    };
    assert_eq!(register(ADA, "bank", json!({})).await.0, StatusCode::OK);
    assert_eq!(call(&app, ANN, "bank__tools", json!({})).await.0, StatusCode::OK);
    for other in OTHERS {
        assert_eq!(call(&app, other, "bank__tools", json!({})).await.0, StatusCode::NOT_FOUND, "{}", other.id);
    }
    for (by, name) in [(GIL, "bank"), (ROOT, "bank"), (ADA, "taken"), (GIL, "taken")] {
        let (status, reply) = register(by, name, json!({})).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{name} by {}: {reply}", by.id);
        assert!(!reply.to_string().contains("acme") && !reply.to_string().contains("configuration"), "{reply}");
    }
    for (path, name) in [("mcp", "taken"), ("mcp", "TAKEN__more"), ("openapi", "Taken"), ("openapi", "BANK")] {
        let by = if name == "BANK" { GIL } else { ADA };
        let mut body = json!({"name": name});
        match path {
            "mcp" => body["url"] = json!(format!("{}/mcp", upstream.url)),
            _ => body["spec_inline"] = json!(document(&upstream.url).to_string()),
        }
        let (status, reply) = post(&app, by, &format!("/tools/{path}/register"), body).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{path} {name}: {reply}");
    }
    let secret = json!({"auth_type": "bearer", "auth_config": {"token": "${KEY}"}});
    let (status, reply) = register(ADA, "bank", secret).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"), "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("secret of the configuration"), "{reply}");
    let elsewhere = json!({"spec_inline": document("https://example.com").to_string()});
    let (status, reply) = register(ADA, "other", elsewhere).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "the allowlist holds: {reply}");
    for (by, expected) in [(GIL, StatusCode::NOT_FOUND), (ANN, StatusCode::FORBIDDEN), (ROOT, StatusCode::OK)] {
        assert_eq!(remove(&app, by, "/tools/openapi/bank").await.0, expected, "{}", by.id);
    }
    assert_eq!(call(&app, ANN, "bank__tools", json!({})).await.0, StatusCode::NOT_FOUND);
    app.stop().await;
    upstream.stop().await;
}

#[tokio::test]
async fn the_host_of_a_tenants_collection_is_not_named_where_others_read_what_fails() {
    let server = served(Router::new().fallback(async || StatusCode::INTERNAL_SERVER_ERROR)).await;
    let host = server.strip_prefix("http://").unwrap();
    let app = TestApp::with(&yaml("")).await;
    let collection = |name: &str| json!({"name": name, "spec_inline": document(&server).to_string()});
    assert_eq!(post(&app, ADA, "/tools/openapi/register", collection("bank")).await.0, StatusCode::OK);
    for _ in 0..5 {
        assert_eq!(call(&app, ANN, "bank__tools", json!({})).await.0, StatusCode::BAD_GATEWAY);
    }
    let (status, reply) = call(&app, ANN, "bank__tools", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::SERVICE_UNAVAILABLE, "circuit_open"), "{reply}");
    let names = async |path: &str| get(&app, GIL, path).await.1.to_string().contains(host);
    assert!(!names("/readyz").await && !names("/admin/overview").await);
    assert_eq!(post(&app, ROOT, "/tools/openapi/register", collection("all")).await.0, StatusCode::OK);
    assert!(names("/readyz").await && names("/admin/overview").await, "it is of all tenants now");
    app.stop().await;
}

/// A server may list other tools at any time, so its name alone must keep it from those of another tenant.
#[tokio::test]
async fn no_server_and_no_function_of_a_tenant_takes_the_name_of_another_tenants_tool() {
    let upstream = TestApp::start().await;
    let app = TestApp::with(&yaml("")).await;
    let server = |name: &str| json!({"name": name, "url": format!("{}/mcp", upstream.url)});
    let function = |name: &str| json!({"name": name, "url": format!("{}/f", upstream.url), "func_name": "f"});
    let collection = |name: &str| json!({"name": name, "spec_inline": document(&upstream.url).to_string()});
    let (documents, servers) = ("/tools/openapi/register", "/tools/mcp/register");
    assert_eq!(post(&app, ADA, documents, collection("bank")).await.0, StatusCode::OK);
    assert_eq!(post(&app, ADA, servers, function("crm__find")).await.0, StatusCode::OK);
    for (path, body) in [
        (servers, server("bank")),
        (servers, server("bank__more")),
        (servers, server("crm")),
        (servers, function("bank")),
        (servers, function("bank__later")),
        (documents, collection("crm")),
    ] {
        let (status, reply) = post(&app, GIL, path, body.clone()).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{body}: {reply}");
        assert!(!reply.to_string().contains("acme"), "{reply}");
    }
    assert_eq!(call(&app, ANN, "bank__tools", json!({})).await.0, StatusCode::OK);
    for (path, body) in [(servers, function("banks")), (documents, collection("bank_x"))] {
        let (status, reply) = post(&app, GIL, path, body).await;
        assert_eq!(status, StatusCode::OK, "another name: {reply}");
    }
    assert_eq!(post(&app, ADA, servers, server("bank__own")).await.0, StatusCode::OK, "its own tenant's");
    app.stop().await;
    upstream.stop().await;
}

/// What is shared keeps its name, whoever comes first.
#[tokio::test]
async fn a_tool_of_a_tenant_gives_way_to_a_shared_one() {
    let upstream = TestApp::start().await;
    let app = TestApp::with(&yaml("")).await;
    let function = |name: &str| json!({"name": name, "url": format!("{}/f", upstream.url), "func_name": "f"});
    assert_eq!(post(&app, ADA, "/tools/mcp/register", function("bank__tools")).await.0, StatusCode::OK);
    let (status, reply) = post(&app, ADA, "/tools/mcp/register", function("calculator")).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{reply}");
    let shared = json!({"name": "bank", "spec_inline": document(&upstream.url).to_string()});
    assert_eq!(post(&app, ROOT, "/tools/openapi/register", shared).await.0, StatusCode::OK);
    for by in [EVE, ANN] {
        assert_eq!(call(&app, by, "bank__tools", json!({})).await.0, StatusCode::OK, "{}", by.id);
    }
    let (_, listed) = get(&app, ANN, "/tools/list?detail=full").await;
    assert!(listed.to_string().contains("the name is in use"), "{listed}");
    let (_, listed) = get(&app, EVE, "/tools/list?detail=full").await;
    assert!(!listed.to_string().contains("the name is in use"), "{listed}");
    app.stop().await;
    upstream.stop().await;
}

#[tokio::test]
async fn a_model_and_a_skill_of_a_tenant_are_for_its_agents_alone_also_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("talk.yaml");
    std::fs::write(&script, "turns: [{text: [hello]}, {text: [hello]}]").unwrap();
    let agent = format!(
        "agent: {{default_profile: talk, profiles: {{talk: {{provider: replay, model: {}}}}}}}",
        script.display()
    );
    let app = TestApp::in_directory(directory, &yaml(&agent)).await;
    let (model, skill) = (
        json!({"name": "fast", "profile": "talk"}),
        json!({"name": "pdf", "description": "Reads.", "instructions": "Read."}),
    );
    for (path, body) in [("/api/models", &model), ("/api/skills", &skill)] {
        let (status, added) = post(&app, ADA, path, body.clone()).await;
        assert_eq!((status, &added["tenant"]), (StatusCode::CREATED, &json!("acme")), "{added}");
        for by in [GIL, ROOT] {
            let (status, reply) = post(&app, by, path, body.clone()).await;
            assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{path} by {}: {reply}", by.id);
            assert!(!reply.to_string().contains("acme"), "{reply}");
        }
    }
    let app = TestApp::in_directory(app.stop().await, &yaml(&agent)).await;
    for path in ["/api/models/fast", "/api/skills/pdf"] {
        for (by, expected) in [(ANN, StatusCode::OK), (EVE, StatusCode::NOT_FOUND), (ROOT, StatusCode::OK)] {
            let (status, found) = get(&app, by, path).await;
            assert_eq!(status, expected, "{path} by {}: {found}", by.id);
        }
        assert_eq!(remove(&app, GIL, path).await.0, StatusCode::NOT_FOUND, "{path}");
        let list = path.rsplit_once('/').unwrap().0;
        assert_eq!(get(&app, EVE, list).await.1["items"], json!([]), "{list}");
    }
    let models = async |by: Caller| get(&app, by, "/v1/models").await.1.to_string().contains("\"fast\"");
    assert_eq!((models(ANN).await, models(EVE).await, models(ROOT).await), (true, false, false));
    let talks = async |by: Caller, agent: &str, skills: Value| {
        let (status, made) = post(&app, by, "/api/conversations", json!({"agent": agent})).await;
        if status.is_client_error() {
            return status;
        }
        let path = format!("/api/conversations/{}/execute", made["id"].as_str().unwrap());
        post(&app, by, &path, json!({"user_input": "hello", "preferred_skills": skills})).await.0
    };
    assert!(talks(ANN, "fast", json!(["pdf"])).await.is_success());
    for other in [EVE, ROOT] {
        assert_eq!(talks(other, "fast", json!([])).await, StatusCode::BAD_REQUEST, "{}", other.id);
        assert_eq!(talks(other, "talk", json!(["pdf"])).await, StatusCode::BAD_REQUEST, "{}", other.id);
    }
    for path in ["/api/models/fast", "/api/skills/pdf"] {
        assert_eq!(remove(&app, ADA, path).await.0, StatusCode::OK, "{path}");
    }
    app.stop().await;
}
