//! Why calls failed: what the page and the route of a call say, who used a limit up, and failures by a field with the first call.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS, check_markup};

/// The id of a call.
async fn call(app: &TestApp, key: &str, tool: &str, arguments: Value) -> String {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth(key);
    let (_, reply) = answer(request.json(&json!({"arguments": arguments}))).await;
    reply["receipt"]["call_id"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

async fn read(app: &TestApp, key: &str, path: &str) -> Value {
    let (status, body) = answer(app.get(path).bearer_auth(key)).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

/// With policies of two rules, and few attempts.
async fn app() -> TestApp {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let rules = "package tools\nimport rego.v1\ndeny contains \"never\" if input.tool == \"current_time\"\n\
                 require_approval contains \"ask\" if input.tool == \"sleep\"\n";
    std::fs::write(policies.join("own.rego"), rules).unwrap();
    let yaml = format!(
        "{KEYS}policy: {{directory: '{}'}}\nexecution: {{max_attempts: 2, backoff_base_seconds: 0.01}}\n\
         breaker: {{recovery_seconds: 600}}\n",
        policies.display()
    );
    TestApp::in_directory(directory, &yaml).await
}

#[tokio::test]
async fn a_call_that_did_not_succeed_says_why_and_what_to_do_next() {
    let app = app().await;
    let fine = call(&app, "key-of-ann", "echo", json!({})).await;
    let retried = call(&app, "key-of-ann", "flaky", json!({})).await;
    let denied = call(&app, "key-of-ann", "current_time", json!({})).await;
    for _ in 0..5 {
        call(&app, "key-of-ann", "upstream", json!({"answer": "down"})).await;
    }
    let open = call(&app, "key-of-ann", "upstream", json!({})).await;
    let one = async |id: &str| read(&app, "key-of-ann", &format!("/admin/calls/{id}")).await;

    let found = one(&fine).await;
    assert_eq!((&found["failure"], &found["next_step"]), (&Value::Null, &Value::Null), "{found}");
    let found = one(&retried).await;
    let attempts = found["failure"]["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &found["next_step"]), (2, &json!("repair_upstream")), "{found}");
    assert!(attempts.iter().all(|attempt| attempt["code"] == "upstream_error"), "{found}");
    assert!(attempts[0]["began_us"].as_u64() < attempts[1]["began_us"].as_u64(), "{found}");
    let found = one(&denied).await;
    assert_eq!((&found["failure"]["rules"], &found["next_step"]), (&json!(["deny own.rego:3"]), &json!("change_rule")));
    let asking = call(&app, "key-of-ann", "sleep", json!({"ms": 1})).await;
    let found = one(&asking).await;
    let rules = json!(["require_approval own.rego:4"]);
    assert_eq!((&found["failure"]["rules"], &found["next_step"]), (&rules, &json!("decide")), "{found}");
    let approval = found["approval"].as_str().unwrap();
    let of_approval = read(&app, "key-of-ann", &format!("/admin/calls?approval={approval}")).await;
    let ids: Vec<_> = of_approval["items"].as_array().unwrap().iter().map(|call| &call["call_id"]).collect();
    assert_eq!(ids, [&json!(asking)]);
    let found = one(&open).await;
    let breaker = (&found["breaker"], &found["upstream"], &found["next_step"]);
    assert_eq!(breaker, (&json!("open"), &json!("https://upstream.test:443"), &json!("repair_upstream")), "{found}");
    assert!(found["failure"]["retry_after_ms"].as_u64().unwrap() > 1_000, "{found}");

    let (ann, vic) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-vic").await);
    let page = vic.page(&format!("/console/calls/{denied}")).await;
    check_markup(&page);
    assert!(page.contains("deny own.rego:3") && page.contains("change the rule of the policies"), "{page}");
    let page = ann.page(&format!("/console/calls/{retried}")).await;
    check_markup(&page);
    assert!(page.contains("the connection was reset") && page.matches("upstream_error").count() >= 3, "{page}");
    let of_viewer = vic.page(&format!("/console/calls/{retried}")).await;
    assert!(!of_viewer.contains("the connection was reset"), "the words are for who may operate: {of_viewer}");
}

#[tokio::test]
async fn failures_are_counted_by_a_field_for_those_who_see_the_calls() {
    let app = app().await;
    call(&app, "key-of-ann", "upstream", json!({"host": "other.test"})).await;
    let first = call(&app, "key-of-ann", "upstream", json!({"answer": "down"})).await;
    for _ in 0..2 {
        call(&app, "key-of-nobody", "upstream", json!({"answer": "down"})).await;
    }
    let denied = call(&app, "key-of-ann", "current_time", json!({})).await;
    let list = async |key: &str, query: &str| read(&app, key, &format!("/admin/failures{query}")).await;
    let found = list("key-of-vic", "").await;
    let rows: Vec<_> = found["items"].as_array().unwrap().iter().collect();
    assert_eq!(rows.len(), 2, "{found}");
    let [upstream, refused] = rows[..] else { unreachable!() };
    let of_upstream = ["value", "code", "failed", "calls", "is_constant", "first_call_id"].map(|name| &upstream[name]);
    let expected = [json!("upstream"), json!("upstream_error"), json!(3), json!(4), json!(true), json!(first)];
    assert_eq!(of_upstream, expected.each_ref(), "{found}");
    assert_eq!((&refused["value"], &refused["first_call_id"]), (&json!("current_time"), &json!(denied)));
    assert_eq!(found["searched_since"], Value::Null);
    for (key, query, values) in [
        ("key-of-vic", "?by=caller&code=upstream_error", &["nobody", "ann"][..]),
        ("key-of-vic", "?by=tenant&tool=upstream", &["acme"]),
        ("key-of-vic", "?by=upstream", &["https://upstream.test:443"]),
        ("key-of-vic", "?by=server", &[]),
        ("key-of-vic", "?until=2020-01-01T00:00:00Z", &[]),
        ("key-of-nobody", "?by=caller", &["nobody"]),
        ("key-of-eve", "?by=caller", &[]),
    ] {
        let found = list(key, query).await;
        let found: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| item["value"].clone()).collect();
        assert_eq!(found, values.iter().map(|value| json!(value)).collect::<Vec<_>>(), "{key} {query}");
    }
    let (status, reply) = answer(app.get("/admin/failures?by=colour").bearer_auth("key-of-vic")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");

    let vic = Browser::signed_in(&app, "key-of-vic").await;
    let page = vic.page("/console/failures?by=tool&since=24h").await;
    check_markup(&page);
    assert!(page.contains(&format!("/console/calls/{first}")) && page.contains("no success since"), "{page}");
    assert!(page.contains("/console/calls?tool=upstream&amp;code=upstream_error"), "{page}");
}

#[tokio::test]
async fn who_used_a_limit_up_is_shown_to_those_who_see_their_calls() {
    let app = TestApp::with(&format!("{KEYS}limits: {{tenant_rate_limit: 3}}\n")).await;
    for (key, calls) in [("key-of-ann", 2), ("key-of-vic", 1)] {
        for _ in 0..calls {
            call(&app, key, "echo", json!({})).await;
        }
    }
    // Of another tenant, which has its own calls.
    call(&app, "key-of-eve", "echo", json!({})).await;
    let refused = call(&app, "key-of-nobody", "echo", json!({})).await;
    let path = format!("/admin/calls/{refused}");
    let found = read(&app, "key-of-ann", &path).await;
    assert_eq!((&found["code"], &found["next_step"]), (&json!("rate_limited"), &json!("raise_limit")), "{found}");
    assert_eq!(found["failure"]["limit"]["counts"], "tenant", "{found}");
    let used =
        |caller: &str, calls| json!({"tenant": "acme", "caller": caller, "tool": "echo", "calls": calls, "cost": "0"});
    assert_eq!(found["used_up_by"], json!([used("ann", 2), used("vic", 1)]));
    // A caller without a role of the console does not learn of others.
    assert_eq!(read(&app, "key-of-nobody", &path).await["used_up_by"], json!([]));
    let page = Browser::signed_in(&app, "key-of-ann").await.page(&format!("/console/calls/{refused}")).await;
    check_markup(&page);
    assert!(page.contains("Who used it up") && page.contains("caller=vic"), "{page}");
}

#[tokio::test]
async fn a_collection_that_works_in_part_does_not_work() {
    let operation = |id: &str| json!({"get": {"operationId": id, "responses": {"200": {"description": "ok"}}}});
    let mut closed = operation("closed");
    closed["get"]["security"] = json!([{"key": []}]);
    let document = |paths: Value| {
        json!({
            "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "http://127.0.0.1:1"}],
            "paths": paths,
            "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        })
    };
    let half = document(json!({"/open": operation("open"), "/closed": closed}));
    let whole = document(json!({"/a": operation("first"), "/b": operation("second")}));
    let yaml = format!(
        "{KEYS}execution: {{max_attempts: 1}}\n\
         outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
         openapi: {{collections: {{half: {{spec_inline: '{half}'}}, whole: {{spec_inline: '{whole}'}}}}}}\n"
    );
    let app = TestApp::with(&yaml).await;
    let source = async |name: &str| read(&app, "key-of-root", &format!("/admin/servers/openapi/{name}")).await;
    let found = source("half").await;
    assert_eq!(found["state"], "degraded", "{found}");
    assert_eq!(found["reason"], "of 2 operations 1 lack credentials and 0 cannot be offered", "{found}");
    assert_eq!(source("whole").await["state"], "works");
    let tools = source("whole").await["tools"].clone();
    call(&app, "key-of-root", tools[0].as_str().unwrap(), json!({})).await;
    let found = source("whole").await;
    assert_eq!((&found["state"], &found["failing"]), (&json!("degraded"), &json!([tools[0]])), "{found}");
    let root = Browser::signed_in(&app, "key-of-root").await;
    for page in ["/console/servers", "/console/servers/openapi/whole"] {
        let page = root.page(page).await;
        check_markup(&page);
        assert!(page.contains("works in part") && page.contains("1 of 2 tools fail"), "{page}");
    }
}
