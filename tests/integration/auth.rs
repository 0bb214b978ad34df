//! Who may call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::join_all;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config};
use crate::charges::served;

#[tokio::test]
async fn a_wrong_key_is_not_an_anonymous_caller() {
    let app = TestApp::with("auth: {api_keys: [{id: ada, key: key-of-ada}]}").await;
    for request in [app.get("/tools/list").bearer_auth("wrong"), app.get("/tools/list").header("x-api-key", "wrong")] {
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    }
    let (status, _) = answer(app.get("/tools/list").header("x-api-key", "key-of-ada")).await;
    assert_eq!(status, StatusCode::OK);
}

/// Who guesses is slowed, and keeps nobody from signing in, also at the same address.
#[tokio::test]
async fn wrong_keys_of_one_address_are_slowed() {
    let keys = "{id: ada, key: key-of-ada, roles: [admin]}, {id: bob, key: key-of-bob}";
    let app = TestApp::with(&format!("auth: {{anonymous: never, api_keys: [{keys}]}}")).await;
    let status = async |key: &str| answer(app.get("/tools/list").bearer_auth(key)).await.0;
    assert_eq!(status("key-of-ada").await, StatusCode::OK);
    let guesses: Vec<_> = (0..200).map(|number| format!("guess-{number}")).collect();
    let answers = join_all(guesses.iter().map(|guess| status(guess))).await;
    let unknown = answers.iter().filter(|status| **status == StatusCode::UNAUTHORIZED).count();
    let refused = answers.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    // Twenty, and what the time of the test adds.
    assert!((20..40).contains(&unknown) && unknown + refused == 200, "{unknown} unknown, {refused} refused");
    let refused = app.get("/tools/list").bearer_auth("guess").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(status("key-of-ada").await, StatusCode::OK, "it was accepted before");
    assert_eq!(status("key-of-bob").await, StatusCode::OK, "the first time it takes a second");
    let forms = (0..40).map(|number| {
        let form = app.post("/console/sign-in").header(ORIGIN, &app.url);
        form.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(format!("key=guess-{number}")).send()
    });
    let statuses: Vec<_> = join_all(forms).await.into_iter().map(|answer| answer.unwrap().status()).collect();
    let refused = statuses.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    let unknown = statuses.iter().filter(|status| **status == StatusCode::UNAUTHORIZED).count();
    assert!(refused > 20 && refused + unknown == 40, "{statuses:?}");
}

#[tokio::test]
async fn anonymous_callers_can_be_shut_out() {
    let app = TestApp::with("auth: {anonymous: never, api_keys: [{id: ada, key: key-of-ada}]}").await;
    let (status, reply) = answer(app.get("/tools/list")).await;
    assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    assert_eq!(app.get("/healthz").send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_forwarded_address_is_nobodys_identity() {
    let yaml = "auth: {anonymous: always}\ntools: {overrides: {calculator: {rate_limit: 1}}}";
    let app = TestApp::with(yaml).await;
    let mut statuses = Vec::new();
    for address in ["192.0.2.1", "192.0.2.2"] {
        let request = app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "1"}}));
        let request = request.header("x-forwarded-for", address).header("forwarded", format!("for={address}"));
        statuses.push(answer(request.header("x-real-ip", address)).await.0);
    }
    assert_eq!(statuses, [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS], "one caller, wherever it says it stands");
    let elsewhere = app.get("/tools/list").header(HOST, "evil.example").header("x-forwarded-host", "localhost");
    assert_eq!(answer(elsewhere).await.0, StatusCode::FORBIDDEN);
}

/// A web page that points its own name at loopback (DNS rebinding) finds nobody there.
#[tokio::test]
async fn on_loopback_only_the_names_of_loopback_are_answered() {
    let app = TestApp::start().await;
    for request in [app.get("/tools/list"), app.post("/mcp").json(&json!({}))] {
        let (status, reply) = answer(request.header(HOST, "evil.example:80")).await;
        assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(app.get("/tools/list").header(HOST, host).send().await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_web_form_cannot_call_a_tool() {
    let app = TestApp::start().await;
    for declared in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request = app.post("/tools/echo/execute").header("content-type", declared).body(r#"{"arguments":{}}"#);
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"));
    }
    let (status, _) = answer(app.post("/tools/echo/execute").body(json!({}).to_string())).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// The folder of a session's files, as state directories have had it from the first version on.
fn workspace_of_api_key(tenant: &str, id: &str, session: &str) -> String {
    let mut hash = Sha256::new();
    for part in [tenant, id, session] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

/// An issuer's key pair, the public half as it publishes it.
fn key_pair() -> (EncodingKey, Value) {
    let pair = EncodingKey::from_ed_pem(include_bytes!("../fixtures/auth/ed25519.pem")).unwrap();
    let mut public = serde_json::to_value(Jwk::from_encoding_key(&pair, Algorithm::EdDSA).unwrap()).unwrap();
    public["kid"] = "e".into();
    (pair, json!({"keys": [public]}))
}

/// Of ada, for five minutes.
fn token(pair: &EncodingKey) -> String {
    let expires = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 300;
    let claims = json!({
        "iss": "https://issuer.example", "aud": "sekisho", "sub": "ada", "tenant": "acme", "exp": expires,
        "roles": ["operator", "admin"],
    });
    let header = Header { kid: Some("e".into()), ..Header::new(Algorithm::EdDSA) };
    encode(&header, &claims, pair).unwrap()
}

/// The fetched keys stay in use, also over a reload, which does not fetch them again.
#[tokio::test]
async fn a_reload_while_the_issuer_is_down_keeps_valid_tokens_working() {
    let (pair, published) = key_pair();
    let is_down = Arc::new(AtomicBool::new(false));
    let answer_keys = {
        let is_down = Arc::clone(&is_down);
        get(async move || match is_down.load(Ordering::SeqCst) {
            false => Ok(Json(published)),
            true => Err(StatusCode::SERVICE_UNAVAILABLE),
        })
    };
    let url = served(Router::new().route("/keys", answer_keys)).await;
    let yaml = format!(
        "auth: {{jwt: {{issuer: 'https://issuer.example', audience: sekisho, jwks_url: '{url}/keys'}}}}\n\
         tools: {{overrides: {{calculator: {{requires_auth: true}}}}}}"
    );
    let app = TestApp::in_directory(TempDir::new().unwrap(), &yaml).await;
    let calculate = async || {
        let request = app.post("/tools/calculator/execute").bearer_auth(token(&pair));
        answer(request.json(&json!({"arguments": {"expression": "1+1"}}))).await.0
    };
    assert_eq!(calculate().await, StatusCode::OK);
    is_down.store(true, Ordering::SeqCst);
    let mut config = config(&app.directory, &yaml);
    config.server = app.gateway.configuration().current().server.clone();
    app.gateway.reload(config).await;
    assert_eq!(calculate().await, StatusCode::OK);
}

/// A token's subject is a separate caller, also where an API key has the same name.
#[tokio::test]
async fn a_token_opens_nothing_of_the_api_key_of_its_name_and_kept_files_are_found() {
    let (pair, published) = key_pair();
    let directory = TempDir::new().unwrap();
    let keys = directory.path().join("keys.json");
    std::fs::write(&keys, published.to_string()).unwrap();
    let kept = directory.path().join("state/workspaces").join(workspace_of_api_key("acme", "ada", "s1"));
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("note.txt"), "of the API key").unwrap();
    let yaml = format!(
        "auth:
  api_keys: [{{id: ada, key: key-of-ada, tenant: acme, roles: [operator, admin]}}]
  jwt: {{issuer: 'https://issuer.example', audience: sekisho, jwks_file: '{}'}}
",
        keys.display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let token = token(&pair);
    let call = async |credential: &str, tool: &str, arguments: Value| {
        let body = json!({"arguments": arguments, "session_id": "s1"});
        answer(app.post(&format!("/tools/{tool}/execute")).bearer_auth(credential).json(&body)).await.1
    };
    let read = json!({"path": "note.txt"});
    assert_eq!(call("key-of-ada", "file_read", read.clone()).await["output"]["content"], "of the API key");
    assert_eq!(code(&call(&token, "file_read", read.clone()).await), "tool_error");
    let written = call(&token, "file_write", json!({"path": "note.txt", "content": "of the token"})).await;
    assert_eq!(written["success"], true, "{written}");
    assert_eq!(call(&token, "file_read", read.clone()).await["output"]["content"], "of the token");
    assert_eq!(call("key-of-ada", "file_read", read).await["output"]["content"], "of the API key");
}
