//! Users' sign-in to MCP servers that require one.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config, degraded};
use crate::authorization_server::Provider;
use crate::cli::{sekisho, text};
use crate::openapi::ADMIN;
use crate::slack::slack;

const ADA: &str = "key-of-ada";

const REACHED: &str = "outbound: {allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1, 10.0.0.1]}";

fn yaml(provider: &Provider, more: &str) -> String {
    format!("{ADMIN}\n{REACHED}\nmcp: {{servers: {{far: {{url: '{}/mcp', {more}}}}}}}", provider.url)
}

async fn app_before(provider: &Provider, more: &str) -> TestApp {
    let app = TestApp::with(&yaml(provider, more)).await;
    tokio::time::timeout(Duration::from_secs(20), app.gateway.mcp_servers().settled()).await.expect("it settles");
    app
}

async fn begin(app: &TestApp) -> (StatusCode, Value) {
    answer(app.post("/tools/mcp/far/sign_in").bearer_auth(ADA)).await
}

/// What a browser does with the address: follows it to the end.
async fn browse(app: &TestApp, begun: &Value) -> (StatusCode, String) {
    let address = begun["authorization_url"].as_str().unwrap_or_else(|| panic!("no address: {begun}"));
    let page = app.client.get(address).send().await.unwrap();
    (page.status(), page.text().await.unwrap())
}

async fn sign_in(app: &TestApp) {
    let (status, begun) = begin(app).await;
    assert_eq!((status, &begun["expires_in"]), (StatusCode::OK, &json!(600)), "{begun}");
    let (status, page) = browse(app, &begun).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let end = Instant::now() + Duration::from_secs(20);
    while answer(app.get("/tools/far__echo/metadata").bearer_auth(ADA)).await.0 != StatusCode::OK {
        assert!(Instant::now() < end, "its tools appear: {}", readiness_problem(app).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn call(app: &TestApp) -> Value {
    answer(app.post("/tools/far__echo/execute").bearer_auth(ADA).json(&json!({}))).await.1
}

/// Why the server cannot be used, from `/readyz`.
async fn readiness_problem(app: &TestApp) -> String {
    degraded(app).await["mcp:far"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_user_signs_in_and_the_tools_appear() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    let reason = readiness_problem(&app).await;
    assert!(reason.contains("requires a user's sign-in") && reason.contains("/tools/mcp/far/sign_in"), "{reason}");
    let (status, refused) = answer(app.post("/tools/mcp/far/sign_in")).await;
    assert_eq!((status, code(&refused)), (StatusCode::FORBIDDEN, "denied"));
    let (status, refused) = answer(app.post("/tools/mcp/near/sign_in").bearer_auth(ADA)).await;
    assert_eq!((status, code(&refused)), (StatusCode::NOT_FOUND, "not_found"));

    sign_in(&app).await;
    assert_eq!((call(&app).await["text"].as_str(), &*readiness_problem(&app).await), (Some("well"), ""));
    let (status, refused) = begin(&app).await;
    assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "nobody asks: {refused}");
    app.stop().await;
}

#[tokio::test]
async fn the_terminal_prints_the_address_to_open() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    let mut login = sekisho(&app.directory);
    login.args(["--server", &app.url, "mcp", "login", "far"]).env("SEKISHO_API_KEY", ADA);
    let printed = tokio::task::spawn_blocking(move || login.output().unwrap()).await.unwrap();
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed));
    let begun = json!({"authorization_url": text(&printed).lines().find(|line| line.starts_with("http")).unwrap()});
    assert_eq!(browse(&app, &begun).await.0, StatusCode::OK);

    let mut unknown = sekisho(&app.directory);
    unknown.args(["--server", &app.url, "mcp", "login", "near"]).env("SEKISHO_API_KEY", ADA);
    let refused = tokio::task::spawn_blocking(move || unknown.output().unwrap()).await.unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    app.stop().await;
}

#[tokio::test]
async fn a_state_counts_once_and_only_as_it_was_given() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    for query in ["state=guessed&code=the-code", "state=&code=the-code", "code=the-code", "state=guessed", ""] {
        let (status, refused) = answer(app.get(&format!("/oauth/callback?{query}"))).await;
        assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_request"), "{query}");
    }
    let (_, replaced) = begin(&app).await;
    let (_, begun) = begin(&app).await;
    assert_eq!(browse(&app, &replaced).await.0, StatusCode::BAD_REQUEST, "another was begun in its place");
    assert_eq!(provider.behave().grants, [""; 0], "no code was exchanged");
    assert_eq!(browse(&app, &begun).await.0, StatusCode::OK);
    assert_eq!(browse(&app, &begun).await.0, StatusCode::BAD_REQUEST, "it was used");
    assert_eq!(provider.behave().grants, ["authorization_code"]);
    app.stop().await;
}

#[tokio::test]
async fn a_foreign_or_refused_callback_does_not_sign_in() {
    for (back, says) in [
        (vec![("iss", "https://evil.example")], "issuer"),
        (vec![("iss", "")], "issuer"),
        (vec![("code", ""), ("error", "access_denied"), ("error_description", "not today")], "not today"),
    ] {
        let provider = Provider::start().await;
        let app = app_before(&provider, "").await;
        provider.behave().back.extend(back);
        let (_, begun) = begin(&app).await;
        let (status, page) = browse(&app, &begun).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "{page}");
        assert!(page.contains(says), "{page}");
        assert_eq!(provider.behave().grants, [""; 0], "no code was exchanged");
        assert_eq!(browse(&app, &begun).await.0, StatusCode::BAD_REQUEST, "the sign-in is over");
        assert!(readiness_problem(&app).await.contains("requires a user's sign-in"));
        app.stop().await;
    }
}

#[tokio::test]
async fn a_token_endpoint_without_a_bearer_token_does_not_sign_in() {
    for (token, says) in [
        (json!({"error": "invalid_grant"}), "invalid_grant"),
        (json!({"token_type": "mac"}), "bearer"),
        (json!({"access_token": 7}), "contains no usable token"),
        (json!({"access_token": "two\nlines"}), "bearer"),
    ] {
        let provider = Provider::start().await;
        let app = app_before(&provider, "").await;
        provider.behave().token = token;
        let (_, begun) = begin(&app).await;
        let (status, page) = browse(&app, &begun).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "{page}");
        assert!(page.contains(says) && !page.contains("secret-"), "{page}");
        app.stop().await;
    }
}

#[tokio::test]
async fn a_token_is_renewed_once_for_all_calls_until_a_new_sign_in_is_needed() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    sign_in(&app).await;
    provider.revoke();
    let replies = join_all((0..8).map(|_| call(&app))).await;
    assert!(replies.iter().all(|reply| reply["text"] == "well"), "{replies:?}");
    assert_eq!(provider.behave().grants, ["authorization_code", "refresh_token"]);
    provider.revoke();
    assert_eq!(call(&app).await["text"], "well");
    assert!(!provider.behave().reused, "each refresh token is used once");

    provider.revoke();
    provider.behave().over = true;
    let refused = call(&app).await;
    assert_eq!(code(&refused), "tool_error", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("sekisho mcp login far"), "{refused}");
    let (_, listed) = answer(app.get("/tools/list?detail=full").bearer_auth(ADA)).await;
    let listed = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "far__echo").unwrap().clone();
    assert!(listed["degraded"].as_str().unwrap().contains("requires a user's sign-in"), "{listed}");
    let grants = provider.behave().grants.len();
    let again = call(&app).await;
    assert_eq!((again["success"].as_bool(), provider.behave().grants.len()), (Some(false), grants), "{again}");
    sign_in(&app).await;
    assert_eq!(call(&app).await["text"], "well");
    app.stop().await;
}

#[tokio::test]
async fn a_server_may_require_further_scopes_a_limited_number_of_times() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    sign_in(&app).await;
    for step in ["one", "two", "three"] {
        provider.behave().call_needs = step.to_owned();
        let refused = call(&app).await;
        assert!(refused["error"].as_str().unwrap().contains(&format!("the scope {step:?}")), "{refused}");
        let (_, begun) = begin(&app).await;
        assert_eq!(browse(&app, &begun).await.0, StatusCode::OK);
        assert_eq!((call(&app).await["text"].as_str(), &*readiness_problem(&app).await), (Some("well"), ""), "{step}");
    }
    let (_, begun) = begin(&app).await;
    assert_eq!(code(&begun), "invalid_request", "nothing is asked for: {begun}");
    provider.behave().call_needs = "four".to_owned();
    call(&app).await;
    let (status, refused) = begin(&app).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("sign_in.scopes"), "{refused}");
    assert!(readiness_problem(&app).await.contains("sign_in.scopes"));
    app.stop().await;
}

/// Makes the metadata so.
type Hostile = fn(&Provider);

#[tokio::test]
async fn hostile_metadata_is_refused() {
    let cases: Vec<(&str, Hostile)> = vec![
        ("longer than the 65536 bytes", |provider| provider.behave().endless = true),
        ("longer than the 65536 bytes", |provider| provider.behave().resource = json!({"more": "x".repeat(1 << 20)})),
        ("same-origin", |provider| provider.behave().moved = Some("http://10.0.0.1/".to_owned())),
        ("redirects", |provider| {
            provider.behave().moved = Some(format!("{}/.well-known/oauth-protected-resource/mcp", provider.url));
        }),
        ("10.0.0.1", |provider| provider.behave().resource = json!({"authorization_servers": ["http://10.0.0.1/"]})),
        ("mismatch", |provider| provider.behave().resource = json!({"resource": "https://evil.example/mcp"})),
        ("mismatch", |provider| provider.behave().metadata = json!({"issuer": "https://evil.example"})),
        ("browser", |provider| provider.behave().metadata = json!({"authorization_endpoint": "javascript:alert(1)"})),
        ("browser", |provider| provider.behave().metadata = json!({"authorization_endpoint": "http://a:b@127.0.0.1/"})),
        ("PKCE", |provider| provider.behave().metadata = json!({"code_challenge_methods_supported": ["plain"]})),
        ("evil.example", |provider| {
            provider.behave().metadata = json!({"registration_endpoint": "https://evil.example/register"});
        }),
        ("more than 32 requests", |provider| {
            let many: Vec<_> = (0..1_000).map(|number| format!("{}/{number}", provider.url)).collect();
            provider.behave().silent = true;
            provider.behave().resource = json!({"authorization_servers": many});
        }),
    ];
    let mut surprises = Vec::new();
    for (says, hostile) in cases {
        let provider = Provider::start().await;
        let app = app_before(&provider, "").await;
        hostile(&provider);
        let began = Instant::now();
        let (status, refused) = begin(&app).await;
        assert_eq!((status, code(&refused)), (StatusCode::BAD_GATEWAY, "upstream_error"), "{says}: {refused}");
        let reported = refused["error"].as_str().unwrap();
        if !(reported.contains(says) && reported.len() < 1_000) {
            surprises.push(format!("{says}: {reported}"));
        }
        assert!(began.elapsed() < slack(Duration::from_secs(10)), "{says}: {:?}", began.elapsed());
        app.stop().await;
    }
    assert_eq!(surprises, [""; 0]);
}

#[tokio::test]
async fn a_code_is_exchanged_at_no_private_address() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    provider.behave().metadata = json!({"token_endpoint": "http://10.0.0.1/token"});
    let (_, begun) = begin(&app).await;
    let (status, page) = browse(&app, &begun).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{page}");
    assert!(page.contains("the request to the token server failed") && page.contains("not a public address"), "{page}");
    app.stop().await;
}

#[tokio::test]
async fn a_clients_secret_goes_to_its_own_issuer_alone() {
    let provider = Provider::start().await;
    let client = |issuer: &str| format!("sign_in: {{client_id: known, client_secret: hunter2, issuer: '{issuer}'}}");
    let app = app_before(&provider, &client("https://login.example.com")).await;
    let (status, refused) = begin(&app).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("sign_in.issuer"), "{refused}");
    app.stop().await;

    let app = app_before(&provider, &client(&provider.url)).await;
    sign_in(&app).await;
    app.stop().await;
}

#[tokio::test]
async fn a_reload_needs_no_new_sign_in() {
    let provider = Provider::start().await;
    let app = app_before(&provider, "").await;
    sign_in(&app).await;
    app.gateway.reload(config(&app.directory, &yaml(&provider, "labels: [far]"))).await;
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    assert_eq!((call(&app).await["text"].as_str(), &*readiness_problem(&app).await), (Some("well"), ""));
    assert_eq!(provider.behave().grants, ["authorization_code"]);
    app.stop().await;
}

#[tokio::test]
async fn a_server_that_is_registered_over_http_may_want_a_sign_in_too() {
    let provider = Provider::start().await;
    let app = TestApp::with(&format!("{ADMIN}\n{REACHED}")).await;
    let far = json!({"name": "far", "url": format!("{}/mcp", provider.url)});
    let (status, reply) = answer(app.post("/tools/mcp/register").bearer_auth(ADA).json(&far)).await;
    assert_eq!((status, &reply["tools"]), (StatusCode::OK, &json!([])), "{reply}");
    assert!(reply["message"].as_str().unwrap().contains("requires a user's sign-in"), "{reply}");
    sign_in(&app).await;
    assert_eq!(call(&app).await["text"], "well");
    app.stop().await;
}

#[tokio::test]
async fn authorization_servers_can_read_what_we_are_where_they_reach_us() {
    let app = TestApp::start().await;
    let (status, _) = answer(app.get("/oauth/client-metadata.json")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    app.stop().await;
    let app = TestApp::with("server: {mcp: {public_url: 'https://tools.example'}}").await;
    let (status, document) = answer(app.get("/oauth/client-metadata.json")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(document["client_id"], "https://tools.example/oauth/client-metadata.json");
    let redirects = ["https://tools.example/oauth/callback", "https://tools.example/console/upstream-sign-in/callback"];
    assert_eq!(document["redirect_uris"], json!(redirects));
    app.stop().await;
}
