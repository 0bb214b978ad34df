//! Servers and collections in the console: those registered over HTTP are removed there, and the list has pages.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::audit_events::lines;
use crate::console::{Browser, KEYS, check_markup};
use crate::mcp_http::Upstream;
use crate::slack::slack;

const REACHED: &str = "outbound: {allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1], openapi_allowed_domains: [pets.example]}";

/// With the one collection `zoo`.
fn yaml() -> String {
    format!("{KEYS}{REACHED}\nopenapi: {{collections: {{zoo: {{spec_inline: '{}'}}}}}}\n", document())
}

fn document() -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://pets.example"}],
        "paths": {"/pets": {"get": {"operationId": "pets", "responses": {"200": {"description": "ok"}}}}},
    })
}

async fn names(app: &TestApp) -> Vec<String> {
    let (_, list) = answer(app.get("/admin/servers").bearer_auth("key-of-root")).await;
    list["servers"].as_array().unwrap().iter().map(|server| server["name"].as_str().unwrap().to_owned()).collect()
}

async fn removed(app: &TestApp, key: &str, path: &str) -> (StatusCode, Value) {
    let url = format!("{}/admin/servers/{path}", app.url);
    answer(app.client.delete(url).bearer_auth(key)).await
}

/// Registers the MCP server `near` and the collection `found`.
async fn register(app: &TestApp, upstream: &Upstream) {
    let register = async |path: &str, body: Value| {
        let (status, reply) = answer(app.post(path).bearer_auth("key-of-root").json(&body)).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    };
    register("/tools/mcp/register", json!({"name": "near", "url": format!("{}/mcp", upstream.url)})).await;
    register("/tools/openapi/register", json!({"name": "found", "spec_inline": document().to_string()})).await;
}

#[tokio::test]
async fn what_was_registered_over_http_is_removed_and_does_not_come_back() {
    let upstream = Upstream::start().await;
    let app = TestApp::with(&yaml()).await;
    register(&app, &upstream).await;
    assert_eq!(names(&app).await, ["near", "found", "zoo"]);
    let called = async |app: &TestApp| {
        answer(app.post("/tools/near__whoami/execute").bearer_auth("key-of-root").json(&json!({"arguments": {}}))).await
    };
    assert_eq!(called(&app).await.0, StatusCode::OK);

    let (root, ann) = (Browser::signed_in(&app, "key-of-root").await, Browser::signed_in(&app, "key-of-ann").await);
    let page = root.page("/console/servers/mcp/near").await;
    check_markup(&page);
    assert!(page.contains("value=\"remove\"") && page.contains("Its tool is no longer offered."), "{page}");
    assert!(!ann.page("/console/servers/mcp/near").await.contains("value=\"remove\""));
    let configured = root.page("/console/servers/openapi/zoo").await;
    assert!(configured.contains("it can be removed only there") && !configured.contains("value=\"remove\""));

    // It needs an administrator, and its name.
    let (token, token_of_ann) = (root.token().await, ann.token().await);
    let form = |token, confirmed| [("token", token), ("act", "remove"), ("confirmed", confirmed)];
    let path = "/console/servers/mcp/near";
    for (refused, status) in [
        (root.post(path, &[("act", "remove"), ("confirmed", "near")]), StatusCode::FORBIDDEN),
        (root.post_from(path, &form(&token, "near")), StatusCode::FORBIDDEN),
        (ann.post(path, &form(&token_of_ann, "near")), StatusCode::FORBIDDEN),
        (root.post(path, &form(&token, "")), StatusCode::BAD_REQUEST),
        (root.post(path, &form(&token, "nea")), StatusCode::BAD_REQUEST),
        (root.post("/console/servers/openapi/zoo", &form(&token, "zoo")), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(refused.send().await.unwrap().status(), status);
    }
    let (status, reply) = removed(&app, "key-of-ann", "mcp/near").await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{reply}");
    let (_, reply) = removed(&app, "key-of-root", "openapi/zoo").await;
    assert!(code(&reply) == "invalid_request" && reply["error"].as_str().unwrap().contains("configuration"), "{reply}");
    assert_eq!(names(&app).await, ["near", "found", "zoo"]);

    let response = root.post(path, &form(&token, "near")).send().await.unwrap();
    assert_eq!(response.headers()["location"], "/console/servers?done=removed");
    let page = root.page("/console/servers?done=removed").await;
    assert!(page.contains("It was removed") && !page.contains(path), "{page}");
    assert_eq!(code(&called(&app).await.1), "unknown_tool");
    assert_eq!(removed(&app, "key-of-root", "openapi/found").await, (StatusCode::OK, json!({"success": true})));
    for gone in ["mcp/near", "openapi/found", "mcp/zoo", "none/zoo"] {
        assert_eq!(removed(&app, "key-of-root", gone).await.0, StatusCode::NOT_FOUND, "{gone}");
    }

    let directory = app.stop().await;
    let told: Vec<_> = lines(directory.path())
        .into_iter()
        .filter(|line| line["event"].as_str().is_some_and(|event| event.ends_with("_removed")))
        .map(|line| json!([line["event"], line["subject"], line["success"], line["caller"]]))
        .collect();
    let expected = [
        json!(["collection_removed", "zoo", false, "root"]),
        json!(["collection_removed", "zoo", false, "root"]),
        json!(["mcp_server_removed", "near", true, "root"]),
        json!(["collection_removed", "found", true, "root"]),
    ];
    assert_eq!(told, expected);
    let app = TestApp::in_directory(directory, &yaml()).await;
    app.gateway.mcp_servers().settled().await;
    assert_eq!(names(&app).await, ["zoo"]);
}

#[tokio::test]
async fn a_server_that_is_down_is_removed_too_and_is_no_longer_reported() {
    let upstream = Upstream::start().await;
    let app = TestApp::with(&yaml()).await;
    register(&app, &upstream).await;
    upstream.listening.abort();
    let problem = async || {
        let (_, mut ready) = answer(app.get("/readyz").bearer_auth("key-of-root")).await;
        ready["degraded"]["mcp:near"].take()
    };
    let is_down = async {
        while problem().await.is_null() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(slack(Duration::from_secs(30)), is_down).await.expect("it is reported");
    assert_eq!(removed(&app, "key-of-root", "mcp/near").await.0, StatusCode::OK);
    assert_eq!((names(&app).await, problem().await), (vec!["found".to_owned(), "zoo".to_owned()], Value::Null));
}

#[tokio::test]
async fn many_servers_are_shown_a_page_at_a_time_and_all_are_in_the_file() {
    let servers: serde_json::Map<_, _> =
        (0..120).map(|n| (format!("s{n:03}"), json!({"url": "https://127.0.0.1/mcp", "disabled": true}))).collect();
    let app = TestApp::with(&format!("{KEYS}mcp: {}\n", json!({"servers": servers}))).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    for (page, first, last, links) in [
        (1, "s000", "s049", &["/console/servers?page=2"][..]),
        (2, "s050", "s099", &["/console/servers?page=1", "/console/servers?page=3"]),
        (9, "s100", "s119", &["/console/servers?page=2"]),
    ] {
        let shown = root.page(&format!("/console/servers?page={page}")).await;
        let names: Vec<_> = shown.split("/console/servers/mcp/").skip(1).map(|rest| &rest[..4]).collect();
        assert_eq!((names.first(), names.last()), (Some(&first), Some(&last)));
        assert!(links.iter().all(|link| shown.contains(&format!("href=\"{link}\""))), "{shown}");
        check_markup(&shown);
    }
    let csv = root.page("/console/servers?page=2&format=csv").await;
    let columns = "name,kind,state,since,reason,address,registered,tools,quarantined";
    assert!(csv.lines().count() == 121 && csv.starts_with(columns), "{csv}");
    assert!(csv.contains("\r\n\"s119\",\"mcp\",\"disabled\",,,\"\",false,0,0\r\n"), "{csv}");
}
