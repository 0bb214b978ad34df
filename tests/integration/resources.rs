//! Tenants, models and skills: who may read and change them, and what they permit.

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::cli::{Serving, sekisho, text};
use crate::mcp_programs::server;
use crate::mcp_servers::{ready, yaml as servers_yaml};

/// An administrator of all tenants, and a caller of each of two.
const KEYS: &str = "
auth:
  anonymous: never
  api_keys:
    - {id: ops, key: key-of-ops, roles: [admin]}
    - {id: ann, key: key-of-ann, tenant: acme}
    - {id: bob, key: key-of-bob, tenant: zoo, roles: [operator]}
tenants:
  acme: {models: [haiku], skills: [pdf]}
  zoo: {models: [opus], skills: []}
agent:
  models:
    haiku: {profile: anthropic, model: claude-haiku-4-5}
    opus: {profile: anthropic, model: claude-opus-4-5}
";

async fn send(app: &TestApp, key: &str, method: &Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut request = app.client.request(method.clone(), format!("{}{path}", app.url));
    if !key.is_empty() {
        request = request.bearer_auth(key);
    }
    if let Some(body) = body {
        request = request.json(body);
    }
    let (status, body) = answer(request).await;
    (status.as_u16(), body)
}

fn names(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_route_is_for_administrators_or_reads_what_is_the_callers_tenants() {
    let app = TestApp::with(KEYS).await;
    let skill = json!({"description": "Reads PDFs.", "instructions": "Read."});
    let named = |mut value: Value, name: &str| {
        value["name"] = json!(name);
        value
    };
    let (status, added) =
        send(&app, "key-of-ops", &Method::POST, "/api/skills", Some(&named(skill.clone(), "pdf"))).await;
    assert_eq!((status, &added["configured"]), (201, &json!(false)), "{added}");
    // What each of them is for the tenant acme, and what a change would be.
    for (kind, own, others, value) in [
        ("tenants", "acme", "zoo", json!({"status": "inactive"})),
        ("models", "haiku", "opus", json!({"profile": "openai"})),
        ("skills", "pdf", "tables", skill.clone()),
    ] {
        let list = format!("/api/{kind}");
        let one = |name: &str| format!("/api/{kind}/{name}");
        let routes = [
            (Method::GET, list.clone(), None),
            (Method::POST, list.clone(), Some(named(value.clone(), "new"))),
            (Method::GET, one(own), None),
            (Method::PUT, one(own), Some(value.clone())),
            (Method::DELETE, one(own), None),
            (Method::GET, one(others), None),
            (Method::PUT, one(others), Some(value.clone())),
            (Method::DELETE, one(others), None),
        ];
        for (method, path, body) in &routes {
            let reads = *method == Method::GET;
            let (status, reply) = send(&app, "", method, path, body.as_ref()).await;
            assert_eq!((status, code(&reply)), (401, "unauthenticated"), "no key: {method} {path}");
            // ann is of the tenant acme, bob of another, with another role.
            let is_own = !path.ends_with(others);
            for (key, may_read) in [("key-of-ann", is_own), ("key-of-bob", path == &list)] {
                let (status, reply) = send(&app, key, method, path, body.as_ref()).await;
                match (reads, may_read) {
                    (true, true) => assert_eq!(status, 200, "{key}: {method} {path}: {reply}"),
                    (true, false) if key == "key-of-bob" && path.ends_with(others) && kind != "skills" => {
                        assert_eq!(status, 200, "bob reads what is his tenant's: {path}: {reply}");
                    }
                    (true, false) => assert_eq!((status, code(&reply)), (404, "not_found"), "{key}: {method} {path}"),
                    (false, _) => assert_eq!((status, code(&reply)), (403, "denied"), "{key}: {method} {path}"),
                }
            }
        }
        let (_, page) = send(&app, "key-of-ann", &Method::GET, &list, None).await;
        assert_eq!(names(&page), [own], "{kind}");
        let (_, page) = send(&app, "key-of-bob", &Method::GET, &list, None).await;
        assert_eq!(names(&page), if kind == "skills" { vec![] } else { vec![others] }, "{kind}");
    }
    // Nothing was changed.
    let (_, page) = send(&app, "key-of-ops", &Method::GET, "/api/tenants", None).await;
    assert_eq!(names(&page), ["acme", "zoo"]);
    assert!(page["items"].as_array().unwrap().iter().all(|tenant| tenant["status"] == "active"), "{page}");
}

#[tokio::test]
async fn an_administrator_adds_changes_and_removes_what_the_file_does_not_define() {
    let app = TestApp::with(KEYS).await;
    let ops = async |method: Method, path: &str, body: Option<Value>| {
        send(&app, "key-of-ops", &method, path, body.as_ref()).await
    };
    for name in ["one", "two", "three"] {
        let (status, reply) =
            ops(Method::POST, "/api/tenants", Some(json!({"name": name, "prompt": "Be brief."}))).await;
        assert_eq!((status, &reply["prompt"]), (201, &json!("Be brief.")), "{reply}");
    }
    let (_, first) = ops(Method::GET, "/api/tenants?limit=2", None).await;
    assert_eq!((names(&first), &first["next"]), (vec!["acme", "one"], &json!("one")));
    let (_, rest) = ops(Method::GET, "/api/tenants?after=one", None).await;
    assert_eq!((names(&rest), &rest["next"]), (vec!["three", "two", "zoo"], &Value::Null));
    let (status, _) = ops(Method::PUT, "/api/tenants/one", Some(json!({"max_cost_per_day": "2.50"}))).await;
    assert_eq!(status, 200);
    let (_, one) = ops(Method::GET, "/api/tenants/one", None).await;
    assert_eq!((&one["max_cost_per_day"], &one["prompt"]), (&json!("2.50"), &Value::Null), "{one}");
    let file = app.directory.path().join("sekisho.yaml").display().to_string();
    for (method, path, body, status, words) in [
        (Method::POST, "/api/tenants", Some(json!({"name": "one"})), 400, "there is a tenant \"one\" already"),
        (Method::POST, "/api/tenants", Some(json!({"name": "x", "promt": "?"})), 400, "unknown field `promt`"),
        (Method::POST, "/api/tenants", Some(json!({"prompt": "?"})), 400, "`name` is missing"),
        (
            Method::POST,
            "/api/tenants",
            Some(json!({"name": "x", "max_cost_per_day": -1})),
            400,
            "must not be below zero",
        ),
        (
            Method::POST,
            "/api/skills",
            Some(json!({"name": "../x", "description": "d", "instructions": "i"})),
            400,
            "the name of a skill",
        ),
        (Method::PUT, "/api/tenants/acme", Some(json!({})), 400, file.as_str()),
        (Method::DELETE, "/api/tenants/acme", None, 400, file.as_str()),
        (Method::PUT, "/api/models/haiku", Some(json!({})), 400, file.as_str()),
        (Method::PUT, "/api/tenants/nobody", Some(json!({})), 404, "there is no tenant \"nobody\""),
        (Method::DELETE, "/api/models/nobody", None, 404, "there is no model \"nobody\""),
        (Method::GET, "/api/tenants?limit=0", None, 400, "`limit`"),
    ] {
        let (found, reply) = ops(method.clone(), path, body).await;
        assert_eq!(found, status, "{method} {path}: {reply}");
        assert!(reply["error"].as_str().unwrap().contains(words), "{method} {path}: {reply}");
    }
    let (status, removed) = ops(Method::DELETE, "/api/tenants/one", None).await;
    assert_eq!((status, &removed["name"]), (200, &json!("one")));
    assert_eq!(ops(Method::GET, "/api/tenants/one", None).await.0, 404);
    // What is stored survives a restart, and the trail names who changed it.
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    assert!(
        trail
            .lines()
            .any(|line| line.contains("resource_changed") && line.contains("tenant:one") && line.contains("ops"))
    );
    let app = TestApp::in_directory(directory, KEYS).await;
    let (_, page) = send(&app, "key-of-ops", &Method::GET, "/api/tenants", None).await;
    assert_eq!(names(&page), ["acme", "three", "two", "zoo"]);
}

#[tokio::test]
async fn agents_of_a_tenant_have_its_agents_and_the_tools_of_its_sources() {
    let directory = tempfile::TempDir::new().unwrap();
    let script = "turns: [{calls: [{id: a, tool: calculator, arguments: '{\"expression\": \"6*7\"}'}, \
                  {id: b, tool: mail__echo, arguments: '{\"to\": \"eve\"}'}]}, {text: [done]}]";
    let file = directory.path().join("script.yaml");
    std::fs::write(&file, script).unwrap();
    let yaml = format!(
        "
auth:
  api_keys:
    - {{id: ops, key: key-of-ops, roles: [admin]}}
    - {{id: ann, key: key-of-ann, tenant: acme}}
    - {{id: bob, key: key-of-bob, tenant: zoo}}
    - {{id: eve, key: key-of-eve, tenant: closed}}
agent: {{default_profile: one, profiles: {{one: {{provider: replay, model: {0}}}, two: {{provider: replay, model: {0}}}}}}}
tenants:
  acme: {{models: [one], mcp_servers: [], collections: []}}
  closed: {{status: inactive}}
",
        file.display()
    );
    let servers = servers_yaml(&[("mail", server("good", ""))]);
    let app = TestApp::in_directory(directory, &format!("{yaml}{servers}")).await;
    ready(&app).await;
    let ask = async |key: &str, model: &str| {
        let body = json!({"message": "6*7?", "model": model});
        send(&app, key, &Method::POST, "/api/chat", Some(&body)).await
    };
    let (status, reply) = ask("key-of-ann", "one").await;
    assert_eq!((status, &reply["tool_calls"][0]["text"]), (200, &json!("42")), "built-in tools stay: {reply}");
    let refused = reply["tool_calls"][1]["text"].as_str().unwrap();
    assert!(refused.contains("there is no tool `mail__echo` for this tenant"), "{reply}");
    let (_, reply) = ask("key-of-bob", "one").await;
    assert!(reply["tool_calls"][1]["text"].as_str().unwrap().contains("eve"), "a tenant with every server: {reply}");
    let (status, reply) = ask("key-of-ann", "two").await;
    assert_eq!((status, code(&reply)), (400, "invalid_request"));
    assert!(reply["error"].as_str().unwrap().contains("there is no model \"two\" for this tenant"), "{reply}");
    assert_eq!(ask("key-of-bob", "two").await.0, 200);
    let (status, reply) = ask("key-of-eve", "one").await;
    assert_eq!(status, 400);
    assert!(reply["error"].as_str().unwrap().contains("the tenant \"closed\" is inactive"), "{reply}");
    // A stored tenant counts from the next run on.
    let stored = json!({"name": "zoo", "status": "inactive"});
    assert_eq!(send(&app, "key-of-ops", &Method::POST, "/api/tenants", Some(&stored)).await.0, 201);
    assert_eq!(ask("key-of-bob", "two").await.0, 400);
}

#[test]
fn commands_list_and_change_them_in_the_running_gateway() {
    let directory = tempfile::TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let run = |arguments: &[&str]| {
        let output = sekisho(&directory).args(arguments).output().unwrap();
        (output.status.code(), text(&output))
    };
    let added = run(&["models", "add", "fast", r#"{"profile": "openai", "model": "gpt-5-nano"}"#]);
    assert_eq!((added.0, added.1.trim()), (Some(0), "added fast"));
    assert_eq!(run(&["tenants", "add", "acme", r#"{"models": ["fast"]}"#]).0, Some(0));
    assert!(run(&["models"]).1.contains("gpt-5-nano"));
    let (_, shown) = run(&["tenants", "show", "acme"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["models"], json!(["fast"]), "{shown}");
    assert_eq!(run(&["tenants", "change", "acme", r#"{"status": "inactive"}"#]).0, Some(0));
    assert!(run(&["tenants", "list"]).1.contains("inactive"));
    assert_eq!(run(&["tenants", "remove", "acme"]).1.trim(), "removed acme");
    let (code, problem) = run(&["tenants", "remove", "acme"]);
    assert!(code == Some(3) && problem.contains("there is no tenant \"acme\""), "{problem}");
    assert_eq!(run(&["skills", "add", "pdf", "[]"]).0, Some(2));
    drop(serving);
    assert_eq!(run(&["tenants"]).0, Some(5));
}
