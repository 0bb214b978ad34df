use axum::Router;
use axum::extract::State;
use axum::routing::post;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use serde_json::json;
use url::Url;

use super::*;
use sekisho_config::{OutboundConfig, Secret};
use sekisho_outbound::{DomainList, Outbound, test_server};
use sekisho_store::test_support::{age_user_tokens, test_store};
use sekisho_store::{NewUserToken, StoredSignIn};

/// The requests to the token endpoint, and whether it takes refresh tokens.
#[derive(Clone, Default)]
struct TokenServer {
    forms: Arc<Mutex<Vec<String>>>,
    refuses: Arc<Mutex<bool>>,
    /// The lifetime of tokens in seconds; by default an hour.
    lifetime: Arc<Mutex<Option<f64>>>,
    /// The token that somebody revokes during the next request.
    revoking: Arc<Mutex<Option<(UserTokenStore, StoredUserToken)>>>,
    /// The requests to the revocation endpoint, with the authorization of the client.
    revoked: Arc<Mutex<Vec<Revocation>>>,
}

#[derive(Debug, Clone)]
struct Revocation {
    form: String,
    authorization: Option<HeaderValue>,
}

impl TokenServer {
    /// The token of the n-th answer is `token-n`.
    async fn start(&self) -> Url {
        let answer = async |State(server): State<Self>, form: String| {
            let revoking = server.revoking.lock().take();
            if let Some((store, token)) = revoking {
                assert!(store.forget(&token).await.unwrap());
            }
            let mut forms = server.forms.lock();
            forms.push(form);
            let given = forms.len();
            if *server.refuses.lock() {
                return (axum::http::StatusCode::BAD_REQUEST, axum::Json(json!({"error": "invalid_grant"})));
            }
            let lifetime = server.lifetime.lock().unwrap_or(3_600.0);
            let token = json!({"access_token": format!("token-{given}"), "refresh_token": format!("refresh-{given}"),
                "token_type": "Bearer", "expires_in": lifetime});
            (axum::http::StatusCode::OK, axum::Json(token))
        };
        let revoke = async |State(server): State<Self>, mut headers: HeaderMap, form: String| {
            server.revoked.lock().push(Revocation { form, authorization: headers.remove(AUTHORIZATION) });
        };
        let routes = Router::new().route("/token", post(answer)).route("/revoke", post(revoke));
        let address = test_server::serve(routes.with_state(self.clone())).await;
        Url::parse(&format!("http://{address}/token")).unwrap()
    }
}

/// The token endpoint, and the secret of the client.
#[derive(Debug)]
struct FakeProvider(Url, Secret);

impl Provider for FakeProvider {
    fn begin<'a>(
        &'a self,
        own: &'a OwnAddresses,
        scopes: &'a [String],
    ) -> BoxFuture<'a, Result<Authorization, String>> {
        async {
            let client = TokenClient {
                token_endpoint: self.0.clone(),
                revocation_endpoint: self.0.join("revoke").ok(),
                client_id: "sekisho".to_owned(),
                client_secret: None,
                secret_in_body: false,
                resource: None,
            };
            let begun = Begun {
                client,
                issuer: Some("https://login.example".to_owned()),
                names_issuer: true,
                verifier: "v".to_owned(),
                redirect: own.callback.clone(),
                scopes: scopes.to_vec(),
                origin: "https://login.example".to_owned(),
            };
            let url = Url::parse("https://login.example/authorize").unwrap();
            Ok(Authorization { url, state: "the state".to_owned(), begun })
        }
        .boxed()
    }

    fn secret_of(&self, _client_id: &str) -> Option<&Secret> {
        Some(&self.1)
    }
}

/// A provider whose authorization server is at another address.
#[derive(Debug)]
struct Elsewhere(FakeProvider, Url);

impl Provider for Elsewhere {
    fn begin<'a>(
        &'a self,
        own: &'a OwnAddresses,
        scopes: &'a [String],
    ) -> BoxFuture<'a, Result<Authorization, String>> {
        async move { Ok(Authorization { url: self.1.clone(), ..self.0.begin(own, scopes).await? }) }.boxed()
    }

    fn secret_of(&self, client_id: &str) -> Option<&Secret> {
        self.0.secret_of(client_id)
    }
}

async fn source(server: &TokenServer, upstream: &str, tokens: &Arc<UserTokens>) -> Arc<UserSource> {
    let provider = Box::new(FakeProvider(server.start().await, Secret::new("s3cret")));
    source_of(provider, upstream, tokens)
}

pub(super) fn source_of(provider: Box<dyn Provider>, upstream: &str, tokens: &Arc<UserTokens>) -> Arc<UserSource> {
    let config = OutboundConfig { allow_networks: vec!["127.0.0.0/8".into()], ..OutboundConfig::default() };
    let requests = TokenRequests {
        outbound: Outbound::new(&config).unwrap(),
        allowed: Arc::new(DomainList::any().clone()),
        is_secure: false,
    };
    UserSource::new("mcp:crm".to_owned(), upstream.to_owned(), tokens, requests, provider)
}

pub(super) async fn tokens() -> (tempfile::TempDir, Arc<UserTokens>) {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { state_directory: Some(folder.path().to_owned()), ..Config::default() };
    (folder, UserTokens::new(&config, test_store().await.user_tokens()))
}

pub(super) fn user(id: &str) -> User {
    User::of(&Caller::new(id, "acme", Vec::new())).unwrap()
}

fn own() -> OwnAddresses {
    OwnAddresses { callback: Url::parse("https://here.example/back").unwrap(), client_metadata: None }
}

/// The caller's sign-in, as its page sees it.
pub(super) async fn offered(source: &UserSource, user: &User) -> StoredSignIn {
    let needed = source.offer(user, &[]).await.unwrap();
    source.tokens.sign_in(needed.url.rsplit('/').next().unwrap()).await.unwrap()
}

fn returned(issuer: &str) -> ReturnedBrowser {
    ReturnedBrowser { state: "the state".to_owned(), issuer: Some(issuer.to_owned()), outcome: Ok("code".to_owned()) }
}

async fn sign_in(source: &UserSource, user: &User) {
    let sign_in = offered(source, user).await;
    source.begin(&sign_in, "browser", &own()).await.unwrap();
    let taken = source.tokens.take("browser", "the state").await.unwrap();
    source.finish(taken, returned("https://login.example")).await.unwrap();
}

pub(super) fn sent(token: &Token) -> String {
    token.header.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_caller_has_a_token_of_its_own_and_nobody_else_gets_it() {
    let (_folder, tokens) = tokens().await;
    let source = source(&TokenServer::default(), "https://crm.example/mcp", &tokens).await;
    let (ann, bob) = (user("ann"), user("bob"));
    let refused = source.token(&ann).await.err().unwrap();
    let needed = refused.sign_in().unwrap();
    assert_eq!((refused.code(), &*needed.source), (ErrorCode::SignInRequired, "mcp:crm"));
    assert!(needed.url.contains("/console/upstream-sign-in/") && !refused.message().contains(&needed.code));
    assert!(!format!("{refused:?}").contains(&needed.code), "it is in no log");
    sign_in(&source, &ann).await;
    assert_eq!(sent(&source.token(&ann).await.unwrap()), "Bearer token-1");
    assert_eq!(source.token(&bob).await.err().unwrap().code(), ErrorCode::SignInRequired);
    sign_in(&source, &bob).await;
    assert_eq!(sent(&source.token(&bob).await.unwrap()), "Bearer token-2");
    assert_eq!(sent(&source.token(&ann).await.unwrap()), "Bearer token-1");
    // One row is no use for another owner.
    let of_ann = tokens.store.get(&ann.key, "mcp:crm").await.unwrap().unwrap();
    assert!(!of_ann.sealed.contains("token-1"));
    assert!(tokens.open::<Grant>(TOKEN_KIND, source.owner(&bob), &of_ann.sealed).is_err());
    let elsewhere = self::source(&TokenServer::default(), "https://evil.example/mcp", &tokens).await;
    assert_eq!(elsewhere.token(&ann).await.err().unwrap().code(), ErrorCode::SignInRequired, "another upstream");
    let anonymous = User::of(&Caller::anonymous()).unwrap_err();
    assert_eq!(anonymous.code(), ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn that_a_token_is_sent_is_written_once_a_day() {
    let (_folder, tokens) = tokens().await;
    let source = source(&TokenServer::default(), "https://crm.example/mcp", &tokens).await;
    let ann = user("ann");
    sign_in(&source, &ann).await;
    let used_at = async || {
        source.token(&ann).await.unwrap();
        tokens.store.get(&ann.key, "mcp:crm").await.unwrap().unwrap().used
    };
    assert_eq!(used_at().await, None, "the sign-in says it");
    age_user_tokens(&tokens.store, Duration::from_secs(25 * 3_600)).await;
    let used = used_at().await;
    assert!(used.is_some());
    assert_eq!(used_at().await, used);
}

#[tokio::test]
async fn a_sign_in_ends_once_in_its_own_browser_and_from_its_own_issuer() {
    let (_folder, tokens) = tokens().await;
    let server = TokenServer::default();
    let source = source(&server, "https://crm.example/mcp", &tokens).await;
    let ann = user("ann");
    let begun = offered(&source, &ann).await;
    source.begin(&begun, "browser", &own()).await.unwrap();
    assert_eq!(tokens.take("another", "the state").await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(tokens.take("browser", "guessed").await.unwrap_err().code(), ErrorCode::NotFound);
    let taken = tokens.take("browser", "the state").await.unwrap();
    let error = source.finish(taken, returned("https://evil.example")).await.unwrap_err();
    assert!(error.message().contains("another issuer"), "{}", error.message());
    assert_eq!(tokens.take("browser", "the state").await.unwrap_err().code(), ErrorCode::NotFound, "it was used");
    assert_eq!(server.forms.lock().len(), 0, "no code was exchanged");

    let again = offered(&source, &ann).await;
    source.begin(&again, "browser", &own()).await.unwrap();
    let taken = tokens.take("browser", "the state").await.unwrap();
    let silent = ReturnedBrowser { issuer: None, ..returned("") };
    assert!(source.finish(taken, silent).await.is_err(), "the server says that it sends `iss`");
    sign_in(&source, &ann).await;
    let form = server.forms.lock()[0].clone();
    for part in ["grant_type=authorization_code", "code=code", "code_verifier=v"] {
        assert!(form.contains(part), "{form}");
    }
}

/// The address comes from the upstream, and a browser may execute some.
#[tokio::test]
async fn a_browser_is_sent_to_web_addresses_alone() {
    let (_state, tokens) = tokens().await;
    let token_endpoint = TokenServer::default().start().await;
    for (address, is_permitted) in [
        ("javascript:alert(1)", false),
        ("https://login.example@elsewhere.example/", false),
        ("https://login.example/authorize", true),
    ] {
        let provider = FakeProvider(token_endpoint.clone(), Secret::new("s3cret"));
        let provider = Box::new(Elsewhere(provider, Url::parse(address).unwrap()));
        let source = source_of(provider, "https://crm.example", &tokens);
        let sign_in = offered(&source, &user("ann")).await;
        assert_eq!(source.begin(&sign_in, "browser", &own()).await.is_ok(), is_permitted, "{address}");
    }
}

#[tokio::test]
async fn a_sign_in_that_began_for_another_address_gives_no_tokens() {
    let (_folder, tokens) = tokens().await;
    let server = TokenServer::default();
    let before = source(&server, "https://crm.example/mcp", &tokens).await;
    let after = source(&server, "https://other.example/mcp", &tokens).await;
    let ann = user("ann");
    let offered_before = offered(&before, &ann).await;
    before.begin(&offered_before, "browser", &own()).await.unwrap();
    let taken = tokens.take("browser", "the state").await.unwrap();
    let error = after.finish(taken, returned("https://login.example")).await.unwrap_err();
    assert!(error.message().contains("address"), "{}", error.message());
    assert_eq!(server.forms.lock().len(), 0, "no code was exchanged");
    assert_eq!(after.token(&ann).await.err().unwrap().code(), ErrorCode::SignInRequired);
    sign_in(&after, &ann).await;
    assert_eq!(sent(&after.token(&ann).await.unwrap()), "Bearer token-1");
}

#[tokio::test]
async fn a_code_opens_its_own_sign_in_and_few_can_be_tried() {
    let (_folder, tokens) = tokens().await;
    let source = source(&TokenServer::default(), "https://crm.example/mcp", &tokens).await;
    let needed = source.offer(&user("ann"), &[]).await.unwrap();
    assert_eq!(source.offer(&user("ann"), &[]).await.unwrap(), needed, "the same until it is used");
    let of_bob = source.offer(&user("bob"), &[]).await.unwrap();
    let sign_in = offered(&source, &user("ann")).await;
    tokens.check_code(&sign_in, &needed.code.to_lowercase()).await.unwrap();
    for code in ["", of_bob.code.as_str(), "BBBB-BBBB", "BBBB-BBBC"] {
        assert_eq!(tokens.check_code(&sign_in, code).await.unwrap_err().code(), ErrorCode::Denied, "{code}");
    }
    let error = tokens.check_code(&sign_in, &needed.code).await.unwrap_err();
    assert!(error.message().contains("too many codes"), "{}", error.message());
    let wider = source.offer(&user("ann"), &["write".to_owned()]).await.unwrap();
    assert_ne!(wider.url, needed.url);
    assert_eq!(source.offer(&user("ann"), &["write".to_owned()]).await.unwrap(), wider);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_all_calls_until_a_new_sign_in_is_needed() {
    let (_folder, tokens) = tokens().await;
    let server = TokenServer::default();
    let source = source(&server, "https://crm.example/mcp", &tokens).await;
    let ann = user("ann");
    sign_in(&source, &ann).await;
    let first = source.token(&ann).await.unwrap();
    let renewed = join_all((0..8).map(|_| source.another(&ann, &first))).await;
    assert!(renewed.iter().all(|token| sent(token.as_ref().unwrap()) == "Bearer token-2"));
    assert_eq!(server.forms.lock().len(), 2);
    assert!(server.forms.lock()[1].contains("refresh_token=refresh-1"));
    *server.refuses.lock() = true;
    let second = source.token(&ann).await.unwrap();
    let error = source.another(&ann, &second).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::SignInRequired);
    assert_eq!(tokens.store.get(&ann.key, "mcp:crm").await.unwrap(), None);
}

#[tokio::test]
async fn further_scopes_need_a_new_sign_in_that_keeps_the_others() {
    let (_folder, tokens) = tokens().await;
    let source = source(&TokenServer::default(), "https://crm.example/mcp", &tokens).await;
    let ann = user("ann");
    sign_in(&source, &ann).await;
    let stored = tokens.store.get(&ann.key, "mcp:crm").await.unwrap().unwrap();
    let new =
        NewUserToken { kind: None, sealed: &stored.sealed, scopes: "read", lifetime: Some(Duration::from_secs(60)) };
    tokens.store.keep(source.owner(&ann), new).await.unwrap();
    let needed = source.requires(&ann, "write").await.unwrap();
    assert_eq!(needed.code(), ErrorCode::SignInRequired);
    let open = tokens.opened(&offered(&source, &ann).await).unwrap();
    assert_eq!(open.scopes, ["read", "write"]);
    let granted = source.requires(&ann, "read").await.unwrap();
    assert_eq!(granted.code(), ErrorCode::ToolError, "signing in again would not help");
}

#[tokio::test]
async fn what_is_renewed_while_its_sign_in_is_revoked_is_revoked_too() {
    let (_folder, tokens) = tokens().await;
    let server = TokenServer::default();
    let source = source(&server, "https://crm.example/mcp", &tokens).await;
    let ann = user("ann");
    sign_in(&source, &ann).await;
    let first = source.token(&ann).await.unwrap();
    let stored = tokens.store.get(&ann.key, "mcp:crm").await.unwrap().unwrap();
    *server.revoking.lock() = Some((tokens.store.clone(), stored));
    let error = source.another(&ann, &first).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::SignInRequired);
    let revoked = server.revoked.lock().clone();
    assert_eq!(revoked.len(), 1);
    assert!(revoked[0].form.starts_with("token=refresh-2&token_type_hint=refresh_token"), "{}", revoked[0].form);
}

#[tokio::test]
async fn the_secret_of_a_client_is_not_sent_to_the_server_of_another_upstream() {
    let (_folder, tokens) = tokens().await;
    let server = TokenServer::default();
    let before = source(&server, "https://crm.example/mcp", &tokens).await;
    let ann = user("ann");
    sign_in(&before, &ann).await;
    let stored = tokens.store.get(&ann.key, "mcp:crm").await.unwrap().unwrap();
    let after = source(&TokenServer::default(), "https://other.example/mcp", &tokens).await;
    after.revoke_upstream(&stored).await;
    before.revoke_upstream(&stored).await;
    let revoked = server.revoked.lock().clone();
    let was_named: Vec<_> = revoked.iter().map(|revocation| revocation.authorization.is_some()).collect();
    assert_eq!(was_named, [false, true], "{revoked:?}");
}

#[tokio::test]
async fn a_lifetime_beyond_all_dates_spoils_no_list() {
    let (_folder, tokens) = tokens().await;
    let server = TokenServer::default();
    let source = source(&server, "https://crm.example/mcp", &tokens).await;
    for lifetime in [1e12, 1e15, 1e300] {
        *server.lifetime.lock() = Some(lifetime);
        sign_in(&source, &user("ann")).await;
        assert!(source.token(&user("ann")).await.is_ok(), "{lifetime}");
        let all = UserTokenFilter { max: 10, ..UserTokenFilter::default() };
        assert_eq!(tokens.list(all).await.unwrap().len(), 1, "{lifetime}");
    }
}
