//! An OpenID provider on loopback. Its codes are the nonces of their requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use sekisho_outbound::test_server;

#[derive(Clone)]
pub(super) struct FakeProvider(Arc<Mutex<ProviderState>>);

/// The next answers.
pub(super) struct ProviderState {
    issuer: String,
    key: Vec<u8>,
    public_key: String,
    pub(super) subject: String,
    pub(super) groups: Vec<String>,
    pub(super) has_refresh: bool,
    /// The status and the error of the token endpoint.
    pub(super) failure: Option<(u16, &'static str)>,
    /// The type of the tokens that it gives in an exchange.
    pub(super) issued: &'static str,
    /// The forms that it got.
    pub(super) forms: Vec<BTreeMap<String, String>>,
}

impl FakeProvider {
    pub(super) async fn start() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let bytes: &[u8] = key.as_ref();
        let pair = Ed25519KeyPair::from_pkcs8(bytes).unwrap();
        let public: &[u8] = pair.public_key().as_ref();
        let provider = Self(Arc::new(Mutex::new(ProviderState {
            issuer: String::new(),
            key: bytes.to_vec(),
            public_key: BASE64_URL_SAFE_NO_PAD.encode(public),
            subject: "ann".to_owned(),
            groups: vec!["engineers".to_owned(), "admin".to_owned()],
            has_refresh: true,
            failure: None,
            issued: "urn:ietf:params:oauth:token-type:id-jag",
            forms: Vec::new(),
        })));
        let metadata = async |State(provider): State<Self>| {
            let issuer = provider.issuer();
            Json(json!({"issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/jwks"),
                "authorization_response_iss_parameter_supported": true}))
        };
        let keys = async |State(provider): State<Self>| {
            let public_key = provider.0.lock().unwrap().public_key.clone();
            Json(json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": public_key, "alg": "EdDSA", "use": "sig"}]}))
        };
        let token = async |State(provider): State<Self>, form: String| provider.answer(&form);
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/jwks", get(keys))
            .route("/token", post(token));
        let address = test_server::serve(routes.with_state(provider.clone())).await;
        provider.change(|state| state.issuer = format!("http://{address}"));
        provider
    }

    pub(super) fn issuer(&self) -> String {
        self.0.lock().unwrap().issuer.clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ProviderState)) {
        change(&mut self.0.lock().unwrap());
    }

    pub(super) fn forms(&self) -> Vec<BTreeMap<String, String>> {
        self.0.lock().unwrap().forms.clone()
    }

    /// A token with its key, of any type.
    pub(super) fn sign(&self, typ: Option<&str>, claims: &Value) -> String {
        let header = Header { typ: typ.map(str::to_owned), ..Header::new(Algorithm::EdDSA) };
        encode(&header, claims, &EncodingKey::from_ed_der(&self.0.lock().unwrap().key)).unwrap()
    }

    fn answer(&self, form: &str) -> Response {
        let mut state = self.0.lock().unwrap();
        let form: BTreeMap<String, String> = url::form_urlencoded::parse(form.as_bytes()).into_owned().collect();
        state.forms.push(form.clone());
        if let Some((status, error)) = state.failure {
            return (StatusCode::from_u16(status).unwrap(), Json(json!({"error": error}))).into_response();
        }
        if form.get("requested_token_type").is_some_and(|kind| kind == "urn:ietf:params:oauth:token-type:id-jag") {
            return Json(state.assertion(&form)).into_response();
        }
        let mut answer =
            json!({"access_token": "of the provider", "token_type": "Bearer", "id_token": state.id_token(&form)});
        if state.has_refresh {
            answer["refresh_token"] = format!("provider-refresh-{}", state.forms.len()).into();
        }
        Json(answer).into_response()
    }
}

impl ProviderState {
    fn id_token(&self, form: &BTreeMap<String, String>) -> String {
        let mut claims: Value = json!({"iss": self.issuer, "aud": "sekisho", "sub": self.subject, "exp": 4_000_000_000_u64,
            "preferred_username": "ann@acme.example", "groups": self.groups});
        if let Some(nonce) = form.get("code") {
            claims["nonce"] = nonce.as_str().into();
        }
        encode(&Header::new(Algorithm::EdDSA), &claims, &EncodingKey::from_ed_der(&self.key)).unwrap()
    }

    /// An assertion for the ID token that it gave (RFC 8693).
    fn assertion(&self, form: &BTreeMap<String, String>) -> Value {
        let payload = form["subject_token"].split('.').nth(1).unwrap();
        let signed: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let claims = json!({"iss": self.issuer, "sub": signed["sub"], "groups": signed["groups"], "aud": form["audience"],
            "client_id": "app-at-the-provider", "jti": format!("of-{}", self.forms.len()), "iat": now, "exp": now + 300,
            "resource": form.get("resource"), "scope": form.get("scope")});
        let header = Header { typ: Some("oauth-id-jag+jwt".to_owned()), ..Header::new(Algorithm::EdDSA) };
        let assertion = encode(&header, &claims, &EncodingKey::from_ed_der(&self.key)).unwrap();
        json!({"access_token": assertion, "issued_token_type": self.issued, "token_type": "N_A", "expires_in": 300})
    }
}
