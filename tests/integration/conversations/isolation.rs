//! Another caller's or tenant's anything does not exist.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{names, until};
use crate::agents::with_scripts;
use crate::app::{TestApp, answer};
use crate::checkout::checkout;

/// Two callers of one tenant, and two of another.
const AUTH: &str = "auth: {anonymous: never, api_keys: [{id: ann, tenant: acme, key: key-of-ann}, \
                    {id: bob, tenant: acme, key: key-of-bob}, {id: eve, tenant: other, roles: [admin], key: key-of-eve}, \
                    {id: max, tenant: other, key: key-of-max}]}";

/// What a route gives to whom.
enum Access {
    /// Everybody, also without a key.
    Everybody,
    /// Each caller, of its own things.
    EachCaller,
    /// The caller alone whose thing this is. For all others it does not exist.
    Owner { path: String, body: Value },
    /// Callers of the tenant that has this.
    Tenant { path: String },
    /// The role `admin`.
    Administrator,
}

/// What Ann has: nobody else may learn of it.
struct Things {
    conversation: String,
    run: String,
    plan: String,
    result: String,
}

const SECRET: &str = "what-ann-said";

impl Things {
    async fn of_ann(app: &TestApp) -> Self {
        let post = async |path: &str, body: Value| {
            let (status, reply) = answer(app.post(path).bearer_auth("key-of-ann").json(&body)).await;
            assert!(status.is_success(), "{path}: {reply}");
            reply
        };
        let id = |reply: &Value, name: &str| reply[name].as_str().unwrap().to_owned();
        let labels = json!({"agent": "talk", "labels": {"about": SECRET}});
        let conversation = id(&post("/api/conversations", labels).await, "id");
        let execute = format!("/api/conversations/{conversation}/execute");
        let run = id(&post(&execute, json!({"user_input": SECRET})).await, "run_id");
        let plan = json!({"goal": SECRET, "profile": "planned", "approve_plan": true});
        let plan = id(&post("/api/plans", plan).await, "id");
        let rows = json!({"query": "[].{id: @, text: 'a row of many'}", "data": (0..3_000).collect::<Vec<_>>()});
        let large = app.post("/tools/json_query/execute").bearer_auth("key-of-ann").header("prefer", "handle");
        let (_, reply) = answer(large.json(&json!({"arguments": rows}))).await;
        let result = id(&reply["output"], "result_handle");
        Self { conversation, run, plan, result }
    }

    /// A route that is not listed has no answer, so that nobody forgets it.
    fn access(&self, method: &str, path: &str) -> Access {
        let owner = |path: String, body: Value| Access::Owner { path, body };
        let Self { conversation, run, plan, result } = self;
        match (method, path) {
            ("GET", "/healthz" | "/readyz" | "/metrics" | "/oauth/callback" | "/oauth/client-metadata.json") => {
                Access::Everybody
            }
            (_, path) if path.starts_with("/api/conversations/{id}") => {
                let body = match (method, path.ends_with("/execute")) {
                    ("PATCH", _) => json!({"title": "t"}),
                    (_, true) => json!({"user_input": "again"}),
                    _ => json!({}),
                };
                owner(path.replace("{id}", conversation), body)
            }
            (_, "/api/runs/{id}/resolve") => {
                owner(path.replace("{id}", run), json!({"call_id": "c", "decision": "skip"}))
            }
            (_, path) if path.starts_with("/api/runs/{id}") => owner(path.replace("{id}", run), json!({})),
            (_, "/api/logs/{log}") => owner(format!("/api/logs/messages?conversation_id={conversation}"), json!({})),
            ("PATCH", "/api/plans/{id}") => owner(path.replace("{id}", plan), json!({"steps": [{"instruction": "x"}]})),
            (_, path) if path.starts_with("/api/plans/{id}") => owner(path.replace("{id}", plan), json!({})),
            ("GET", "/results/{handle}") => owner(format!("/results/{result}"), json!({})),
            ("GET", "/api/tenants/{name}") => Access::Tenant { path: "/api/tenants/acme".into() },
            ("GET", "/api/skills/{name}") => Access::Tenant { path: "/api/skills/of-acme".into() },
            ("GET", "/api/models/{name}") => Access::Tenant { path: "/api/models/of-acme".into() },
            ("GET", "/api/tenants" | "/api/skills" | "/api/models") => Access::EachCaller,
            (_, path) if ["/api/tenants", "/api/skills", "/api/models"].iter().any(|of| path.starts_with(of)) => {
                Access::Administrator
            }
            (_, path) if path.starts_with("/tools/mcp/") || path.starts_with("/tools/openapi/") => {
                Access::Administrator
            }
            (_, path) if path.starts_with("/admin/keys") => Access::Administrator,
            (_, "/admin/lock" | "/admin/lock/approve" | "/admin/servers/test")
            | ("POST", "/admin/servers/{kind}/{name}/reconnect")
            | ("DELETE", "/admin/servers/{kind}/{name}") => Access::Administrator,
            (
                _,
                "/admin/calls"
                | "/admin/calls/history"
                | "/admin/calls/{id}"
                | "/admin/cluster"
                | "/admin/cluster/replicas/{id}/release"
                | "/admin/configuration"
                | "/admin/configuration/check"
                | "/admin/explain"
                | "/admin/limits"
                | "/admin/overview"
                | "/admin/policies"
                | "/admin/python-tools"
                | "/admin/python-tools/{name}"
                | "/admin/servers"
                | "/admin/servers/{kind}/{name}"
                | "/admin/usage"
                | "/api/conversations"
                | "/api/plans"
                | "/api/planner/stream"
                | "/api/chat"
                | "/api/chat/stream"
                | "/api/tools/settings"
                | "/api/v1/tools"
                | "/api/v1/tools/{name}"
                | "/api/v1/tools/{name}/execute"
                | "/approvals"
                | "/approvals/{id}"
                | "/approvals/{id}/approve"
                | "/approvals/{id}/deny"
                | "/limits"
                | "/results"
                | "/runs"
                | "/runs/{id}/resume"
                | "/sessions"
                | "/sessions/{id}"
                | "/sessions/{id}/files/{path}"
                | "/sessions/{id}/fork"
                | "/sign-ins"
                | "/sign-ins/{source}"
                | "/tools"
                | "/tools/batch-execute"
                | "/tools/categories"
                | "/tools/execute"
                | "/tools/list"
                | "/tools/schemas"
                | "/tools/search"
                | "/tools/select"
                | "/tools/{name}/execute"
                | "/tools/{name}/metadata"
                | "/tools/{name}/schema"
                | "/v1/chat/completions"
                | "/v1/messages"
                | "/v1/messages/count_tokens"
                | "/v1/models"
                | "/v1/models/{name}"
                | "/v1/responses",
            ) => Access::EachCaller,
            other => panic!("{other:?}: say here whose it is"),
        }
    }

    fn are_in(&self, text: &str) -> bool {
        [&self.conversation, &self.run, &self.plan, &self.result, SECRET].iter().any(|thing| text.contains(*thing))
    }
}

async fn app() -> TestApp {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("talk.yaml");
    std::fs::write(&script, "turns: [{text: [one]}, {text: [two]}]").unwrap();
    let plan = checkout().join("config/examples/plan.yaml").display().to_string();
    let yaml = format!(
        "{AUTH}\nagent:\n  default_profile: talk\n  profiles:\n    talk: {{provider: replay, model: '{}'}}\n    \
         planned: {{provider: replay, model: '{plan}', planner: {{preset: steps}}}}\n",
        script.display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let create = async |path: &str, body: Value| {
        let (status, reply) = answer(app.post(path).bearer_auth("key-of-eve").json(&body)).await;
        assert!(status.is_success(), "{path}: {reply}");
    };
    create("/api/models", json!({"name": "of-acme", "profile": "talk"})).await;
    create("/api/skills", json!({"name": "of-acme", "description": "Helps.", "instructions": "Help."})).await;
    create("/api/tenants", json!({"name": "acme", "models": ["talk", "planned", "of-acme"], "skills": ["of-acme"]}))
        .await;
    create("/api/tenants", json!({"name": "other", "models": ["talk"], "skills": []})).await;
    app
}

/// Ann is of the tenant; Bob too; Eve and Max are of another one, Eve with the role `admin`.
#[tokio::test]
async fn of_each_route_another_tenants_anything_does_not_exist() {
    let app = app().await;
    let things = Things::of_ann(&app).await;
    let ask = async |key: &str, method: &str, path: &str, body: &Value| {
        let request = app.client.request(method.parse().unwrap(), format!("{}{path}", app.url));
        let request = if key.is_empty() { request } else { request.bearer_auth(key) };
        let response = if method == "GET" { request } else { request.json(body) }.send().await.unwrap();
        let status = response.status();
        let is_stream = response.headers().get("content-type").is_some_and(|of| of == "text/event-stream");
        (status.as_u16(), if is_stream { String::new() } else { response.text().await.unwrap() })
    };
    let document: Value = app.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let routes = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        let methods = ["get", "put", "post", "patch", "delete"].into_iter().filter(|method| item.get(method).is_some());
        methods.map(|method| (method.to_uppercase(), path.clone()))
    });
    let mut routes: Vec<_> = routes.collect();
    assert!(routes.len() > 60, "{routes:?}");
    // What is deleted can be read before.
    routes.sort_by_key(|(method, _)| method == "DELETE");
    let mut of_owner = Vec::new();
    for (method, path) in &routes {
        let access = things.access(method, path);
        let (asked, body) = match &access {
            Access::Owner { path, body } => (path.clone(), body.clone()),
            Access::Tenant { path } => (path.clone(), json!({})),
            _ => (path.replace("{name}", "calculator").replace(['{', '}'], ""), json!({})),
        };
        let is_public = matches!(access, Access::Everybody);
        for key in ["", "wrong"] {
            let (status, reply) = ask(key, method, &asked, &body).await;
            assert_eq!(status == 401, !is_public, "{method} {path} with the key {key:?}: {status} {reply}");
        }
        for key in ["key-of-bob", "key-of-eve", "key-of-max"] {
            let (status, reply) = ask(key, method, &asked, &body).await;
            let is_denied = match &access {
                Access::Everybody | Access::EachCaller => true,
                Access::Owner { .. } => status == 404,
                Access::Tenant { .. } => match key {
                    "key-of-max" => status == 404,
                    _ => status == 200,
                },
                Access::Administrator => (key == "key-of-eve") != (status == 403),
            };
            assert!(is_denied && status < 500, "{method} {path} with {key}: {status} {reply}");
            assert!(!things.are_in(&reply) || status == 404, "{method} {path} with {key}: {reply}");
        }
        if let Access::Owner { .. } | Access::Tenant { .. } = access {
            of_owner.push((method, asked, body));
        }
    }
    // It was there all the time. No run waits for a decision.
    for (method, path, body) in of_owner.iter().filter(|(_, path, _)| !path.ends_with("/resolve")) {
        let (status, reply) = ask("key-of-ann", method, path, body).await;
        assert!(![401, 403, 404].contains(&status) && status < 500, "{method} {path}: {status} {reply}");
    }
}

#[tokio::test]
async fn a_run_that_is_on_can_be_stopped_by_its_owner_alone() {
    let app = with_scripts(&[("slow", "turns: [{text: [one], delay_seconds: 60}]")]).await;
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let app = TestApp::in_directory(app.stop().await, &format!("{yaml}{AUTH}\n")).await;
    let post = |key: &str, path: &str, body: Value| app.post(path).bearer_auth(key).json(&body);
    let (_, created) = answer(post("key-of-ann", "/api/conversations", json!({"agent": "slow"}))).await;
    let path = format!("/api/conversations/{}/execute", created["id"].as_str().unwrap());
    let mut response = post("key-of-ann", &path, json!({"user_input": "a", "stream": true})).send().await.unwrap();
    let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
    until(&mut response, |event| event.name == "system").await;
    let cancel = format!("/api/runs/{run}/cancel");
    assert_eq!(answer(post("key-of-bob", &cancel, json!({}))).await.0, StatusCode::NOT_FOUND);
    assert_eq!(post("key-of-ann", &cancel, json!({})).send().await.unwrap().status(), StatusCode::ACCEPTED);
    let rest = until(&mut response, |event| event.name == "system").await;
    assert_eq!(names(&rest), ["result", "system"]);
}

/// All clients without credentials are one caller. One elsewhere reaches what it began by its id alone.
#[tokio::test]
async fn clients_elsewhere_without_credentials_are_shown_no_list() {
    let script = checkout().join("config/examples/weather.yaml").display().to_string();
    let yaml = format!(
        "server: {{trusted_proxies: [127.0.0.0/8]}}\nauth: {{anonymous: always}}\n\
         agent: {{default_profile: talk, profiles: {{talk: {{provider: replay, model: '{script}'}}}}}}\n"
    );
    let app = TestApp::with(&yaml).await;
    let elsewhere = |request: reqwest::RequestBuilder| request.header("x-forwarded-for", "203.0.113.9");
    let (status, created) = answer(elsewhere(app.post("/api/conversations").json(&json!({})))).await;
    assert!(status.is_success(), "{created}");
    let id = created["id"].as_str().unwrap();
    for path in [format!("/api/conversations/{id}"), format!("/api/logs/messages?conversation_id={id}")] {
        assert_eq!(answer(elsewhere(app.get(&path))).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/api/conversations", "/api/plans", "/api/logs/messages"] {
        let (status, reply) = answer(elsewhere(app.get(path))).await;
        assert_eq!(
            (status, &reply["error_info"]["code"]),
            (StatusCode::UNAUTHORIZED, &json!("unauthenticated")),
            "{path}"
        );
        assert_eq!(answer(app.get(path)).await.0, StatusCode::OK, "{path} on this machine");
    }
}
