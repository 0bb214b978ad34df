//! Identity assertions of the provider (ID-JAG): one right request, and each attack as a change of it.

use std::time::SystemTime;

use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;

use super::*;
use sekisho_config::{ExchangeGrant, ExchangeSettings, McpServerSettings};
use sekisho_core::error::ErrorCode;
use sekisho_core::identity_assertion::AssertedUpstream;

const TYPE: &str = "oauth-id-jag+jwt";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

fn now() -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    i64::try_from(now).unwrap()
}

impl Fixture {
    /// The claims of a right assertion with other ones in place of some; null leaves one out.
    fn assertion_claims(&self, changes: &Value) -> Value {
        let mut claims = json!({"iss": self.provider.issuer(), "sub": "ann", "aud": ISSUER, "client_id": APP,
            "resource": "https://gateway.example/mcp", "scope": "crm:write unknown", "jti": hex::encode(rand::random::<[u8; 8]>()),
            "iat": now(), "exp": now() + 300, "email": "ann@acme.example", "groups": ["engineers", "admin"]});
        let all = claims.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => _ = all.remove(name),
                value => _ = all.insert(name.clone(), value.clone()),
            }
        }
        claims
    }

    fn assertion(&self, changes: &Value) -> String {
        self.provider.sign(Some(TYPE), &self.assertion_claims(changes))
    }

    /// Presents an assertion by a right request, with other fields in place of some.
    async fn present(&self, assertion: &str, changes: &[(&str, &str)]) -> Result<Value, TokenRefusal> {
        let mut fields = BTreeMap::from([
            ("grant_type", JWT_BEARER),
            ("client_id", APP),
            ("client_secret", APP_SECRET),
            ("assertion", assertion),
        ]);
        fields.extend(changes.iter().copied());
        self.tokens(&fields.into_iter().collect::<Vec<_>>()).await
    }

    async fn present_by_header(
        &self,
        credentials: &str,
        assertion: &str,
        named: Option<&str>,
    ) -> Option<OAuthErrorCode> {
        let header = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(credentials))).unwrap();
        let mut fields = vec![("grant_type", JWT_BEARER), ("assertion", assertion)];
        fields.extend(named.map(|client| ("client_id", client)));
        self.server().token(pairs(&fields), Some(&header)).await.err().map(|refused| refused.error.code)
    }

    async fn code_of(&self, assertion: &str, changes: &[(&str, &str)]) -> Option<OAuthErrorCode> {
        self.present(assertion, changes).await.err().map(|refused| refused.error.code)
    }
}

#[tokio::test]
async fn an_assertion_of_the_provider_gives_an_access_token_by_the_rules_of_sign_ins() {
    let fixture = Fixture::new().await;
    let tokens = fixture.present(&fixture.assertion(&json!({})), &[]).await.unwrap();
    assert_eq!((text(&tokens, "token_type"), text(&tokens, "scope")), ("Bearer", "crm:write"));
    assert_eq!(tokens.get("refresh_token"), None, "the provider decides again");
    let caller = fixture.caller(text(&tokens, "access_token")).await.unwrap();
    assert_eq!((&*caller.id, &*caller.tenant), ("ann", "acme"));
    assert!(caller.has_role("developer") && caller.has_role("user") && !caller.has_role("admin"));
    assert_eq!(caller.person(), format!("{}#ann", fixture.provider.issuer()), "the same person as by a sign-in");
    let sessions = fixture.broker.sessions(Some("acme"), "", 10).await.unwrap();
    assert_eq!((&*sessions[0].login, &*sessions[0].client), ("ann@acme.example", APP));
    fixture.broker.end_session(&sessions[0].id, None).await.unwrap();
    assert!(fixture.caller(text(&tokens, "access_token")).await.is_err(), "an administrator ends it");
    // The client asks for less than the provider gave, and is given no more than that.
    for (asked, claim, granted) in [
        ("other", json!({}), ""),
        ("crm:write other", json!({}), "crm:write"),
        ("crm:write", json!({"scope": null}), ""),
    ] {
        let tokens = fixture.present(&fixture.assertion(&claim), &[("scope", asked)]).await.unwrap();
        assert_eq!(text(&tokens, "scope"), granted, "{asked} of {claim}");
    }
}

#[tokio::test]
async fn a_wrong_assertion_gives_nothing() {
    let fixture = Fixture::new().await;
    for (attack, changes) in [
        ("for another authorization server", json!({"aud": "https://other.example"})),
        ("for the client of the gateway at the provider", json!({"aud": "sekisho"})),
        ("for several", json!({"aud": [ISSUER, "https://other.example"]})),
        ("for nobody", json!({"aud": null})),
        ("of another client", json!({"client_id": "another-app"})),
        ("of no client", json!({"client_id": null})),
        ("of an unknown issuer", json!({"iss": "https://evil.example"})),
        ("of several issuers", json!({"iss": [fixture.provider.issuer(), "https://evil.example"]})),
        ("for another resource", json!({"resource": "https://other.example/mcp"})),
        ("for a resource whose name begins as ours", json!({"resource": "https://gateway.example.evil.example/mcp"})),
        ("for two resources", json!({"resource": ["https://gateway.example/mcp", "https://other.example/mcp"]})),
        ("for a resource that is no text", json!({"resource": {"a": 1}})),
        ("expired", json!({"iat": now() - 600, "exp": now() - 300})),
        ("without an end", json!({"exp": null})),
        ("of a long life", json!({"exp": now() + 3_600})),
        ("of the future", json!({"iat": now() + 120})),
        ("without its begin", json!({"iat": null})),
        ("not valid yet", json!({"nbf": now() + 120})),
        ("without an id", json!({"jti": null})),
        ("with an empty id", json!({"jti": ""})),
        ("of nobody", json!({"sub": null})),
        ("bound to a key", json!({"cnf": {"jkt": "k"}})),
    ] {
        let refused = fixture.code_of(&fixture.assertion(&changes), &[]).await;
        assert_eq!(refused, Some(OAuthErrorCode::InvalidGrant), "{attack}");
    }
    assert_eq!(fixture.broker.sessions(None, "", 10).await.unwrap(), []);
}

#[tokio::test]
async fn another_token_of_the_provider_is_no_assertion() {
    let fixture = Fixture::new().await;
    let claims = fixture.assertion_claims(&json!({}));
    let (signed, other) = (fixture.assertion(&json!({})), Fixture::new().await);
    let mut parts: Vec<_> = signed.split('.').map(str::to_owned).collect();
    let unsigned = BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": "none", "typ": TYPE}).to_string());
    let unsigned = format!("{unsigned}.{}.", parts[1]);
    parts[1] = BASE64_URL_SAFE_NO_PAD.encode(fixture.assertion_claims(&json!({"sub": "root"})).to_string());
    for (attack, token) in [
        ("ID token", fixture.provider.sign(Some("JWT"), &claims)),
        ("token without a type", fixture.provider.sign(None, &claims)),
        ("access token", fixture.provider.sign(Some("at+jwt"), &claims)),
        ("alg none", unsigned),
        ("changed claims", parts.join(".")),
        ("key of somebody else", other.provider.sign(Some(TYPE), &claims)),
        ("no token", "x".to_owned()),
    ] {
        assert_eq!(fixture.code_of(&token, &[]).await, Some(OAuthErrorCode::InvalidGrant), "{attack}");
    }
    assert_eq!(fixture.code_of(&signed, &[]).await, None);
}

#[tokio::test]
async fn an_assertion_counts_once_and_its_replay_ends_the_session() {
    let fixture = Fixture::new().await;
    let assertion = fixture.assertion(&json!({"jti": "first"}));
    let tokens = fixture.present(&assertion, &[]).await.unwrap();
    assert!(fixture.caller(text(&tokens, "access_token")).await.is_ok());
    // Another one with the same id is the same.
    let replayed = fixture.present(&fixture.assertion(&json!({"jti": "first", "sub": "bob"})), &[]).await.unwrap_err();
    assert_eq!(replayed.error.code, OAuthErrorCode::InvalidGrant);
    assert!(replayed.event.unwrap().detail.contains("presented twice"));
    assert!(fixture.caller(text(&tokens, "access_token")).await.is_err());
    assert!(fixture.present(&assertion, &[]).await.is_err(), "once more");
    assert!(fixture.present(&fixture.assertion(&json!({})), &[]).await.is_ok(), "another one");
}

#[tokio::test]
async fn only_a_client_with_its_secret_presents_assertions() {
    let mut fixture = Fixture::new().await;
    let (assertion, registered) = (fixture.assertion(&json!({})), fixture.client().await);
    let of_registered = fixture.assertion(&json!({"client_id": registered}));
    for (attack, assertion, changes, code) in [
        ("another secret", &assertion, &[("client_secret", "x")][..], OAuthErrorCode::InvalidClient),
        ("no secret", &assertion, &[("client_secret", "")], OAuthErrorCode::InvalidClient),
        ("no client", &assertion, &[("client_id", "")], OAuthErrorCode::InvalidClient),
        (
            "a client that registered itself",
            &of_registered,
            &[("client_id", &*registered)],
            OAuthErrorCode::InvalidClient,
        ),
        ("no assertion", &assertion, &[("assertion", "")], OAuthErrorCode::InvalidRequest),
        ("another resource", &assertion, &[("resource", "https://other.example/mcp")], OAuthErrorCode::InvalidTarget),
    ] {
        assert_eq!(fixture.code_of(assertion, changes).await, Some(code), "{attack}");
    }
    let right = format!("{APP}:{APP_SECRET}");
    for (credentials, named) in [("app-at-the-provider:x", None), (APP, None), (&*right, Some("another-app"))] {
        assert_eq!(
            fixture.present_by_header(credentials, &assertion, named).await,
            Some(OAuthErrorCode::InvalidClient),
            "{credentials}"
        );
    }
    // None of the refused requests has used the assertion up.
    let encoded = format!("app%2Dat-the-provider:{APP_SECRET}");
    assert_eq!(fixture.present_by_header(&encoded, &assertion, Some(APP)).await, None);
    // Many clients send their credentials as they are.
    let secret = format!("{APP_SECRET}+/&==");
    let clients = &mut fixture.config.auth.broker.as_mut().unwrap().assertion_clients;
    clients.insert(APP.to_owned(), Secret::new(&*secret));
    for credentials in [format!("{APP}:{secret}"), format!("{APP}:{APP_SECRET}%2B%2F%26%3D%3D")] {
        let assertion = fixture.assertion(&json!({}));
        assert_eq!(fixture.present_by_header(&credentials, &assertion, None).await, None, "{credentials}");
    }
}

#[tokio::test]
async fn a_user_to_whom_no_rule_gives_a_role_gets_no_token_and_without_clients_there_is_no_such_grant() {
    let mut fixture = Fixture::new().await;
    let metadata = fixture.server().metadata();
    assert_eq!(
        metadata["authorization_grant_profiles_supported"],
        json!(["urn:ietf:params:oauth:grant-profile:id-jag"])
    );
    assert!(metadata["grant_types_supported"].as_array().unwrap().contains(&json!(JWT_BEARER)));
    fixture.config.auth.broker.as_mut().unwrap().default_roles.clear();
    let strangers = fixture.assertion(&json!({"groups": ["admin"]}));
    assert_eq!(fixture.code_of(&strangers, &[]).await, Some(OAuthErrorCode::InvalidGrant));
    fixture.config.auth.broker.as_mut().unwrap().assertion_clients.clear();
    let right = fixture.assertion(&json!({}));
    assert_eq!(fixture.code_of(&right, &[]).await, Some(OAuthErrorCode::UnsupportedGrantType));
    let metadata = fixture.server().metadata();
    assert_eq!(metadata.get("authorization_grant_profiles_supported"), None);
    assert_eq!(metadata["grant_types_supported"], json!(["authorization_code", "refresh_token"]));
}

#[tokio::test]
async fn a_session_gets_assertions_for_an_upstream_which_is_a_gateway_itself() {
    let mut fixture = Fixture::new().await;
    let client = fixture.client().await;
    let tokens = fixture.exchange(&client, &fixture.code(&client).await, &[]).await.unwrap();
    let caller = fixture.caller(text(&tokens, "access_token")).await.unwrap();
    let session = caller.token.get().unwrap().session.clone().unwrap();
    let upstream =
        AssertedUpstream { audience: ISSUER, resource: Some("https://gateway.example/mcp"), scopes: "crm:write" };
    let refused = session.source.assertion(&session.id, upstream).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::SignInRequired, "no ID token is kept before there is such an upstream");
    let exchange = ExchangeSettings { grant: ExchangeGrant::IdJag, ..ExchangeSettings::default() };
    let far = McpServerSettings { exchange, ..McpServerSettings::default() };
    fixture.config.mcp.servers.insert("far".to_owned(), far);
    fixture.refresh(&client, text(&tokens, "refresh_token")).await.unwrap();
    let assertion = session.source.assertion(&session.id, upstream).await.unwrap();
    let sent = fixture.provider.forms().pop().unwrap();
    assert_eq!(sent["grant_type"], "urn:ietf:params:oauth:grant-type:token-exchange");
    assert_eq!(sent["subject_token_type"], "urn:ietf:params:oauth:token-type:id_token");
    assert_eq!((&*sent["audience"], &*sent["scope"]), (ISSUER, "crm:write"));
    // The other gateway is the same in this test.
    let given = fixture.present(&assertion, &[]).await.unwrap();
    let there = fixture.caller(text(&given, "access_token")).await.unwrap();
    assert_eq!((&*there.id, text(&given, "scope")), ("ann", "crm:write"));
    let of_app = there.token.get().unwrap().session.clone().unwrap();
    let refused = of_app.source.assertion(&of_app.id, upstream).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::SignInRequired, "without an ID token no chain of assertions begins");
    fixture.provider.change(|provider| provider.failure = Some((400, "access_denied")));
    let refused = session.source.assertion(&session.id, upstream).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::TokenExchangeFailed);
    let issued = "urn:ietf:params:oauth:token-type:access_token";
    fixture.provider.change(|provider| (provider.failure, provider.issued) = (None, issued));
    let refused = session.source.assertion(&session.id, upstream).await.unwrap_err();
    assert!(refused.message().contains("another type"), "{}", refused.message());
}
