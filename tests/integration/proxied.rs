//! A gateway on loopback behind a proxy on the same machine.

use reqwest::header::{HOST, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config};

const AUTH: &str = "auth:
  api_keys: [{id: ada, key: key-of-ada}]
  jwt: {issuer: 'https://issuer.example', audience: sekisho, jwks_url: 'https://issuer.example/keys'}
";

/// As a proxy sends it.
fn forwarded(request: RequestBuilder) -> RequestBuilder {
    request.header(HOST, "gw.example").header("x-forwarded-for", "203.0.113.5").header("x-forwarded-proto", "https")
}

/// The configurations of the page on deployment.
fn shown() -> Vec<String> {
    let page = include_str!("../../docs/deployment.md");
    let blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // One is for prometheus-adapter, one for Prometheus.
    let blocks = blocks.filter(|block| !block.starts_with("rules:") && !block.contains("scrape_configs:"));
    let with_keys =
        |block: &str| block.replace("${ALICE_KEY}", "key-of-alice").replace("${PROMETHEUS_KEY}", "key-of-it");
    blocks.map(with_keys).collect()
}

#[tokio::test]
async fn the_configurations_of_the_page_are_valid_and_that_for_a_proxy_works() {
    let directory = TempDir::new().unwrap();
    for yaml in shown() {
        let auth = if yaml.contains("auth:") { "" } else { AUTH };
        config(&directory, &format!("{yaml}{auth}"));
    }
    let behind = shown().into_iter().find(|yaml| yaml.contains("trusted_proxies")).unwrap();
    let app = TestApp::with(&behind).await;
    let request = |path| app.get(path).header(HOST, "tools.example.com").header("x-forwarded-for", "203.0.113.5");
    assert_eq!(request("/tools/list").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer(request("/tools/list").bearer_auth("key-of-alice")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn behind_a_proxy_every_route_answers_to_the_configured_name_and_needs_credentials() {
    let server = "server: {allowed_hosts: [gw.example], trusted_proxies: [127.0.0.0/8]}\n";
    let app = TestApp::with(&format!("{server}{AUTH}")).await;
    for path in ["/healthz", "/openapi.json"] {
        assert_eq!(forwarded(app.get(path)).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
    for request in [app.get("/tools/list"), app.get("/metrics"), app.get("/mcp")] {
        let (status, reply) = answer(forwarded(request)).await;
        assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    }
    assert_eq!(answer(forwarded(app.get("/readyz"))).await.1.get("degraded"), None, "the reasons are for callers");
    assert_eq!(answer(forwarded(app.get("/tools/list")).bearer_auth("key-of-ada")).await.0, StatusCode::OK);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let ping = forwarded(app.post("/mcp")).header("accept", "application/json, text/event-stream").json(&ping);
    let (_, reply) = answer(ping.bearer_auth("key-of-ada")).await;
    assert!(reply.to_string().contains("Mcp-Session-Id"), "it got as far as the session: {reply}");
    for name in ["evil.example", "gw.example.evil.example"] {
        let request = app.get("/tools/list").header(HOST, name).bearer_auth("key-of-ada");
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{name}");
        assert!(reply["error"].to_string().contains("server.allowed_hosts"), "{reply}");
    }
}

/// The proxy may be one that the configuration does not know.
#[tokio::test]
async fn a_request_that_came_through_a_proxy_is_never_anonymous_on_loopback() {
    let app = TestApp::start().await;
    assert_eq!(answer(app.get("/tools/list")).await.0, StatusCode::OK);
    let headers = [
        ("forwarded", "for=127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "localhost"),
        ("x-real-ip", "127.0.0.1"),
        ("via", "1.1 proxy"),
    ];
    for (name, value) in headers {
        let (status, reply) = answer(app.get("/tools/list").header(name, value)).await;
        assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{name}");
        assert!(reply["error"].to_string().contains("proxy"), "{reply}");
    }
    let named = TestApp::with("server: {allowed_hosts: [gw.example]}").await;
    assert_eq!(answer(named.get("/tools/list").header(HOST, "gw.example")).await.0, StatusCode::UNAUTHORIZED);
    let open = TestApp::with("server: {allowed_hosts: [gw.example]}\nauth: {anonymous: always}").await;
    assert_eq!(answer(forwarded(open.get("/tools/list"))).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_metadata_for_signing_in_names_only_hosts_of_the_server() {
    let places = async |app: &TestApp, host: &str| {
        let with_host = |path| app.get(path).header(HOST, host).header("x-forwarded-proto", "https");
        let refused = with_host("/mcp").send().await.unwrap();
        let challenge = refused.headers()[WWW_AUTHENTICATE].to_str().unwrap().to_owned();
        let (_, document) = answer(with_host("/.well-known/oauth-protected-resource")).await;
        (document["resource"].as_str().unwrap().to_owned(), challenge)
    };
    let expected = |base: &str| {
        let challenge = format!("Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
        (format!("{base}/mcp"), challenge)
    };
    let open = TestApp::with(&format!("server: {{listen: '0.0.0.0:0'}}\n{AUTH}")).await;
    for host in ["evil.example", "evil.example/x", "localhost"] {
        assert_eq!(places(&open, host).await, expected(&open.url), "{host}");
    }
    let server = "server: {listen: '0.0.0.0:0', mcp: {allowed_hosts: [gw.example]}}\n";
    let named = TestApp::with(&format!("{server}{AUTH}")).await;
    assert_eq!(places(&named, "gw.example:8443").await, expected("http://gw.example:8443"));
    let (_, ready) = answer(named.get("/readyz").bearer_auth("key-of-ada")).await;
    let note = ready["notes"]["server.mcp.allowed_hosts"].as_str().unwrap();
    assert!(note.contains("server.allowed_hosts"), "{note}");
    let trusted = "server: {listen: '0.0.0.0:0', allowed_hosts: [gw.example], trusted_proxies: [127.0.0.1]}\n";
    let trusted = TestApp::with(&format!("{trusted}{AUTH}")).await;
    assert_eq!(places(&trusted, "gw.example").await, expected("https://gw.example"));
}
