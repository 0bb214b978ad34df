//! The way of a browser: from a client's request to the page of consent, to the provider, back, and to the client with a code.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::authorization::{
    AskedConsent, AuthorizationRequest, Fields, PendingAuthorization, SIGN_IN_SECONDS, answer, challenge, digest,
    id_of_state, is_equal, is_own_resource, provider_state, random,
};
use super::error::{OAuthError, OAuthErrorCode};
use super::preset::{Preset, scopes};
use super::provider::{ProviderFailure, tokens};
use super::redirect;
use super::server::AuthorizationServer;
use super::tokens::CodeGrant;
use super::user::User;
use sekisho_config::Secret;
use sekisho_store::sealing::SealedFor;

/// The redirect address of the gateway at the provider.
const CALLBACK: &str = "/oauth/callback";

/// Browsers keep 4096 bytes of a cookie, with its name and attributes.
const MAX_COOKIE: usize = 3_800;

/// A cookie that a browser gets, by the end of its name; an empty text removes it.
#[derive(Clone)]
pub struct BrowserCookie {
    pub id: String,
    pub text: String,
}

/// A page that asks whether a client may act for whoever signs in next.
#[derive(Debug, Clone)]
pub struct AskedConsentPage {
    /// The name that the client gives itself: anybody can write any.
    pub client_name: String,
    pub client: String,
    /// Where the answer is sent.
    pub redirect: String,
    pub scopes: Vec<String>,
    /// The hidden field `request` of its form.
    pub form: String,
    pub cookie: BrowserCookie,
}

/// The refusal of a client's request.
#[derive(Debug)]
pub enum AuthorizeRefusal {
    /// A browser must not be sent to the address of the request.
    Page(OAuthError),
    /// The client is told: it is a program on the user's machine.
    Client(Url),
}

/// Where a browser goes on.
pub struct SentBrowser {
    pub url: Url,
    pub cookie: BrowserCookie,
}

/// The parameters with which a browser comes back from the provider.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProviderReply {
    pub state: String,
    pub code: Option<Secret>,
    pub iss: Option<String>,
    pub error: Option<String>,
}

impl AuthorizationServer<'_> {
    /// Checks a client's request. `source`: the network of the browser.
    pub async fn authorize(
        &self,
        query: Vec<(String, String)>,
        source: &str,
    ) -> Result<AskedConsentPage, AuthorizeRefusal> {
        let fields = Fields::new(query).map_err(AuthorizeRefusal::Page)?;
        let mut request = self.addressed(&fields, source).await.map_err(AuthorizeRefusal::Page)?;
        if let Err(error) = self.complete(&mut request, &fields) {
            // Anybody registers an address, and no user has consented to it: a link must not lead there (RFC 9700 §4.11.2).
            let told = redirect::is_of_this_machine(&request.redirect);
            let url = told.then(|| answer(&request, &self.issuer(), Err(&error))).flatten();
            return Err(url.map_or(AuthorizeRefusal::Page(error), AuthorizeRefusal::Client));
        }
        self.ask(request).map_err(AuthorizeRefusal::Page)
    }

    /// The client of a request, and its address.
    async fn addressed(&self, fields: &Fields, source: &str) -> Result<AuthorizationRequest, OAuthError> {
        let (id, redirect) = (fields.need("client_id")?, fields.need("redirect_uri")?);
        let client = self.client(id, source).await?;
        if !client.has_redirect(redirect) {
            let why = "the redirect address is none of those that the client registered";
            return Err(OAuthError::invalid_request(why));
        }
        redirect::check(redirect, &self.config.redirects)?;
        Ok(AuthorizationRequest {
            client: id.to_owned(),
            client_name: client.name,
            redirect: redirect.to_owned(),
            state: fields.get("state").map(str::to_owned),
            challenge: String::new(),
            scope: String::new(),
            resource: None,
        })
    }

    fn complete(&self, request: &mut AuthorizationRequest, fields: &Fields) -> Result<(), OAuthError> {
        request.challenge = challenge(fields)?;
        if let Some(resource) = fields.get("resource") {
            if !is_own_resource(&self.issuer(), resource) {
                let why = "`resource` is not this gateway: a token of it is for no other server";
                return Err(OAuthError::new(OAuthErrorCode::InvalidTarget, why));
            }
            request.resource = Some(resource.to_owned());
        }
        let asked: Vec<_> = fields.get("scope").unwrap_or_default().split_ascii_whitespace().collect();
        let known: Vec<_> = self.scopes().map(String::as_str).filter(|scope| asked.contains(scope)).collect();
        request.scope = known.join(" ");
        Ok(())
    }

    fn ask(&self, request: AuthorizationRequest) -> Result<AskedConsentPage, OAuthError> {
        let (id, secret) = (hex::encode(rand::random::<[u8; 8]>()), random());
        let asked = AskedConsent { request, id, browser: digest(&secret), until: self.now() + SIGN_IN_SECONDS };
        let form = self.broker.keys.seal(self.sealed_for(CONSENT), &asked)?;
        let AskedConsent { request, id, .. } = asked;
        let scopes = request.scope.split_ascii_whitespace().map(str::to_owned).collect();
        let AuthorizationRequest { client_name, client, redirect, .. } = request;
        let cookie = BrowserCookie { id, text: secret };
        Ok(AskedConsentPage { client_name, client, redirect, scopes, form, cookie })
    }

    /// The user has answered the page of consent. `cookie`: the browser's cookie whose name ends with an id.
    /// Errors: `invalid_request`: the page was shown to another browser, or long ago; `temporarily_unavailable`: the
    /// provider does not answer.
    pub async fn consent(
        &self,
        form: &str,
        is_allowed: bool,
        cookie: impl Fn(&str) -> Option<String>,
    ) -> Result<SentBrowser, OAuthError> {
        let asked: Option<AskedConsent> = self.broker.keys.open(self.sealed_for(CONSENT), form);
        let asked = asked.filter(|asked| self.now() < asked.until);
        let asked = asked.filter(|asked| cookie(&asked.id).is_some_and(|own| is_equal(&digest(&own), &asked.browser)));
        let asked = asked.ok_or_else(|| {
            OAuthError::invalid_request(
                "this page was shown to another browser, or too long ago: begin again in the client",
            )
        })?;
        let AskedConsent { request, id, .. } = asked;
        if !is_allowed {
            let denied = OAuthError::new(OAuthErrorCode::AccessDenied, "the user denied it");
            return self.sent(&request, Err(&denied), id);
        }
        let endpoints = self.broker.provider(self.config).await?.endpoints().await?;
        let (state, nonce, verifier) = (provider_state(&id), random(), random());
        let mut url = endpoints.authorization;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", &self.callback())
            .append_pair("scope", &scopes(self.config))
            .append_pair("state", &state)
            .append_pair("nonce", &nonce)
            .append_pair("code_challenge", &BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier)))
            .append_pair("code_challenge_method", "S256")
            .extend_pairs(Preset::of(self.config.provider).parameters);
        let until = self.now() + SIGN_IN_SECONDS;
        let pending = PendingAuthorization { request, state, nonce, verifier, until };
        let text = self.broker.keys.seal(self.sealed_for(PENDING), &pending)?;
        let text = BASE64_URL_SAFE_NO_PAD.encode(text);
        if text.len() > MAX_COOKIE {
            return Err(OAuthError::invalid_request(
                "the request of the client is too long: its `state`, address or `resource`",
            ));
        }
        Ok(SentBrowser { url, cookie: BrowserCookie { id, text } })
    }

    /// The browser comes back from the provider, and goes to the client with a code or an error.
    /// Errors: `invalid_request`: no sign-in has begun in this browser, or not with this `state`.
    pub async fn finish(
        &self,
        reply: ProviderReply,
        cookie: impl Fn(&str) -> Option<String>,
    ) -> Result<SentBrowser, OAuthError> {
        let id = id_of_state(&reply.state).map(str::to_owned);
        let pending = id.as_deref().and_then(cookie).and_then(|text| self.pending(&text));
        let pending = pending.filter(|pending| self.now() < pending.until && is_equal(&pending.state, &reply.state));
        let (Some(id), Some(pending)) = (id, pending) else {
            let why =
                "no sign-in has begun in this browser within ten minutes, or another one: begin again in the client";
            return Err(OAuthError::invalid_request(why));
        };
        let code = self.code_of(&pending, reply).await;
        self.sent(&pending.request, code.as_deref(), id)
    }

    fn pending(&self, cookie: &str) -> Option<PendingAuthorization> {
        let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(cookie).ok()?).ok()?;
        self.broker.keys.open(self.sealed_for(PENDING), &text)
    }

    async fn code_of(&self, pending: &PendingAuthorization, reply: ProviderReply) -> Result<String, OAuthError> {
        let denied = |why: &str| OAuthError::new(OAuthErrorCode::AccessDenied, why);
        let provider = self.broker.provider(self.config).await?;
        let endpoints = provider.endpoints().await?;
        // RFC 9207: another provider must not bring its code here.
        let is_issuer = reply.iss.as_ref().map_or(!endpoints.names_issuer, |issuer| *issuer == endpoints.issuer);
        if !is_issuer {
            return Err(denied("the browser came back from another sign-in provider"));
        }
        let code = match (reply.code, reply.error) {
            (Some(code), None) => code,
            (_, Some(error)) => {
                let error: String = error.chars().filter(char::is_ascii_graphic).take(60).collect();
                return Err(denied(&format!("the sign-in provider refused the sign-in: {error}")));
            }
            (None, None) => return Err(denied("the sign-in provider sent no code")),
        };
        let callback = self.callback();
        let grant = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", &*callback),
            ("code_verifier", &*pending.verifier),
        ];
        let tokens =
            tokens(&self.broker.outbound, self.config, &endpoints, &grant).await.map_err(|failure| match failure {
                ProviderFailure::Refused => denied("the sign-in provider gave no token for this sign-in"),
                ProviderFailure::Failed => {
                    OAuthError::unavailable("the sign-in provider does not answer; try again in a moment")
                }
            })?;
        let id_token = tokens.id_token.ok_or_else(|| denied("the sign-in provider sent no ID token"))?;
        let user = User::of(&provider.claims(&id_token, Some(&pending.nonce)).await?, self.config)?;
        let (request, id_token) = (pending.request.clone(), self.kept(id_token));
        self.keep_code(CodeGrant { request, user, refresh_token: tokens.refresh_token, id_token }).await
    }

    fn sent(
        &self,
        request: &AuthorizationRequest,
        outcome: Result<&str, &OAuthError>,
        id: String,
    ) -> Result<SentBrowser, OAuthError> {
        let url = answer(request, &self.issuer(), outcome);
        let url = url.ok_or_else(|| OAuthError::invalid_request("the redirect address is no address"))?;
        Ok(SentBrowser { url, cookie: BrowserCookie { id, text: String::new() } })
    }

    /// For one provider: a sign-in that began at another one does not end at it.
    fn sealed_for(&self, kind: &'static str) -> SealedFor<'_> {
        SealedFor { tenant: "", owner: &self.config.issuer, kind }
    }

    fn callback(&self) -> String {
        format!("{}{CALLBACK}", self.issuer())
    }

    /// Seconds since 1970, by the clock of the store.
    pub(crate) fn now(&self) -> i64 {
        self.broker.keys.store.now().as_second()
    }
}

/// The kinds of sealed texts.
const CONSENT: &str = "broker consent";
const PENDING: &str = "broker sign-in";

/// The address has a code or a state.
impl fmt::Debug for SentBrowser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SentBrowser").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

impl fmt::Debug for BrowserCookie {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BrowserCookie").field("id", &self.id).finish_non_exhaustive()
    }
}
