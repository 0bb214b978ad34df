//! OAuth 2.0 client credentials at a third-party token server (npm `oidc-provider`), and an API that asks it of
//! every token that it is shown.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};

use crate::app::{TestApp, code};
use crate::child_server::ChildServer;
use crate::public_documents::offer;

const CLIENT: &str = "me:1";
const SECRET: &str = "s e/c&";

/// Both form-encoded and then made Basic credentials (RFC 6749 §2.3.1), by hand.
const AUTHORIZATION: &str = "Basic bWUlM0ExOnMrZSUyRmMlMjY=";

/// An API whose calls require a token of the token server.
#[derive(Clone)]
struct Api {
    url: String,
    token_server: String,
    client: Client,
    shown: Arc<Mutex<Vec<String>>>,
}

impl Api {
    async fn start(token_server: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::builder().no_proxy().build().unwrap();
        let api = Self { url, token_server: token_server.to_owned(), client, shown: Arc::default() };
        let router = Router::new().fallback(who).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        api
    }

    /// Queries the token server about a token.
    async fn ask(&self, path: &str, token: &str) -> reqwest::Response {
        let request = self.client.post(format!("{}{path}", self.token_server)).header("authorization", AUTHORIZATION);
        let form = request.header("content-type", "application/x-www-form-urlencoded").body(format!("token={token}"));
        form.send().await.unwrap().error_for_status().unwrap()
    }

    /// The tokens that it was shown, each once.
    fn tokens(&self) -> Vec<String> {
        let mut tokens = self.shown.lock().unwrap().clone();
        tokens.dedup();
        tokens
    }
}

async fn who(State(api): State<Api>, headers: HeaderMap) -> Response {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = shown else { return StatusCode::UNAUTHORIZED.into_response() };
    api.shown.lock().unwrap().push(token.to_owned());
    let known: Value =
        serde_json::from_str(&api.ask("/token/introspection", token).await.text().await.unwrap()).unwrap();
    if known["active"] != true {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    axum::Json(json!({"client": known["client_id"], "scope": known["scope"]})).into_response()
}

async fn offered(api: &Api, secret: &str) -> TestApp {
    let flow = json!({"tokenUrl": format!("{}/token", api.token_server), "scopes": {"read": "Reads."}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Who", "version": "1"}, "security": [{"oauth": ["read"]}],
        "paths": {"/who": {"get": {"operationId": "who", "responses": {"200": {"description": "who asks"}}}}},
        "components": {"securitySchemes": {"oauth": {"type": "oauth2", "flows": {"clientCredentials": flow}}}},
    });
    let credentials = json!({"auth_config": {"client_id": CLIENT, "client_secret": secret}});
    offer(document.to_string().as_bytes(), &api.url, &credentials).await.0
}

#[tokio::test]
#[ignore = "needs oidc-provider and node, in the folder named by the variable OAUTH"]
async fn oauth_tokens_of_a_real_server_open_an_api() {
    let folder = std::env::var("OAUTH").expect("OAUTH names the folder");
    // Node resolves modules relative to the script.
    let script = Path::new(&folder).join("oauth.mjs");
    std::fs::copy("tests/openapi/oauth.mjs", &script).unwrap();
    let node = Path::new(&folder).join("node_modules/.bin/node");
    let arguments = [script.to_str().unwrap(), "PORT", CLIENT, SECRET];
    let server = ChildServer::start(node.to_str().unwrap(), &arguments, Duration::from_secs(60)).await;
    let api = Api::start(&server.url).await;
    let app = offered(&api, SECRET).await;

    for (_, reply) in join_all((0..20).map(|_| app.call("api__who", json!({})))).await {
        assert_eq!(reply["output"], json!({"client": CLIENT, "scope": "read"}), "{reply}");
    }
    assert_eq!(api.tokens().len(), 1, "one for all that wait");

    // A revoked token is replaced without an error for the caller.
    api.ask("/token/revocation", &api.tokens()[0]).await;
    let (_, reply) = app.call("api__who", json!({})).await;
    assert_eq!(reply["output"]["client"], CLIENT, "{reply}");
    assert_eq!(api.tokens().len(), 2);

    let app = offered(&api, "a wrong secret").await;
    let (_, reply) = app.call("api__who", json!({})).await;
    assert_eq!(code(&reply), "upstream_error");
    let reported = reply.to_string();
    assert!(reported.contains("no access token from 127.0.0.1") && reported.contains("invalid_client"), "{reported}");
    assert!(!reported.contains("a wrong secret") && !reported.contains(&api.tokens()[0]), "{reported}");
    assert_eq!(api.tokens().len(), 2, "the API is not asked without a token");
}
