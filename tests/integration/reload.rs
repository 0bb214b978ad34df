//! A configuration or policy that changes while the service runs.

use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, answer, code, config, degraded};

const KEYS: &str = "auth: {anonymous: never, api_keys: [{id: ada, key: k, roles: [admin]}]}\n";

#[tokio::test]
async fn a_reload_changes_tools_limits_and_keys_and_keeps_what_was_counted() {
    let app = TestApp::with("tools: {overrides: {echo: {rate_limit: 2}}}").await;
    app.call("echo", json!({})).await;
    app.call("echo", json!({})).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::TOO_MANY_REQUESTS);
    let yaml =
        "{tools: {overrides: {echo: {rate_limit: 2}, fail: {hidden: true}}}, auth: {api_keys: [{id: ada, key: k}]}}";
    app.gateway.reload(config(&app.directory, yaml)).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::TOO_MANY_REQUESTS, "a reload is no way around a limit");
    assert_eq!(app.call("fail", json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(app.get("/tools/list").bearer_auth("k").send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(app.metric(r#"shannon_configuration_reloads_total{result="accepted"}"#).await, 1.0);
}

#[tokio::test]
async fn a_broken_policy_keeps_the_last_good_one_and_is_reported() {
    let directory = tempfile::TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let rego = policies.join("tools.rego");
    std::fs::write(&rego, "package tools\ndeny[msg] { input.tool == \"echo\"; msg := \"no echo\" }\n").unwrap();
    let yaml = format!("policy: {{directory: '{}'}}", policies.display());
    let app = TestApp::in_directory(directory, &yaml).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::FORBIDDEN);

    std::fs::write(&rego, "package tools\ndeny[msg] { no_such_function(1) }\n").unwrap();
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::FORBIDDEN, "the last good set still decides");
    let (_, ready) = answer(app.get("/readyz")).await;
    assert_eq!(ready["status"], "degraded", "{ready}");

    std::fs::write(&rego, "package tools\ndeny[msg] { input.tool == \"fail\"; msg := \"no fail\" }\n").unwrap();
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::OK);
    assert_eq!(degraded(&app).await.get("policy"), None);
}

#[tokio::test]
async fn a_clash_of_names_is_refused_whole_and_names_both() {
    let app = TestApp::start().await;
    app.gateway.reload(config(&app.directory, "tools: {overrides: {echo: {rename: calculator}}}")).await;
    let (status, reply) = app.call("echo", json!({})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let (_, ready) = answer(app.get("/readyz")).await;
    let reason = ready["degraded"]["configuration"].as_str().unwrap();
    assert!(reason.contains("builtin") && reason.contains("test"), "{reason}");
    let (status, reply) = app.call("nothing", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"));
}

#[tokio::test]
async fn a_reload_to_loopback_accepts_no_remote_anonymous_caller() {
    let auth = "auth: {api_keys: [{id: ada, key: k}]}";
    let app = TestApp::with(&format!("{{server: {{listen: '0.0.0.0:0'}}, {auth}}}")).await;
    assert_eq!(app.get("/tools/list").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    app.gateway.reload(config(&app.directory, &format!("{{server: {{listen: '127.0.0.1:0'}}, {auth}}}"))).await;
    // Still listening everywhere: the address changes with the next start.
    assert_eq!(app.get("/tools/list").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(app.get("/metrics").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
}

/// What readiness says of the configuration, to one with the key.
async fn waiting(app: &TestApp) -> Option<String> {
    let (_, ready) = answer(app.get("/readyz").bearer_auth("k")).await;
    ready["degraded"]["configuration"].as_str().map(str::to_owned)
}

async fn status(app: &TestApp, key: Option<&str>) -> StatusCode {
    let request = app.get("/tools/list");
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn a_found_configuration_that_opens_something_waits_and_is_named() {
    let app = TestApp::with(&format!("{KEYS}tools: {{overrides: {{fail: {{hidden: true}}}}}}")).await;
    let opening = format!("{}limits: {{max_queued: 2000}}\n", KEYS.replace("never", "always"));
    app.gateway.reload_found(config(&app.directory, &opening)).await;
    assert_eq!(status(&app, None).await, StatusCode::UNAUTHORIZED);
    let reason = waiting(&app).await.unwrap();
    for part in [
        "waits for SIGHUP",
        "auth.anonymous: never → always",
        "tools.overrides.fail.hidden: true → false",
        "limits.max_queued: 1024 → 2000",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert_eq!(app.gateway.configuration().current().limits.max_queued, 1_024, "all of it waits");
    assert_eq!(app.metric(r#"shannon_configuration_reloads_total{result="rejected"}"#).await, 1.0);
    app.gateway.reload_found(config(&app.directory, &opening)).await;
    assert_eq!(app.metric(r#"shannon_configuration_reloads_total{result="rejected"}"#).await, 1.0, "it is said once");
    // A person applies it.
    app.gateway.reload(config(&app.directory, &opening)).await;
    assert_eq!(status(&app, None).await, StatusCode::OK);
    assert_eq!(waiting(&app).await, None);
    // And what tightens is applied when it is found.
    app.gateway.reload_found(config(&app.directory, KEYS)).await;
    assert_eq!((status(&app, None).await, waiting(&app).await), (StatusCode::UNAUTHORIZED, None));
    let trail = std::fs::read_to_string(app.stop().await.path().join("state/audit.jsonl")).unwrap();
    let reloads: Vec<_> = trail.lines().filter(|line| line.contains("configuration_reloaded")).collect();
    assert_eq!(reloads.len(), 3, "{reloads:#?}");
    assert!(reloads[0].contains("auth.anonymous") && reloads[0].contains("\"success\":false"), "{}", reloads[0]);
}

#[tokio::test]
async fn a_configuration_that_waits_is_forgotten_when_its_file_is_as_before() {
    let app = TestApp::with(KEYS).await;
    app.gateway.reload_found(config(&app.directory, "")).await;
    assert!(waiting(&app).await.is_some_and(|reason| reason.contains("auth.anonymous: never → loopback")));
    app.gateway.reload_found(config(&app.directory, KEYS)).await;
    assert_eq!((waiting(&app).await, status(&app, None).await), (None, StatusCode::UNAUTHORIZED));
}

#[tokio::test]
async fn an_immediate_reload_applies_everything_and_to_become_one_is_an_opening() {
    let app = TestApp::with(KEYS).await;
    let immediate = format!("{KEYS}config: {{reload: immediate}}\n");
    app.gateway.reload_found(config(&app.directory, &immediate)).await;
    assert!(waiting(&app).await.is_some_and(|reason| reason.contains("config.reload: guarded → immediate")));
    app.gateway.reload(config(&app.directory, &immediate)).await;
    app.gateway.reload_found(config(&app.directory, "auth: {anonymous: always}")).await;
    assert_eq!(status(&app, None).await, StatusCode::OK);
}

#[tokio::test]
async fn fewer_rules_wait_and_further_rules_count_at_once_also_while_something_waits() {
    let directory = tempfile::TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let deny = |tool: &str| format!("package tools\ndeny[msg] {{ input.tool == \"{tool}\"; msg := \"no {tool}\" }}\n");
    std::fs::write(policies.join("a.rego"), deny("echo")).unwrap();
    std::fs::write(policies.join("b.rego"), deny("fail")).unwrap();
    let yaml = format!("policy: {{directory: '{}'}}\n", policies.display());
    let app = TestApp::in_directory(directory, &yaml).await;
    let called = async |tool: &str| app.call(tool, json!({})).await.0;

    std::fs::remove_file(policies.join("b.rego")).unwrap();
    app.gateway.reload_found(config(&app.directory, &yaml)).await;
    assert_eq!(called("fail").await, StatusCode::FORBIDDEN, "the rule still counts");
    let reason = waiting(&app).await.unwrap();
    assert!(reason.contains("policy rules `deny`: 2 rules → 1 rules"), "{reason}");

    // As many rules as before: nobody knows what they say.
    std::fs::write(policies.join("c.rego"), deny("paid")).unwrap();
    app.gateway.reload_found(config(&app.directory, &yaml)).await;
    assert_eq!([called("fail").await, called("paid").await], [StatusCode::OK, StatusCode::FORBIDDEN]);
    assert_eq!(waiting(&app).await, None);

    // A configuration waits, and a rule is added.
    let opening = format!("{yaml}limits: {{max_queued: 2000}}\n");
    std::fs::write(policies.join("d.rego"), deny("flaky")).unwrap();
    app.gateway.reload_found(config(&app.directory, &opening)).await;
    assert_eq!(called("flaky").await, StatusCode::FORBIDDEN);
    assert!(waiting(&app).await.is_some_and(|reason| reason.contains("limits.max_queued")));

    std::fs::remove_file(policies.join("d.rego")).unwrap();
    app.gateway.reload(config(&app.directory, &opening)).await;
    assert_ne!(called("flaky").await, StatusCode::FORBIDDEN, "a person applied it");
}
