//! One sign-in of an editor through the gateway, stage by stage: the honest request of each, and its answer.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use url::Url;

use super::forms::{consent_form, encoded, is_page, object, pairs, registration};
use super::provider::{Provider, Shape};
use crate::app::TestApp;
use crate::console_open_id::Browser;

/// Where the editor listens: a port of loopback.
pub(super) const REDIRECT: &str = "http://127.0.0.1:7777/callback";
/// The second address that it registers.
pub(super) const SECOND_REDIRECT: &str = "https://editor.example/callback";
/// The address of another client.
pub(super) const OTHER_REDIRECT: &str = "https://other.example/callback";
pub(super) const VERIFIER: &str = "a-verifier-of-the-editor-that-has-more-than-43-characters";
const STATE: &str = "state-of-the-editor";

const KEYS: &str = "{id: root, key: key-of-root, roles: [admin]}, {id: ada, key: key-of-ada, tenant: acme, roles: [admin]}, \
    {id: gil, key: key-of-gil, tenant: globex, roles: [admin]}, {id: pat, key: key-of-pat, tenant: acme}";

/// A gateway that signs editors in, and the provider behind it.
pub(super) struct World {
    pub(super) app: TestApp,
    pub(super) provider: Provider,
}

impl World {
    pub(super) async fn start(shape: Shape) -> Self {
        Self::with(Provider::start(shape).await, "", "", TempDir::new().unwrap()).await
    }

    /// With further settings of `auth.broker`, and further topics.
    pub(super) async fn with(provider: Provider, of_broker: &str, topics: &str, directory: TempDir) -> Self {
        let yaml = settings(&provider, of_broker, topics);
        Self { app: Box::pin(TestApp::in_directory(directory, &yaml)).await, provider }
    }
}

/// The configuration: Entra's app role, or the address at Google, makes an administrator of the tenant.
pub(super) fn settings(provider: &Provider, of_broker: &str, topics: &str) -> String {
    let rules = match provider.shape() {
        Shape::Entra => "roles_claim: roles, roles: {Tools.Admin: [admin], Tools.User: [support]}",
        Shape::Google => "roles_claim: email, roles: {ann@acme.example: [admin]}",
    };
    let more = if of_broker.is_empty() { String::new() } else { format!(", {of_broker}") };
    format!(
        "server: {{mcp: {{public_url: 'http://127.0.0.1:0'}}}}\n{topics}\nauth:\n  anonymous: never\n  api_keys: [{KEYS}]\n  \
         broker: {{{}, tenant: acme, {rules}{more}}}\n",
        provider.settings()
    )
}

/// The requests of a sign-in, and those with what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Register,
    Authorize,
    Consent,
    Callback,
    Token,
    Refresh,
    Use,
    Introspect,
    Revoke,
    Sessions,
    End,
}

/// In their order.
pub(super) static STAGES: [Stage; 11] = [
    Stage::Register,
    Stage::Authorize,
    Stage::Consent,
    Stage::Callback,
    Stage::Token,
    Stage::Refresh,
    Stage::Use,
    Stage::Introspect,
    Stage::Revoke,
    Stage::Sessions,
    Stage::End,
];

impl Stage {
    /// The stages that come before.
    fn before(self) -> &'static [Self] {
        match self {
            Self::Register => &[],
            Self::Authorize => &STAGES[..1],
            Self::Consent => &STAGES[..2],
            Self::Callback => &STAGES[..3],
            Self::Token => &STAGES[..4],
            Self::Refresh | Self::Use | Self::Introspect | Self::Revoke | Self::Sessions => &STAGES[..5],
            Self::End => &[Self::Register, Self::Authorize, Self::Consent, Self::Callback, Self::Token, Self::Sessions],
        }
    }

    /// The answer to the honest request.
    pub(super) fn success(self) -> &'static [u16] {
        match self {
            Self::Register => &[201],
            Self::Consent | Self::Callback => &[302, 303],
            Self::End => &[200, 204],
            _ => &[200],
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) fields: Map<String, Value>,
    pub(super) bearer: Option<String>,
    /// The page that makes the browser send a form; without one a page of the gateway.
    pub(super) origin: Option<String>,
    /// Of another person than the one who began.
    pub(super) by_other_browser: bool,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) location: Option<String>,
    pub(super) text: String,
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let location = headers.get(LOCATION).map(|value| value.to_str().unwrap().to_owned());
        Self { status, headers, location, text: response.text().await.unwrap() }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("the body is not JSON: {self:?}"))
    }

    /// A parameter of the address that it leads to.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let location = Url::parse(self.location.as_deref()?).ok()?;
        location.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }
}

/// A sign-in.
pub(super) struct Run<'a> {
    pub(super) world: &'a World,
    /// Under which address the gateway is asked: that of a replica.
    pub(super) url: String,
    browser: Browser,
    other_browser: Browser,
    /// Known so far, such as `client`, `code` and `refresh_token`.
    pub(super) values: BTreeMap<&'static str, String>,
    /// The fields of the consent page.
    form: Map<String, Value>,
}

impl<'a> Run<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let own = [
            ("redirect", REDIRECT),
            ("second_redirect", SECOND_REDIRECT),
            ("other_redirect", OTHER_REDIRECT),
            ("public", world.app.url.as_str()),
            ("issuer", world.provider.issuer.as_str()),
        ];
        Self {
            world,
            url: world.app.url.clone(),
            browser: Browser::new(),
            other_browser: Browser::new(),
            values: own.into_iter().map(|(name, value)| (name, value.to_owned())).collect(),
            form: Map::new(),
        }
    }

    pub(super) fn value(&self, name: &str) -> &str {
        self.values.get(name).unwrap_or_else(|| panic!("no {name} yet: {:?}", self.values))
    }

    /// Asks another replica from now on, as through a proxy of all.
    pub(super) fn turn_to(&mut self, url: &str) {
        for (origin, ..) in self.browser.cookies.iter_mut().filter(|(origin, ..)| *origin == self.url) {
            url.clone_into(origin);
        }
        let public = self.value("public").split("://").nth(1).map(str::to_owned);
        self.browser.host = public;
        url.clone_into(&mut self.url);
    }

    /// Goes through everything before a stage.
    pub(super) async fn reach(&mut self, stage: Stage) {
        for earlier in stage.before() {
            self.pass(*earlier).await;
        }
    }

    /// Sends the honest request of a stage, which must succeed.
    pub(super) async fn pass(&mut self, stage: Stage) -> Answer {
        let answer = self.send(&self.request(stage)).await;
        assert!(stage.success().contains(&answer.status), "{stage:?}: {answer:?}");
        self.keep(stage, &answer).await;
        answer
    }

    /// The honest request of a stage.
    pub(super) fn request(&self, stage: Stage) -> Sent {
        let (method, path, fields) = match stage {
            Stage::Register => ("JSON", "/oauth/register".to_owned(), registration(&[REDIRECT, SECOND_REDIRECT])),
            Stage::Authorize => ("GET", "/oauth/authorize".to_owned(), self.authorization()),
            Stage::Consent => ("POST", self.value("consent").to_owned(), self.form.clone()),
            Stage::Callback => {
                let url = Url::parse(self.value("callback")).unwrap();
                ("GET", url.path().to_owned(), pairs(&url))
            }
            Stage::Token => ("POST", "/oauth/token".to_owned(), self.exchange()),
            Stage::Refresh => ("POST", "/oauth/token".to_owned(), self.refresh("refresh_token")),
            Stage::Use => ("GET", "/tools/list".to_owned(), Map::new()),
            Stage::Introspect => {
                ("POST", "/oauth/introspect".to_owned(), object(json!({"token": self.value("access_token")})))
            }
            Stage::Revoke => {
                let fields = json!({"token": self.value("refresh_token"), "client_id": self.value("client")});
                ("POST", "/oauth/revoke".to_owned(), object(fields))
            }
            Stage::Sessions => ("GET", "/admin/oauth/sessions".to_owned(), Map::new()),
            Stage::End => ("DELETE", format!("/admin/oauth/sessions/{}", self.value("session")), Map::new()),
        };
        let bearer = match stage {
            Stage::Use => Some(self.value("access_token").to_owned()),
            Stage::Introspect | Stage::Sessions | Stage::End => Some("key-of-ada".to_owned()),
            _ => None,
        };
        Sent { method, path, fields, bearer, origin: None, by_other_browser: false }
    }

    fn authorization(&self) -> Map<String, Value> {
        object(json!({
            "response_type": "code", "client_id": self.value("client"), "redirect_uri": REDIRECT, "state": STATE,
            "code_challenge": URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER.as_bytes())), "code_challenge_method": "S256",
            "resource": format!("{}/mcp", self.value("public")),
        }))
    }

    fn exchange(&self) -> Map<String, Value> {
        object(json!({
            "grant_type": "authorization_code", "code": self.value("code"), "client_id": self.value("client"),
            "redirect_uri": REDIRECT, "code_verifier": VERIFIER, "resource": format!("{}/mcp", self.value("public")),
        }))
    }

    /// A refresh with one of the tokens.
    pub(super) fn refresh(&self, token: &str) -> Map<String, Value> {
        let (token, client) = (self.value(token), self.value("client"));
        object(json!({"grant_type": "refresh_token", "refresh_token": token, "client_id": client}))
    }

    pub(super) async fn send(&mut self, sent: &Sent) -> Answer {
        let url = format!("{}{}", self.url, sent.path);
        let form = if sent.method == "JSON" { String::new() } else { encoded(&sent.fields) };
        // Programs and administrators have no cookies.
        if sent.method == "JSON" || sent.bearer.is_some() || !is_page(&sent.path) {
            let client = &self.world.app.client;
            let request = match sent.method {
                "JSON" => client.post(&url).json(&sent.fields),
                "DELETE" => client.delete(&url),
                "GET" => client.get(&url),
                _ => client.post(&url).header("content-type", "application/x-www-form-urlencoded").body(form),
            };
            let request = match &sent.bearer {
                Some(token) if !token.is_empty() => request.bearer_auth(token),
                _ => request,
            };
            return Answer::of(request.send().await.unwrap()).await;
        }
        let browser = if sent.by_other_browser { &mut self.other_browser } else { &mut self.browser };
        let page = sent.origin.as_deref().unwrap_or(&self.values["public"]);
        let response = match sent.method {
            "GET" => browser.send_from(page, &format!("{url}?{form}"), None).await,
            _ => browser.send_from(page, &url, Some(&form)).await,
        };
        Answer::of(response).await
    }

    /// Keeps what later stages need of a success.
    pub(super) async fn keep(&mut self, stage: Stage, answer: &Answer) {
        match stage {
            Stage::Register => {
                let id = answer.json()["client_id"].as_str().unwrap().to_owned();
                self.values.insert("client", id);
            }
            Stage::Authorize => {
                let (action, form) = consent_form(&answer.text);
                self.values.insert("consent", action);
                self.form = form;
            }
            Stage::Consent => {
                let address = answer.location.clone().unwrap();
                assert!(self.world.provider.owns(&address), "the browser is sent to the provider: {address}");
                let end = format!("{}/oauth/callback?", self.value("public"));
                let back = self.browser.follow(&address, &end, "ann").await;
                self.values.insert("callback", back);
            }
            Stage::Callback => {
                let address = answer.location.as_deref().unwrap();
                assert!(address.starts_with(&format!("{REDIRECT}?")), "{address}");
                assert_eq!(answer.parameter("state").as_deref(), Some(STATE), "{address}");
                assert_eq!(answer.parameter("iss").as_deref(), Some(self.value("public")), "RFC 9207: {address}");
                self.values.insert("code", answer.parameter("code").unwrap_or_else(|| panic!("{address}")));
            }
            Stage::Token => {
                let given = answer.json();
                for name in ["access_token", "refresh_token"] {
                    self.values.insert(name, given[name].as_str().unwrap_or_else(|| panic!("{given}")).to_owned());
                }
                self.values.insert("newest_refresh_token", self.value("refresh_token").to_owned());
            }
            Stage::Refresh => {
                let newest = answer.json()["refresh_token"].as_str().unwrap().to_owned();
                assert_ne!(newest, self.value("refresh_token"), "each is used once");
                self.values.insert("newest_refresh_token", newest);
            }
            Stage::Sessions => {
                let id = answer.json()["items"][0]["id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
                self.values.insert("session", id);
            }
            Stage::Use | Stage::Introspect | Stage::Revoke | Stage::End => {}
        }
    }

    /// Registers a client with another name and address.
    pub(super) async fn register_other(&mut self) {
        let sent = Sent { fields: registration(&[OTHER_REDIRECT]), ..self.request(Stage::Register) };
        let answer = self.send(&sent).await;
        assert_eq!(answer.status, StatusCode::CREATED.as_u16(), "{answer:?}");
        self.values.insert("other_client", answer.json()["client_id"].as_str().unwrap().to_owned());
    }

    /// Whether a refresh with the newest token succeeds.
    pub(super) async fn refreshes(&mut self) -> bool {
        let sent = Sent { fields: self.refresh("newest_refresh_token"), ..self.request(Stage::Refresh) };
        let answer = self.send(&sent).await;
        assert!(answer.status == 200 || answer.json()["error"] == "invalid_grant", "{answer:?}");
        answer.status == 200
    }
}
