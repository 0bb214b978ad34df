//! OpenAPI collections registered over HTTP, and documents that are slow to come.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config};
use crate::cli::{sekisho, text};
use crate::document_host::DocumentHost;
use crate::openapi::{ADMIN, document};
use crate::public_documents::fixture;
use crate::slack::slack;

const ALLOWED: &str = "outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}";

async fn registering() -> TestApp {
    TestApp::with(&format!("{ALLOWED}\n{ADMIN}")).await
}

async fn register(app: &TestApp, body: &Value) -> (StatusCode, Value) {
    answer(app.post("/tools/openapi/register").bearer_auth("key-of-ada").json(body)).await
}

async fn names(app: &TestApp) -> Value {
    answer(app.get("/tools/list?category=api").bearer_auth("key-of-ada")).await.1
}

async fn call(app: &TestApp, tool: &str, arguments: Value) -> Value {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth("key-of-ada");
    answer(request.json(&json!({"arguments": arguments}))).await.1
}

#[tokio::test]
async fn a_registered_document_is_called_at_once_and_after_a_restart() {
    let upstream = TestApp::start().await;
    let host = DocumentHost::start().await;
    let url = host.put("/api.json", document(&upstream.url));
    let app = registering().await;
    let (status, reply) = register(&app, &json!({"name": "itself", "spec_url": url, "rate_limit": 7})).await;
    let expected = json!({
        "success": true, "collection_name": "itself",
        "operations_registered": ["itself__tools", "itself__tool"],
        "message": "2 operations, 2 tools, 2 work as described, 0 approximated, 0 without credentials, 0 lost",
        "rate_limit": 7, "timeout_seconds": 30.0, "max_response_bytes": 10_485_760,
    });
    assert_eq!((status, reply), (StatusCode::OK, expected));
    assert_eq!(call(&app, "itself__tool", json!({"name": "calculator"})).await["success"], true);

    // A reload that does not contain it leaves it unchanged.
    app.gateway.reload(config(&app.directory, &format!("{ALLOWED}\n{ADMIN}"))).await;
    assert_eq!(names(&app).await, json!(["itself__tool", "itself__tools"]));

    let app = TestApp::in_directory(app.stop().await, &format!("{ALLOWED}\n{ADMIN}")).await;
    app.gateway.collections().fetch_pending_documents().await;
    assert_eq!(call(&app, "itself__tool", json!({"name": "calculator"})).await["success"], true);
    let (_, metadata) = answer(app.get("/tools/itself__tool/metadata").bearer_auth("key-of-ada")).await;
    assert_eq!(metadata["rate_limit"], 7);
}

/// Its callers would be on the machine, where more is open to them.
#[tokio::test]
async fn what_is_registered_does_not_reach_the_gateway_itself() {
    let app = registering().await;
    let (status, reply) =
        register(&app, &json!({"name": "own", "spec_url": format!("{}/openapi.json", app.url)})).await;
    let says = |reply: &Value| reply["error"].as_str().unwrap().contains("is this gateway itself");
    assert!(status != StatusCode::OK && says(&reply), "{reply}");
    let inline = json!({"name": "own", "spec_inline": document(&app.url).to_string()});
    assert_eq!(register(&app, &inline).await.0, StatusCode::OK);
    let reply = call(&app, "own__tools", json!({})).await;
    assert!(code(&reply) == "denied" && says(&reply), "{reply}");
}

#[tokio::test]
async fn a_registration_lists_dangerous_operations_and_may_override_them() {
    let app = registering().await;
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Far", "version": "1"}, "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/a": {"delete": {"operationId": "drop", "responses": {"200": {"description": "done"}}}}},
    });
    for (dangerous, is_dangerous) in [(json!(null), true), (json!({"methods": []}), false)] {
        let body = json!({"name": "far", "spec_inline": document.to_string(), "dangerous": dangerous});
        let (status, reply) = register(&app, &body).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        let says = reply["message"].as_str().unwrap().contains("1 operation is dangerous for the method");
        let (_, metadata) = answer(app.get("/tools/far__drop/metadata").bearer_auth("key-of-ada")).await;
        assert_eq!((says, &metadata["dangerous"]), (is_dangerous, &json!(is_dangerous)), "{dangerous}");
    }
    let misspelt = json!({"name": "far", "spec_inline": document.to_string(), "dangerous": {"method": []}});
    assert_eq!(register(&app, &misspelt).await.0, StatusCode::BAD_REQUEST);
}

/// GitHub's, with its 7 MB, is larger than any other request may be.
#[tokio::test]
async fn a_large_document_is_registered_with_its_text() {
    let text = String::from_utf8(fixture("github-api.min.json.gz")).unwrap();
    let app =
        TestApp::with(&format!("outbound: {{openapi_allowed_domains: [api.github.com, uploads.github.com]}}\n{ADMIN}"))
            .await;
    let (status, reply) = register(&app, &json!({"name": "github", "spec_inline": text})).await;
    assert_eq!(status, StatusCode::OK, "{}", reply["error"]);
    assert_eq!(reply["operations_registered"].as_array().map(Vec::len), Some(1_223));
}

#[tokio::test]
async fn the_check_sees_what_is_registered() {
    let app = registering().await;
    let inline = json!({"name": "itself", "spec_inline": document("http://127.0.0.1:9").to_string()});
    assert_eq!(register(&app, &inline).await.0, StatusCode::OK);
    let directory = app.stop().await;
    let output = sekisho(&directory).arg("check").output().unwrap();
    assert!(text(&output).contains("openapi:itself") && text(&output).contains("itself__tools"), "{}", text(&output));
}

#[tokio::test]
async fn registering_a_name_again_replaces_it_and_removing_it_takes_the_tools_away() {
    let app = registering().await;
    let mut second = document("http://127.0.0.1:9");
    let inline = |document: &Value| json!({"name": "itself", "spec_inline": document.to_string()});
    assert_eq!(register(&app, &inline(&second)).await.0, StatusCode::OK);
    second["paths"].as_object_mut().unwrap().remove("/tools/list");
    assert_eq!(register(&app, &inline(&second)).await.0, StatusCode::OK);
    assert_eq!(names(&app).await, json!(["itself__tool"]));

    let remove = async |name: &str, key: &str| {
        let url = format!("{}/tools/openapi/{name}", app.url);
        answer(app.client.delete(url).bearer_auth(key)).await
    };
    assert_eq!(remove("itself", "key-of-ada").await.0, StatusCode::OK);
    assert_eq!(names(&app).await, json!([]));
    assert_eq!(code(&remove("itself", "key-of-ada").await.1), "not_found");
    let app = TestApp::in_directory(app.stop().await, &format!("{ALLOWED}\n{ADMIN}")).await;
    assert_eq!(names(&app).await, json!([]));
}

#[tokio::test]
async fn what_cannot_be_registered_is_refused_with_the_reason_and_nothing_changes() {
    let configured = "openapi: {collections: {taken: {spec_inline: '{openapi: 3.1.0, info: {}, paths: {}}'}}}";
    let app = TestApp::with(&format!("{ALLOWED}\n{ADMIN}\n{configured}")).await;
    let fine = document("http://127.0.0.1:9").to_string();
    for (body, expected, reported) in [
        (json!({"name": "a", "spec_url": "https://example.com/api.json"}), "denied", "openapi_allowed_domains"),
        (json!({"name": "a", "spec_inline": document("https://example.com").to_string()}), "denied", "example.com"),
        (json!({"name": "a", "spec_inline": fine, "base_url": "https://example.com"}), "denied", "example.com"),
        (json!({"name": "a", "spec_url": "http://127.0.0.1:9/api.json"}), "upstream_error", "cannot be fetched"),
        (json!({"name": "a", "spec_inline": "{"}), "invalid_request", "neither valid JSON nor valid YAML"),
        (json!({"name": "a", "spec_inline": fine, "operations": ["no such"]}), "invalid_request", "no operation"),
        (json!({"name": "taken", "spec_inline": fine}), "invalid_request", "the configuration has"),
        (json!({"name": "a b", "spec_inline": fine}), "invalid_request", "is not a valid collection name"),
        (json!({"name": "a", "spec_file": "/etc/passwd"}), "invalid_request", "spec_file"),
        (
            json!({"name": "a", "spec_inline": fine, "auth_type": "bearer", "auth_config": {"token": "hunter2"}}),
            "invalid_request",
            "openapi.secrets",
        ),
    ] {
        let (status, reply) = register(&app, &body).await;
        assert!(!status.is_success() && code(&reply) == expected, "{body}: {reply}");
        assert!(reply["error"].as_str().unwrap().contains(reported), "{reply}");
        assert!(!reply.to_string().contains("hunter2"), "{reply}");
    }
    assert_eq!(names(&app).await, json!([]));
    let open = TestApp::start().await;
    let request = open.post("/tools/openapi/register").json(&json!({"name": "a", "spec_inline": fine}));
    assert_eq!(code(&answer(request).await.1), "denied");
}

#[tokio::test]
async fn a_name_that_the_configuration_takes_is_the_configurations() {
    let app = registering().await;
    let inline = document("http://127.0.0.1:9");
    assert_eq!(register(&app, &json!({"name": "itself", "spec_inline": inline.to_string()})).await.0, StatusCode::OK);
    let mut configured = inline;
    configured["paths"].as_object_mut().unwrap().remove("/tools/list");
    let collections = format!("openapi: {{collections: {{itself: {{spec_inline: '{configured}'}}}}}}");
    let yaml = format!("{ALLOWED}\n{ADMIN}\n{collections}");
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(names(&app).await, json!(["itself__tool"]));
    // What was registered is not lost by that.
    app.gateway.reload(config(&app.directory, &format!("{ALLOWED}\n{ADMIN}"))).await;
    assert_eq!(names(&app).await, json!(["itself__tool", "itself__tools"]));
}

/// A copy of the store can be read: it has only the secret's name.
#[tokio::test]
async fn a_secret_is_sent_to_the_api_and_never_stored() {
    let upstream = TestApp::with("auth: {api_keys: [{id: bob, key: hunter2-and-more}]}").await;
    let yaml = format!("{ALLOWED}\n{ADMIN}\nopenapi: {{secrets: {{UPSTREAM: hunter2-and-more}}}}");
    let app = TestApp::with(&yaml).await;
    let body = json!({
        "name": "itself", "spec_inline": document(&upstream.url).to_string(),
        "auth_type": "bearer", "auth_config": {"token": "${UPSTREAM}"},
    });
    assert_eq!(register(&app, &body).await.0, StatusCode::OK);
    assert_eq!(call(&app, "itself__tools", json!({})).await["success"], true);
    let directory = app.stop().await;
    let mut found = false;
    for file in std::fs::read_dir(directory.path().join("state")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!has("hunter2"), "{}", path.display());
            found |= has("${UPSTREAM}");
        }
    }
    assert!(found, "the registration is stored");
    // Without the secret the collection is named as broken, and the rest runs.
    let app = TestApp::in_directory(directory, &format!("{ALLOWED}\n{ADMIN}")).await;
    let degraded = app.gateway.readiness.degraded();
    assert!(degraded["openapi:itself"].contains("UPSTREAM"), "{degraded:?}");
}

#[tokio::test]
async fn a_start_does_not_wait_for_a_document_that_does_not_come() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = DocumentHost::start().await;
    let url = host.put("/api.json", document("http://127.0.0.1:9"));
    let silent = format!("http://{}/api.json", silent.local_addr().unwrap());
    let directory = tempfile::TempDir::new().unwrap();
    let leading = directory.path().join("leading.json");
    let mut document = document("http://127.0.0.1:9");
    document["paths"]["/elsewhere"] = json!({"$ref": format!("{silent}#/a")});
    std::fs::write(&leading, document.to_string()).unwrap();
    let collections = format!(
        "openapi: {{collections: {{slow: {{spec_url: '{silent}'}}, quick: {{spec_url: '{url}'}}, \
         leading: {{spec_file: '{}'}}}}}}",
        leading.display()
    );
    let begun = Instant::now();
    let app = TestApp::with(&format!("{ALLOWED}\n{collections}")).await;
    assert!(begun.elapsed() < slack(Duration::from_secs(5)), "it waited {:?}", begun.elapsed());
    let (_, ready) = answer(app.get("/readyz")).await;
    assert_eq!(ready["degraded"]["openapi:slow"], "its document is being loaded");
    assert_eq!(ready["degraded"]["openapi:leading"], "its document is being loaded", "a file that leads to an address");
    // The one that comes does not wait for the other.
    while app.gateway.readiness.degraded().contains_key("openapi:quick") {
        assert!(begun.elapsed() < slack(Duration::from_secs(15)), "its tools never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (_, names) = answer(app.get("/tools/list?category=api")).await;
    assert_eq!(names, json!(["quick__tool", "quick__tools"]));
}

#[tokio::test]
async fn a_reload_and_a_registration_do_not_wait_for_a_document_that_does_not_come() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = DocumentHost::start().await;
    let known = host.put("/api.json", document("http://127.0.0.1:9"));
    let known = format!("known: {{spec_url: '{known}'}}");
    let yaml = |collections: &str| format!("{ALLOWED}\n{ADMIN}\nopenapi: {{collections: {{{collections}}}}}");
    let app = TestApp::with(&yaml(&known)).await;
    app.gateway.collections().fetch_pending_documents().await;

    let begun = Instant::now();
    let slow = format!("{known}, slow: {{spec_url: 'http://{}/api.json'}}", silent.local_addr().unwrap());
    app.gateway.reload(config(&app.directory, &yaml(&slow))).await;
    assert_eq!(names(&app).await, json!(["known__tool", "known__tools"]), "what was there is still on offer");
    let inline = json!({"name": "new", "spec_inline": document("http://127.0.0.1:9").to_string()});
    assert_eq!(register(&app, &inline).await.0, StatusCode::OK);
    assert!(begun.elapsed() < slack(Duration::from_secs(5)), "it waited {:?}", begun.elapsed());
    assert_eq!(app.gateway.readiness.degraded()["openapi:slow"], "its document is being loaded");

    // Nor does a document that is needed now wait for the one being fetched.
    let begun = Instant::now();
    let more = format!("{slow}, more: {{spec_url: '{}/api.json'}}", host.url);
    app.gateway.reload(config(&app.directory, &yaml(&more))).await;
    while app.gateway.readiness.degraded().contains_key("openapi:more") {
        assert!(begun.elapsed() < slack(Duration::from_secs(10)), "its tools never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(app.gateway.readiness.degraded()["openapi:slow"], "its document is being loaded");
}

#[tokio::test]
async fn an_unreachable_document_is_fetched_again() {
    let host = DocumentHost::start().await;
    let url = format!("{}/api.json", host.url);
    let app = TestApp::with(&format!("{ALLOWED}\nopenapi: {{collections: {{late: {{spec_url: '{url}'}}}}}}")).await;
    app.gateway.collections().fetch_pending_documents().await;
    let reason = app.gateway.readiness.degraded()["openapi:late"].clone();
    assert!(reason.contains("404"), "{reason}");
    host.put("/api.json", document("http://127.0.0.1:9"));
    app.gateway.collections().fetch_pending_documents().await;
    assert!(!app.gateway.readiness.degraded().contains_key("openapi:late"));
    assert_eq!(host.answers("/api.json").last(), Some(&200));
    assert_eq!(answer(app.get("/tools/list?category=api")).await.1, json!(["late__tool", "late__tools"]));
}
