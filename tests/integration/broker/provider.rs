//! Identity providers in the shapes of Microsoft Entra ID and of Google, on loopback: what both leave out, and what each refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The gateway at the provider.
pub(super) const CLIENT: &str = "gateway-at-the-provider";
pub(super) const SECRET: &str = "secret-of-the-gateway";
/// The directory of the shape of Entra: a part of its issuer.
const DIRECTORY: &str = "/0b4c1f5e-3a7d-4c55-9a53-1f2e3d4c5b6a/v2.0";
/// A description that a provider gives with its errors, and which is nothing for clients.
pub(super) const DETAIL: &str = "trace-of-the-provider";

type Parameters = BTreeMap<String, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// No registration, no `resource`, an issuer with the directory, app roles and groups; refresh by the scope `offline_access`.
    Entra,
    /// Access tokens that nobody else can read, no introspection; refresh by `access_type=offline` alone.
    Google,
}

impl Shape {
    /// Of the issuer, after its origin.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Entra => DIRECTORY,
            Self::Google => "",
        }
    }
}

/// How it behaves from now on, and what it has seen.
#[derive(Default)]
pub(super) struct Behaviour {
    /// Who signs in next; without a name Ann.
    pub(super) user: Option<&'static str>,
    /// Users who were removed: their refresh tokens are no longer taken.
    pub(super) removed: BTreeSet<&'static str>,
    /// The roles that Ann has got meanwhile in place of those at first.
    pub(super) roles: Option<Vec<&'static str>>,
    /// It sends browsers back with an error.
    pub(super) denies: bool,
    /// Its answers to the gateway are errors of a server.
    pub(super) is_down: bool,
    /// It publishes that its answers name it (RFC 9207).
    pub(super) names_itself: bool,
    /// The name in its answers.
    pub(super) issuer_in_answer: Option<String>,
    /// Put over the claims of its ID tokens.
    pub(super) claims: Value,
    /// The requests for authorizations and for tokens.
    pub(super) authorizations: Vec<Parameters>,
    pub(super) exchanges: Vec<Parameters>,
    /// The tokens that it has given.
    pub(super) tokens: Vec<String>,
    codes: BTreeMap<String, (String, Parameters)>,
    refresh: BTreeMap<String, String>,
}

#[derive(Clone)]
pub(super) struct Provider {
    pub(super) issuer: String,
    origin: String,
    shape: Shape,
    key: Arc<EncodingKey>,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Provider {
    pub(super) async fn start(shape: Shape) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Self::elsewhere(shape, &format!("http://{}", listener.local_addr().unwrap()));
        let router = Router::new().fallback(respond).with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    /// One that runs at this origin.
    pub(super) fn elsewhere(shape: Shape, origin: &str) -> Self {
        let (origin, issuer) = (origin.to_owned(), format!("{origin}{}", shape.path()));
        let key = EncodingKey::from_rsa_pem(include_bytes!("../../fixtures/auth/rsa.pem")).unwrap();
        Self { issuer, origin, shape, key: Arc::new(key), behaviour: Arc::default() }
    }

    pub(super) fn behave(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether an address is a page of this provider.
    pub(super) fn owns(&self, address: &str) -> bool {
        address.starts_with(&format!("{}/", self.origin))
    }

    /// The settings of `auth.broker` that name it.
    pub(super) fn settings(&self) -> String {
        let name = match self.shape {
            Shape::Entra => "entra",
            Shape::Google => "google",
        };
        format!("provider: {name}, issuer: '{}', client_id: {CLIENT}, client_secret: {SECRET}", self.issuer)
    }

    /// An ID token for the gateway, signed by this provider.
    pub(super) fn id_token(&self, user: &str, nonce: Option<&str>) -> String {
        let expires = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 3_600;
        let behaviour = self.behave();
        let mut claims = json!({"iss": self.issuer, "aud": CLIENT, "sub": format!("subject-of-{user}"), "exp": expires,
            "iat": expires - 3_600, "name": user, "email": format!("{user}@acme.example")});
        let (roles, own) = match self.shape {
            Shape::Entra => (
                true,
                json!({"tid": DIRECTORY.split('/').nth(1), "oid": format!("object-of-{user}"),
                "ver": "2.0", "preferred_username": format!("{user}@acme.example"), "groups": ["f3d1a9c4"]}),
            ),
            Shape::Google => (false, json!({"azp": CLIENT, "email_verified": true, "hd": "acme.example"})),
        };
        merge(&mut claims, &own);
        if roles && user == "ann" {
            claims["roles"] = behaviour.roles.clone().unwrap_or_else(|| vec!["Tools.Admin"]).into();
        }
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        merge(&mut claims, &behaviour.claims);
        self.sign(&claims)
    }

    /// A token with its key.
    pub(super) fn sign(&self, claims: &Value) -> String {
        self.sign_as("JWT", claims)
    }

    /// A token of another type.
    pub(super) fn sign_as(&self, typ: &str, claims: &Value) -> String {
        let header = Header { kid: Some("k".into()), typ: Some(typ.into()), ..Header::new(Algorithm::RS256) };
        encode(&header, claims, &self.key).unwrap()
    }

    fn metadata(&self) -> Value {
        let origin = &self.origin;
        let mut document = json!({
            "issuer": self.issuer, "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"), "jwks_uri": format!("{origin}/keys"),
            "response_types_supported": ["code", "id_token"], "id_token_signing_alg_values_supported": ["RS256"],
            "subject_types_supported": ["pairwise"], "scopes_supported": ["openid", "profile", "email", "offline_access"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        });
        // Entra leaves it out.
        if self.shape == Shape::Google {
            document["code_challenge_methods_supported"] = json!(["plain", "S256"]);
            document["scopes_supported"] = json!(["openid", "email", "profile"]);
        }
        if self.behave().names_itself {
            document["authorization_response_iss_parameter_supported"] = true.into();
        }
        document
    }

    /// The user has a session here, and consents at once.
    fn authorize(&self, parameters: Parameters) -> Response {
        let mut behaviour = self.behave();
        behaviour.authorizations.push(parameters.clone());
        let is = |name: &str, value: &str| parameters.get(name).is_some_and(|found| found == value);
        if !is("client_id", CLIENT) || !is("response_type", "code") || !parameters.contains_key("redirect_uri") {
            return (StatusCode::BAD_REQUEST, "AADSTS900144").into_response();
        }
        let scopes: Vec<_> = parameters.get("scope").map(String::as_str).unwrap_or_default().split(' ').collect();
        let unknown = self.shape == Shape::Google && scopes.contains(&"offline_access");
        let refused = if behaviour.denies {
            Some("access_denied")
        } else if parameters.contains_key("resource") {
            Some("invalid_target")
        } else if !scopes.contains(&"openid") || unknown {
            Some("invalid_scope")
        } else {
            None
        };
        let code = format!("code-{}-of-the-provider", behaviour.authorizations.len());
        let mut answer: Vec<(&str, &str)> = match refused {
            Some(error) => vec![("error", error), ("error_description", DETAIL)],
            None => vec![("code", &code)],
        };
        answer.extend(parameters.get("state").map(|state| ("state", state.as_str())));
        if let Some(issuer) = &behaviour.issuer_in_answer {
            answer.push(("iss", issuer));
        }
        let back = url::Url::parse_with_params(&parameters["redirect_uri"], answer).unwrap();
        let user = behaviour.user.unwrap_or("ann").to_owned();
        behaviour.codes.insert(code, (user, parameters));
        Redirect::to(back.as_str()).into_response()
    }

    fn token(&self, headers: &HeaderMap, form: &Parameters) -> Response {
        let refused = |error: &str| {
            let body = json!({"error": error, "error_description": format!("{DETAIL} {SECRET}")});
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        };
        if !is_client(headers, form) {
            return refused("invalid_client");
        }
        let mut behaviour = self.behave();
        behaviour.exchanges.push(form.clone());
        if form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange" {
            let number = behaviour.exchanges.len();
            drop(behaviour);
            return self
                .assertion(form, number)
                .map_or_else(|| refused("invalid_grant"), |given| Json(given).into_response());
        }
        if form.contains_key("resource") {
            return refused("invalid_target");
        }
        let (user, nonce, is_offline) = if form["grant_type"] == "refresh_token" {
            let Some(user) = behaviour.refresh.get(&form["refresh_token"]).cloned() else {
                return refused("invalid_grant");
            };
            if behaviour.removed.contains(user.as_str()) {
                return refused("invalid_grant");
            }
            // Entra gives another one each time, Google keeps the first.
            (user, None, self.shape == Shape::Entra)
        } else {
            let Some((user, asked)) = behaviour.codes.remove(&form["code"]) else { return refused("invalid_grant") };
            let challenge = form.get("code_verifier").map(|verifier| Sha256::digest(verifier.as_bytes()));
            let challenge = challenge.map(|digest| URL_SAFE_NO_PAD.encode(digest));
            if asked.get("code_challenge") != challenge.as_ref() || asked["redirect_uri"] != form["redirect_uri"] {
                return refused("invalid_grant");
            }
            let is_offline = match self.shape {
                Shape::Entra => asked["scope"].split(' ').any(|scope| scope == "offline_access"),
                Shape::Google => asked.get("access_type").is_some_and(|kind| kind == "offline"),
            };
            (user, asked.get("nonce").cloned(), is_offline)
        };
        let number = behaviour.tokens.len();
        let (access, next) =
            (format!("ya29.access-{number}-of-the-provider"), format!("refresh-{number}-of-the-provider"));
        behaviour.tokens.push(access.clone());
        if is_offline {
            behaviour.tokens.push(next.clone());
            behaviour.refresh.insert(next.clone(), user.clone());
        }
        drop(behaviour);
        let mut answer = json!({"access_token": access, "token_type": "Bearer", "expires_in": 3_599,
            "scope": "openid", "id_token": self.id_token(&user, nonce.as_deref())});
        if is_offline {
            answer["refresh_token"] = next.into();
        }
        Json(answer).into_response()
    }

    /// An identity assertion for an ID token that it signed for the gateway (RFC 8693). The upstreams know the gateway by an id of their own.
    fn assertion(&self, form: &Parameters, number: usize) -> Option<Value> {
        let kind = |name: &str| form.get(name)?.strip_prefix("urn:ietf:params:oauth:token-type:");
        let kinds = [kind("subject_token_type")?, kind("requested_token_type")?];
        let payload = form["subject_token"].split('.').nth(1)?;
        let signed: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        if kinds != ["id_token", "id-jag"] || signed["aud"] != CLIENT || self.sign(&signed) != form["subject_token"] {
            return None;
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let mut claims = json!({"aud": form["audience"], "resource": form["resource"], "client_id": "app-at-the-provider",
            "jti": format!("assertion-{number}"), "iat": now, "exp": now + 300});
        for name in ["iss", "sub", "email", "roles"] {
            claims[name] = signed[name].clone();
        }
        Some(json!({"access_token": self.sign_as("oauth-id-jag+jwt", &claims), "token_type": "N_A", "expires_in": 300,
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}))
    }

    fn keys(&self) -> Value {
        let mut public = serde_json::to_value(Jwk::from_encoding_key(&self.key, Algorithm::RS256).unwrap()).unwrap();
        public["kid"] = "k".into();
        public["use"] = "sig".into();
        json!({"keys": [public]})
    }
}

fn merge(document: &mut Value, over: &Value) {
    for (name, value) in over.as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
}

fn is_client(headers: &HeaderMap, form: &Parameters) -> bool {
    let basic = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let basic = basic.and_then(|text| STANDARD.decode(text).ok()).and_then(|bytes| String::from_utf8(bytes).ok());
    let posted = form.get("client_id").zip(form.get("client_secret")).map(|(id, secret)| format!("{id}:{secret}"));
    basic.or(posted).is_some_and(|found| found == format!("{CLIENT}:{SECRET}"))
}

async fn respond(
    State(provider): State<Provider>,
    uri: Uri,
    Query(query): Query<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let metadata = format!("{}/.well-known/openid-configuration", provider.issuer);
    let is_down = provider.behave().is_down;
    match uri.path() {
        path if metadata.strip_prefix(&provider.origin) == Some(path) => Json(provider.metadata()).into_response(),
        "/keys" => Json(provider.keys()).into_response(),
        "/authorize" => provider.authorize(query),
        "/token" if is_down => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "/token" => provider.token(&headers, &url::form_urlencoded::parse(&body).into_owned().collect()),
        // Neither registers clients, and neither is asked about tokens.
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
