//! The whole way with an identity provider on loopback, and the attacks on it.

mod assertions;
mod attacks;
mod provider;
mod sessions;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use url::Url;

use self::provider::FakeProvider;
use super::*;
use sekisho_auth::Authenticator;
use sekisho_config::{AnonymousAccess, BrokerConfig, BrokerProvider, BrokerTokens, Config, OutboundConfig, Secret};
use sekisho_core::call::Caller;
use sekisho_core::caller::Owner;
use sekisho_core::error::CallError;
use sekisho_outbound::Outbound;
use sekisho_store::test_support::test_store;

const ISSUER: &str = "https://gateway.example";
const REDIRECT: &str = "http://127.0.0.1:33418/cb";
/// A client with a secret, which presents assertions of the provider.
const APP: &str = "app-at-the-provider";
const APP_SECRET: &str = "0123456789abcdef0123456789abcdef";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

/// A gateway with a provider behind it.
struct Fixture {
    provider: FakeProvider,
    config: Config,
    broker: Broker,
    outbound: Outbound,
    _folder: TempDir,
}

/// The cookies of a browser, by the id in their names.
#[derive(Default)]
struct Browser(BTreeMap<String, String>);

impl Browser {
    fn keep(&mut self, cookie: &BrowserCookie) {
        self.0.insert(cookie.id.clone(), cookie.text.clone());
    }

    fn cookie(&self, id: &str) -> Option<String> {
        self.0.get(id).cloned()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn challenge() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

/// The query of an address.
fn query(url: &Url) -> BTreeMap<String, String> {
    url.query_pairs().into_owned().collect()
}

impl Fixture {
    async fn new() -> Self {
        let (folder, provider) = (tempfile::tempdir().unwrap(), FakeProvider::start().await);
        let mut config = Config { state_directory: Some(folder.path().to_owned()), ..Config::default() };
        config.server.mcp.public_url = Some(ISSUER.parse().unwrap());
        config.auth.anonymous = AnonymousAccess::Never;
        config.auth.scopes.insert("crm:write".to_owned(), vec!["crm__*".to_owned()]);
        config.auth.broker = Some(BrokerConfig {
            provider: BrokerProvider::Oidc,
            issuer: provider.issuer(),
            client_id: "sekisho".to_owned(),
            client_secret: Secret::new("s3cret"),
            scopes: None,
            tenant: "acme".to_owned(),
            roles_claim: None,
            roles: [("engineers".to_owned(), vec!["developer".to_owned()])].into(),
            default_roles: vec!["user".to_owned()],
            tokens: BrokerTokens::default(),
            redirects: Vec::new(),
            assertion_clients: [(APP.to_owned(), Secret::new(APP_SECRET))].into(),
        });
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let keys = BrokerKeys::new(&config, test_store().await.broker());
        let broker = Broker::new(keys, outbound.clone());
        Self { provider, config, broker, outbound, _folder: folder }
    }

    fn server(&self) -> AuthorizationServer<'_> {
        self.broker.server(&self.config).unwrap()
    }

    async fn client(&self) -> String {
        let metadata = json!({"redirect_uris": [REDIRECT], "client_name": "an editor"});
        let client = self.server().register(metadata, "a network").await.unwrap();
        client["client_id"].as_str().unwrap().to_owned()
    }

    /// The page of consent for a right request, with other fields in place of some.
    async fn asked(&self, client: &str, changes: &[(&str, &str)]) -> Result<AskedConsentPage, AuthorizeRefusal> {
        let challenge = challenge();
        let mut fields = BTreeMap::from([
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", REDIRECT),
            ("code_challenge", &*challenge),
            ("code_challenge_method", "S256"),
            ("state", "of the client"),
            ("scope", "crm:write unknown"),
            ("resource", "https://gateway.example/mcp"),
        ]);
        fields.extend(changes.iter().copied());
        let fields: Vec<_> = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        self.server().authorize(pairs(&fields), "a network").await
    }

    /// A browser that has given its consent and is at the provider, at this address.
    async fn at_provider(&self, client: &str) -> (Browser, Url) {
        let (mut browser, asked) = (Browser::default(), self.asked(client, &[]).await.unwrap());
        browser.keep(&asked.cookie);
        let sent = self.server().consent(&asked.form, true, |id| browser.cookie(id)).await.unwrap();
        browser.keep(&sent.cookie);
        (browser, sent.url)
    }

    /// The address of the client with which a sign-in ends. The provider's code is the nonce, which is in its ID token.
    async fn returned(&self, client: &str) -> Url {
        let (browser, url) = self.at_provider(client).await;
        let sent = self.server().finish(self.reply(&url), |id| browser.cookie(id)).await.unwrap();
        assert_eq!(sent.cookie.text, "", "the cookie ends with the sign-in");
        sent.url
    }

    fn reply(&self, url: &Url) -> ProviderReply {
        let query = query(url);
        ProviderReply {
            state: query["state"].clone(),
            code: Some(Secret::new(query["nonce"].clone())),
            iss: Some(self.provider.issuer()),
            error: None,
        }
    }

    async fn code(&self, client: &str) -> String {
        query(&self.returned(client).await)["code"].clone()
    }

    /// Exchanges a code by a right request, with other fields in place of some.
    async fn exchange(&self, client: &str, code: &str, changes: &[(&str, &str)]) -> Result<Value, TokenRefusal> {
        let mut fields = BTreeMap::from([
            ("grant_type", "authorization_code"),
            ("client_id", client),
            ("code", code),
            ("redirect_uri", REDIRECT),
            ("code_verifier", VERIFIER),
        ]);
        fields.extend(changes.iter().copied());
        self.tokens(&fields.into_iter().collect::<Vec<_>>()).await
    }

    async fn refresh(&self, client: &str, token: &str) -> Result<Value, TokenRefusal> {
        self.tokens(&[("grant_type", "refresh_token"), ("client_id", client), ("refresh_token", token)]).await
    }

    async fn tokens(&self, fields: &[(&str, &str)]) -> Result<Value, TokenRefusal> {
        let answer = self.server().token(pairs(fields), None).await?;
        Ok(serde_json::to_value(&answer).unwrap())
    }

    /// The caller of an access token, by the code that accepts the tokens of all issuers.
    async fn caller(&self, token: &str) -> Result<Arc<Caller>, CallError> {
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        let peer = Owner::of_address([192, 0, 2, 1].into());
        self.authenticator().await.authenticate(&headers, false, &peer).await
    }

    async fn authenticator(&self) -> Authenticator {
        let (auth, client) = accepted_issuers(&self.config, &self.broker.keys, &self.outbound);
        Authenticator::new(&auth, Some(client)).await.unwrap()
    }
}

fn text<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer[name].as_str().unwrap_or_else(|| panic!("{name}: {answer}"))
}

#[tokio::test]
async fn a_client_registers_and_its_user_signs_in_and_the_gateway_accepts_the_token() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    let asked = fixture.asked(&client, &[]).await.unwrap();
    assert_eq!(
        (&*asked.client_name, &*asked.redirect, &asked.scopes[..]),
        ("an editor", REDIRECT, &["crm:write".to_owned()][..])
    );
    let (_, url) = fixture.at_provider(&client).await;
    let sent = query(&url);
    assert_eq!((&*sent["client_id"], &*sent["redirect_uri"]), ("sekisho", "https://gateway.example/oauth/callback"));
    assert_eq!((&*sent["scope"], &*sent["prompt"]), ("openid profile email offline_access", "consent"));
    assert_eq!(sent.get("resource"), None, "the provider is not asked for a token for the gateway");
    let returned = fixture.returned(&client).await;
    let answer = query(&returned);
    assert!(returned.as_str().starts_with(REDIRECT), "{returned}");
    assert_eq!((&*answer["state"], &*answer["iss"]), ("of the client", ISSUER));
    let tokens = fixture.exchange(&client, &answer["code"], &[]).await.unwrap();
    assert_eq!((text(&tokens, "token_type"), text(&tokens, "scope")), ("Bearer", "crm:write"));
    assert_eq!(tokens["expires_in"], 600);
    let caller = fixture.caller(text(&tokens, "access_token")).await.unwrap();
    assert_eq!((&*caller.id, &*caller.tenant), ("ann", "acme"));
    assert!(caller.has_role("developer") && caller.has_role("user") && !caller.has_role("engineers"));
    let person = format!("{}#ann", fixture.provider.issuer());
    assert_eq!(caller.person(), person, "the same person as by a token of the provider");
    let peer = Owner::of_address([192, 0, 2, 1].into());
    let begun = fixture.authenticator().await.sign_in(text(&tokens, "access_token"), &peer).await;
    assert!(begun.is_err(), "a session of the console would outlive that of the token");
    let sessions = fixture.broker.sessions(Some("acme"), "", 10).await.unwrap();
    assert_eq!((&*sessions[0].login, &*sessions[0].client_name), ("ann@acme.example", "an editor"));
    assert_eq!(fixture.broker.sessions(Some("other"), "", 10).await.unwrap(), []);
    let stored = format!("{sessions:?}");
    for secret in [text(&tokens, "access_token"), text(&tokens, "refresh_token"), "provider-refresh"] {
        assert!(!stored.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn without_a_refresh_token_of_the_provider_the_user_signs_in_again() {
    let fixture = Fixture::new().await;
    fixture.provider.change(|provider| provider.has_refresh = false);
    let client = fixture.client().await;
    let tokens = fixture.exchange(&client, &fixture.code(&client).await, &[]).await.unwrap();
    assert_eq!(tokens.get("refresh_token"), None, "nobody would say that the user still may");
    assert!(fixture.caller(text(&tokens, "access_token")).await.is_ok());
}

#[tokio::test]
async fn the_metadata_names_the_gateway_and_its_addresses() {
    let fixture = Fixture::new().await;
    let metadata = fixture.server().metadata();
    assert_eq!(
        (text(&metadata, "issuer"), text(&metadata, "token_endpoint")),
        (ISSUER, "https://gateway.example/oauth/token")
    );
    assert_eq!(metadata["code_challenge_methods_supported"], json!(["S256"]));
    assert_eq!(metadata["scopes_supported"], json!(["crm:write"]));
    let keys = fixture.broker.published_keys().await.unwrap();
    let key = &keys["keys"][0];
    assert_eq!(
        (text(key, "kty"), text(key, "alg"), key.get("d")),
        ("OKP", "EdDSA", None),
        "the private part stays here"
    );
}
