//! Each list of the API: one form, pages that go through all of it, and the names of earlier versions.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};

const KEY: &str = "key-of-root";

/// A list: its route, the old name of its entries, where an entry has its key, and how many entries there are at least.
struct List {
    route: &'static str,
    old_name: Option<&'static str>,
    key: &'static str,
    at_least: usize,
}

const fn list(route: &'static str, old_name: &'static str, key: &'static str, at_least: usize) -> List {
    List { route, old_name: Some(old_name), key, at_least }
}

const LISTS: [List; 30] = [
    list("/admin/calls", "calls", "call_id", 3),
    list("/admin/calls/history", "calls", "call_id", 3),
    List { route: "/admin/changes", old_name: None, key: "id", at_least: 0 },
    List { route: "/admin/events", old_name: None, key: "event", at_least: 0 },
    list("/admin/flow/destinations", "destinations", "tool", 0),
    List { route: "/admin/flow/tools", old_name: None, key: "tool", at_least: 3 },
    List { route: "/admin/keys", old_name: None, key: "id", at_least: 3 },
    List { route: "/admin/oauth/sessions", old_name: None, key: "id", at_least: 0 },
    list("/admin/python-tools", "files", "name", 0),
    list("/admin/servers", "servers", "name", 2),
    List { route: "/admin/source-requests", old_name: None, key: "id", at_least: 0 },
    list("/admin/usage", "usage", "caller", 2),
    List { route: "/admin/usage/tools", old_name: None, key: "tool", at_least: 1 },
    list("/api/conversations", "conversations", "id", 3),
    list("/api/conversations/{id}/messages", "messages", "id", 4),
    list("/api/conversations/{id}/runs", "runs", "id", 2),
    list("/api/logs/messages", "rows", "position", 4),
    list("/api/logs/usage", "rows", "position", 2),
    List { route: "/api/models", old_name: None, key: "name", at_least: 0 },
    List { route: "/api/skills", old_name: None, key: "name", at_least: 0 },
    List { route: "/api/tenants", old_name: None, key: "name", at_least: 3 },
    list("/api/plans", "plans", "id", 2),
    list("/approvals", "approvals", "id", 0),
    List { route: "/effects", old_name: None, key: "id", at_least: 0 },
    List { route: "/me/credentials", old_name: None, key: "source", at_least: 0 },
    List { route: "/me/sources", old_name: None, key: "source", at_least: 0 },
    List { route: "/recorded-runs", old_name: None, key: "id", at_least: 0 },
    list("/runs", "runs", "id", 0),
    list("/sessions", "sessions", "session", 0),
    list("/sign-ins", "sign_ins", "source", 0),
];

/// A gateway with entries in its lists, and the id of a conversation with two runs.
async fn app() -> (TestApp, String) {
    let directory = TempDir::new().unwrap();
    let path = |file: &str| directory.path().join(file).display().to_string();
    std::fs::write(path("talk.yaml"), "turns: [{text: [one]}, {text: [two]}]").unwrap();
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://pets.example"}],
        "paths": {"/pets": {"get": {"operationId": "pets", "responses": {"200": {"description": "ok"}}}}},
    });
    std::fs::write(path("pets.json"), document.to_string()).unwrap();
    let yaml = format!(
        "auth:\n  anonymous: never\n  api_keys: [{{id: root, key: {KEY}, roles: [admin]}}]\n\
         console: {{roles: {{admin: [admin]}}}}\n\
         tools: {{overrides: {{calculator: {{cost_per_use: '0.01'}}}}}}\n\
         agent: {{default_profile: talk, profiles: {{talk: {{provider: replay, model: '{}'}}}}}}\n\
         outbound: {{openapi_allowed_domains: [pets.example]}}\n\
         openapi: {{collections: {{one: {{spec_file: '{pets}'}}, two: {{spec_file: '{pets}'}}}}}}\n",
        path("talk.yaml"),
        pets = path("pets.json"),
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    for n in 0..3 {
        created(&app, "/admin/keys", json!({"description": n.to_string()})).await;
        created(&app, "/api/tenants", json!({"name": format!("tenant-{n}")})).await;
        let call = app.post("/tools/calculator/execute").bearer_auth(KEY);
        assert_eq!(answer(call.json(&json!({"arguments": {"expression": "1"}}))).await.0, StatusCode::OK);
    }
    for _ in 0..2 {
        created(&app, "/api/conversations", json!({})).await;
        created(&app, "/api/plans", json!({"goal": "x", "approve_plan": true})).await;
    }
    let conversation = created(&app, "/api/conversations", json!({})).await["id"].as_str().unwrap().to_owned();
    for input in ["a", "b"] {
        let run = app.post(&format!("/api/conversations/{conversation}/execute")).bearer_auth(KEY);
        let (status, reply) = answer(run.json(&json!({"user_input": input, "stream": false}))).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    (app, conversation)
}

async fn created(app: &TestApp, route: &str, body: Value) -> Value {
    let (status, reply) = answer(app.post(route).bearer_auth(KEY).json(&body)).await;
    assert_eq!(status, StatusCode::CREATED, "{route}: {reply}");
    reply
}

async fn page(app: &TestApp, route: &str, query: &[(&str, &str)]) -> (StatusCode, Value) {
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    answer(app.get(&format!("{route}?{}", query.join("&"))).bearer_auth(KEY)).await
}

fn items(page: &Value) -> &Vec<Value> {
    page["items"].as_array().unwrap_or_else(|| panic!("no items: {page}"))
}

/// The trail and the usage of the day are some milliseconds behind.
async fn all(app: &TestApp, List { at_least, .. }: &List, route: &str) -> Value {
    for _ in 0..1_000 {
        let (status, found) = page(app, route, &[]).await;
        assert_eq!(status, StatusCode::OK, "{route}: {found}");
        if items(&found).len() >= *at_least {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{route} has less than {at_least} entries");
}

#[tokio::test]
async fn each_list_answers_one_form_and_its_pages_go_through_all_of_it() {
    let (app, conversation) = app().await;
    for list in &LISTS {
        let route = &list.route.replace("{id}", &conversation);
        let whole = all(&app, list, route).await;
        assert_eq!(whole["next"], Value::Null, "{route}: {whole}");
        if let Some(old_name) = list.old_name {
            assert_eq!(whole[old_name].as_array().map(Vec::len), Some(items(&whole).len()), "{route}: {whole}");
        }
        let keys: Vec<_> = items(&whole).iter().map(|item| item[list.key].clone()).collect();
        let (mut read, mut after) = (Vec::new(), None::<String>);
        loop {
            let query: Vec<_> =
                [("limit", "1")].into_iter().chain(after.as_deref().map(|after| ("after", after))).collect();
            let (status, found) = page(&app, route, &query).await;
            assert_eq!(status, StatusCode::OK, "{route} {query:?}: {found}");
            assert!(items(&found).len() <= 1, "{route}: {found}");
            read.extend(items(&found).iter().map(|item| item[list.key].clone()));
            assert!(read.len() <= keys.len(), "{route}: {read:?} instead of {keys:?}");
            match &found["next"] {
                Value::Null => break,
                next => after = Some(next.as_str().unwrap_or_else(|| panic!("{route}: {next} is no text")).to_owned()),
            }
        }
        assert_eq!(read, keys, "{route}");
        for wrong in ["0", "501", "x"] {
            assert_eq!(page(&app, route, &[("limit", wrong)]).await.0, StatusCode::BAD_REQUEST, "{route} {wrong}");
        }
    }
}

#[tokio::test]
async fn the_old_names_of_cursors_are_accepted() {
    let (app, conversation) = app().await;
    for (route, old_name) in [
        ("/admin/calls", "before"),
        ("/admin/calls/history", "before"),
        ("/api/conversations", "before"),
        ("/api/conversations/{id}/messages", "offset"),
        ("/api/conversations/{id}/runs", "before"),
        ("/api/plans", "before"),
    ] {
        let (list, path) =
            (LISTS.iter().find(|list| list.route == route).unwrap(), route.replace("{id}", &conversation));
        let whole = all(&app, list, &path).await;
        let (_, first) = page(&app, &path, &[("limit", "1")]).await;
        let (_, rest) = page(&app, &path, &[(old_name, first["next"].as_str().unwrap())]).await;
        assert_eq!(items(&rest)[0][list.key], items(&whole)[1][list.key], "{route}");
    }
}

#[tokio::test]
async fn the_description_marks_the_old_names_as_deprecated() {
    let (app, _) = app().await;
    let (_, document) = answer(app.get("/openapi.json")).await;
    let schemas = &document["components"]["schemas"];
    for List { route, old_name, .. } in &LISTS {
        let route = if route.starts_with("/api/logs/") { "/api/logs/{log}" } else { *route };
        let operation = &document["paths"][route]["get"];
        let parameters = operation["parameters"].as_array().unwrap();
        for name in ["limit", "after"] {
            assert!(parameters.iter().any(|parameter| parameter["name"] == name), "{route}: {name}");
        }
        for parameter in
            parameters.iter().filter(|parameter| ["before", "offset"].map(Value::from).contains(&parameter["name"]))
        {
            assert_eq!(parameter["deprecated"], true, "{route}: {parameter}");
        }
        let Some(old_name) = old_name else { continue };
        let reference =
            operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
        let schema = &schemas[reference.rsplit('/').next().unwrap()];
        let parts = schema["allOf"].as_array().unwrap_or_else(|| panic!("{route}: {schema}"));
        assert!(
            parts.iter().any(|part| part["properties"][*old_name]["deprecated"] == true),
            "{route}: {old_name} is not deprecated in {schema}"
        );
    }
}
