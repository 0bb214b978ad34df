//! An MCP server that requires a sign-in, and its authorization server, on one port of loopback.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How the two behave, and what they have seen.
#[derive(Default)]
pub(crate) struct Behaviour {
    /// Put over the metadata of the protected resource, of the authorization server, over the answer of the token
    /// endpoint, and over the parameters that the browser comes back with.
    pub(crate) resource: Value,
    pub(crate) metadata: Value,
    pub(crate) token: Value,
    pub(crate) back: BTreeMap<&'static str, &'static str>,
    /// A body of metadata that has no end.
    pub(crate) endless: bool,
    /// The authorization server publishes nothing.
    pub(crate) silent: bool,
    /// The redirect target of the metadata.
    pub(crate) moved: Option<String>,
    /// The scopes a call needs; a token has the requested ones.
    pub(crate) call_needs: String,
    /// Refresh tokens are no longer taken.
    pub(crate) over: bool,
    /// Tokens given so far; the last is the one that is taken.
    pub(crate) given: usize,
    /// Grant types of the requests at the token endpoint.
    pub(crate) grants: Vec<String>,
    /// A refresh token was used that had been replaced.
    pub(crate) reused: bool,
    scopes: String,
    challenge: String,
    /// The access token was revoked.
    revoked: bool,
}

#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) url: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider = Self { url, behaviour: Arc::default() };
        let routes = Router::new()
            .route("/mcp", post(speak).get(no_stream).delete(no_stream))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        provider
    }

    /// How it behaves from now on.
    pub(crate) fn behave(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    /// The access token is no longer taken.
    pub(crate) fn revoke(&self) {
        self.behave().revoked = true;
    }

    fn challenge(&self, status: StatusCode, more: &str) -> Response {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.url);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\"{more}");
        (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
    }
}

/// `over` in place of what is there.
fn with(mut document: Value, over: &Value) -> Value {
    for (name, value) in over.as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
    document
}

async fn no_stream() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

async fn resource(State(provider): State<Provider>) -> Response {
    let behaviour = provider.behave();
    if behaviour.endless {
        let piece = Ok::<_, Infallible>(Bytes::from_static(&[b' '; 4_096]));
        return Body::from_stream(futures_util::stream::repeat_with(move || piece.clone())).into_response();
    }
    if let Some(target) = &behaviour.moved {
        return Redirect::temporary(target).into_response();
    }
    let document =
        json!({"resource": format!("{}/mcp", provider.url), "authorization_servers": [provider.url.clone()]});
    Json(with(document, &behaviour.resource)).into_response()
}

async fn metadata(State(provider): State<Provider>) -> Response {
    let behaviour = provider.behave();
    if behaviour.silent {
        return StatusCode::NOT_FOUND.into_response();
    }
    let url = &provider.url;
    let document = json!({
        "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"), "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
    });
    Json(with(document, &behaviour.metadata)).into_response()
}

async fn register(Json(client): Json<Value>) -> (StatusCode, Json<Value>) {
    (StatusCode::CREATED, Json(json!({"client_id": "c1", "redirect_uris": client["redirect_uris"]})))
}

/// The user consents at once.
async fn authorize(State(provider): State<Provider>, Query(parameters): Query<BTreeMap<String, String>>) -> Redirect {
    let mut behaviour = provider.behave();
    assert_eq!(parameters["resource"], format!("{}/mcp", provider.url), "RFC 8707");
    behaviour.challenge.clone_from(&parameters["code_challenge"]);
    behaviour.scopes = parameters.get("scope").cloned().unwrap_or_default();
    let mut answer = BTreeMap::from([("code", "the-code"), ("state", &parameters["state"]), ("iss", &provider.url)]);
    answer.extend(behaviour.back.iter().map(|(name, value)| (*name, *value)));
    answer.retain(|_, value| !value.is_empty());
    let back = url::Url::parse_with_params(&parameters["redirect_uri"], answer).unwrap();
    Redirect::to(back.as_str())
}

async fn token(State(provider): State<Provider>, body: Bytes) -> Response {
    let parameters: BTreeMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
    let mut behaviour = provider.behave();
    behaviour.grants.push(parameters["grant_type"].clone());
    let refused = |code: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": code}))).into_response();
    if parameters["grant_type"] == "refresh_token" {
        if parameters["refresh_token"] != format!("refresh-{}", behaviour.given) {
            behaviour.reused = true;
            return refused("invalid_grant");
        }
        if behaviour.over {
            return refused("invalid_grant");
        }
    } else {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(parameters["code_verifier"].as_bytes()));
        assert_eq!((challenge, &*parameters["code"]), (behaviour.challenge.clone(), "the-code"), "RFC 7636");
    }
    if let Some(error) = behaviour.token.get("error") {
        return refused(error.as_str().unwrap());
    }
    behaviour.given += 1;
    behaviour.revoked = false;
    let given = behaviour.given;
    let answer = json!({"access_token": format!("secret-{given}"), "refresh_token": format!("refresh-{given}"),
        "token_type": "Bearer", "expires_in": 3_600});
    Json(with(answer, &behaviour.token)).into_response()
}

/// A server of 2025-06-18 that answers with JSON.
async fn speak(State(provider): State<Provider>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let behaviour = provider.behave();
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if behaviour.revoked || behaviour.given == 0 || sent != format!("Bearer secret-{}", behaviour.given) {
        drop(behaviour);
        return provider.challenge(StatusCode::UNAUTHORIZED, "");
    }
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"}}),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            let mut granted = behaviour.scopes.split(' ');
            if !behaviour.call_needs.is_empty() && !granted.any(|scope| scope == behaviour.call_needs) {
                let more = format!(", error=\"insufficient_scope\", scope=\"{}\"", behaviour.call_needs);
                drop(behaviour);
                return provider.challenge(StatusCode::FORBIDDEN, &more);
            }
            json!({"content": [{"type": "text", "text": "well"}]})
        }
        "server/discover" => {
            let error = json!({"code": -32601, "message": "no such method"});
            return Json(json!({"jsonrpc": "2.0", "id": message["id"], "error": error})).into_response();
        }
        _ => json!({}),
    };
    match message.get("id") {
        Some(id) => Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}
