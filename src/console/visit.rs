//! The visitor of a page, and the language: decided once for each request, before the page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::header::{CONTENT_TYPE, COOKIE, REFERER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use maud::Markup;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use subtle::ConstantTimeEq;
use url::{Position, Url};

use super::acts::Act;
use super::sessions::SessionSecret;
use super::sign_in::local_path;
use super::text::{Language, Texts};
use super::{Console, error_page, headers, language, redirect};
use sekisho_api::PageRequest;
use sekisho_api::reply::ErrorReply;
use sekisho_config::ConsoleRole;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};

/// The cookie of a session. Browsers keep a cookie with this prefix only if it is secure, only of this host, and for
/// all paths.
pub(super) const COOKIE_NAME: &str = "__Host-sekisho-console";

/// Interval at which a stream of events looks whether its session goes on.
const SESSION_CHECKS: Duration = Duration::from_secs(1);

/// The name of the field with a form's token.
pub(super) const TOKEN_FIELD: &str = "token";

/// A request for a page, from any visitor.
#[derive(Debug)]
pub(super) struct Guest {
    pub request: PageRequest,
    uri: Uri,
    pub texts: Texts,
    /// The browser's secret of a session, whether there is such a session or not.
    pub secret: Option<SessionSecret>,
    headers: HeaderMap,
}

/// A request of a caller who may see the console.
#[derive(Debug)]
pub(super) struct Visit {
    pub guest: Guest,
    pub caller: Arc<Caller>,
    /// None: the anonymous caller of this machine.
    pub roles: Vec<ConsoleRole>,
}

/// The header in which browsers say which kind of resource they ask for.
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether a request counts as a use of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    Session,
    /// The page asks by itself.
    Nothing,
}

/// The visitor of a page that asks by itself, as it does every few seconds while it is open: that is no use of the session.
/// Without a caller it gets 401 in place of the page for the sign-in, which no script can show.
#[derive(Debug)]
pub(super) struct Watcher(pub Visit);

impl Guest {
    fn of(parts: &Parts) -> Result<Self, CallError> {
        let texts = Texts::new(language::of(&parts.uri, &parts.headers));
        let (request, uri) = (PageRequest::of(parts)?, parts.uri.clone());
        let (secret, headers) = (secret(&parts.headers, COOKIE_NAME), parts.headers.clone());
        Ok(Self { request, uri, texts, secret, headers })
    }

    /// The secret of another cookie of the console.
    pub(super) fn cookie(&self, name: &str) -> Option<SessionSecret> {
        secret(&self.headers, name)
    }

    /// The text of a cookie; `None` for none or more than one.
    pub(super) fn cookie_text(&self, name: &str) -> Option<&str> {
        cookie_text(&self.headers, name)
    }

    /// The address of this page in another language.
    pub(super) fn address_in(&self, language: Language) -> String {
        language::address_in(&self.uri, language)
    }

    /// The page that is shown after a sign-in: a form is not sent again, but the page that has it is shown.
    fn page(&self, method: &Method) -> String {
        if *method == Method::GET {
            return self.uri.path_and_query().map_or("/console", |page| page.as_str()).to_owned();
        }
        let from = self.headers.get(REFERER).and_then(|page| page.to_str().ok()?.parse::<Url>().ok());
        from.map_or_else(|| "/console".to_owned(), |page| local_path(&page[Position::BeforePath..Position::AfterQuery]))
    }

    /// The id of the request, for the log.
    pub(super) fn request_id(&self) -> &str {
        self.request.request.as_ref().map_or("", |request| &request.id)
    }

    /// The caller of the browser's session, or the anonymous one of this machine. A script that reads a page again, as the inbox
    /// does by itself, does not use the session.
    pub(super) async fn caller(&self, console: &Console) -> Option<Arc<Caller>> {
        let is_of_script = self.headers.get(FETCH_DEST).is_some_and(|dest| dest == "empty");
        self.caller_of(console, if is_of_script { Uses::Nothing } else { Uses::Session }).await
    }

    async fn caller_of(&self, console: &Console, uses: Uses) -> Option<Arc<Caller>> {
        let authenticator = console.gateway.keys().authenticator();
        let of_session = self.secret.as_ref().and_then(|secret| match uses {
            Uses::Session => console.sessions.caller(secret, &authenticator),
            Uses::Nothing => console.sessions.watcher(secret, &authenticator),
        });
        if of_session.is_some() {
            return of_session;
        }
        if !self.request.is_local {
            return None;
        }
        let caller = authenticator.authenticate(&HeaderMap::new(), true, &self.request.client_owner).await.ok()?;
        Some(Arc::new(caller.owned_by(self.request.client_owner.clone())))
    }
}

impl Visit {
    pub(super) fn texts(&self) -> Texts {
        self.guest.texts
    }

    /// Whether the page has the links to it.
    pub(super) fn may(&self, act: Act) -> bool {
        self.require(act).is_ok()
    }

    /// Errors: `denied`: by the roles in the console, or to a tenant about resources of all.
    pub(super) fn require(&self, act: Act) -> Result<(), CallError> {
        act.require(&self.roles)?;
        act.require_tenant(&self.caller)
    }

    /// The token of the session's forms; `None` without a session.
    pub(super) fn form_token(&self) -> Option<String> {
        self.guest.secret.as_ref().filter(|_| !self.caller.anonymous).map(SessionSecret::form_token)
    }

    /// Whether the visitor followed a link of `sekisho console`: this machine's user.
    pub(super) fn is_local_user(&self, console: &Console) -> bool {
        let secret = self.guest.secret.as_ref().filter(|_| !self.caller.anonymous);
        secret.is_some_and(|secret| console.sessions.is_of_local_user(secret))
    }

    /// Whether the caller may still see the live parts of the page.
    pub(super) fn is_still_open(&self, console: &Console) -> bool {
        let secret = self.guest.secret.as_ref().filter(|_| !self.caller.anonymous);
        secret.is_none_or(|secret| console.sessions.watcher(secret, &console.gateway.keys().authenticator()).is_some())
    }

    /// A stream of events, until it, the session or the gateway ends.
    pub(super) fn while_open(self, console: Arc<Console>, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let stream = async_stream::stream! {
            let (mut data, mut checks) = (body.into_data_stream(), tokio::time::interval(SESSION_CHECKS));
            loop {
                tokio::select! {
                    piece = data.next() => match piece {
                        Some(piece) => yield piece,
                        None => break,
                    },
                    _ = checks.tick() => if !self.is_still_open(&console) || console.gateway.draining().is_cancelled() {
                        break;
                    },
                }
            }
        };
        Response::from_parts(parts, Body::from_stream(stream))
    }

    /// Checks that a change comes from a page of the console, with the token of the session.
    /// Errors: `denied`.
    pub(super) fn require_token(&self, fields: &[(String, String)]) -> Result<(), CallError> {
        self.guest.request.require_same_origin()?;
        let sent = fields.iter().find(|(name, _)| name == TOKEN_FIELD).map(|(_, token)| token.as_str());
        let is_right = match (self.form_token(), sent) {
            (Some(token), Some(sent)) => bool::from(token.as_bytes().ct_eq(sent.as_bytes())),
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let message = "the form belongs to no session, or to one that has ended; open the page again";
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// The answer of a route of the API to the caller.
    /// Errors: the error of the route.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, console: &Console, path: &str) -> Result<T, CallError> {
        console.api.json(&self.guest.request, &self.caller, (Method::GET, path), None).await
    }

    /// A change, made by a route of the API.
    /// Errors: the error of the route.
    pub(super) async fn change(
        &self,
        console: &Console,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        console.api.json(&self.guest.request, &self.caller, (method, path), body).await
    }

    /// The page, or the one that says why there is none.
    pub(super) fn answer(&self, page: Result<Markup, CallError>) -> Response {
        match page {
            Ok(page) => (StatusCode::OK, [(CONTENT_TYPE, headers::HTML)], page.into_string()).into_response(),
            Err(error) => error_page::of_visit(self, &error),
        }
    }
}

impl FromRequestParts<Arc<Console>> for Guest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _console: &Arc<Console>) -> Result<Self, Response> {
        Self::of(parts).map_err(|error| ErrorReply::from(error).into_response())
    }
}

impl FromRequestParts<Arc<Console>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let guest = Guest::of(parts).map_err(|error| ErrorReply::from(error).into_response())?;
        let Some(caller) = guest.caller(console).await else {
            let to = guest.page(&parts.method);
            return Err(redirect(&format!("/console/sign-in?to={}", utf8_percent_encode(&to, NON_ALPHANUMERIC))));
        };
        match roles(console, &caller) {
            Ok(roles) => Ok(Self { guest, caller, roles }),
            Err(error) => Err(error_page::of_guest(&guest, &error)),
        }
    }
}

impl FromRequestParts<Arc<Console>> for Watcher {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let guest = Guest::of(parts).map_err(|error| ErrorReply::from(error).into_response())?;
        let Some(caller) = guest.caller_of(console, Uses::Nothing).await else {
            return Err(StatusCode::UNAUTHORIZED.into_response());
        };
        match roles(console, &caller) {
            Ok(roles) => Ok(Self(Visit { guest, caller, roles })),
            Err(error) => Err(error_page::of_guest(&guest, &error)),
        }
    }
}

/// The fields of the address after `?`; the default for unreadable ones.
#[derive(Debug)]
pub(super) struct Address<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequestParts<S> for Address<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self(Query::try_from_uri(&parts.uri).map(|Query(read)| read).unwrap_or_default()))
    }
}

/// The caller's roles in the console; none for the anonymous one of this machine.
/// Errors: `denied`: somebody else without a role.
fn roles(console: &Console, caller: &Caller) -> Result<Vec<ConsoleRole>, CallError> {
    let roles = console.gateway.configuration().console_roles(caller);
    if roles.is_empty() && !caller.anonymous { Err(no_role()) } else { Ok(roles) }
}

/// For a caller whose roles give none in the console.
pub(super) fn no_role() -> CallError {
    let message = "this key has no role in the console; an operator gives it one with `console.roles`";
    CallError::new(ErrorCode::Denied, message)
}

/// The secret of a cookie; `None` for none or more than one.
fn secret(headers: &HeaderMap, cookie: &str) -> Option<SessionSecret> {
    SessionSecret::read(cookie_text(headers, cookie)?)
}

fn cookie_text<'a>(headers: &'a HeaderMap, cookie: &str) -> Option<&'a str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(name, _)| *name == cookie).map(|(_, text)| text);
    match (found.next(), found.next()) {
        (Some(text), None) => Some(text),
        _ => None,
    }
}
