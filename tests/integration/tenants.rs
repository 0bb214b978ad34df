//! A tenant is a wall: what each route, form and method answers to each role about whose things, as tenants/matrix.yaml states it.

mod callers;
mod configured;
mod matrix;
mod owners;
mod pages;
mod world;

use std::collections::BTreeSet;

use reqwest::StatusCode;
use reqwest::header::LOCATION;
use serde_json::{Value, json};

use self::callers::{ADA, ANN, CALLERS, EVE, MAX, ROOT};
use self::matrix::{Cell, Matrix};
use self::world::{Place, World};
use crate::app::{TestApp, answer, code};
use crate::checkout::checkout;
use crate::console::Browser;
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};

/// The routes of the service, as `METHOD PATH`.
async fn routes(app: &TestApp) -> BTreeSet<String> {
    let document: Value = app.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let methods = |path: &str, item: &Value| {
        let found = ["get", "put", "post", "patch", "delete"].into_iter().filter(|method| item.get(method).is_some());
        found.map(|method| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| methods(path, item)).collect()
}

/// The forms of the console, as its sources route them.
fn forms() -> BTreeSet<String> {
    let read = |file: &str| std::fs::read_to_string(checkout().join(file)).unwrap();
    let console = read("src/console/lib.rs");
    let lines = console.lines().map(str::trim).filter(|line| line.starts_with(".route(\"") && line.contains("post("));
    let mut found: BTreeSet<_> = lines.map(|line| format!("POST {}", line.split('"').nth(1).unwrap())).collect();
    assert_eq!(read("src/console/resources.rs").matches(".post(").count(), 2, "the list and one of them");
    for kind in ["models", "skills", "tenants"] {
        found.extend([format!("POST /console/{kind}"), format!("POST /console/{kind}/{{name}}")]);
    }
    found
}

/// The methods of MCP that the server knows.
fn methods() -> BTreeSet<String> {
    let source = std::fs::read_to_string(checkout().join("src/api/mcp/methods.rs")).unwrap();
    let arms = source.lines().filter(|line| line.contains("\", _)") || line.contains("\", Era::"));
    let names = arms.flat_map(|line| line.split('"').skip(1).step_by(2));
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'/'))
        .map(str::to_owned)
        .collect()
}

fn stated<'a>(cells: impl Iterator<Item = Cell<'a>>) -> BTreeSet<String> {
    cells.map(|cell| cell.of.to_owned()).collect()
}

#[tokio::test]
async fn the_matrix_has_each_route_form_and_method_and_no_other() {
    let (app, matrix) = (TestApp::start().await, Matrix::read());
    let routes = routes(&app).await;
    assert!(routes.len() > 100, "{routes:?}");
    assert_eq!(stated(matrix.routes()), routes);
    let (forms, methods) = (forms(), methods());
    assert!(forms.len() > 20 && methods.len() > 15, "{forms:?} {methods:?}");
    assert_eq!(stated(matrix.forms()), forms);
    assert_eq!(stated(matrix.methods()), methods);
}

#[tokio::test]
async fn each_route_answers_as_the_matrix_states() {
    let (world, matrix) = (World::start().await, Matrix::read());
    let mut wrong = Vec::new();
    for cell in matrix.routes() {
        let place = world.place(&cell).await;
        let (status, text) = request(&world.app, &cell, &place).await;
        let is_taken = text.contains("\"name_taken\"");
        let found = if is_taken { "taken" } else { outcome(status) };
        if found != cell.expected {
            wrong.push(format!("{cell}: {status} {}", text.chars().take(300).collect::<String>()));
        }
        for other in CALLERS.iter().chain([&MAX, &EVE]).filter(|other| other.id != cell.caller.id) {
            assert!(!text.contains(&other.secret()), "{cell} has what {} wrote: {text}", other.id);
        }
        // The metrics have the names of the tools of all tenants (docs/security.md), and lists of calls and events the names that their callers wrote:
        // those of this test call each other's tools.
        let lists = [
            "GET /metrics",
            "GET /admin/calls",
            "GET /admin/calls/facets",
            "GET /admin/calls/history",
            "GET /admin/events",
            "GET /admin/failures",
        ];
        let has_any_name = lists.contains(&cell.of);
        if status.is_success() && !has_any_name {
            let ids = world.hidden_from(cell.caller).into_iter().filter(|id| text.contains(id));
            wrong.extend(ids.map(|id| format!("{cell}: the answer has {id}, which is another's")));
        }
        world.made_again(&cell, found).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn request(app: &TestApp, cell: &Cell<'_>, place: &Place) -> (StatusCode, String) {
    let (method, path) = cell.of.split_once(' ').unwrap();
    let path = place.path(path, &cell.group.query);
    let mut request = app.client.request(method.parse().unwrap(), format!("{}{path}", app.url));
    if !cell.caller.key.is_empty() {
        request = request.bearer_auth(cell.caller.key);
    }
    if method != "GET" {
        let body = if cell.group.body.is_null() { json!({}) } else { cell.group.body.clone() };
        request = request.json(&place.filled(body));
    }
    let response = request.send().await.unwrap();
    let status = response.status();
    // A stream may be open for as long as what it is about goes on.
    let is_stream = response.headers().get("content-type").is_some_and(|of| of == "text/event-stream");
    (status, if is_stream { String::new() } else { response.text().await.unwrap() })
}

/// In the words of the matrix.
fn outcome(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "401",
        403 => "403",
        404 => "404",
        429 => "limited",
        500.. => "failed",
        _ => "ok",
    }
}

#[tokio::test]
async fn each_form_of_the_console_answers_as_the_matrix_states() {
    let (world, matrix) = (World::start().await, Matrix::read());
    let mut browsers = Vec::new();
    for caller in CALLERS {
        browsers.push(match caller.signs_in {
            true => Browser::signed_in(&world.app, caller.key).await,
            false => Browser::new(&world.app),
        });
    }
    let mut wrong = Vec::new();
    for cell in matrix.forms() {
        let place = world.place(&cell).await;
        // What ends the session is sent in one of its own.
        let own_session = cell.group.ends && cell.group.thing.is_none() && cell.caller.signs_in;
        let fresh = match own_session {
            true => Some(Browser::signed_in(&world.app, cell.caller.key).await),
            false => None,
        };
        let browser = fresh.as_ref().unwrap_or(&browsers[cell.column]);
        let found = submit(browser, &cell, &place).await;
        if found != cell.expected {
            wrong.push(format!("{cell}: {found}"));
        }
        world.made_again(&cell, found).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn submit(browser: &Browser<'_>, cell: &Cell<'_>, place: &Place) -> &'static str {
    let path = place.path(cell.of.strip_prefix("POST ").unwrap(), "");
    let fields = place.filled(json!(cell.group.fields));
    let token = if cell.caller.signs_in { browser.token().await } else { String::new() };
    let mut sent: Vec<_> =
        fields.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_str().unwrap())).collect();
    sent.push(("token", &token));
    let response = browser.post(&path, &sent).send().await.unwrap();
    let (status, leads_to) = (response.status(), response.headers().get(LOCATION).cloned());
    let text = response.text().await.unwrap();
    match (status, leads_to) {
        (StatusCode::SEE_OTHER, Some(page)) if page.to_str().unwrap().starts_with("/console/sign-in") => "401",
        // The page has the form again, and why it was refused.
        (StatusCode::OK, _) if text.contains("class=\"notice bad\"") => "403",
        (status, _) => outcome(status),
    }
}

#[tokio::test]
async fn each_method_of_mcp_answers_as_the_matrix_states() {
    let (world, matrix) = (World::start().await, Matrix::read());
    let connect = async |key: &str| McpClient::connect_as(&world.app, OLDER, Some(key)).await;
    let (of_max, of_eve) = (connect(MAX.key).await, connect(EVE.key).await);
    let mut own = Vec::new();
    for caller in CALLERS {
        own.push(match caller.key {
            "" => McpClient::new(&world.app, OLDER, None),
            key => connect(key).await,
        });
    }
    let mut wrong = Vec::new();
    for cell in matrix.methods() {
        let key = Some(cell.caller.key).filter(|key| !key.is_empty());
        let client = match (cell.group.sessionless, cell.owner().id) {
            (true, _) => McpClient::new(&world.app, NEWER, key),
            (false, "max") => of_max.with_key(cell.caller.key),
            (false, "eve") => of_eve.with_key(cell.caller.key),
            (false, _) => own[cell.column].clone(),
        };
        let response = client.response(cell.of, params(cell.of)).await;
        let found = outcome(response.status());
        if found != cell.expected {
            let status = response.status();
            wrong.push(format!("{cell}: {status} {}", response.text().await.unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Parameters with which a method is asked.
fn params(method: &str) -> Value {
    match method {
        "initialize" => crate::mcp::client::initialize(OLDER),
        "logging/setLevel" => json!({"level": "error"}),
        "tools/call" => json!({"name": "calculator", "arguments": {"expression": "6*7"}}),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => json!({"uri": "file:///none"}),
        "prompts/get" => json!({"name": "none"}),
        "completion/complete" => {
            json!({"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}})
        }
        "subscriptions/listen" => json!({"notifications": {"toolsListChanged": true}}),
        _ if method.starts_with("tasks/") => json!({"taskId": "none"}),
        _ => json!({}),
    }
}

/// An administrator of a tenant cannot take a server over, nor raise the tenant's own budget, nor switch another tenant off.
#[tokio::test]
async fn an_administrator_of_a_tenant_changes_nothing_that_others_use() {
    let world = World::start().await;
    let app = &world.app;
    let send = async |key: &str, method: &str, path: &str, body: Value| {
        let request = app.client.request(method.parse().unwrap(), format!("{}{path}", app.url));
        answer(request.bearer_auth(key).json(&body)).await
    };
    let pays = async || send(ANN.key, "POST", "/tools/paid/execute", json!({"arguments": {}})).await.0;
    let (status, reply) = send(ROOT.key, "PUT", "/api/tenants/acme", json!({"max_cost_per_day": "0.05"})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(pays().await, StatusCode::PAYMENT_REQUIRED);
    let before = answer(app.get("/admin/servers/openapi/of-default").bearer_auth(ROOT.key)).await.1;
    let elsewhere = world.document().replace("bank.example", "other.example");
    for (method, path, body) in [
        ("DELETE", "/tools/openapi/of-default", json!({})),
        ("DELETE", "/admin/servers/openapi/of-default", json!({})),
        ("PUT", "/api/tenants/acme", json!({"max_cost_per_day": "1000"})),
        ("DELETE", "/api/tenants/acme", json!({})),
        ("PUT", "/api/tenants/globex", json!({"status": "inactive"})),
        ("POST", "/api/tenants", json!({"name": "default", "status": "inactive"})),
    ] {
        let (status, reply) = send(ADA.key, method, path, body).await;
        assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{method} {path}: {reply}");
        let error = reply["error"].as_str().unwrap();
        assert!(error.contains("the role `admin` in the tenant `default`") && error.contains("\"acme\""), "{error}");
    }
    let document = json!({"name": "of-default", "spec_inline": elsewhere});
    let (status, reply) = send(ADA.key, "POST", "/tools/openapi/register", document).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "name_taken"), "{reply}");
    assert_eq!(pays().await, StatusCode::PAYMENT_REQUIRED, "the budget is as it was");
    assert_eq!(answer(app.get("/admin/servers/openapi/of-default").bearer_auth(ROOT.key)).await.1, before);
    let (_, globex) = answer(app.get("/api/tenants/globex").bearer_auth(ROOT.key)).await;
    assert_eq!(globex["status"], "active", "{globex}");
    let (_, default) = answer(app.get("/api/tenants/default").bearer_auth(ROOT.key)).await;
    assert_ne!(default["status"], "inactive", "{default}");
    // The pages do not lead there either.
    let ada = Browser::signed_in(app, ADA.key).await;
    for (page, leads) in [
        ("/console", "href=\"/console/configuration\""),
        ("/console/servers", "/console/servers/lock"),
        ("/console/servers/openapi/of-default", "name=\"act\""),
        ("/console/tenants/acme", "name=\"argument."),
        ("/console/models/of-default", "name=\"argument."),
    ] {
        assert!(!ada.page(page).await.contains(leads), "{page}");
    }
    for page in ["/console/servers/lock", "/console/configuration"] {
        assert_eq!(ada.get(page).send().await.unwrap().status(), StatusCode::FORBIDDEN, "{page}");
    }
    // What is the tenant's own stays hers.
    let (status, created) = send(ADA.key, "POST", "/admin/keys", json!({"person": "new"})).await;
    assert_eq!((status, &created["key"]["tenant"]), (StatusCode::CREATED, &json!("acme")), "{created}");
    for (page, leads) in [
        ("/console", "href=\"/console/keys\""),
        ("/console/servers", "/console/servers/add"),
        ("/console/servers/openapi/of-acme", "name=\"act\""),
        ("/console/models", "name=\"argument."),
        ("/console/models/of-acme", "name=\"argument."),
        ("/console/skills/of-acme", "name=\"argument."),
    ] {
        assert!(ada.page(page).await.contains(leads), "{page}");
    }
}
