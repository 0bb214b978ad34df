//! Signing in, from the headers to the caller.

mod tokens;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use sekisho_config::{ApiKeyConfig, Secret};
use sekisho_core::spiffe_id::SpiffeId;
use sekisho_store::StoredKey;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        })
        .collect()
}

fn api_key(id: &str, key: &str) -> ApiKeyConfig {
    ApiKeyConfig {
        id: id.into(),
        key: Some(Secret::new(key)),
        key_sha256: None,
        tenant: "acme".into(),
        person: None,
        roles: vec!["operator".into()],
    }
}

fn with_keys(anonymous: AnonymousAccess) -> AuthConfig {
    let hashed = ApiKeyConfig {
        key: None,
        // printf %s second-key | sha256sum
        key_sha256: Some("f397f260a275cc4d42e7965c556167bf3f068aed491d35a8f5b38c8c2db96bb0".into()),
        ..api_key("bob", "")
    };
    AuthConfig { anonymous, api_keys: vec![api_key("alice", "first-key"), hashed], ..AuthConfig::default() }
}

async fn sign_in(config: &AuthConfig, is_local: bool, pairs: &[(&str, &str)]) -> Result<Arc<Caller>, CallError> {
    Authenticator::new(config, None).await.unwrap().authenticate(&headers(pairs), is_local, Owner::gateway()).await
}

#[tokio::test]
async fn a_workload_is_the_caller_of_the_first_entry_that_fits() {
    let entry = |id: &str, tenant: &str, role: &str| WorkloadConfig {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        roles: vec![role.to_owned()],
    };
    let workloads =
        vec![entry("spiffe://a.example/agents/one", "acme", "admin"), entry("spiffe://a.example/*", "globex", "user")];
    let config = AuthConfig { workloads, ..with_keys(AnonymousAccess::Never) };
    let authenticator = Authenticator::new(&config, None).await.unwrap();
    let caller = |text: &str| authenticator.workload(&SpiffeId::parse(text).unwrap());
    let one = caller("spiffe://a.example/agents/one").unwrap();
    assert_eq!((&*one.id, &*one.tenant), ("spiffe://a.example/agents/one", "acme"));
    assert!(one.has_role("admin") && !one.has_role("user") && !one.anonymous);
    assert_eq!(one.person(), "spiffe://a.example#spiffe://a.example/agents/one");
    let other = caller("spiffe://a.example/agents/two").unwrap();
    assert_eq!((&*other.tenant, other.has_role("admin")), ("globex", false));
    assert_eq!(caller("spiffe://b.example/agents/one"), None);
    assert_eq!(caller(&format!("spiffe://a.example/{}", "a".repeat(300))), None, "too long for a caller");
}

#[tokio::test]
async fn a_key_identifies_its_caller() {
    let config = with_keys(AnonymousAccess::Never);
    for (pair, id) in [
        (("authorization", "Bearer first-key"), "alice"),
        (("Authorization", "bearer first-key"), "alice"),
        (("authorization", "BEARER  first-key "), "alice"),
        (("x-api-key", "first-key"), "alice"),
        (("X-API-Key", " second-key"), "bob"),
        (("authorization", "Bearer second-key"), "bob"),
    ] {
        let caller = sign_in(&config, false, &[pair]).await.unwrap();
        assert_eq!((&*caller.id, &*caller.tenant, caller.anonymous), (id, "acme", false), "{pair:?}");
        assert!(caller.has_role("operator"));
    }
}

#[tokio::test]
async fn wrong_credentials_are_refused_even_where_none_are_required() {
    let config = with_keys(AnonymousAccess::Always);
    let cases: &[&[(&str, &str)]] = &[
        &[("authorization", "Bearer first-ke")],
        &[("authorization", "Bearer first-key2")],
        &[("authorization", "Bearer First-key")],
        &[("authorization", "Bearer a.b.c")],
        &[("authorization", "Bearer")],
        &[("authorization", "Bearer ")],
        &[("authorization", "")],
        &[("authorization", "first-key")],
        &[("authorization", "Basic Zmlyc3Qta2V5")],
        &[("x-api-key", "")],
        &[("x-api-key", "Bearer first-key")],
        &[("x-api-key", "f397f260a275cc4d42e7965c556167bf3f068aed491d35a8f5b38c8c2db96bb0")],
        &[("authorization", "Bearer first\u{e9}-key")],
        &[("authorization", "Bearer first-key"), ("x-api-key", "first-key")],
        &[("authorization", "Bearer first-key"), ("authorization", "Bearer first-key")],
        &[("x-api-key", "first-key"), ("x-api-key", "second-key")],
        &[("x-api-key", "first-key"), ("authorization", "Basic eDp5")],
    ];
    for pairs in cases {
        let error = sign_in(&config, true, pairs).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthenticated, "{pairs:?}");
        assert!(!format!("{error:?}").contains("first-ke"), "{error:?}");
    }
}

#[tokio::test]
async fn callers_without_credentials_are_accepted_as_configured() {
    for (access, on_loopback, allowed) in [
        (AnonymousAccess::Loopback, true, true),
        (AnonymousAccess::Loopback, false, false),
        (AnonymousAccess::Always, false, true),
        (AnonymousAccess::Always, true, true),
        (AnonymousAccess::Never, true, false),
        (AnonymousAccess::Never, false, false),
    ] {
        match sign_in(&with_keys(access), on_loopback, &[("accept", "*/*")]).await {
            Ok(caller) => assert!(allowed && caller.anonymous && caller.roles.is_empty(), "{access:?}"),
            Err(error) => assert!(!allowed && error.message().contains("X-API-Key: KEY"), "{access:?}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_key_is_ignored_where_none_is_configured_and_none_is_required() {
    let any_key = [("authorization", "Bearer none")];
    let caller = sign_in(&AuthConfig::default(), true, &any_key).await.unwrap();
    assert!(caller.anonymous && caller.roles.is_empty(), "{caller:?}");
    let error = sign_in(&AuthConfig::default(), false, &any_key).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn the_error_for_missing_credentials_explains_how_to_sign_in() {
    let error = sign_in(&AuthConfig::default(), false, &[]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unauthenticated);
    assert!(error.message().contains("auth.api_keys"), "{error}");
}

#[tokio::test]
async fn a_key_always_gives_the_same_caller_without_making_one_anew() {
    let authenticator = Authenticator::new(&with_keys(AnonymousAccess::Never), None).await.unwrap();
    let headers = headers(&[("x-api-key", "first-key")]);
    let (first, second) = (
        authenticator.authenticate(&headers, true, Owner::gateway()).await,
        authenticator.authenticate(&headers, true, Owner::gateway()).await,
    );
    assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
}

#[tokio::test]
async fn invalid_keys_are_named() {
    let hash = |text: &str| ApiKeyConfig { key: None, key_sha256: Some(text.into()), ..api_key("x", "") };
    let named = |id: &str| api_key(id, "other");
    for (key, problem) in [
        (api_key("x", ""), "is its variable set?"),
        (api_key("x", "with space"), "a header cannot carry"),
        (api_key("x", "schlüssel"), "a header cannot carry"),
        (ApiKeyConfig { key: None, ..api_key("x", "") }, "set `key` or `key_sha256`"),
        (ApiKeyConfig { key_sha256: Some("00".repeat(32)), ..api_key("x", "y") }, "not both"),
        (hash("abc"), "64 hex digits"),
        (hash(&"0".repeat(63)), "64 hex digits"),
        (hash(&"0".repeat(66)), "64 hex digits"),
        (hash(&"g".repeat(64)), "64 hex digits"),
        (hash(&"é".repeat(32)), "64 hex digits"),
        (api_key("x", "first-key"), "same key"),
        (named(""), "id is empty"),
        (named("a\u{1f}b"), "control characters"),
        (named(&"a".repeat(257)), "longer than 256"),
        (ApiKeyConfig { tenant: "a\nb".into(), ..named("x") }, "tenant"),
        (ApiKeyConfig { roles: vec![String::new()], ..named("x") }, "roles"),
        (ApiKeyConfig { tenant: "public".into(), ..named("anonymous") }, "without credentials"),
    ] {
        let mut config = with_keys(AnonymousAccess::Never);
        config.api_keys.push(key);
        let errors = Authenticator::new(&config, None).await.unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].place, "auth.api_keys[2]");
        assert!(errors[0].problem.contains(problem), "{:?} ≠ {problem}", errors[0]);
    }
}

#[tokio::test]
async fn no_secret_shows_in_debug() {
    let authenticator = Authenticator::new(&with_keys(AnonymousAccess::Never), None).await.unwrap();
    let shown = format!("{authenticator:?}");
    assert!(!shown.contains("first-key") && !shown.contains("f397f260"), "{shown}");
}

#[tokio::test]
async fn managed_keys_are_accepted_beside_those_of_the_configuration() {
    let (token, sha256) = new_token("0123456789abcdef");
    let key = StoredKey {
        id: "0123456789abcdef".into(),
        tenant: "acme".into(),
        person: "carol".into(),
        description: String::new(),
        roles: Vec::new(),
        tools: None,
        sha256,
        previous: None,
        created: jiff::Timestamp::now(),
        created_by: "default/admin".into(),
        creators: vec!["admin".into()],
        expires: None,
        revoked: None,
        last_used: None,
    };
    let managed =
        Arc::new(ManagedKeys::new(std::slice::from_ref(&key), false, &Arc::new(DatabaseClock::of_this_machine())));
    let mut authenticator = Authenticator::new(&with_keys(AnonymousAccess::Never), None).await.unwrap();
    authenticator.use_managed_keys(&managed);
    for (secret, id) in [("first-key", "alice"), (token.expose(), "carol")] {
        let headers = headers(&[("x-api-key", secret)]);
        let caller = authenticator.authenticate(&headers, false, Owner::gateway()).await.unwrap();
        assert_eq!(&*caller.id, id);
    }
    let signed_in = authenticator.sign_in(token.expose(), Owner::gateway()).await.unwrap();
    assert!(authenticator.still_signed_in(&signed_in).is_some());
    managed.put(&StoredKey { revoked: Some(key.created), ..key });
    assert!(authenticator.still_signed_in(&signed_in).is_none());
    let headers = headers(&[("x-api-key", token.expose())]);
    let error = authenticator.authenticate(&headers, false, Owner::gateway()).await.unwrap_err();
    assert!(error.message().contains("was revoked"), "{error}");
}

/// Callers without credentials may send any key as long as there is none, but not one that could have been revoked.
#[tokio::test]
async fn a_managed_key_is_checked_also_where_none_is_required() {
    let (token, _) = new_token("0123456789abcdef");
    let error = sign_in(&AuthConfig::default(), true, &[("x-api-key", token.expose())]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unauthenticated);
}
