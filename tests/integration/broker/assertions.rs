//! An application of the company presents identity assertions of the provider (ID-JAG) in place of a sign-in.

use std::time::SystemTime;

use reqwest::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::forms::{encoded, object};
use super::provider::{Provider, Shape};
use super::run::{Run, Stage, World};
use super::search;
use crate::app::{answer, code};
use crate::lock::until;

const APP: &str = "app-at-the-provider";
const SECRET: &str = "secret-of-the-app-with-more-than-32-characters";
const TYPE: &str = "oauth-id-jag+jwt";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

async fn world() -> World {
    let settings = format!("assertion_clients: {{{APP}: {SECRET}}}");
    World::with(Provider::start(Shape::Entra).await, &settings, "", TempDir::new().unwrap()).await
}

fn claims(world: &World, id: &str) -> Value {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    json!({"iss": world.provider.issuer, "sub": "subject-of-ann", "aud": world.app.url, "client_id": APP, "jti": id,
        "resource": format!("{}/mcp", world.app.url), "iat": now, "exp": now + 300, "roles": ["Tools.Admin"]})
}

fn request(world: &World, secret: &str, assertion: &str) -> RequestBuilder {
    let form = encoded(&object(json!({"grant_type": JWT_BEARER, "assertion": assertion})));
    let request = world.app.post("/oauth/token").basic_auth(APP, Some(secret));
    request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form)
}

#[tokio::test]
async fn an_assertion_is_exchanged_for_a_token_and_its_replay_ends_the_session() {
    let world = world().await;
    let (_, metadata) = answer(world.app.get("/.well-known/oauth-authorization-server")).await;
    assert_eq!(
        metadata["authorization_grant_profiles_supported"],
        json!(["urn:ietf:params:oauth:grant-profile:id-jag"])
    );
    assert!(metadata["grant_types_supported"].as_array().unwrap().contains(&json!(JWT_BEARER)), "{metadata}");

    let assertion = world.provider.sign_as(TYPE, &claims(&world, "one"));
    let (status, given) = answer(request(&world, SECRET, &assertion)).await;
    assert_eq!(status, StatusCode::OK, "{given}");
    assert_eq!(given.get("refresh_token"), None, "{given}");
    let token = given["access_token"].as_str().unwrap();
    let used = world.app.get("/admin/keys").bearer_auth(token).send().await.unwrap();
    assert_eq!(used.status(), StatusCode::OK, "by the app role in the assertion");
    let (_, sessions) = answer(world.app.get("/admin/oauth/sessions").bearer_auth("key-of-ada")).await;
    assert_eq!(sessions["items"][0]["client"], APP, "{sessions}");

    // Who has read the assertion and knows the secret cannot present it again.
    let (status, refused) = answer(request(&world, SECRET, &assertion)).await;
    assert_eq!((status, &refused["error"]), (StatusCode::BAD_REQUEST, &json!("invalid_grant")), "{refused}");
    let (_, sessions) = answer(world.app.get("/admin/oauth/sessions").bearer_auth("key-of-ada")).await;
    assert_eq!(sessions["items"], json!([]), "the replay has ended the session");

    let secrets = [assertion.clone(), token.to_owned(), SECRET.to_owned()];
    let trail = world.app.stop().await;
    search(&trail.path().join("state"), &secrets);
    let trail = std::fs::read_to_string(trail.path().join("state/audit.jsonl")).unwrap();
    assert!(trail.contains("presented twice"), "{trail}");
}

#[tokio::test]
async fn attacks_with_assertions_are_refused() {
    let world = world().await;
    let provider = &world.provider;
    let with = |name: &str, value: Value| {
        let mut claims = claims(&world, name);
        claims[name] = value;
        provider.sign_as(TYPE, &claims)
    };
    let right = provider.sign_as(TYPE, &claims(&world, "right"));
    for (attack, secret, assertion, error) in [
        ("another secret", "wrong", right.clone(), "invalid_client"),
        ("no secret", "", right.clone(), "invalid_client"),
        ("an ID token", SECRET, provider.id_token("ann", None), "invalid_grant"),
        ("another type", SECRET, provider.sign(&claims(&world, "type")), "invalid_grant"),
        ("another audience", SECRET, with("aud", json!("https://other.example")), "invalid_grant"),
        ("another client", SECRET, with("client_id", json!("another-app")), "invalid_grant"),
        ("another resource", SECRET, with("resource", json!("https://other.example/mcp")), "invalid_grant"),
        ("another issuer", SECRET, with("iss", json!("https://evil.example")), "invalid_grant"),
        ("expired", SECRET, with("exp", json!(1_700_000_000)), "invalid_grant"),
        ("no role by any rule", SECRET, with("roles", json!(["Tools.Other"])), "invalid_grant"),
    ] {
        let response = request(&world, secret, &assertion).send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let said: Value = response.json().await.unwrap();
        assert_eq!(said["error"], error, "{attack}: {said}");
        assert!(headers[CACHE_CONTROL].to_str().unwrap().contains("no-store"), "{attack}");
        // RFC 6749 §5.2.
        let is_client = error == "invalid_client";
        assert_eq!(status, if is_client { StatusCode::UNAUTHORIZED } else { StatusCode::BAD_REQUEST }, "{attack}");
        assert_eq!(
            headers.get(WWW_AUTHENTICATE).is_some_and(|value| value.as_bytes().starts_with(b"Basic ")),
            is_client
        );
    }
    let (status, given) = answer(request(&world, SECRET, &right)).await;
    assert_eq!(status, StatusCode::OK, "what was refused before has not used it up: {given}");
}

/// The upstream is a gateway, too, and takes the assertions that the provider gives for the ID token of a session.
#[tokio::test]
async fn a_user_who_signed_in_at_one_gateway_calls_a_tool_of_another_as_itself() {
    let far = world().await;
    let url = &far.app.url;
    let exchange = format!(
        "identity: exchange, exchange: {{grant: id_jag, token_url: '{url}/oauth/token', audience: '{url}', resource: '{url}/mcp', \
         client_id: {APP}, client_secret: {SECRET}}}"
    );
    let topics = format!(
        "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
         mcp: {{servers: {{far: {{url: '{url}/mcp', token: key-of-pat, {exchange}}}}}}}"
    );
    let near = World::with(far.provider.clone(), "", &topics, TempDir::new().unwrap()).await;
    let mut run = Run::new(&near);
    run.reach(Stage::Use).await;
    let token = run.value("access_token");
    let listed = async || {
        let metadata = near.app.get("/tools/far__calculator/metadata").bearer_auth(token).send().await.unwrap();
        metadata.status().is_success().then_some(())
    };
    until(listed).await;
    let call = async |token: &str| {
        let arguments = json!({"arguments": {"expression": "6 * 7"}});
        answer(near.app.post("/tools/far__calculator/execute").bearer_auth(token).json(&arguments)).await
    };
    for _ in 0..2 {
        let (status, reply) = call(token).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        assert!(reply.to_string().contains("42"), "{reply}");
    }
    let (_, sessions) = answer(far.app.get("/admin/oauth/sessions").bearer_auth("key-of-ada")).await;
    let items = sessions["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "the token is kept for the second call: {sessions}");
    assert_eq!((&items[0]["client"], &items[0]["user"]), (&json!(APP), &json!("ann@acme.example")), "{sessions}");
    // A key is no sign-in.
    let (status, refused) = call("key-of-pat").await;
    assert_eq!((status, code(&refused)), (StatusCode::UNAUTHORIZED, "sign_in_required"), "{refused}");
    let secrets = near
        .provider
        .behave()
        .exchanges
        .iter()
        .filter_map(|form| form.get("subject_token").cloned())
        .collect::<Vec<_>>();
    assert_eq!(secrets.len(), 1);
    search(&near.app.stop().await.path().join("state"), &secrets);
}
