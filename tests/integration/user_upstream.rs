//! An upstream whose answers depend on its user: an MCP server, an HTTP API, and an authorization server in which the user of a browser is
//! its cookie `user`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[derive(Default)]
struct Seen {
    /// Access token → user.
    live: BTreeMap<String, String>,
    /// Refresh token → user; each is used once.
    refresh: BTreeMap<String, String>,
    /// Tokens given so far.
    given: usize,
    /// Code → user and challenge.
    codes: BTreeMap<String, (String, String)>,
    grants: Vec<String>,
    /// What the other authorization server said of active tokens.
    introspected: Vec<Value>,
}

#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) url: String,
    /// Another authorization server, with the client that introspects there.
    provider: Option<(String, String, String)>,
    seen: Arc<Mutex<Seen>>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        Self::with(None).await
    }

    /// Behind another authorization server, at which it introspects tokens (RFC 7662).
    pub(crate) async fn of_provider(provider: &str, client: &str, secret: &str) -> Self {
        Self::with(Some((provider.to_owned(), client.to_owned(), secret.to_owned()))).await
    }

    async fn with(provider: Option<(String, String, String)>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = Self { url, provider, seen: Arc::default() };
        let no_stream = async || StatusCode::METHOD_NOT_ALLOWED;
        let routes = Router::new()
            .route("/mcp", post(speak).get(no_stream).delete(no_stream))
            .route("/me", get(me))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(upstream.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        upstream
    }

    /// The grant types of all requests at the token endpoint that had an answer.
    pub(crate) fn grants(&self) -> Vec<String> {
        self.seen.lock().unwrap().grants.clone()
    }

    /// What the other authorization server said of the tokens that were accepted.
    pub(crate) fn introspected(&self) -> Vec<Value> {
        self.seen.lock().unwrap().introspected.clone()
    }

    /// The access tokens of a user are no longer taken.
    pub(crate) fn expire(&self, user: &str) {
        self.seen.lock().unwrap().live.retain(|_, of| *of != user);
    }

    /// Takes a key of a user, as an access token or in the header `X-API-Key`.
    pub(crate) fn know(&self, key: &str, user: &str) {
        self.seen.lock().unwrap().live.insert(key.to_owned(), user.to_owned());
    }

    /// The user of a request, by its token or key.
    async fn user(&self, headers: &HeaderMap) -> Option<String> {
        let token = match headers.get("x-api-key") {
            Some(key) => key.to_str().ok()?.to_owned(),
            None => headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.to_owned(),
        };
        if let Some((provider, client, secret)) = &self.provider {
            let request = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = request.post(format!("{provider}/token/introspection")).basic_auth(client, Some(secret));
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let answer: Value = request.body(format!("token={token}")).send().await.ok()?.json().await.ok()?;
            if answer["active"] != true {
                return None;
            }
            // A token of a client is of no user.
            let user = answer["sub"].as_str().or(answer["client_id"].as_str()).unwrap().to_owned();
            self.seen.lock().unwrap().introspected.push(answer);
            return Some(user);
        }
        self.seen.lock().unwrap().live.get(&token).cloned()
    }

    fn refuse(&self) -> Response {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.url);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
    }
}

async fn resource(State(upstream): State<Upstream>) -> Json<Value> {
    let server = upstream.provider.as_ref().map_or(&upstream.url, |(provider, ..)| provider);
    let resource = format!("{}/mcp", upstream.url);
    Json(json!({"resource": resource, "authorization_servers": [server], "scopes_supported": ["read"]}))
}

async fn metadata(State(upstream): State<Upstream>) -> Json<Value> {
    let url = &upstream.url;
    Json(json!({
        "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"), "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
    }))
}

async fn register(Json(client): Json<Value>) -> (StatusCode, Json<Value>) {
    (StatusCode::CREATED, Json(json!({"client_id": "c1", "redirect_uris": client["redirect_uris"]})))
}

/// The user consents at once.
async fn authorize(
    State(upstream): State<Upstream>,
    headers: HeaderMap,
    Query(parameters): Query<BTreeMap<String, String>>,
) -> Redirect {
    let cookies = headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let user = cookies.split("; ").find_map(|pair| pair.strip_prefix("user=")).expect("a user").to_owned();
    let mut seen = upstream.seen.lock().unwrap();
    seen.given += 1;
    let code = format!("code-{}", seen.given);
    seen.codes.insert(code.clone(), (user, parameters["code_challenge"].clone()));
    let answer = [("code", &*code), ("state", &*parameters["state"]), ("iss", &*upstream.url)];
    Redirect::to(url::Url::parse_with_params(&parameters["redirect_uri"], answer).unwrap().as_str())
}

async fn token(State(upstream): State<Upstream>, body: Bytes) -> Response {
    let parameters: BTreeMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
    let mut seen = upstream.seen.lock().unwrap();
    let user = if parameters["grant_type"] == "refresh_token" {
        seen.refresh.remove(&parameters["refresh_token"])
    } else {
        seen.codes.remove(&parameters["code"]).map(|(user, challenge)| {
            assert_eq!(URL_SAFE_NO_PAD.encode(Sha256::digest(parameters["code_verifier"].as_bytes())), challenge);
            user
        })
    };
    let Some(user) = user else {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response();
    };
    seen.grants.push(parameters["grant_type"].clone());
    seen.given += 1;
    let (access, refresh) = (format!("token-of-{user}-{}", seen.given), format!("refresh-of-{user}-{}", seen.given));
    let answer = json!({"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3_600});
    seen.live.insert(access, user.clone());
    seen.refresh.insert(refresh, user);
    Json(answer).into_response()
}

async fn me(State(upstream): State<Upstream>, headers: HeaderMap) -> Response {
    match upstream.user(&headers).await {
        Some(user) => Json(json!({"you": user})).into_response(),
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// A server of 2025-06-18 that answers with JSON.
async fn speak(State(upstream): State<Upstream>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let Some(user) = upstream.user(&headers).await else { return upstream.refuse() };
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"}}),
        "tools/list" => json!({"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": format!("you are {user}")}]}),
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
