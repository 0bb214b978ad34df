//! The gateway as a resource server: issuers that are found by their addresses, tokens that only they can read, and scopes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::header::WWW_AUTHENTICATE;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config};
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};

/// `gateway` and `the secret`, each form-encoded and then made Basic credentials (RFC 6749 §2.3.1).
const AUTHORIZATION: &str = "Basic Z2F0ZXdheTp0aGUrc2VjcmV0";

/// The client as which the gateway signs people in.
pub(crate) const CLIENT: &str = "console";

/// An authorization server that publishes where its keys are, says what a token is, and signs people in.
#[derive(Clone)]
pub(crate) struct Issuer {
    /// What its tokens call it.
    pub(crate) url: String,
    path: &'static str,
    pair: Arc<(Algorithm, EncodingKey)>,
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
pub(crate) struct Said {
    /// What it says of each token that only it can read.
    opaque: BTreeMap<String, Value>,
    questions: usize,
    is_down: bool,
    /// How often it was asked for its metadata.
    pub(crate) published: usize,
    /// Where it says that people sign in; without it at itself.
    pub(crate) authorization_endpoint: Option<String>,
}

impl Issuer {
    /// With OpenID Connect, as the issuer of its origin.
    pub(crate) async fn with_open_id() -> Self {
        let pem = include_bytes!("../fixtures/auth/ed25519.pem");
        Self::start("", (Algorithm::EdDSA, EncodingKey::from_ed_pem(pem).unwrap())).await
    }

    /// With the metadata of RFC 8414 alone, as one of several of its origin.
    async fn with_oauth() -> Self {
        let pem = include_bytes!("../fixtures/auth/ec.pem");
        Self::start("/realms/b", (Algorithm::ES256, EncodingKey::from_ec_pem(pem).unwrap())).await
    }

    async fn start(path: &'static str, pair: (Algorithm, EncodingKey)) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let issuer = Self { url, path, pair: Arc::new(pair), said: Arc::default() };
        let router = Router::new().fallback(respond).with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    pub(crate) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap()
    }

    fn claims(&self, subject: &str, changes: &Value) -> Value {
        let expires = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 300;
        let mut claims = json!({"iss": self.url, "aud": "sekisho", "sub": subject, "tenant": "acme", "exp": expires,
            "roles": ["operator", "admin"]});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    pub(crate) fn token(&self, subject: &str, changes: &Value) -> String {
        self.token_of_type("JWT", subject, changes)
    }

    pub(crate) fn token_of_type(&self, typ: &str, subject: &str, changes: &Value) -> String {
        let (algorithm, key) = &*self.pair;
        let header = Header { kid: Some("k".into()), typ: Some(typ.into()), ..Header::new(*algorithm) };
        encode(&header, &self.claims(subject, changes), key).unwrap()
    }

    /// A token that it has given, as it answers questions about it.
    fn give(&self, token: &str, subject: &str, changes: &Value) {
        let mut answer = self.claims(subject, changes);
        answer["active"] = true.into();
        self.said().opaque.insert(token.to_owned(), answer);
    }
}

async fn respond(State(issuer): State<Issuer>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let origin = issuer.url.strip_suffix(issuer.path).unwrap();
    let metadata = match issuer.path {
        "" => "/.well-known/openid-configuration".to_owned(),
        path => format!("/.well-known/oauth-authorization-server{path}"),
    };
    let mut said = issuer.said();
    if said.is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    match uri.path() {
        path if path == metadata => {
            said.published += 1;
            let authorization = said.authorization_endpoint.clone().unwrap_or_else(|| format!("{origin}/authorize"));
            Json(json!({"issuer": issuer.url, "jwks_uri": format!("{origin}/keys"),
                "introspection_endpoint": format!("{origin}/introspect"), "authorization_endpoint": authorization,
                "token_endpoint": format!("{origin}/token")}))
            .into_response()
        }
        // The code is the nonce of the sign-in.
        "/token" => {
            let form: BTreeMap<_, _> = url::form_urlencoded::parse(&body).into_owned().collect();
            let token = issuer.token("ann", &json!({"aud": CLIENT, "nonce": form["code"]}));
            Json(json!({"access_token": "x", "token_type": "Bearer", "id_token": token})).into_response()
        }
        "/keys" => {
            let (algorithm, key) = &*issuer.pair;
            let mut public = serde_json::to_value(Jwk::from_encoding_key(key, *algorithm).unwrap()).unwrap();
            public["kid"] = "k".into();
            Json(json!({"keys": [public]})).into_response()
        }
        "/introspect" if headers.get(header::AUTHORIZATION).is_none_or(|sent| sent != AUTHORIZATION) => {
            StatusCode::UNAUTHORIZED.into_response()
        }
        "/introspect" => {
            said.questions += 1;
            let form: BTreeMap<_, _> = url::form_urlencoded::parse(&body).into_owned().collect();
            Json(said.opaque.get(&form["token"]).cloned().unwrap_or(json!({"active": false}))).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn call(app: &TestApp, token: &str, tool: &str, arguments: Value) -> (StatusCode, Value) {
    let body = json!({"arguments": arguments, "session_id": "s1"});
    answer(app.post(&format!("/tools/{tool}/execute")).bearer_auth(token).json(&body)).await
}

/// The refusal of a call. On a loaded machine a stream may have begun before.
async fn refused_at_once(client: &McpClient, call: &Value) -> reqwest::Response {
    for _ in 0..20 {
        let response = client.response("tools/call", call.clone()).await;
        if response.status() == StatusCode::FORBIDDEN {
            return response;
        }
    }
    panic!("the call is not refused with 403: {call}");
}

#[tokio::test]
async fn one_subject_of_two_issuers_is_two_callers_and_keeps_what_it_had_with_one() {
    let (first, second) = (Issuer::with_open_id().await, Issuer::with_oauth().await);
    let audience = "audience: [sekisho, other]";
    let alone = format!("auth: {{anonymous: never, jwt: {{issuer: '{}', {audience}}}}}", first.url);
    let both = format!(
        "auth: {{anonymous: never, jwt: [{{issuer: '{}', {audience}}}, {{issuer: '{}', {audience}}}]}}",
        first.url, second.url
    );
    let (of_first, of_second) = (first.token("ada", &json!({})), second.token("ada", &json!({"aud": "other"})));
    let note = json!({"path": "note.txt", "content": "of ada"});
    let read = json!({"path": "note.txt"});

    let app = TestApp::in_directory(TempDir::new().unwrap(), &alone).await;
    assert_eq!(call(&app, &of_first, "file_write", note).await.1["success"], true);
    let (status, refused) = call(&app, &of_second, "file_read", read.clone()).await;
    assert_eq!((status, code(&refused)), (StatusCode::UNAUTHORIZED, "unauthenticated"));

    let app = TestApp::in_directory(app.stop().await, &both).await;
    assert_eq!(call(&app, &of_first, "file_read", read.clone()).await.1["output"]["content"], "of ada");
    let (status, refused) = call(&app, &of_second, "file_read", read).await;
    assert_eq!((status, code(&refused)), (StatusCode::OK, "tool_error"), "another caller: {refused}");
    let forged = second.token("ada", &json!({"iss": first.url}));
    assert_eq!(call(&app, &forged, "calculator", json!({"expression": "1"})).await.0, StatusCode::UNAUTHORIZED);

    let trail = std::fs::read_to_string(app.stop().await.path().join("state/audit.jsonl")).unwrap();
    let callers: Vec<Value> =
        trail.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["caller"].take()).collect();
    for id in ["ada".to_owned(), format!("{}#ada", first.url), format!("{}#ada", second.url)] {
        assert!(callers.iter().any(|caller| *caller == id), "{id}: {callers:?}");
    }
}

#[tokio::test]
async fn the_issuer_is_asked_about_tokens_that_only_it_can_read() {
    let issuer = Issuer::with_oauth().await;
    let yaml = |client: &str, secret: &str| {
        let introspection = format!("introspection: {{client_id: {client}, client_secret: {secret}}}");
        format!("auth: {{anonymous: never, jwt: {{issuer: '{}', audience: sekisho, {introspection}}}}}", issuer.url)
    };
    issuer.give("of-ada", "ada", &json!({}));
    issuer.give("of-other", "ada", &json!({"aud": "other"}));
    let app = TestApp::with(&yaml("gateway", "the secret")).await;
    let status = async |token: &str| call(&app, token, "calculator", json!({"expression": "1"})).await.0;
    for _ in 0..3 {
        assert_eq!(status("of-ada").await, StatusCode::OK);
    }
    assert_eq!(issuer.said().questions, 1, "an answer counts for a while");
    assert_eq!(status("of-other").await, StatusCode::UNAUTHORIZED);
    let (_, refused) = call(&app, "revoked", "calculator", json!({"expression": "1"})).await;
    assert!(refused["error"].as_str().unwrap().contains("not active"), "{refused}");
    issuer.said().is_down = true;
    let (status_now, refused) = call(&app, "of-bob", "calculator", json!({"expression": "1"})).await;
    assert_eq!((status_now, code(&refused)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    assert!(refused["error"].as_str().unwrap().contains("was not checked"), "{refused}");
    assert_eq!(status("of-ada").await, StatusCode::OK, "what was answered still counts");
    issuer.said().is_down = false;
    let trail = std::fs::read_to_string(app.stop().await.path().join("state/audit.jsonl")).unwrap();
    assert!(!trail.contains("of-ada") && !trail.contains("of-bob") && trail.contains("\"ada\""), "{trail}");

    let app = TestApp::with(&yaml("gateway", "wrong")).await;
    let (status, refused) = call(&app, "of-ada", "calculator", json!({"expression": "1"})).await;
    assert_eq!((status, code(&refused)), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{refused}");
}

/// A gateway where the calculator needs a scope, with an endpoint that has it.
async fn with_scopes(issuer: &Issuer) -> TestApp {
    let yaml = format!(
        "auth:\n  anonymous: always\n  api_keys: [{{id: ada, key: key-of-ada}}]\n  \
         jwt: {{issuer: '{}', audience: sekisho}}\n  scopes: {{calc: [calculator], base: ['*']}}\n\
         mcp: {{endpoints: {{finance: {{tools: [calculator]}}}}}}\n",
        issuer.url
    );
    TestApp::with(&yaml).await
}

#[tokio::test]
async fn a_token_with_too_few_scopes_is_told_which_to_ask_for() {
    let issuer = Issuer::with_open_id().await;
    let app = with_scopes(&issuer).await;
    let narrow = issuer.token("ada", &json!({"scope": "base openid"}));
    let wide = issuer.token("ada", &json!({"scope": "base calc"}));
    let calculate = async |credential: Option<&str>, key: Option<&str>| {
        let mut request = app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "1+1"}}));
        if let Some(credential) = credential {
            request = request.bearer_auth(credential);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.unwrap();
        let challenge = response.headers().get(WWW_AUTHENTICATE).map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), challenge, response.json::<Value>().await.unwrap())
    };
    let (status, challenge, refused) = calculate(Some(&narrow), None).await;
    assert_eq!((status, code(&refused)), (403, "denied"), "{refused}");
    assert_eq!(challenge.as_deref(), Some("Bearer error=\"insufficient_scope\", scope=\"base calc\""));
    assert_eq!(refused["error_info"]["details"][0]["rule"], "scopes", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("needs a token with the scope calc"), "{refused}");
    let (status, challenge, _) = calculate(Some(&wide), Some("once")).await;
    assert_eq!((status, challenge), (200, None));
    assert_eq!(calculate(Some(&narrow), Some("once")).await.0, 403, "no reply of a call with a wider token");
    assert_eq!(calculate(Some("key-of-ada"), None).await.0, 200, "a key has no scopes");
    let (status, challenge, refused) = calculate(None, None).await;
    assert_eq!((status, code(&refused), challenge.as_deref()), (401, "unauthenticated", Some("Bearer")));
    let (_, listed) = answer(app.get("/tools/list").bearer_auth(&narrow)).await;
    assert!(listed.as_array().unwrap().contains(&json!("echo")), "{listed}");
    // An administrator gives no key more than its token has.
    let create = async |token: &str, tools: Value| {
        let body = json!({"description": "of ada", "tools": tools});
        answer(app.post("/admin/keys").bearer_auth(token).json(&body)).await.0
    };
    assert_eq!(create(&narrow, json!(["calc*"])).await, StatusCode::FORBIDDEN);
    assert_eq!(create(&narrow, Value::Null).await, StatusCode::FORBIDDEN);
    assert!(create(&narrow, json!(["echo"])).await.is_success());
    assert!(create(&wide, Value::Null).await.is_success());
}

#[tokio::test]
async fn an_mcp_client_is_asked_for_further_scopes_and_goes_on_in_its_session() {
    let issuer = Issuer::with_open_id().await;
    let app = with_scopes(&issuer).await;
    let narrow = issuer.token("ada", &json!({"scope": "base"}));
    let wide = issuer.token("ada", &json!({"scope": "base calc"}));
    let call = json!({"name": "calculator", "arguments": {"expression": "1+1"}});
    for revision in [OLDER, NEWER] {
        for endpoint in [None, Some("finance")] {
            let client = McpClient::new(&app, revision, None).with_token(&narrow);
            let client = match endpoint {
                Some(endpoint) => client.at_endpoint(endpoint),
                None => client,
            };
            let client = if revision == OLDER { client.introduced().await } else { client };
            let listed = client.reply("tools/list", json!({})).await;
            let names = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
            assert!(names.collect::<Vec<_>>().contains(&json!("calculator")), "it can be asked for: {listed}");
            let refused = refused_at_once(&client, &call).await;
            let path = endpoint.map(|name| format!("/{name}")).unwrap_or_default();
            let metadata = format!("{}/.well-known/oauth-protected-resource/mcp{path}", app.url);
            let expected =
                format!("Bearer error=\"insufficient_scope\", scope=\"base calc\", resource_metadata=\"{metadata}\"");
            assert_eq!(refused.headers()[WWW_AUTHENTICATE], expected.as_str());
            let refused: Value = refused.json().await.unwrap();
            assert_eq!(refused["result"]["isError"], true, "{refused}");
            let (_, document) = answer(app.client.get(metadata)).await;
            assert_eq!(document["resource"], format!("{}/mcp{path}", app.url));
            assert_eq!(document["authorization_servers"], json!([issuer.url]));
            assert_eq!(document["scopes_supported"], json!(["base", "calc"]));
            let (status, reply) = client.with_token(&wide).send("tools/call", call.clone()).await;
            assert_eq!((status, &reply["result"]["isError"]), (StatusCode::OK, &json!(false)), "{revision}: {reply}");
        }
    }
    let client = McpClient::new(&app, NEWER, None).with_token("a.b.c");
    let refused = client.response("tools/list", json!({})).await;
    let challenge = refused.headers()[WWW_AUTHENTICATE].to_str().unwrap();
    assert!(challenge.starts_with("Bearer error=\"invalid_token\", resource_metadata=\""), "{challenge}");
}

#[tokio::test]
async fn a_token_for_another_purpose_opens_nothing_although_its_audience_is_ours() {
    let issuer = Issuer::with_open_id().await;
    let app =
        TestApp::with(&format!("auth: {{anonymous: never, jwt: {{issuer: '{}', audience: sekisho}}}}", issuer.url))
            .await;
    for (typ, changes, is_accepted) in [
        ("JWT", json!({}), true),
        ("at+jwt", json!({}), true),
        ("logout+jwt", json!({}), false),
        ("dpop+jwt", json!({}), false),
        ("JWT", json!({"nonce": "n"}), false),
        ("JWT", json!({"at_hash": "h"}), false),
    ] {
        let token = issuer.token_of_type(typ, "ada", &changes);
        let (status, reply) = call(&app, &token, "calculator", json!({"expression": "1"})).await;
        let expected = if is_accepted { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(status, expected, "{typ} {changes}: {reply}");
    }
}

#[tokio::test]
async fn a_reload_adds_an_issuer_and_a_broken_one_changes_nothing() {
    let (first, second) = (Issuer::with_open_id().await, Issuer::with_oauth().await);
    let entry = |issuer: &Issuer| format!("{{issuer: '{}', audience: sekisho}}", issuer.url);
    let app = TestApp::with(&format!("auth: {{anonymous: never, jwt: {}}}", entry(&first))).await;
    let status = async |token: &str| call(&app, token, "calculator", json!({"expression": "1"})).await.0;
    let (of_first, of_second) = (first.token("ada", &json!({})), second.token("ada", &json!({})));
    assert_eq!([status(&of_first).await, status(&of_second).await], [StatusCode::OK, StatusCode::UNAUTHORIZED]);
    let both = format!("auth: {{anonymous: never, jwt: [{}, {}]}}", entry(&first), entry(&second));
    first.said().is_down = true;
    let mut config = config(&app.directory, &both);
    config.server = app.gateway.configuration().current().server.clone();
    app.gateway.reload(config).await;
    assert_eq!(
        [status(&of_first).await, status(&of_second).await],
        [StatusCode::OK; 2],
        "the keys of the first are kept"
    );
}

#[test]
fn the_configuration_of_the_page_is_valid() {
    let page = include_str!("../../docs/identity.md").split("\n## Identity that reaches").next().unwrap();
    let yaml = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let config = config(&TempDir::new().unwrap(), &yaml.replace("${SEKISHO_INTROSPECTION_SECRET}", "a secret"));
    assert_eq!((config.auth.jwt.len(), config.auth.scopes.len()), (2, 2));
}
