//! OpenAPI collections from the configuration: their tools, their errors, a reload, and validation by HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Query;
use axum::routing::post;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config};
use crate::charges::{LOOPBACK, served};
use crate::cli::{Serving, sekisho, text};

/// The service's own routes, described for a caller.
pub(crate) fn document(server: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Itself", "version": "1"},
        "servers": [{"url": server}],
        "paths": {
            "/tools/list": {"get": {
                "operationId": "tools", "summary": "What tools there are.",
                "parameters": [{"name": "category", "in": "query", "schema": {"type": "string"}}],
                "responses": {"200": {"description": "names"}},
            }},
            "/tools/{name}/metadata": {"get": {
                "operationId": "tool",
                "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "one"}},
            }},
        },
    })
}

/// Two collections: one that works against `server`, and one whose file is not there.
fn settings(directory: &TempDir, server: &str) -> String {
    let file = directory.path().join("itself.json");
    std::fs::write(&file, document(server).to_string()).unwrap();
    format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
         openapi: {{collections: {{itself: {{spec_file: '{}'}}, gone: {{spec_file: /nowhere.json}}}}}}",
        file.display()
    )
}

#[tokio::test]
async fn a_collection_is_called_through_the_pipeline_and_a_broken_one_is_reported() {
    let upstream = TestApp::start().await;
    let directory = TempDir::new().unwrap();
    let yaml = settings(&directory, &upstream.url);
    let app = TestApp::in_directory(directory, &yaml).await;

    let (status, reply) = app.call("itself__tools", json!({"category": "utility"})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let (_, expected) = answer(upstream.get("/tools/list?category=utility")).await;
    assert_eq!(reply["output"], expected);
    assert_eq!(reply["usage"]["cost_usd"], 0.001);

    // A 404 is the call's failure, and no outage of the upstream.
    let (status, reply) = app.call("itself__tool", json!({"name": "nothing"})).await;
    assert_eq!((status, reply["success"].clone()), (StatusCode::OK, json!(false)), "{reply}");
    assert_eq!(code(&reply), "tool_error");

    let (status, reply) = app.call("itself__tool", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"));

    let (_, ready) = answer(app.get("/readyz")).await;
    assert_eq!(ready["status"], "degraded");
    assert!(ready["degraded"]["openapi:gone"].as_str().unwrap().contains("/nowhere.json"), "{ready}");
}

/// A gateway with the operation `pets__create` of a server that answers with the status it is asked for, and how many
/// requests that server got.
async fn answering_as_asked() -> (TestApp, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let create = post(async move |Query(asked): Query<Map<String, Value>>| {
        counter.fetch_add(1, Ordering::SeqCst);
        let status = asked["status"].as_str().and_then(|status| status.parse().ok());
        StatusCode::from_u16(status.unwrap()).unwrap()
    });
    let server = served(Router::new().route("/pets", create)).await;
    let status = json!({"name": "status", "in": "query", "required": true, "schema": {"type": "integer"}});
    let responses = json!({"200": {"description": "created"}});
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": server}],
        "paths": {"/pets": {"post": {"operationId": "create", "parameters": [status], "responses": responses}}},
    });
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pets.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let collection = format!("{{spec_file: '{}', rate_limit: 10000}}", file.display());
    let yaml = format!("outbound: {{{LOOPBACK}}}\nopenapi: {{collections: {{pets: {collection}}}}}");
    (TestApp::in_directory(directory, &yaml).await, requests)
}

/// Fault 2: 4xx replies counted as outages.
#[tokio::test]
async fn a_404_never_opens_the_circuit_of_an_api_and_a_500_does() {
    let (app, requests) = answering_as_asked().await;
    for (status, calls, expected) in [(404, 30, "tool_error"), (500, 5, "upstream_error"), (500, 1, "circuit_open")] {
        for _ in 0..calls {
            let (_, reply) = app.call("pets__create", json!({"status": status})).await;
            assert_eq!(code(&reply), expected, "{reply}");
        }
    }
    assert_eq!(requests.load(Ordering::SeqCst), 35, "an open circuit sends no requests");
}

/// An operation that deletes and one that does not, at a service that has neither: a call that gets there fails.
fn deleting(server: &str, drop: &Value) -> Value {
    let mut document = document(server);
    let responses = json!({"200": {"description": "done"}});
    let mut drop = drop.clone();
    drop["operationId"] = json!("drop");
    drop["responses"] = responses.clone();
    document["paths"] = json!({"/nowhere": {"delete": drop, "post": {"operationId": "add", "responses": responses}}});
    document
}

#[tokio::test]
async fn a_call_that_deletes_needs_a_role_until_the_operator_opens_it() {
    let upstream = TestApp::start().await;
    let overlay = json!({"overlay": "1.0.0", "actions": [
        {"target": "$.paths.*.delete", "update": {"x-dangerous": false}},
    ]});
    for (hint, collection, further, closed) in [
        (json!({}), "", "", &["drop"][..]),
        (json!({"x-dangerous": false}), "", "", &["drop"]),
        (json!({}), "dangerous: {methods: []}", "", &[]),
        (json!({"x-dangerous": true}), "dangerous: {methods: []}", "", &["drop"]),
        (json!({}), "dangerous: {operations: [add]}", "", &["drop", "add"]),
        (json!({"x-dangerous": false}), "overlays: [OVERLAY]", "", &[]),
        (json!({}), "", "tools: {overrides: {far__drop: {dangerous: false}, far__add: {dangerous: true}}}", &["add"]),
    ] {
        let directory = TempDir::new().unwrap();
        let place = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(place("far.json"), deleting(&upstream.url, &hint).to_string()).unwrap();
        std::fs::write(place("overlay.json"), overlay.to_string()).unwrap();
        let collection = collection.replace("OVERLAY", &place("overlay.json"));
        let yaml = format!(
            "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n{further}\n\
             openapi: {{collections: {{far: {{spec_file: '{}', {collection}}}}}}}",
            place("far.json")
        );
        let app = TestApp::in_directory(directory, &yaml).await;
        for tool in ["drop", "add"] {
            let (_, reply) = app.call(&format!("far__{tool}"), json!({})).await;
            let expected = if closed.contains(&tool) { "denied" } else { "tool_error" };
            assert_eq!(code(&reply), expected, "{tool} {hint} {collection} {further}: {reply}");
        }
    }
}

#[tokio::test]
async fn a_reload_loads_changed_documents_and_keeps_the_tools_of_a_broken_one() {
    let directory = TempDir::new().unwrap();
    let yaml = settings(&directory, "http://127.0.0.1:9");
    let app = TestApp::in_directory(directory, &yaml).await;
    let file = app.directory.path().join("itself.json");
    assert!(app.gateway.watched_files().contains(&file));
    let names = async || {
        let (_, names) = answer(app.get("/tools/list?category=api")).await;
        names
    };
    let reload = async || app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(names().await, json!(["itself__tool", "itself__tools"]));

    std::fs::write(&file, "{").unwrap();
    reload().await;
    assert_eq!(names().await, json!(["itself__tool", "itself__tools"]));
    assert!(app.gateway.readiness.degraded().contains_key("openapi:itself"));

    let mut changed = document("http://127.0.0.1:9");
    changed["paths"].as_object_mut().unwrap().remove("/tools/list");
    std::fs::write(&file, changed.to_string()).unwrap();
    reload().await;
    assert_eq!(names().await, json!(["itself__tool"]));
    assert!(!app.gateway.readiness.degraded().contains_key("openapi:itself"));
}

pub(crate) const ADMIN: &str = "auth: {api_keys: [{id: ada, key: key-of-ada, roles: [admin]}]}";

async fn validate(app: &TestApp, body: &Value) -> (StatusCode, Value) {
    answer(app.post("/tools/openapi/validate").bearer_auth("key-of-ada").json(body)).await
}

#[tokio::test]
async fn only_an_administrator_has_documents_read() {
    for keys in ["", "auth: {anonymous: always, api_keys: [{id: ada, key: key-of-ada, roles: [operator]}]}"] {
        let app = TestApp::with(keys).await;
        let request = app.post("/tools/openapi/validate").json(&json!({"spec_inline": "{}"}));
        let request = if keys.is_empty() { request } else { request.bearer_auth("key-of-ada") };
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{reply}");
    }
}

/// A tool that its roles hide is an unknown one for the others, in the list of servers, too.
#[tokio::test]
async fn the_list_of_servers_has_no_name_of_a_hidden_tool() {
    let yaml = format!(
        "auth: {{api_keys: [{{id: ann, key: key-of-ann}}, {{id: root, key: key-of-root, roles: [admin]}}]}}\n\
         console: {{roles: {{admin: [admin]}}}}\n\
         outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
         openapi: {{collections: {{itself: {{spec_inline: '{}'}}}}}}\n\
         tools: {{overrides: {{itself__tool: {{roles: [auditor]}}}}}}\n",
        document("http://127.0.0.1:1")
    );
    let app = TestApp::with(&yaml).await;
    let shown = async |key: &str| answer(app.get("/admin/servers/openapi/itself").bearer_auth(key)).await.1;
    let (of_ann, of_root) = (shown("key-of-ann").await, shown("key-of-root").await);
    assert_eq!((&of_ann["tools"], &of_ann["fidelity"]), (&json!(["itself__tools"]), &Value::Null), "{of_ann}");
    assert_eq!(of_root["tools"], json!(["itself__tool", "itself__tools"]), "{of_root}");
    assert_eq!(of_root["fidelity"]["operations"], 2, "{of_root}");
}

#[tokio::test]
async fn a_document_is_validated_by_its_address_or_its_text() {
    let upstream = TestApp::start().await;
    let allowed = "outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}";
    let app = TestApp::with(&format!("{allowed}\n{ADMIN}")).await;
    let validate = async |body: Value| validate(&app, &body).await;

    let (status, found) = validate(json!({"spec_inline": document("https://api.example.com/v1").to_string()})).await;
    let operations = json!([
        {"operation_id": "tools", "method": "GET", "path": "/tools/list", "description": "What tools there are."},
        {"operation_id": "tool", "method": "GET", "path": "/tools/{name}/metadata", "description": ""},
    ]);
    let expected = json!({
        "valid": true, "operations_count": 2, "operations": operations,
        "base_url": "https://api.example.com/v1", "errors": [],
    });
    assert_eq!((status, found), (StatusCode::OK, expected));

    let (_, found) = validate(json!({"spec_url": format!("{}/openapi.json", upstream.url)})).await;
    assert_eq!((&found["valid"], &found["errors"]), (&json!(true), &json!([])), "{found}");
    assert!(found["operations_count"].as_u64().unwrap() > 10, "{found}");

    let (_, found) = validate(json!({"spec_inline": "{openapi: 3.1.0, info: {}, paths: {/a: {get: {}}}}"})).await;
    assert_eq!((&found["valid"], &found["base_url"]), (&json!(true), &json!(null)), "{found}");
    assert!(found["errors"][0].as_str().unwrap().contains("set `base_url`"), "{found}");

    let no_paths = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": []});
    let (_, found) = validate(json!({"spec_inline": no_paths.to_string()})).await;
    assert_eq!((&found["valid"], found["errors"].as_array().unwrap().len()), (&json!(false), 1), "{found}");

    // An operation that cannot become a tool is not counted.
    let patterns: Map<_, _> = (0..300).map(|at| (format!("p{at}"), json!({"pattern": format!("^{at}$")}))).collect();
    let mut half = document("https://api.example.com/v1");
    let schema = json!({"type": "object", "properties": patterns});
    half["paths"]["/tools/list"]["get"]["parameters"] = json!([{"name": "q", "in": "query", "schema": schema}]);
    let (_, found) = validate(json!({"spec_inline": half.to_string()})).await;
    assert_eq!((&found["operations_count"], found["errors"].as_array().unwrap().len()), (&json!(1), 1), "{found}");

    // A parameter that is not there would not be sent, though it may be required.
    let mut broken = document("https://api.example.com/v1");
    broken["paths"]["/tools/list"]["get"]["parameters"] = json!([{"$ref": "#/components/parameters/Missing"}]);
    let (_, found) = validate(json!({"spec_inline": broken.to_string()})).await;
    assert_eq!((&found["valid"], &found["operations_count"]), (&json!(false), &json!(2)), "{found}");
    let error = found["errors"][0].as_str().unwrap();
    assert!(error.starts_with("tools: ") && error.contains("#/components/parameters/Missing"), "{error}");

    for text in ["{", "swagger: '1.2'", "just text", ""] {
        let (status, found) = validate(json!({"spec_inline": text})).await;
        assert_eq!((status, &found["valid"]), (StatusCode::OK, &json!(false)), "{text}: {found}");
        assert_eq!(found["errors"].as_array().unwrap().len(), 1, "{text}: {found}");
    }
}

#[tokio::test]
async fn an_address_off_the_allowlist_is_refused_and_a_caller_can_name_no_file() {
    let app = TestApp::with(ADMIN).await;
    for (body, expected) in [
        (json!({"spec_url": "https://example.com/openapi.json"}), "denied"),
        (json!({"spec_url": "file:///etc/passwd"}), "denied"),
        (json!({"spec_file": "/etc/passwd"}), "invalid_request"),
        (json!({"spec_inline": "{}", "overlays": ["/etc/passwd"]}), "invalid_request"),
        (json!({}), "invalid_request"),
        (json!({"spec_inline": "{}", "spec_url": "https://example.com/"}), "invalid_request"),
    ] {
        let (status, reply) = validate(&app, &body).await;
        assert!(status.is_client_error(), "{body}: {reply}");
        assert_eq!(code(&reply), expected, "{body}");
    }
}

#[test]
fn the_command_reports_the_tools_of_a_document() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("api.json"), document("https://api.example.com").to_string()).unwrap();
    let import = |arguments: &[&str]| sekisho(&directory).args(arguments).output().unwrap();
    let file = directory.path().join("api.json");
    let file = file.to_str().unwrap();

    let output = import(&["--json", "import", "openapi", file]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let works = json!([{"operation": "tools", "tool": "api__tools"}, {"operation": "tool", "tool": "api__tool"}]);
    assert_eq!(
        report,
        json!({
            "operations": 2, "tools": 2, "works": works, "lost": [], "approximated": [], "needs_credentials": [], "dangerous": [],
            "open_deletes": []
        })
    );

    let reported = text(&import(&["import", "openapi", file, "--report"]));
    assert!(reported.contains("2 operations, 2 tools") && reported.contains("spec_file"), "{reported}");
    assert!(
        reported.contains("api__tools") && reported.contains("openapi_allowed_domains: [api.example.com]"),
        "{reported}"
    );
    assert!(!text(&import(&["import", "openapi", file, "--dry-run"])).contains("spec_file"));
    assert_eq!(import(&["import", "openapi", "/nowhere.json"]).status.code(), Some(1));
}

/// A document without a server can be previewed; to be offered it needs one.
#[test]
fn a_document_without_a_server_is_reported_with_a_remedy() {
    let directory = TempDir::new().unwrap();
    let mut api = document("https://api.example.com");
    api.as_object_mut().unwrap().remove("servers");
    let file = directory.path().join("api.json");
    std::fs::write(&file, api.to_string()).unwrap();
    let import = |more: &[&str]| {
        let output =
            sekisho(&directory).args(["import", "openapi", "--report"]).arg(&file).args(more).output().unwrap();
        text(&output)
    };
    let reported = import(&[]);
    assert!(reported.contains("2 operations, 2 tools") && reported.contains("set `base_url`"), "{reported}");
    assert!(reported.contains("domains: []") && reported.contains("base_url: https://…"), "{reported}");
    let reported = import(&["--base-url", "https://api.example.com/v1"]);
    assert!(
        reported.contains("domains: [api.example.com]") && reported.contains("base_url: https://api.example.com/v1"),
        "{reported}"
    );

    let entry = |more: &str| format!("openapi: {{collections: {{a: {{spec_file: '{}'{more}}}}}}}\n", file.display());
    for (entry, status, says) in [
        (entry(""), 1, "names no server"),
        (
            format!(
                "{}outbound: {{openapi_allowed_domains: [api.example.com]}}",
                entry(", base_url: 'https://api.example.com'")
            ),
            0,
            "2 tools",
        ),
    ] {
        let config = directory.path().join("config.yaml");
        std::fs::write(&config, entry).unwrap();
        let output = sekisho(&directory).arg("check").arg("--config").arg(&config).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
        assert!(text(&output).contains(says), "{}", text(&output));
    }
}

#[test]
fn a_document_is_registered_with_the_named_gateway() {
    let (served, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let serving = Serving::start(&served);
    std::fs::write(directory.path().join("api.json"), document("https://api.example.com").to_string()).unwrap();
    let file = directory.path().join("api.json");
    let output = sekisho(&directory).args(["--server", &serving.url, "import", "openapi"]).arg(file).output().unwrap();
    // It is the gateway that answers: nobody there is an administrator.
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("the role `admin`"), "{}", text(&output));
}
