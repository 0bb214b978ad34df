//! Credentials by the name of a security scheme.

use super::*;
use crate::read::operation::SecurityScheme;
use crate::user_scheme::UserScheme;
use sekisho_config::{ExchangeSettings, Identity};
use sekisho_core::error::ErrorCode;
use sekisho_user_tokens::{TokenExchange, TokenRequests};

/// One operation, which requires these schemes together, each with its scopes.
fn secured(upstream: &Upstream, schemes: &[(&str, SecurityScheme, &[&str])]) -> Api {
    let mut api = upstream.api(vec![operation("get", Method::GET, "/pets")]);
    let mut requirement = BTreeMap::new();
    for (name, scheme, scopes) in schemes {
        api.security_schemes.insert((*name).to_owned(), scheme.clone());
        requirement.insert((*name).to_owned(), scopes.iter().map(|scope| (*scope).to_owned()).collect());
    }
    api.security = vec![requirement];
    api
}

fn key(name: &str, location: Location) -> SecurityScheme {
    SecurityScheme::ApiKey { name: name.into(), location }
}

/// The tool with these settings, and its missing credentials.
fn made(api: &Api, given: Value) -> (ToolDefinition, Option<String>) {
    let (mut tools, mut report) = definitions("pets", api, &settings(given), &access()).unwrap();
    (tools.remove(0), report.needs_credentials.pop().map(|note| note.reason))
}

#[tokio::test]
async fn two_api_keys_are_two_secrets() {
    let upstream = Upstream::start().await;
    let api =
        secured(&upstream, &[("app", key("key", Location::Query), &[]), ("user", key("token", Location::Query), &[])]);
    let (tool, missing) = made(&api, json!({"credentials": {"app": {"api_key": "K1"}, "user": {"api_key": "K&2"}}}));
    call(&tool, json!({})).await.unwrap();
    assert_eq!((upstream.last().uri.query(), missing), (Some("key=K1&token=K%262"), None));

    // One of them may be the general one.
    let (tool, _) = made(&api, json!({"auth_config": {"api_key": "K1"}, "credentials": {"user": {"api_key": "K2"}}}));
    call(&tool, json!({})).await.unwrap();
    assert_eq!(upstream.last().uri.query(), Some("key=K1&token=K2"));

    for given in
        [json!({"auth_config": {"api_key": "K1"}}), json!({"auth_type": "api_key", "auth_config": {"api_key": "K1"}})]
    {
        let (tool, missing) = made(&api, given.clone());
        call(&tool, json!({})).await.unwrap();
        assert_eq!(upstream.last().uri.query(), None, "one secret is not sent under both names: {given}");
        assert!(missing.unwrap().starts_with("it requires app and user; set `credentials: {app: …}`"));
    }
}

#[tokio::test]
async fn of_keys_that_are_alternatives_those_that_are_configured_are_sent() {
    let upstream = Upstream::start().await;
    let two = [("app", key("key", Location::Query), &[][..]), ("user", key("token", Location::Query), &[][..])];
    let mut api = secured(&upstream, &two);
    let alone = |name: &str| BTreeMap::from([(name.to_owned(), Vec::new())]);
    api.security = vec![alone("app"), alone("user")];
    let (app, user) = (json!({"api_key": "K1"}), json!({"api_key": "K2"}));
    for (credentials, expected) in [
        (json!({"app": app}), "key=K1"),
        (json!({"user": user}), "token=K2"),
        (json!({"app": app, "user": user}), "key=K1&token=K2"),
    ] {
        let (tool, missing) = made(&api, json!({"credentials": credentials}));
        call(&tool, json!({})).await.unwrap();
        assert_eq!((upstream.last().uri.query(), missing), (Some(expected), None));
    }
}

#[tokio::test]
async fn a_token_has_the_scopes_of_its_operation_unless_the_settings_say_others() {
    let (upstream, server) = (Upstream::start().await, Upstream::start().await);
    let scheme = SecurityScheme::OAuth2 { token_url: Some(server.url.clone()), user_flow: None };
    let api = secured(&upstream, &[("main", scheme, &["read"])]);
    let other = server.url.join("other").unwrap();
    let client = json!({"client_id": "me", "client_secret": "s"});
    let with = |further: Value| {
        let mut credentials = client.clone();
        credentials.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        json!({"credentials": {"main": credentials}})
    };
    for (given, path, body) in [
        (json!({"auth_config": client.clone()}), "/v1/", "grant_type=client_credentials&scope=read"),
        (with(json!({})), "/v1/", "grant_type=client_credentials&scope=read"),
        (with(json!({"scopes": ["a", "b"]})), "/v1/", "grant_type=client_credentials&scope=a+b"),
        (with(json!({"scopes": [], "token_url": other})), "/v1/other", "grant_type=client_credentials"),
    ] {
        server.answers(200, "application/json", &json!({"access_token": "one"}));
        let (tool, missing) = made(&api, given.clone());
        call(&tool, json!({})).await.unwrap();
        let asked = server.last();
        assert_eq!((asked.uri.path(), asked.text(), missing), (path, body, None), "{given}");
        assert_eq!(upstream.last().header("authorization"), Some("Bearer one"));
    }
}

#[tokio::test]
async fn the_token_url_of_openid_connect_is_discovered() {
    let (upstream, server) = (Upstream::start().await, Upstream::start().await);
    let discovery_url = Some(server.url.join(".well-known/openid-configuration").unwrap());
    let api = secured(&upstream, &[("oidc", SecurityScheme::OpenIdConnect { discovery_url }, &["openid"])]);
    let (tool, _) = made(&api, json!({"credentials": {"oidc": {"client_id": "me", "client_secret": "s"}}}));
    server.answers(200, "application/json", &json!({"issuer": server.url}));
    let error = call(&tool, json!({})).await.unwrap_err();
    assert!(error.message().contains("names no token endpoint"), "{}", error.message());
    server.answers(200, "application/json", &json!({"token_endpoint": server.url.join("token").unwrap()}));
    server.answers(200, "application/json", &json!({"access_token": "one", "expires_in": 1}));
    server.answers(200, "application/json", &json!({"access_token": "two"}));
    call(&tool, json!({})).await.unwrap();
    assert_eq!(upstream.last().header("authorization"), Some("Bearer one"));
    upstream.answers(401, "application/json", "{}");
    call(&tool, json!({})).await.unwrap();
    let paths: Vec<_> = server.requests().iter().map(|request| request.uri.path().to_owned()).collect();
    let described = "/v1/.well-known/openid-configuration";
    assert_eq!(paths, [described, described, "/v1/token", "/v1/token"], "discovered once");
}

#[tokio::test]
async fn a_challenge_is_answered_once_and_serves_for_the_next_calls() {
    const CHALLENGE: &str = r#"Digest realm="pets", qop="auth", algorithm=SHA-256, nonce="n1""#;
    let upstream = Upstream::start().await;
    let api = secured(&upstream, &[("main", SecurityScheme::Digest, &[])]);
    let (tool, missing) = made(&api, json!({"credentials": {"main": {"username": "u", "password": "secret"}}}));
    assert_eq!(missing, None);
    upstream.challenges(CHALLENGE);
    call(&tool, json!({})).await.unwrap();
    call(&tool, json!({})).await.unwrap();
    let sent: Vec<_> =
        upstream.requests().iter().map(|request| request.header("authorization").map(str::to_owned)).collect();
    let [None, Some(first), Some(second)] = &sent[..] else { panic!("{sent:?}") };
    assert!(first.contains("nc=00000001") && second.contains("nc=00000002"), "{sent:?}");
    assert!(!sent.iter().flatten().any(|value| value.contains("secret")), "{sent:?}");

    // A wrong password is refused and not sent again and again.
    upstream.challenges(CHALLENGE);
    upstream.challenges(CHALLENGE);
    let error = call(&tool, json!({})).await.unwrap_err();
    assert_eq!((error.code(), upstream.requests().len()), (ErrorCode::ToolError, 5));
}

#[tokio::test]
async fn a_scheme_that_cannot_be_met_costs_its_operations_alone() {
    let upstream = Upstream::start().await;
    let hoba = SecurityScheme::Challenge("HOBA".into());
    let flow = SecurityScheme::OAuth2 { token_url: None, user_flow: None };
    let basic = json!({"auth_type": "basic", "auth_config": {"username": "u", "password": "p"}});
    let client = json!({"auth_type": "bearer", "auth_config": {"client_id": "me", "client_secret": "s"}});
    let files = json!({"certificate_file": "/nowhere/a.pem", "key_file": "/nowhere/a.key"});
    for (scheme, given, reason) in [
        (hoba, basic, "HTTP HOBA authentication is not supported"),
        (SecurityScheme::Digest, json!({"auth_config": {"token": "t"}}), "it requires main; set `credentials"),
        (flow, client, "it requires main; set `credentials"),
        (SecurityScheme::MutualTls, json!({"credentials": {"main": files}}), "/nowhere/a.pem"),
        (SecurityScheme::Other("the type \"x\"".into()), json!({"auth_config": {"token": "t"}}), "not supported"),
    ] {
        let mut api = secured(&upstream, &[("main", scheme, &[])]);
        let mut open = operation("open", Method::GET, "/open");
        open.security = Some(Vec::new());
        api.operations.push(open);
        let (tools, report) = definitions("pets", &api, &settings(given), &access()).unwrap();
        assert!(report.needs_credentials[0].reason.contains(reason), "{report:?}");
        assert_eq!((report.works.len(), report.works[0].operation.as_str()), (1, "open"));
        call(&tools[0], json!({})).await.unwrap();
        assert_eq!(upstream.last().header("authorization"), None);
    }
}

#[tokio::test]
async fn headers_of_the_settings_count_as_the_credentials_that_they_are() {
    let upstream = Upstream::start().await;
    let both = [("app", key("X-App", Location::Header), &[][..]), ("user", SecurityScheme::Bearer, &[][..])];
    let api = secured(&upstream, &both);
    let given = |extra: Value| json!({"auth_config": {"extra_headers": extra, "headers_template": {"authorization": "Bearer ${me}"}}});
    assert_eq!(made(&api, given(json!({"x-app": "k"}))).1, None);
    assert!(made(&api, given(json!({"x-other": "k"}))).1.is_some());
}

#[test]
fn credentials_of_a_scheme_that_the_document_lacks_are_reported_and_secrets_are_not_shown() {
    let api = api("https://api.example", vec![operation("get", Method::GET, "/pets")]);
    let settings = settings(json!({"credentials": {"mian": {"api_key": "hunter2"}}}));
    let (_, report) = definitions("pets", &api, &settings, &access()).unwrap();
    assert_eq!(report.approximated[0].operation, "mian");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_key_in_the_query_is_not_repeated_in_errors() {
    let upstream = Upstream::start().await;
    let api = secured(&upstream, &[("a", key("a", Location::Query), &[]), ("b", key("b", Location::Header), &[])]);
    let (tool, _) = made(&api, json!({"credentials": {"a": {"api_key": "hunter2"}, "b": {"api_key": "swordfish"}}}));
    upstream.answers(400, "application/json", &json!({"detail": [{"key": "hunter2"}, "swordfish"]}));
    let error = call(&tool, json!({})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ToolError);
    assert!(error.message().ends_with(r#"{"detail":[{"key":"[redacted]"},"[redacted]"]}"#), "{}", error.message());
}

#[tokio::test]
async fn a_key_of_the_gateway_is_not_repeated_in_answers() {
    let upstream = Upstream::start().await;
    let api = secured(&upstream, &[("a", key("a", Location::Query), &[]), ("b", key("b", Location::Header), &[])]);
    let credentials = json!({"a": {"api_key": "hunter2-and-more+"}, "b": {"api_key": "swordfish-number-2"}});
    let (tool, _) = made(&api, json!({"credentials": credentials}));
    let answer =
        json!({"next": "/pets?page=2&a=hunter2-and-more%2B", "headers": {"b": "swordfish-number-2"}, "swordfish": 1});
    upstream.answers(200, "application/json", &answer);
    let output = call(&tool, json!({})).await.unwrap();
    let expected = json!({"next": "/pets?page=2&a=[redacted]", "headers": {"b": "[redacted]"}, "swordfish": 1});
    assert_eq!(output.value, expected);
    upstream.answers(200, "text/plain", "b: swordfish-number-2");
    assert_eq!(call(&tool, json!({})).await.unwrap().value, json!("b: [redacted]"));
}

#[tokio::test]
async fn an_operation_that_is_called_as_its_caller_gets_no_credentials_of_the_gateway_alone() {
    let upstream = Upstream::start().await;
    let flow = SecurityScheme::OAuth2 { token_url: None, user_flow: None };
    let (token, api_key) = (json!({"token": "shared"}), json!({"api_key": "shared"}));
    let user = json!({"username": "shared", "password": "p"});
    for (scheme, credentials) in [
        (SecurityScheme::Bearer, &token),
        (flow.clone(), &token),
        (key("key", Location::Header), &api_key),
        (SecurityScheme::Basic, &user),
    ] {
        let api = secured(&upstream, &[("main", scheme.clone(), &[])]);
        for given in [json!({"auth_config": credentials}), json!({"credentials": {"main": credentials}})] {
            for identity in ["per_user", "exchange"] {
                let mut given = given.clone();
                given["identity"] = identity.into();
                let (tool, missing) = made(&api, given);
                assert!(missing.unwrap().contains("`identity`"), "{scheme:?}");
                call(&tool, json!({})).await.unwrap();
                let last = upstream.last();
                assert_eq!((last.header("authorization"), last.header("key")), (None, None), "{scheme:?}");
            }
        }
    }
    let silent = upstream.api(vec![operation("get", Method::GET, "/pets")]);
    let (tool, _) = made(&silent, json!({"identity": "per_user", "auth_type": "bearer", "auth_config": token}));
    call(&tool, json!({})).await.unwrap();
    assert_eq!(upstream.last().header("authorization"), None);

    // Of the alternatives, the one with the caller's token counts; credentials that it requires besides are sent too.
    let mut api = secured(&upstream, &[("app", key("key", Location::Header), &[]), ("login", flow, &[])]);
    let [both] = &api.security[..] else { panic!() };
    let only = |name: &str| BTreeMap::from([(name.to_owned(), Vec::new())]);
    for (required, sent) in [(vec![only("app"), only("login")], None), (vec![both.clone()], Some("shared"))] {
        api.security = required;
        let user = Some(UserScheme { scheme: "login".to_owned(), source: None });
        let access = Arc::new(Access { user, ..Access::clone(&access()) });
        let settings = settings(json!({"identity": "per_user", "auth_config": api_key}));
        let (tools, report) = definitions("pets", &api, &settings, &access).unwrap();
        assert_eq!(report.needs_credentials.len(), 0);
        call(&tools[0], json!({})).await.unwrap();
        assert_eq!(upstream.last().header("key"), sent);
    }
}

#[tokio::test]
async fn where_a_document_says_nothing_of_security_the_token_made_of_the_callers_is_sent() {
    let upstream = Upstream::start().await;
    let forward = ExchangeSettings { audience: Some("pets".to_owned()), ..ExchangeSettings::default() };
    let Access { outbound, allowed, .. } = Access::clone(&access());
    let requests = TokenRequests { outbound, allowed, is_secure: false };
    let exchange = TokenExchange::new("openapi:pets".to_owned(), Identity::Forward, &forward, requests);
    let access = Arc::new(Access { exchange, ..Access::clone(&access()) });
    let mut open = operation("open", Method::GET, "/open");
    open.security = Some(Vec::new());
    let api = upstream.api(vec![operation("get", Method::GET, "/pets"), open]);
    let (tools, _) = definitions("pets", &api, &settings(json!({"identity": "forward"})), &access).unwrap();
    let [silent, open] = &tools[..] else { panic!() };
    assert_eq!(call(silent, json!({})).await.unwrap_err().code(), ErrorCode::SignInRequired);
    call(open, json!({})).await.unwrap();
    assert_eq!(upstream.requests().len(), 1);
}
