//! What the SRE sees: metrics, health, and the log's facts.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, degraded};

/// Fault 14: metrics that are documented and never exported. E79–E86, by their exact names and labels.
#[tokio::test]
async fn every_metric_of_the_specification_moves() {
    let app = TestApp::with("tools: {overrides: {echo: {rate_limit: 1}}}").await;
    app.call("calculator", json!({"expression": "1"})).await;
    app.call("echo", json!({})).await;
    app.call("echo", json!({})).await;
    app.call("upstream", json!({"answer": "down"})).await;
    app.call("paid", json!({})).await;
    for (line, value) in [
        (r#"shannon_tool_executions_total{status="success",tool_name="calculator"}"#, 1.0),
        (r#"shannon_tool_executions_total{status="refused",tool_name="echo"}"#, 1.0),
        (r#"shannon_tool_executions_total{status="error",tool_name="upstream"}"#, 1.0),
        (r#"shannon_tool_execution_duration_seconds_count{tool_name="calculator"}"#, 1.0),
        (r#"shannon_tool_errors_total{error_type="rate_limited",tool_name="echo"}"#, 1.0),
        (r#"shannon_tool_errors_total{error_type="upstream_error",tool_name="upstream"}"#, 1.0),
        (r#"shannon_tool_cost_usd_sum{tool_name="paid"}"#, 0.1),
        (r#"shannon_circuit_breaker_state{base_url="https://upstream.test:443"}"#, 0.0),
        (r#"shannon_circuit_breaker_failures_total{base_url="https://upstream.test:443"}"#, 1.0),
        (r#"shannon_rate_limit_exceeded_total{tool_name="echo"}"#, 1.0),
        (r#"shannon_rate_limit_tokens_available{tool_name="echo"}"#, 0.0),
        (r#"shannon_rate_limit_tokens_available{tool_name="calculator"}"#, 1999.0),
    ] {
        let text = app.metrics().await;
        assert!(text.contains(line), "{line} is missing");
        assert_eq!(app.metric(line).await, value, "{line}");
    }
}

#[tokio::test]
async fn budgets_open_circuits_and_missing_credentials_can_be_seen() {
    let settings = "
        budget: {max_cost_per_tenant_per_day: 5}
        breaker: {consecutive_failures: 1, recovery_seconds: 1}
        auth: {anonymous: never, api_keys: [{id: ann, key: key-of-ann, tenant: acme}]}";
    let app = TestApp::with(settings).await;
    let call = async |tool: &str, arguments: Value| {
        let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth("key-of-ann");
        answer(request.json(&json!({"arguments": arguments}))).await
    };
    assert_eq!(app.call("paid", json!({})).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(app.metric("shannon_unauthenticated_requests_total").await, 1.0);
    assert_eq!(call("paid", json!({})).await.0, StatusCode::OK);
    for (line, value) in [
        (r#"shannon_budget_cost_usd{amount="spent",caller="",tenant="acme"}"#, 0.1),
        (r#"shannon_budget_cost_usd{amount="held",caller="",tenant="acme"}"#, 0.0),
        (r#"shannon_budget_cost_usd{amount="limit",caller="",tenant="acme"}"#, 5.0),
        (r#"shannon_budget_cost_usd{amount="spent",caller="ann",tenant="acme"}"#, 0.1),
    ] {
        assert_eq!(app.metric(line).await, value, "{line}");
    }
    call("upstream", json!({"answer": "down"})).await;
    let gauge = r#"shannon_circuit_breaker_state{base_url="https://upstream.test:443"}"#;
    assert_eq!(app.metric(gauge).await, 2.0);
    assert!(degraded(&app).await["circuit:https://upstream.test:443"].is_string());
    let (_, listed) = answer(app.get("/tools/list?detail=full").bearer_auth("key-of-ann")).await;
    let degraded_tools: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| !tool["degraded"].is_null())
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(degraded_tools, ["flaky", "upstream"], "those of that upstream: {listed}");
    // No call tells the gauge that the time has passed.
    while app.metric(gauge).await > 1.0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(degraded(&app).await["circuit:https://upstream.test:443"], Value::Null);
}

#[tokio::test]
async fn the_namespace_is_configurable() {
    let app = TestApp::with("telemetry: {metrics_namespace: gate}").await;
    app.call("calculator", json!({"expression": "1"})).await;
    assert_eq!(app.metric(r#"gate_tool_executions_total{status="success",tool_name="calculator"}"#).await, 1.0);
}

#[tokio::test]
async fn healthy_and_ready() {
    let app = TestApp::start().await;
    assert_eq!(answer(app.get("/healthz")).await, (StatusCode::OK, json!({"status": "ok"})));
    let sniffing = app.get("/healthz").send().await.unwrap().headers()["x-content-type-options"].clone();
    assert_eq!(sniffing, "nosniff");
    let (status, body) = answer(app.get("/readyz")).await;
    assert_eq!(
        (status, &body["status"]),
        (StatusCode::OK, &json!(if body["degraded"].is_null() { "ready" } else { "degraded" }))
    );
    app.gateway.readiness.degrade("policy", "line 3 is broken");
    assert_eq!(degraded(&app).await, json!({"policy": "line 3 is broken"}));
    assert_eq!(answer(app.get("/readyz")).await.1["status"], "degraded");
}

#[tokio::test]
async fn off_loopback_metrics_need_a_key() {
    let app = TestApp::with(
        "{server: {listen: '0.0.0.0:0'}, auth: {anonymous: always, api_keys: [{id: sre, key: key-of-sre}, \
         {id: eve, key: key-of-eve, tenant: other, roles: [admin]}]}}",
    )
    .await;
    let port = app.url.rsplit_once(':').unwrap().1;
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    app.gateway.readiness.degrade("policy", "line 3 is broken");
    let (status, reply) = answer(app.client.get(url("/metrics"))).await;
    assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    let with_key = app.client.get(url("/metrics")).bearer_auth("key-of-sre").send().await.unwrap();
    assert_eq!(with_key.status(), StatusCode::OK);
    let (status, reply) = answer(app.client.get(url("/metrics")).bearer_auth("key-of-eve")).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "they name callers of other tenants");
    assert!(reply["error"].as_str().unwrap().contains("`server.metrics_listen`"), "{reply}");
    let (_, body) = answer(app.client.get(url("/readyz")).bearer_auth("key-of-eve")).await;
    assert_eq!(body["degraded"]["policy"], "line 3 is broken");
    let (_, body) = answer(app.client.get(url("/readyz"))).await;
    assert_eq!(body, json!({"status": "degraded"}), "details are for callers with a key");
}

#[tokio::test]
async fn the_service_describes_itself() {
    let app = TestApp::start().await;
    let (status, document) = answer(app.get("/openapi.json")).await;
    assert_eq!(status, StatusCode::OK);
    let routes: Vec<_> = document["paths"].as_object().unwrap().keys().collect();
    insta::assert_debug_snapshot!(routes);
}

#[tokio::test]
async fn the_description_lists_headers_and_authentication() {
    let app = TestApp::start().await;
    let (_, document) = answer(app.get("/openapi.json")).await;
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert_eq!(document["components"]["securitySchemes"]["api_key"]["name"], "X-API-Key");
    assert_eq!(document["paths"]["/healthz"]["get"]["security"], json!([]));
    let at = |reference: &Value| document.pointer(&reference["$ref"].as_str().unwrap()[1..]).unwrap().clone();
    // What is described is what is sent: the headers of a real reply, and those that a real request may have.
    let execute = &document["paths"]["/tools/{name}/execute"]["post"];
    let taken: Vec<_> =
        execute["parameters"].as_array().unwrap().iter().filter(|taken| taken["$ref"].is_string()).map(at).collect();
    let mut request = app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "1"}}));
    // There is no approval of that id.
    for parameter in taken.iter().filter(|parameter| parameter["name"] != "X-Approval-Id") {
        request = request.header(parameter["name"].as_str().unwrap(), "7");
    }
    assert!(taken.iter().any(|parameter| parameter["name"] == "Idempotency-Key"), "{taken:?}");
    let again = request.try_clone().unwrap();
    let mut sent = request.send().await.unwrap().headers().clone();
    sent.extend(again.send().await.unwrap().headers().clone());
    for (name, reference) in execute["responses"]["200"]["headers"].as_object().unwrap() {
        let value = sent.get(name).unwrap_or_else(|| panic!("{name} is not sent: {sent:?}")).to_str().unwrap();
        let described = at(reference);
        assert!(described["schema"]["type"] == "string" || value.parse::<u64>().is_ok(), "{name}: {value}");
    }
}

#[tokio::test]
async fn the_description_of_the_list_of_tools_has_the_values_of_detail() {
    let app = TestApp::start().await;
    let (_, document) = answer(app.get("/openapi.json")).await;
    let parameters = document["paths"]["/tools/list"]["get"]["parameters"].as_array().unwrap();
    let detail = parameters.iter().find(|parameter| parameter["name"] == "detail").unwrap();
    assert_eq!(detail["schema"]["enum"], json!(["full"]), "{detail}");
    // The schema of another thing had the same name.
    assert!(document["components"]["schemas"]["Detail"]["properties"]["rule"].is_object(), "the violation of a rule");
}
