//! Several issuers, each found only by its address, and the scopes of their tokens.

use std::collections::BTreeMap;

use super::*;
use sekisho_outbound::Trust;

const PARTNER: &str = "https://partner.example/realms/b";

/// Issuers as a client finds them: by address.
#[derive(Default)]
struct Web {
    pages: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<Vec<(String, Trust)>>,
    is_down: Mutex<bool>,
}

impl Web {
    fn publish(&self, url: &str, page: Value) {
        self.pages.lock().insert(url.to_owned(), page);
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(url, _)| url.clone()).collect()
    }
}

impl IssuerClient for Web {
    fn ask(&self, request: IssuerRequest) -> BoxFuture<'_, Result<Vec<u8>, IssuerError>> {
        self.asked.lock().push((request.url.to_string(), request.trust));
        let page = self.pages.lock().get(request.url.as_str()).cloned();
        let answer = match (page, *self.is_down.lock()) {
            (_, true) => Err(IssuerError { kind: IssuerFailure::NoConnection, cause: "connection refused".into() }),
            (Some(page), false) => Ok(page.to_string().into_bytes()),
            (None, false) => Err(IssuerError::wrong("404")),
        };
        Box::pin(async move { answer })
    }
}

fn found_by_address(issuer: &str) -> JwtConfig {
    JwtConfig { issuer: issuer.into(), jwks_url: None, ..jwt_config() }
}

/// Two issuers: one with OpenID Connect, whose keys are elsewhere, and one with the metadata of RFC 8414.
fn web() -> Arc<Web> {
    let web = Web::default();
    let metadata = json!({"issuer": ISSUER, "jwks_uri": "https://keys.example/set"});
    web.publish("https://issuer.example/.well-known/openid-configuration", metadata);
    web.publish("https://keys.example/set", json!({"keys": [rsa("k").public()]}));
    let metadata = json!({"issuer": PARTNER, "jwks_uri": "https://partner.example/keys"});
    web.publish("https://partner.example/.well-known/oauth-authorization-server/realms/b", metadata);
    web.publish("https://partner.example/keys", json!({"keys": [ec("k").public()]}));
    Arc::new(web)
}

async fn both(web: &Arc<Web>) -> Authenticator {
    let jwt = OneOrMany(vec![found_by_address(ISSUER), found_by_address(PARTNER)]);
    Authenticator::new(&AuthConfig { jwt, ..AuthConfig::default() }, Some(web.clone())).await.unwrap()
}

#[tokio::test]
async fn each_issuer_is_found_by_its_address_and_asked_once() {
    let web = web();
    let authenticator = both(&web).await;
    assert_eq!(web.asked(), [""; 0], "nothing is fetched before a token arrives");
    for _ in 0..2 {
        assert!(present(&authenticator, &rsa("k").sign(&claims(json!({})))).await.is_ok());
        assert!(present(&authenticator, &ec("k").sign(&claims(json!({"iss": PARTNER})))).await.is_ok());
    }
    let expected = [
        ("https://issuer.example/.well-known/openid-configuration", Trust::Operator),
        ("https://keys.example/set", Trust::Caller),
        ("https://partner.example/realms/b/.well-known/openid-configuration", Trust::Operator),
        ("https://partner.example/.well-known/oauth-authorization-server/realms/b", Trust::Operator),
        ("https://partner.example/keys", Trust::Operator),
    ];
    let asked = web.asked.lock();
    assert_eq!(asked.iter().map(|(url, trust)| (&**url, *trust)).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn one_subject_of_two_issuers_is_two_callers() {
    let web = web();
    let both = both(&web).await;
    let of_issuer = present(&both, &rsa("k").sign(&claims(json!({})))).await.unwrap();
    let of_partner = present(&both, &ec("k").sign(&claims(json!({"iss": PARTNER})))).await.unwrap();
    assert_eq!(
        (&*of_issuer.id, &*of_partner.id),
        ("https://issuer.example#carol", "https://partner.example/realms/b#carol")
    );
    assert!(of_issuer.key != of_partner.key && of_issuer.owner != of_partner.owner);
    assert_eq!((of_issuer.person(), of_partner.person()), (&*of_issuer.id, &*of_partner.id), "two approvers");
    let token = of_partner.token.get().unwrap();
    assert_eq!((&*token.issuer, &*token.subject), (PARTNER, "carol"));
    // The data of a caller stays its own when a second issuer comes: only the id has another form.
    let jwt = OneOrMany(vec![found_by_address(ISSUER)]);
    let alone = Authenticator::new(&AuthConfig { jwt, ..AuthConfig::default() }, Some(web.clone())).await.unwrap();
    let before = present(&alone, &rsa("k").sign(&claims(json!({})))).await.unwrap();
    assert_eq!((&*before.id, &before.key), ("carol", &of_issuer.key));
    assert_eq!(before.person(), of_issuer.person());
}

#[tokio::test]
async fn no_issuer_speaks_for_another() {
    let web = web();
    let authenticator = both(&web).await;
    let (issuer, partner) = (rsa("k"), ec("k"));
    for token in [
        partner.sign(&claims(json!({}))),
        issuer.sign(&claims(json!({"iss": PARTNER}))),
        issuer.sign(&claims(json!({"iss": "https://evil.example"}))),
        issuer.sign(&claims(json!({"iss": [ISSUER, PARTNER]}))),
        issuer.sign(&claims(json!({"iss": null}))),
        partner.sign(&claims(json!({"iss": format!("{PARTNER}/")}))),
    ] {
        let error = present(&authenticator, &token).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthenticated, "{token}");
    }
    // The console's sign-in is at the first.
    let of = |iss: &str| claims(json!({"iss": iss, "aud": "console", "nonce": "n"}));
    assert!(authenticator.sign_in_with_id_token(&issuer.sign(&of(ISSUER)), "console", "n").await.is_ok());
    assert!(authenticator.sign_in_with_id_token(&partner.sign(&of(PARTNER)), "console", "n").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn metadata_of_another_issuer_is_not_used_and_an_issuer_that_is_down_changes_nothing() {
    let web = web();
    let authenticator = both(&web).await;
    let metadata = json!({"issuer": "https://evil.example", "jwks_uri": "https://keys.example/set"});
    web.publish("https://issuer.example/.well-known/openid-configuration", metadata);
    let token = rsa("k").sign(&claims(json!({})));
    assert!(present(&authenticator, &token).await.is_err());
    let metadata = json!({"issuer": ISSUER, "jwks_uri": "https://keys.example/set"});
    web.publish("https://issuer.example/.well-known/openid-configuration", metadata);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(present(&authenticator, &token).await.is_ok(), "tried again after a pause");

    *web.is_down.lock() = true;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(present(&authenticator, &rsa("new").sign(&claims(json!({})))).await.is_err());
    assert!(present(&authenticator, &rsa("k").sign(&claims(json!({"sub": "dave"})))).await.is_ok());
    let mut after = both(&web).await;
    after.keep_keys_of(&authenticator);
    assert!(present(&after, &token).await.is_ok(), "a reload keeps the keys");
}

#[tokio::test]
async fn a_token_is_for_one_of_the_audiences() {
    let web = web();
    let audience = OneOrMany(vec!["https://gw.example/mcp".into(), "https://gw.example/mcp/finance".into()]);
    let jwt = OneOrMany(vec![JwtConfig { audience, ..found_by_address(ISSUER) }]);
    let config = AuthConfig { jwt, ..AuthConfig::default() };
    let authenticator = Authenticator::new(&config, Some(web.clone())).await.unwrap();
    for (audience, is_accepted) in [
        ("https://gw.example/mcp", true),
        ("https://gw.example/mcp/finance", true),
        ("https://gw.example/mcp/other", false),
        ("https://gw.example", false),
    ] {
        let token = rsa("k").sign(&claims(json!({"aud": audience})));
        assert_eq!(present(&authenticator, &token).await.is_ok(), is_accepted, "{audience}");
    }
}

#[tokio::test]
async fn a_token_lacks_the_scopes_that_it_does_not_name_and_a_key_lacks_none() {
    let web = web();
    let scopes = BTreeMap::from([("write".to_owned(), vec!["crm__update*".to_owned()])]);
    let jwt = OneOrMany(vec![found_by_address(ISSUER)]);
    let config = AuthConfig { jwt, scopes, ..with_keys(AnonymousAccess::Always) };
    let authenticator = Authenticator::new(&config, Some(web.clone())).await.unwrap();
    let lacks = |caller: &Caller| caller.scopes.missing_for("crm__update_all").next().is_some();
    for (changes, expected) in [
        (json!({}), true),
        (json!({"scope": "read"}), true),
        (json!({"scope": "read write"}), false),
        (json!({"scp": ["write"]}), false),
        (json!({"scope": "WRITE"}), true),
    ] {
        let caller = present(&authenticator, &rsa("k").sign(&claims(changes.clone()))).await.unwrap();
        assert_eq!(lacks(&caller), expected, "{changes}");
    }
    assert!(!lacks(&present(&authenticator, "first-key").await.unwrap()));
    let anonymous = authenticator.authenticate(&HeaderMap::new(), true, Owner::gateway()).await.unwrap();
    assert!(anonymous.anonymous && lacks(&anonymous), "who sends no token has no scopes");
    let token = rsa("k").sign(&claims(json!({"aud": "console", "nonce": "n"})));
    let signed_in = authenticator.sign_in_with_id_token(&token, "console", "n").await.unwrap();
    assert!(!lacks(signed_in.caller()), "the console is no client of somebody else");
}

#[test]
fn an_issuer_is_an_address_that_nobody_in_between_can_read() {
    for (issuer, expected) in [
        ("https://issuer.example", true),
        ("https://issuer.example/a/", true),
        ("http://127.0.0.1:8080", true),
        ("http://localhost", true),
        ("http://issuer.example", false),
        ("https://issuer.example?a=b", false),
        ("https://issuer.example#a", false),
        ("issuer", false),
        ("", false),
    ] {
        assert_eq!(found_by_address(issuer).is_address(), expected, "{issuer}");
    }
}
