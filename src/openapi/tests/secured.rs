//! Credentials: where they are sent, when they are renewed, and that an argument never replaces one.

use super::*;
use crate::CredentialError;
use crate::call::credentials;
use crate::read::operation::SecurityScheme;
use sekisho_core::error::ErrorCode;

fn secured(upstream: &Upstream, scheme: SecurityScheme, operations: Vec<Operation>) -> Api {
    let mut api = upstream.api(operations);
    api.security_schemes.insert("main".into(), scheme);
    api.security = vec![BTreeMap::from([("main".into(), Vec::new())])];
    api
}

fn only(mut tools: Vec<ToolDefinition>) -> ToolDefinition {
    assert_eq!(tools.len(), 1);
    tools.remove(0)
}

#[tokio::test]
async fn each_scheme_puts_its_credential_where_it_belongs() {
    let upstream = Upstream::start().await;
    let key = |location| SecurityScheme::ApiKey { name: "key".into(), location };
    for (scheme, auth, header, expected) in [
        (key(Location::Header), json!({"api_key": "s1"}), "key", "s1"),
        (key(Location::Cookie), json!({"api_key": "s1"}), "cookie", "key=s1"),
        (SecurityScheme::Bearer, json!({"token": "t1"}), "authorization", "Bearer t1"),
        (SecurityScheme::Basic, json!({"username": "u", "password": "p"}), "authorization", "Basic dTpw"),
        (SecurityScheme::Http("Token".into()), json!({"token": "t1"}), "authorization", "Token t1"),
        (
            SecurityScheme::OAuth2 { token_url: None, user_flow: None },
            json!({"token": "t1"}),
            "authorization",
            "Bearer t1",
        ),
    ] {
        let api = secured(&upstream, scheme.clone(), vec![operation("get", Method::GET, "/pets")]);
        let tool = only(tools(&api, &settings(json!({"auth_config": auth}))));
        call(&tool, json!({})).await.unwrap();
        assert_eq!(upstream.last().header(header), Some(expected), "{scheme:?}");
    }
    let mut get = operation("get", Method::GET, "/pets");
    get.parameters = vec![
        parameter("key", Location::Query, json!({"type": "string"})),
        parameter("q", Location::Query, json!({"type": "string"})),
    ];
    let api = secured(&upstream, key(Location::Query), vec![get]);
    let tool = only(tools(&api, &settings(json!({"auth_config": {"api_key": "s&1"}}))));
    call(&tool, json!({"key": "mine", "q": "a"})).await.unwrap();
    assert_eq!(upstream.last().uri.query(), Some("q=a&key=s%261"));
}

#[tokio::test]
async fn an_operation_without_security_gets_no_credentials() {
    let upstream = Upstream::start().await;
    let mut open = operation("open", Method::GET, "/open");
    open.security = Some(Vec::new());
    let api = secured(&upstream, SecurityScheme::Bearer, vec![open]);
    let tool = only(tools(&api, &settings(json!({"auth_type": "bearer", "auth_config": {"token": "t1"}}))));
    call(&tool, json!({})).await.unwrap();
    assert_eq!(upstream.last().header("authorization"), None);
}

/// The document's author names the servers, and not all of them are the API's own.
#[tokio::test]
async fn a_server_of_an_operations_own_gets_no_credentials_unless_it_is_named() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let mut elsewhere = operation("elsewhere", Method::GET, "/pets");
    elsewhere.servers = vec![Server { url: other.url.clone(), description: String::new() }];
    let api = secured(&upstream, SecurityScheme::Bearer, vec![elsewhere]);
    let auth = json!({"token": "t1", "extra_headers": {"X-Key": "s1"}});
    let (mut found, report) = definitions("pets", &api, &settings(json!({"auth_config": auth})), &access()).unwrap();
    call(&found.remove(0), json!({})).await.unwrap();
    assert_eq!((other.last().header("authorization"), other.last().header("x-key")), (None, None));
    assert!(report.needs_credentials[0].reason.contains("auth_config.hosts"), "{report:?}");

    let auth = json!({"token": "t1", "hosts": ["127.0.0.1"]});
    call(&only(tools(&api, &settings(json!({"auth_config": auth})))), json!({})).await.unwrap();
    assert_eq!(other.last().header("authorization"), Some("Bearer t1"));
    assert!(upstream.requests().is_empty());
}

#[test]
fn required_credentials_that_are_not_configured_are_reported() {
    let mut api = api("https://api.example", vec![operation("get", Method::GET, "/pets")]);
    api.security_schemes.insert("main".into(), SecurityScheme::Bearer);
    api.security = vec![BTreeMap::from([("main".into(), Vec::new())])];
    let (_, report) = definitions("pets", &api, &CollectionSettings::default(), &access()).unwrap();
    let expected = "it requires main; set `credentials: {main: …}` at the collection";
    assert_eq!((report.needs_credentials[0].reason.as_str(), report.approximated.as_slice()), (expected, &[][..]));
    assert_eq!(report.works, []);
    let error = definitions("pets", &api, &settings(json!({"auth_type": "basic"})), &access()).unwrap_err();
    assert_eq!(error, CredentialError::Missing("username"));
}

/// A key that is dropped silently would send the call as somebody else, or as nobody.
#[test]
fn a_cookie_that_cannot_be_sent_is_a_fault_and_not_left_out() {
    for (name, value) in [("key", "s;admin=1"), ("key", "line\nbreak"), ("k;ey", "s")] {
        let mut api = api("https://api.example", vec![operation("get", Method::GET, "/pets")]);
        let scheme = SecurityScheme::ApiKey { name: name.into(), location: Location::Cookie };
        api.security_schemes.insert("main".into(), scheme);
        api.security = vec![BTreeMap::from([("main".into(), Vec::new())])];
        let settings = settings(json!({"auth_config": {"api_key": value}}));
        let error = definitions("pets", &api, &settings, &access()).unwrap_err();
        assert_eq!(error, CredentialError::Unsendable("api_key"), "{name}={value}");
    }
}

#[tokio::test]
async fn a_cookie_of_the_arguments_stays_beside_the_credential() {
    let upstream = Upstream::start().await;
    let mut get = operation("get", Method::GET, "/pets");
    let as_written =
        ParameterEncoding::Styled { style: Style::Cookie, explode: true, allow_reserved: false, allow_empty: false };
    get.parameters = vec![parameter("who", Location::Cookie, json!({})), parameter("key", Location::Cookie, json!({}))];
    get.parameters.iter_mut().for_each(|parameter| parameter.encoding = as_written.clone());
    let api = secured(&upstream, SecurityScheme::ApiKey { name: "key".into(), location: Location::Cookie }, vec![get]);
    let tool = only(tools(&api, &settings(json!({"auth_config": {"api_key": "s1"}}))));
    call(&tool, json!({"who": "René", "key": "mine"})).await.unwrap();
    assert_eq!(upstream.last().headers["cookie"].as_bytes(), "who=René; key=s1".as_bytes());
}

/// C12.
#[tokio::test]
async fn headers_are_filled_in_from_the_callers_tokens() {
    let upstream = Upstream::start().await;
    let api = upstream.api(vec![operation("get", Method::GET, "/pets")]);
    let auth = json!({"extra_headers": {"X-Env": "prod"}, "headers_template": {"X-User": "key ${user}!"}});
    let tool = only(tools(&api, &settings(json!({"auth_config": auth}))));
    let mut context = CallContext::new("pets", Arc::new(Caller::anonymous()), Via::Rest);
    let error = call_as(&tool, &context, json!({})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRequest);
    assert!(error.message().contains("tool_parameters.tokens.user"), "{}", error.message());
    assert!(upstream.requests().is_empty());
    context.origin.tool_parameters.insert("tokens".into(), json!({"user": "abc"}));
    call_as(&tool, &context, json!({})).await.unwrap();
    assert_eq!(upstream.last().header("x-user"), Some("key abc!"));
    assert_eq!(upstream.last().header("x-env"), Some("prod"));
}

async fn with_token_server() -> (Upstream, Upstream, ToolDefinition) {
    let (upstream, server) = (Upstream::start().await, Upstream::start().await);
    let scheme = SecurityScheme::OAuth2 { token_url: Some(server.url.clone()), user_flow: None };
    let mut api = secured(&upstream, scheme, vec![operation("get", Method::GET, "/pets")]);
    api.security[0].insert("main".into(), vec!["write".into(), "read".into()]);
    let auth = json!({"auth_config": {"client_id": "me:1", "client_secret": "s"}});
    let tool = only(tools(&api, &settings(auth)));
    (upstream, server, tool)
}

/// A54–A56.
#[tokio::test]
async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let (upstream, server, tool) = with_token_server().await;
    server.answers(200, "application/json", &json!({"access_token": "one", "expires_in": 3600}));
    server.answers(200, "application/json", &json!({"access_token": "two", "expires_in": 3600}));
    let calls = (0..5).map(|_| call(&tool, json!({})));
    for outcome in futures_util::future::join_all(calls).await {
        outcome.unwrap();
    }
    assert_eq!(server.requests().len(), 1, "one fetch for all that wait");
    let request = server.last();
    assert_eq!(request.text(), "grant_type=client_credentials&scope=read+write");
    assert_eq!(request.header("authorization"), Some("Basic bWUlM0ExOnM="), "me%3A1:s");
    assert_eq!(upstream.last().header("authorization"), Some("Bearer one"));
    upstream.answers(401, "application/json", "{}");
    call(&tool, json!({})).await.unwrap();
    assert_eq!(upstream.last().header("authorization"), Some("Bearer two"));
    assert_eq!(server.requests().len(), 2);
    // Refused twice: the second refusal is the answer.
    upstream.answers(401, "application/json", "{}");
    upstream.answers(401, "application/json", "{}");
    server.answers(200, "application/json", &json!({"access_token": "three"}));
    assert_eq!(call(&tool, json!({})).await.unwrap_err().code(), ErrorCode::ToolError);
}

#[tokio::test]
async fn a_token_is_replaced_five_minutes_before_it_ends() {
    let server = Upstream::start().await;
    let secret = sekisho_config::Secret::new("s");
    let source = credentials::TokenSource::new(server.url.clone(), "me", &secret, &[]);
    let access = access();
    let fetch = || source.token(&access.outbound, &access.allowed, Deadline::after(Duration::from_secs(20)));
    for name in ["one", "two"] {
        server.answers(200, "application/json", &json!({"access_token": name, "expires_in": 3600}));
    }
    let first = fetch().await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3_299)).await;
    tokio::time::resume();
    assert!(fetch().await.unwrap() == first);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    assert!(fetch().await.unwrap() != first);
}

#[tokio::test]
async fn a_failing_token_server_is_named_and_blamed_on_no_upstream() {
    let (upstream, server, tool) = with_token_server().await;
    server.answers(500, "application/json", &json!({"error_description": "down"}));
    let error = call(&tool, json!({})).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, sekisho_core::error::Blame::Call));
    assert!(error.message().starts_with("no access token from 127.0.0.1: "), "{}", error.message());
    server.answers(200, "application/json", &json!({"token": "misspelt"}));
    assert!(call(&tool, json!({})).await.is_err());
    assert!(upstream.requests().is_empty());
}
