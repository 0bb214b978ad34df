//! Tokens of callers at an authorization server of the field (npm `oidc-provider`): it is found by its address, asked about tokens that only
//! it can read, and exchanges them (RFC 8693), so that two users behind one gateway see their own data of one upstream.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::app::{TestApp, answer, code};
use crate::child_server::ChildServer;
use crate::console_open_id::Browser;
use crate::user_upstream::Upstream;

const SECRET: &str = "the secret of the clients";

/// Tokens for it are JSON Web Tokens.
const GATEWAY: &str = "https://gateway.example/mcp";

/// Tokens for it have the same audience, and only the authorization server can read them.
const OPAQUE: &str = "https://gateway.example/mcp/opaque";

const USERS: [(&str, &str); 2] = [("ann", "bob"), ("bob", "ann")];

fn yaml(provider: &str, upstream: &str) -> String {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Me", "version": "1"}, "servers": [{"url": upstream}],
        "paths": {"/me": {"get": {"operationId": "me", "responses": {"200": {"description": "who"}}}}},
    });
    let client = format!("token_url: '{provider}/token', client_id: sekisho, client_secret: {SECRET}");
    let exchange = format!(
        "identity: exchange, exchange: {{{client}, audience: 'https://upstream.example', scopes: [read], actor: true}}, rate_limit: 1000"
    );
    format!(
        "auth:\n  jwt:\n    issuer: '{provider}'\n    audience: '{GATEWAY}'\n    \
         introspection: {{client_id: sekisho, client_secret: {SECRET}}}\n  scopes: {{write: [calculator]}}\n\
         outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1], openapi_allowed_domains: [127.0.0.1]}}\n\
         mcp: {{servers: {{far: {{url: '{upstream}/mcp', oauth: {{{client}}}, {exchange}}}}}}}\n\
         openapi: {{collections: {{api: {{spec_inline: '{document}', {exchange}}}}}}}\n"
    )
}

/// A token of a user who signs in in a browser (authorization code with PKCE).
async fn token_of(provider: &str, user: &str, resource: &str, scope: &str) -> String {
    let (verifier, redirect) = ("v".repeat(50), "http://127.0.0.1:1/callback");
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let parameters = [
        ("client_id", "app"),
        ("response_type", "code"),
        ("redirect_uri", redirect),
        ("scope", scope),
        ("resource", resource),
        ("code_challenge", &*challenge),
        ("code_challenge_method", "S256"),
    ];
    let address = url::Url::parse_with_params(&format!("{provider}/auth"), parameters).unwrap();
    let back = url::Url::parse(&Browser::new().follow(address.as_str(), redirect, user).await).unwrap();
    let (_, granted) = back.query_pairs().find(|(name, _)| name == "code").unwrap_or_else(|| panic!("{back}"));
    let form = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("grant_type", "authorization_code"),
            ("client_id", "app"),
            ("redirect_uri", redirect),
            ("code", &*granted),
            ("code_verifier", &*verifier),
        ])
        .finish();
    let client = Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{provider}/token")).header("content-type", "application/x-www-form-urlencoded");
    let (status, token) = answer(request.body(form)).await;
    assert_eq!(status, StatusCode::OK, "{token}");
    token["access_token"].as_str().unwrap().to_owned()
}

async fn call(app: &TestApp, tool: &str, token: &str) -> (StatusCode, Value) {
    answer(app.post(&format!("/tools/{tool}/execute")).bearer_auth(token).json(&json!({}))).await
}

async fn wait_for_tools(app: &TestApp, token: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while answer(app.get("/tools/far__whoami/metadata").bearer_auth(token)).await.0 != StatusCode::OK {
        assert!(Instant::now() < end, "its tools appear");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
#[ignore = "needs oidc-provider and node, in the folder named by the variable OAUTH"]
async fn oauth_tokens_of_two_users_are_exchanged_at_a_real_provider() {
    let folder = std::env::var("OAUTH").expect("OAUTH names the folder");
    // Node resolves modules relative to the script.
    let script = Path::new(&folder).join("token_exchange.mjs");
    std::fs::copy("tests/openapi/token_exchange.mjs", &script).unwrap();
    let node = Path::new(&folder).join("node_modules/.bin/node");
    let arguments = [script.to_str().unwrap(), "PORT", SECRET];
    let provider = ChildServer::start(node.to_str().unwrap(), &arguments, Duration::from_secs(60)).await;
    let upstream = Upstream::of_provider(&provider.url, "upstream", SECRET).await;
    let app = TestApp::with(&yaml(&provider.url, &upstream.url)).await;

    let mut sent = Vec::new();
    for resource in [GATEWAY, OPAQUE] {
        for (user, other) in USERS {
            let token = token_of(&provider.url, user, resource, "openid read").await;
            assert_eq!(token.split('.').count(), if resource == GATEWAY { 3 } else { 1 }, "{token}");
            wait_for_tools(&app, &token).await;
            for tool in ["api__me", "far__whoami"] {
                for (status, reply) in join_all((0..25).map(|_| call(&app, tool, &token))).await {
                    assert_eq!(status, StatusCode::OK, "{tool} {user}: {reply}");
                    let said = reply["text"].as_str().unwrap();
                    assert!(said.contains(user) && !said.contains(other), "{tool} {user}: {said}");
                }
            }
            sent.push(token);
        }
    }
    let of_users: Vec<_> = upstream.introspected().into_iter().filter(|said| said["sub"].is_string()).collect();
    assert!(!of_users.is_empty());
    for said in of_users {
        assert_eq!(
            (&said["aud"], &said["act"]["sub"]),
            (&json!("https://upstream.example"), &json!("sekisho")),
            "{said}"
        );
    }

    // A token that nobody gave, and a caller without one.
    let (status, refused) = call(&app, "api__me", "made-up").await;
    assert_eq!((status, code(&refused)), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{refused}");
    let (status, refused) = app.call("api__me", json!({})).await;
    assert_eq!((status, code(&refused)), (StatusCode::UNAUTHORIZED, "sign_in_required"), "{refused}");

    // The user is asked for the further scope that a tool needs.
    let calculate = |token: &str| {
        let request = app.post("/tools/calculator/execute").bearer_auth(token);
        request.json(&json!({"arguments": {"expression": "1+1"}})).send()
    };
    let refused = calculate(&sent[0]).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(refused.headers()[WWW_AUTHENTICATE], "Bearer error=\"insufficient_scope\", scope=\"write\"");
    let wider = token_of(&provider.url, "ann", GATEWAY, "openid read write").await;
    assert_eq!(calculate(&wider).await.unwrap().status(), StatusCode::OK);

    let directory = app.stop().await;
    for file in ["sekisho.db", "sekisho.db-wal", "audit.jsonl"] {
        let kept = std::fs::read(directory.path().join("state").join(file)).unwrap_or_default();
        let has = |token: &String| kept.windows(token.len()).any(|bytes| bytes == token.as_bytes());
        assert!(!sent.iter().any(has), "{file} has a token of a caller");
    }
}
