//! The tool against real servers on loopback.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use serde_json::{Value, json};

use super::*;
use sekisho_config::OutboundConfig;
use sekisho_core::call::{CallContext, Caller, Deadline, Via};
use sekisho_core::error::Blame;
use sekisho_outbound::test_server;

async fn serve(router: Router) -> String {
    format!("http://{}", test_server::serve(router).await)
}

/// With the test's server opened for the tool.
async fn fetch(mut config: WebFetchConfig, arguments: Value) -> Result<ToolOutput, CallError> {
    let url = Url::parse(arguments["url"].as_str().unwrap()).unwrap();
    config.allow_networks.push("127.0.0.1".into());
    config.allow_ports.extend(url.port());
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let tool = definition(&config, &outbound).unwrap();
    let call = CallContext::new("web_fetch", Arc::new(Caller::anonymous()), Via::Rest);
    let attempt = Attempt {
        call: &call,
        deadline: Deadline::after(Duration::from_secs(20)),
        memory_limit_bytes: 128 << 20,
        max_output_bytes: tool.metadata.max_output_bytes,
    };
    let arguments = arguments.as_object().unwrap();
    let output = tool.executor.execute(attempt, arguments).await?;
    let schema = jsonschema::validator_for(&tool.output_schema.unwrap()).unwrap();
    assert!(schema.is_valid(&output.value), "{:#}", output.value);
    Ok(output)
}

#[tokio::test]
async fn a_page_comes_back_as_markdown_with_where_it_came_from() {
    let page = "<html><head><title>A page</title></head><body><h1>Hi</h1><p>there</p></body></html>";
    let router = Router::new()
        .route("/page", get(async move || ([("content-type", "text/html; charset=utf-8")], page)))
        .route("/old", get(async || Redirect::permanent("/page")));
    let server = serve(router).await;
    let output = fetch(WebFetchConfig::default(), json!({"url": format!("{server}/old")})).await.unwrap();
    assert_eq!(
        output.value,
        json!({
            "url": format!("{server}/old"),
            "final_url": format!("{server}/page"),
            "status": 200,
            "title": "A page",
            "content": "# Hi\nthere",
            "content_type": "text/html",
            "format": "markdown",
            "truncated": false,
        })
    );
    assert_eq!(output.text.as_deref(), Some("# Hi\nthere"));
    let text =
        fetch(WebFetchConfig::default(), json!({"url": format!("{server}/page"), "format": "text"})).await.unwrap();
    assert_eq!((&text.value["content"], &text.value["format"]), (&json!("Hi\nthere"), &json!("text")));
}

#[tokio::test]
async fn long_pages_are_truncated_and_marked() {
    let server = serve(Router::new().route("/", get(async || "é".repeat(3_000_000)))).await;
    for (requested, characters) in
        [(json!({}), 50_000), (json!({"max_length": 7}), 7), (json!({"max_length": 500_000}), 196_608)]
    {
        let mut arguments = json!({"url": server});
        arguments.as_object_mut().unwrap().extend(requested.as_object().unwrap().clone());
        let output = fetch(WebFetchConfig::default(), arguments).await.unwrap();
        assert_eq!(output.value["content"].as_str().unwrap().chars().count(), characters);
        assert_eq!(output.value["truncated"], true);
    }
    let small = WebFetchConfig { max_bytes: 5, ..WebFetchConfig::default() };
    let output = fetch(small, json!({"url": server})).await.unwrap();
    assert_eq!((&output.value["content"], &output.value["truncated"]), (&json!("éé\u{fffd}"), &json!(true)));
}

#[tokio::test]
async fn a_page_too_deep_for_markdown_comes_as_text() {
    let deep = format!("{}deep words", "<div>".repeat(100_000));
    let server = serve(Router::new().route("/", get(async || ([("content-type", "text/html")], deep)))).await;
    let output = fetch(WebFetchConfig::default(), json!({"url": server})).await.unwrap();
    assert_eq!((&output.value["content"], &output.value["format"]), (&json!("deep words"), &json!("text")));
}

#[tokio::test]
async fn failures_blame_whom_they_should() {
    let router = Router::new()
        .route("/missing", get(async || (StatusCode::NOT_FOUND, "no such page")))
        .route("/broken", get(async || (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3")])))
        .route("/image", get(async || ([("content-type", "image/png")], "png").into_response()))
        .route("/inside", get(async || Redirect::temporary("http://169.254.169.254/latest/meta-data/")));
    let server = serve(router).await;
    for (path, code, blame, says) in [
        ("/missing", ErrorCode::ToolError, Blame::Call, "127.0.0.1 answered 404 Not Found: no such page"),
        ("/broken", ErrorCode::UpstreamError, Blame::Upstream, "127.0.0.1 answered 503 Service Unavailable"),
        ("/image", ErrorCode::ToolError, Blame::Call, "the document is image/png"),
        ("/inside", ErrorCode::Denied, Blame::Call, "169.254.169.254 is not a public address"),
    ] {
        let error = fetch(WebFetchConfig::default(), json!({"url": format!("{server}{path}")})).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (code, blame), "{path}");
        assert!(error.message().starts_with(says), "{error}");
    }
}

#[tokio::test]
async fn only_the_domains_of_the_configuration_are_fetched() {
    let config = WebFetchConfig { allowed_domains: vec!["example.com".into()], ..WebFetchConfig::default() };
    let error = fetch(config, json!({"url": "http://127.0.0.1:9/"})).await.unwrap_err();
    assert_eq!(error.message(), "127.0.0.1 is not on the list of hosts this tool may reach");
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let wrong = WebFetchConfig { allowed_domains: vec!["https://example.com".into()], ..WebFetchConfig::default() };
    assert!(definition(&wrong, &outbound).unwrap_err().reason.contains("allowed_domains"));
}

#[test]
fn the_upstream_is_the_origin_and_other_schemes_are_no_address() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let tool = definition(&WebFetchConfig::default(), &outbound).unwrap();
    let arguments = json!({"url": "HTTPS://Example.com/a?b#c"});
    let upstream = tool.executor.upstream(arguments.as_object().unwrap()).unwrap();
    assert_eq!(&*upstream.name, "https://example.com:443");
    let schema = jsonschema::validator_for(tool.parameters.document()).unwrap();
    assert!(schema.is_valid(&arguments));
    for wrong in
        [json!({}), json!({"url": "file:///etc/passwd"}), json!({"url": "//x"}), json!({"url": "http://x", "y": 1})]
    {
        assert!(!schema.is_valid(&wrong), "{wrong}");
    }
}
