//! The gateway as the authorization server in front of an identity provider: editors sign in, and attacks are refused.

mod assertions;
mod attacks;
mod documents;
mod forms;
mod provider;
mod real_provider;
mod replicas;
mod run;

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::StatusCode;
use reqwest::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, SET_COOKIE, WWW_AUTHENTICATE};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::documents::{Document, DocumentServer};
use self::provider::{CLIENT, Provider, SECRET, Shape};
use self::run::{REDIRECT, Run, Stage, World};
use crate::app::answer;
use crate::cli::{sekisho, text};
use crate::slack::slack;

/// The claims of an access token.
fn claims(run: &Run<'_>) -> Value {
    let payload = run.value("access_token").split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

/// Whether the newest access token is that of an administrator.
async fn is_admin(run: &Run<'_>) -> bool {
    let request = run.world.app.get("/admin/keys").bearer_auth(run.value("access_token"));
    let status = request.send().await.unwrap().status();
    assert!([StatusCode::OK, StatusCode::FORBIDDEN].contains(&status), "{status}");
    status == StatusCode::OK
}

/// Fails where a file of the state directory, or of one below it, has one of the texts.
fn search(folder: &Path, secrets: &[String]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search(&path, secrets);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = secrets.iter().find(|text| bytes.windows(text.len()).any(|part| part == text.as_bytes()));
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_client_finds_the_authorization_server_from_the_refusal_of_its_first_request() {
    let world = World::start(Shape::Entra).await;
    let (app, public) = (&world.app, world.app.url.as_str());
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let refused = app.post("/mcp").json(&body).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let challenge = refused.headers()[WWW_AUTHENTICATE].to_str().unwrap();
    assert!(
        challenge.contains(&format!("resource_metadata=\"{public}/.well-known/oauth-protected-resource/mcp\"")),
        "{challenge}"
    );
    let (_, resource) = answer(app.get("/.well-known/oauth-protected-resource/mcp")).await;
    assert_eq!(resource["authorization_servers"], json!([public]), "{resource}");
    let (status, found) = answer(app.get("/.well-known/oauth-authorization-server")).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let (_, of_path) = answer(app.get("/.well-known/oauth-authorization-server/mcp")).await;
    assert_eq!(of_path, found, "some clients look it up by the path of the resource");
    assert_eq!(found["issuer"], public, "{found}");
    for (name, path) in [
        ("authorization_endpoint", "authorize"),
        ("token_endpoint", "token"),
        ("registration_endpoint", "register"),
        ("revocation_endpoint", "revoke"),
        ("introspection_endpoint", "introspect"),
        ("jwks_uri", "jwks"),
    ] {
        assert_eq!(found[name], format!("{public}/oauth/{path}"), "{name}: {found}");
    }
    for (name, values) in [
        ("response_types_supported", json!(["code"])),
        ("grant_types_supported", json!(["authorization_code", "refresh_token"])),
        ("code_challenge_methods_supported", json!(["S256"])),
        ("token_endpoint_auth_methods_supported", json!(["none"])),
        ("authorization_response_iss_parameter_supported", json!(true)),
        ("client_id_metadata_document_supported", json!(true)),
    ] {
        assert_eq!(found[name], values, "{name}: {found}");
    }
    let (_, keys) = answer(app.get("/oauth/jwks")).await;
    assert!(keys["keys"].as_array().is_some_and(|keys| !keys.is_empty()), "{keys}");
    assert!(keys["keys"].as_array().unwrap().iter().all(|key| key.get("d").is_none()), "the private parts: {keys}");
}

#[tokio::test]
async fn an_editor_signs_in_at_a_provider_in_the_shape_of_entra() {
    let world = World::start(Shape::Entra).await;
    let mut run = Run::new(&world);
    run.pass(Stage::Register).await;
    let page = run.pass(Stage::Authorize).await;
    assert!(page.text.contains("An editor") && page.text.contains("127.0.0.1:7777"), "who gets it: {}", page.text);
    let policy = page.headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("frame-ancestors 'none'"), "no other page shows it: {policy}");
    let cookie = page.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-"), "{cookie}");
    for attribute in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }
    run.pass(Stage::Consent).await;
    run.pass(Stage::Callback).await;
    let given = run.pass(Stage::Token).await;
    assert!(given.headers[CACHE_CONTROL].to_str().unwrap().contains("no-store"), "{given:?}");
    assert_eq!((&given.json()["token_type"], &given.json()["expires_in"]), (&json!("Bearer"), &json!(600)));

    let asked = world.provider.behave().authorizations.clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["redirect_uri"], format!("{}/oauth/callback", world.app.url));
    assert_eq!(asked[0]["code_challenge_method"], "S256", "between gateway and provider, too");
    assert!(asked[0].contains_key("nonce") && !asked[0].contains_key("resource"), "{asked:?}");
    assert_ne!(asked[0]["state"], "state-of-the-editor");
    assert_eq!(asked[0]["client_id"], CLIENT);

    let found = claims(&run);
    assert_eq!((&found["iss"], &found["client_id"]), (&json!(world.app.url), &json!(run.value("client"))), "{found}");
    assert!(found["aud"].to_string().contains(&world.app.url), "{found}");
    for name in ["sub", "exp", "iat", "jti", "sid"] {
        assert!(!found[name].is_null(), "{name}: {found}");
    }
    run.pass(Stage::Use).await;
    assert!(is_admin(&run).await, "by the app role");
    let known = run.pass(Stage::Introspect).await.json();
    assert_eq!((&known["active"], &known["client_id"]), (&json!(true), &json!(run.value("client"))), "{known}");
    let listed = run.pass(Stage::Sessions).await;
    assert!(listed.text.contains("An editor"), "{listed:?}");

    // What changes at the provider counts from the next refresh.
    world.provider.behave().roles = Some(vec!["Tools.User"]);
    let refreshed = run.pass(Stage::Refresh).await.json();
    run.values.insert("access_token", refreshed["access_token"].as_str().unwrap().to_owned());
    assert!(!is_admin(&run).await);
    world.provider.behave().roles = Some(Vec::new());
    assert!(!run.refreshes().await, "no role at all is left");

    let mut secrets = world.provider.behave().tokens.clone();
    secrets.extend(
        ["refresh_token", "newest_refresh_token", "access_token", "code"].map(|name| run.value(name).to_owned()),
    );
    secrets.push(SECRET.to_owned());
    assert!(secrets.len() >= 8, "{secrets:?}");
    search(&world.app.stop().await.path().join("state"), &secrets);
}

#[tokio::test]
async fn an_editor_signs_in_at_a_provider_in_the_shape_of_google() {
    let world = World::start(Shape::Google).await;
    let mut run = Run::new(&world);
    run.reach(Stage::Use).await;
    let asked = world.provider.behave().authorizations.clone();
    assert_eq!(asked[0]["access_type"], "offline", "{asked:?}");
    assert!(!asked[0].contains_key("resource"), "{asked:?}");
    run.pass(Stage::Use).await;
    assert!(is_admin(&run).await, "by the address");
    // Google keeps its refresh token.
    run.pass(Stage::Refresh).await;
    assert!(run.refreshes().await);
    let exchanges = world.provider.behave().exchanges.clone();
    let refreshed = exchanges.iter().filter(|form| form["grant_type"] == "refresh_token");
    let sent: Vec<_> = refreshed.map(|form| form["refresh_token"].clone()).collect();
    assert!(sent.len() == 2 && sent[0] == sent[1], "the provider is asked each time: {sent:?}");
}

#[tokio::test]
async fn a_user_to_whom_no_rule_gives_a_role_gets_nothing() {
    for shape in [Shape::Entra, Shape::Google] {
        let world = World::start(shape).await;
        world.provider.behave().user = Some("bob");
        let mut run = Run::new(&world);
        run.reach(Stage::Callback).await;
        let answer = run.send(&run.request(Stage::Callback)).await;
        assert_eq!(answer.parameter("error").as_deref(), Some("access_denied"), "{answer:?}");
        assert_eq!(answer.parameter("code"), None);
    }
}

#[tokio::test]
async fn the_page_of_consent_shows_what_a_client_says_as_text() {
    let world = World::start(Shape::Entra).await;
    let mut run = Run::new(&world);
    let mut sent = run.request(Stage::Register);
    sent.fields.insert("client_name".to_owned(), json!("<script>alert(1)</script>\"><img src=x>"));
    let registered = run.send(&sent).await;
    assert_eq!(registered.status, 201, "{registered:?}");
    run.keep(Stage::Register, &registered).await;
    let page = run.pass(Stage::Authorize).await;
    assert!(page.text.contains("alert(1)") && !page.text.contains("<script>alert"), "{}", page.text);
    assert!(!page.text.contains("<img src=x>"), "{}", page.text);
}

#[tokio::test]
async fn an_editor_listens_at_any_port_of_loopback() {
    let world = World::start(Shape::Entra).await;
    let mut run = Run::new(&world);
    run.pass(Stage::Register).await;
    let elsewhere = json!(REDIRECT.replace("7777", "9999"));
    let mut sent = run.request(Stage::Authorize);
    sent.fields.insert("redirect_uri".to_owned(), elsewhere.clone());
    let page = run.send(&sent).await;
    assert_eq!(page.status, 200, "{page:?}");
    run.keep(Stage::Authorize, &page).await;
    run.pass(Stage::Consent).await;
    let back = run.send(&run.request(Stage::Callback)).await;
    assert!(back.location.as_deref().unwrap().starts_with("http://127.0.0.1:9999/callback?"), "{back:?}");
    run.values.insert("code", back.parameter("code").unwrap());
    let mut sent = run.request(Stage::Token);
    sent.fields.insert("redirect_uri".to_owned(), elsewhere);
    let given = run.send(&sent).await;
    assert_eq!(given.status, 200, "{given:?}");
}

#[tokio::test]
async fn a_client_whose_id_is_the_address_of_its_document_signs_in() {
    let folder = TempDir::new().unwrap();
    let server = DocumentServer::start(&Document::default(), &folder).await;
    let provider = Provider::start(Shape::Entra).await;
    let world = World::with(provider, "", &server.settings, TempDir::new().unwrap()).await;
    let mut run = Run::new(&world);
    run.values.insert("client", server.url.clone());
    let page = run.pass(Stage::Authorize).await;
    assert!(page.text.contains("localhost"), "whose document it is: {}", page.text);
    run.pass(Stage::Authorize).await;
    assert_eq!(server.requests(), 1, "the document is kept");
    for stage in [Stage::Consent, Stage::Callback, Stage::Token, Stage::Use, Stage::Refresh] {
        run.pass(stage).await;
    }
    assert_eq!(claims(&run)["client_id"], server.url);
}

#[tokio::test]
async fn an_administrator_ends_a_session_in_the_terminal() {
    let world = World::start(Shape::Entra).await;
    let mut run = Run::new(&world);
    run.reach(Stage::End).await;
    let session = run.value("session").to_owned();
    let command = |arguments: &[&str]| {
        let mut command = sekisho(&world.app.directory);
        command.args(["--json", "--server", &world.app.url, "sign-ins"]).args(arguments);
        command.env("SEKISHO_API_KEY", "key-of-ada");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let listed = text(&command(&["sessions"]).await.unwrap());
    assert!(listed.contains(&session) && listed.contains("ann@acme.example"), "{listed}");
    let ended = command(&["end", &session]).await.unwrap();
    assert!(ended.status.success(), "{}", text(&ended));
    assert!(!run.refreshes().await);
    let listed = text(&command(&["sessions"]).await.unwrap());
    assert!(!listed.contains(&session), "{listed}");
    let trail = std::fs::read_to_string(world.app.stop().await.path().join("state/audit.jsonl")).unwrap();
    for event in ["oauth_client_registered", "oauth_session_started", "oauth_session_ended"] {
        assert!(trail.contains(event), "{event}: {trail}");
    }
}

/// Its session is looked up again after seconds.
#[tokio::test]
async fn an_access_token_that_was_used_is_soon_refused_once_its_session_has_ended() {
    let world = World::start(Shape::Entra).await;
    let mut run = Run::new(&world);
    run.reach(Stage::Use).await;
    run.pass(Stage::Use).await;
    run.pass(Stage::Sessions).await;
    run.pass(Stage::End).await;
    let until = Instant::now() + slack(Duration::from_secs(15));
    while run.send(&run.request(Stage::Use)).await.status != 401 {
        assert!(Instant::now() < until, "the token is still accepted");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Clocks of replicas differ: a token counts for half a minute more.
#[tokio::test]
async fn a_token_is_refused_once_it_has_expired() {
    let provider = Provider::start(Shape::Entra).await;
    let world = World::with(provider, "tokens: {access: 1s}", "", TempDir::new().unwrap()).await;
    let mut run = Run::new(&world);
    run.reach(Stage::Use).await;
    run.pass(Stage::Use).await;
    let until = Instant::now() + slack(Duration::from_secs(45));
    while run.send(&run.request(Stage::Use)).await.status != 401 {
        assert!(Instant::now() < until, "the token of a second is still accepted");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    run.pass(Stage::Refresh).await;
}

#[tokio::test]
async fn a_registration_is_short_json_that_no_page_of_another_site_sends() {
    let world = World::start(Shape::Entra).await;
    let short = json!({"redirect_uris": [REDIRECT]}).to_string();
    let long = json!({"redirect_uris": [REDIRECT], "padding": "x".repeat(16 << 10)}).to_string();
    for (kind, body, expected) in [
        ("application/json", &short, StatusCode::CREATED),
        ("application/json; charset=utf-8", &short, StatusCode::CREATED),
        ("text/plain", &short, StatusCode::BAD_REQUEST),
        ("application/x-www-form-urlencoded", &short, StatusCode::BAD_REQUEST),
        ("application/json", &long, StatusCode::BAD_REQUEST),
    ] {
        let request = world.app.post("/oauth/register").header(CONTENT_TYPE, kind).body(body.clone());
        let (status, said) = answer(request).await;
        assert_eq!(status, expected, "{kind}, {} bytes: {said}", body.len());
        assert!(status.is_success() || said["error"] == "invalid_client_metadata", "{said}");
    }
}

/// A gateway without `auth.broker` has none of it.
#[tokio::test]
async fn without_its_settings_there_is_no_authorization_server() {
    let app = crate::app::TestApp::start().await;
    for path in ["/.well-known/oauth-authorization-server", "/oauth/jwks", "/oauth/authorize"] {
        let status = app.get(path).send().await.unwrap().status();
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    let status = app.post("/oauth/register").json(&json!({"redirect_uris": [REDIRECT]})).send().await.unwrap().status();
    assert_eq!(status, StatusCode::NOT_FOUND);
}
