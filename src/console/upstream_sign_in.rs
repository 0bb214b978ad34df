//! The page where a caller signs in to an upstream that is called as its callers.
//!
//! Its address by itself does nothing: the browser shows that it is the caller's, by the session of the console or by
//! the one-time code that only the caller was given. It gets a cookie then, without which the sign-in does not end. So
//! nobody can have another person sign in for them by a link, neither to this page nor to the authorization server.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use url::Url;

use super::address::encoded;
use super::sessions::SessionSecret;
use super::sign_in::require_encryption;
use super::visit::{Address, Guest, TOKEN_FIELD};
use super::{Console, error_page, format, frame, headers, upstream_sign_ins};
use sekisho_api::reply::status as status_of;
use sekisho_api::{CredentialRequest, read_form, user_addresses};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_config::Secret;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::CredentialKind;
use sekisho_store::{SIGN_IN_TTL, StoredSignIn};
use sekisho_user_tokens::ReturnedBrowser;

/// The cookie of the browser that was sent to the authorization server.
const COOKIE_NAME: &str = "__Host-sekisho-upstream-sign-in";

/// The visitor of the page.
#[derive(Debug, PartialEq, Eq)]
enum Viewer {
    /// The session of the console is the caller's.
    Caller,
    /// The session of the console belongs to another caller, with this id.
    Other(String),
    /// There is none.
    Unknown,
}

/// The parameters that the authorization server adds to the address. No `Debug`: one of them is the code.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Returned {
    state: String,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// `GET /console/upstream-sign-in/{id}`.
pub(super) async fn page(State(console): State<Arc<Console>>, Path(id): Path<String>, guest: Guest) -> Response {
    match console.gateway.sign_ins().open(&id).await {
        Ok(sign_in) => {
            let viewer = viewer(&console, &guest, &sign_in).await;
            let form = Form { asks: console.gateway.sign_ins().asks_for_credential(&sign_in.source), error: None };
            respond(StatusCode::OK, form.show(&guest, &sign_in, &viewer))
        }
        Err(error) => error_page::of_guest(&guest, &error),
    }
}

/// `POST /console/upstream-sign-in/{id}`: with the proof that the browser is the caller's.
pub(super) async fn begin(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let guest = match Guest::from_request_parts(&mut parts, &console).await {
        Ok(guest) => guest,
        Err(response) => return response,
    };
    let accepted = guest.request.require_same_origin().and_then(|()| require_encryption(&guest));
    let fields = match accepted {
        Ok(()) => read_form(&parts, body, &guest.request.client_owner, &console.gateway).await,
        Err(error) => Err(error),
    };
    let found = match fields {
        Ok(fields) => console.gateway.sign_ins().open(&id).await.map(|sign_in| (fields, sign_in)),
        Err(error) => Err(error),
    };
    let (fields, sign_in) = match found {
        Ok(found) => found,
        Err(error) => return error_page::of_guest(&guest, &error),
    };
    let viewer = viewer(&console, &guest, &sign_in).await;
    let asks = console.gateway.sign_ins().asks_for_credential(&sign_in.source);
    let refused = match prove(&console, &guest, &sign_in, &viewer, &fields).await {
        Ok(()) if asks => match store(&console, &guest, &sign_in, &fields).await {
            Ok(()) => return respond(StatusCode::OK, done(&guest, &sign_in)),
            Err(error) => Some(error),
        },
        proven => proven.err(),
    };
    if let Some(error) = refused {
        let form = Form { asks, error: Some(&error) };
        return respond(status_of(error.code()), form.show(&guest, &sign_in, &viewer));
    }
    let browser = SessionSecret::random();
    let begun = match user_addresses(&parts, &console.gateway) {
        Ok(own) => console.gateway.sign_ins().begin(&sign_in, browser.as_str(), &own).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(url) => {
            let page = respond(StatusCode::OK, way_on(&guest, &sign_in, &url));
            with_cookie(page, browser.as_str(), SIGN_IN_TTL.as_secs())
        }
        Err(error) => error_page::of_guest(&guest, &error),
    }
}

/// `GET /console/upstream-sign-in/callback`: the browser comes back.
pub(super) async fn finish(
    State(console): State<Arc<Console>>,
    guest: Guest,
    Address(returned): Address<Returned>,
) -> Response {
    let event = AuditEvent::new(EventKind::SignInFinished).of_request(guest.request.request.as_ref(), None);
    let finished = match (guest.cookie(COOKIE_NAME), returned.read()) {
        (Some(browser), Ok(returned)) => console.gateway.sign_ins().finish(browser.as_str(), returned, event).await,
        (None, _) => Err(not_begun_here()),
        (_, Err(error)) => Err(error),
    };
    match finished {
        Ok(sign_in) => with_cookie(respond(StatusCode::OK, done(&guest, &sign_in)), "", 0),
        Err(error) => {
            let page = error_page::of_guest(&guest, &error);
            // Any site can send a browser here: a request that is no answer to its sign-in does not end the sign-in.
            if error.code() == ErrorCode::UpstreamError { with_cookie(page, "", 0) } else { page }
        }
    }
}

/// The address of the page of a sign-in.
pub(super) fn path_of(id: &str) -> String {
    format!("/console/upstream-sign-in/{}", encoded(id))
}

impl Returned {
    fn read(self) -> Result<ReturnedBrowser, CallError> {
        let outcome = match (self.code, self.error) {
            (Some(code), None) => Ok(code),
            (None, Some(error)) => {
                let more = self.error_description.map(|more| format!(" ({more})")).unwrap_or_default();
                Err(format!("{error}{more}"))
            }
            _ => {
                let message = "`code` or `error` is required, but not both; an authorization server sends one of them";
                return Err(CallError::new(ErrorCode::InvalidRequest, message));
            }
        };
        Ok(ReturnedBrowser { state: self.state, issuer: self.iss, outcome })
    }
}

async fn viewer(console: &Console, guest: &Guest, sign_in: &StoredSignIn) -> Viewer {
    match guest.caller(console).await.filter(|caller| !caller.anonymous) {
        Some(caller) if *caller.key == *sign_in.caller_key => Viewer::Caller,
        Some(caller) => Viewer::Other(caller.id.to_string()),
        None => Viewer::Unknown,
    }
}

/// Errors: `denied`: the browser is not the caller's, as far as that is known.
async fn prove(
    console: &Console,
    guest: &Guest,
    sign_in: &StoredSignIn,
    viewer: &Viewer,
    fields: &[(String, String)],
) -> Result<(), CallError> {
    match viewer {
        Viewer::Caller => {
            let token = guest.secret.as_ref().map(SessionSecret::form_token);
            let sent = field(fields, TOKEN_FIELD);
            match token.is_some_and(|token| bool::from(token.as_bytes().ct_eq(sent.as_bytes()))) {
                true => Ok(()),
                false => Err(denied("the form belongs to another session; open the page again")),
            }
        }
        Viewer::Other(_) => Err(denied("this browser is signed in as another caller than the one who is to sign in")),
        Viewer::Unknown => console.gateway.sign_ins().check_code(sign_in, field(fields, "code")).await,
    }
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> &'a str {
    fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
}

/// Stores the credential of the form for the caller of the sign-in.
async fn store(
    console: &Console,
    guest: &Guest,
    sign_in: &StoredSignIn,
    fields: &[(String, String)],
) -> Result<(), CallError> {
    let kind = match field(fields, "kind") {
        "key" => CredentialKind::Key,
        "basic" => CredentialKind::Basic,
        "header" => CredentialKind::Header,
        _ => return Err(CallError::new(ErrorCode::InvalidRequest, "`kind` must be `key`, `basic` or `header`")),
    };
    let username = Some(field(fields, "username").to_owned());
    let day = Some(field(fields, "expires")).filter(|day| !day.is_empty());
    let expires_at = day.map(|day| format!("{day}T23:59:59Z"));
    let secret = Secret::new(field(fields, "secret"));
    let new = CredentialRequest { kind, username, secret, expires_at }.read()?;
    let event = AuditEvent::new(EventKind::CredentialStored).of_request(guest.request.request.as_ref(), None);
    console.gateway.sign_ins().store_at_page(sign_in, &new, event).await
}

/// The form of a page.
struct Form<'a> {
    /// Whether it asks for a credential instead of leading to an authorization server.
    asks: bool,
    error: Option<&'a CallError>,
}

impl Form<'_> {
    fn show(&self, guest: &Guest, sign_in: &StoredSignIn, viewer: &Viewer) -> Markup {
        let (texts, source) = (guest.texts, shown(&sign_in.source));
        let title = match self.asks {
            true => texts.with("credential-title", [("source", source.clone().into())]),
            false => texts.with("upstream-title", [("source", source.clone().into())]),
        };
        let (caller, tenant) = (shown(&sign_in.caller_id), shown(&sign_in.tenant));
        let values = [("caller", caller.into()), ("tenant", tenant.into()), ("source", source.into())];
        let whose = match self.asks {
            true => texts.with("credential-for", values),
            false => texts.with("upstream-for", values),
        };
        frame::narrow(guest, &title, &html! { h1 { (title) } p { (whose) } (self.proof(guest, sign_in, viewer)) })
    }

    /// The form with which the browser shows that it is the caller's.
    fn proof(&self, guest: &Guest, sign_in: &StoredSignIn, viewer: &Viewer) -> Markup {
        let texts = guest.texts;
        let caller = shown(&sign_in.caller_id);
        let page = path_of(&sign_in.id);
        html! {
            p.quiet { (texts.with("upstream-warning", [("caller", caller.clone().into())])) }
            @if let Some(error) = self.error {
                div.notice.bad #failure role="alert" { p { (format::text(error.message())) } }
            }
            @match viewer {
                Viewer::Other(other) => {
                    div.notice.bad role="alert" { p { (texts.with("upstream-other", [("caller", shown(other).into())])) } }
                }
                Viewer::Caller => {
                    form.stack method="post" action=(page) {
                        input type="hidden" name=(TOKEN_FIELD)
                            value=(guest.secret.as_ref().map(SessionSecret::form_token).unwrap_or_default());
                        (self.credential(guest))
                    }
                }
                Viewer::Unknown => {
                    form.stack method="post" action=(page) {
                        div.field {
                            label for="code" { (texts.get("upstream-code")) }
                            input #code name="code" required autocomplete="one-time-code" spellcheck="false"
                                aria-describedby="code-help";
                            p.help #code-help { (texts.get("upstream-code-help")) }
                        }
                        (self.credential(guest))
                    }
                    p { a href={ "/console/sign-in?to=" (utf8_percent_encode(&page, NON_ALPHANUMERIC)) } {
                        (texts.with("upstream-console", [("caller", caller.into())]))
                    } }
                }
            }
        }
    }

    /// The fields of the credential, if the page asks for one, and the button.
    fn credential(&self, guest: &Guest) -> Markup {
        let texts = guest.texts;
        if !self.asks {
            return html! { button.main { (texts.get("upstream-button")) } };
        }
        html! {
            div.field {
                label for="kind" { (texts.get("credential-kind")) }
                select #kind name="kind" {
                    option value="key" { (texts.get("credential-key")) }
                    option value="basic" { (texts.get("credential-basic")) }
                    option value="header" { (texts.get("credential-header")) }
                }
            }
            div.field {
                label for="username" { (texts.get("credential-username")) }
                input #username name="username" autocomplete="off" spellcheck="false";
            }
            div.field {
                label for="secret" { (texts.get("credential-secret")) }
                input #secret name="secret" type="password" required autocomplete="off" aria-describedby="secret-help";
                p.help #secret-help { (texts.get("credential-secret-help")) }
            }
            div.field {
                label for="expires" { (texts.get("credential-expires")) }
                input #expires name="expires" type="date";
            }
            button.main { (texts.get("credential-store")) }
        }
    }
}

/// A link instead of a redirect: forms of the console lead to no other server, and its user sees where it leads.
fn way_on(guest: &Guest, sign_in: &StoredSignIn, url: &Url) -> Markup {
    let texts = guest.texts;
    let title = texts.with("upstream-title", [("source", shown(&sign_in.source).into())]);
    let host = shown(&url.origin().ascii_serialization());
    frame::narrow(
        guest,
        &title,
        &html! {
            h1 { (title) }
            p { (texts.with("upstream-ready", [("caller", shown(&sign_in.caller_id).into())])) }
            p { a.main href=(url.as_str()) rel="noreferrer" { (texts.with("upstream-continue", [("host", host.into())])) } }
        },
    )
}

fn done(guest: &Guest, sign_in: &StoredSignIn) -> Markup {
    let texts = guest.texts;
    let title = texts.get("upstream-done-title");
    frame::narrow(
        guest,
        &title,
        &html! {
            h1 { (title) }
            p { (texts.with("upstream-done", [
                ("caller", shown(&sign_in.caller_id).into()),
                ("source", shown(&sign_in.source).into()),
            ])) }
            @if guest.secret.is_some() {
                p { a href=(upstream_sign_ins::PATH) { "← " (texts.get("nav-sign-ins")) } }
            }
        },
    )
}

fn shown(text: &str) -> String {
    format::text(text).into_owned()
}

fn respond(status: StatusCode, page: Markup) -> Response {
    (status, [(CONTENT_TYPE, headers::HTML)], page.into_string()).into_response()
}

fn with_cookie(mut response: Response, secret: &str, seconds: u64) -> Response {
    let cookie = format!("{COOKIE_NAME}={secret}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn not_begun_here() -> CallError {
    let message =
        "no sign-in to an upstream has begun in this browser within ten minutes: make the call again for another one";
    CallError::new(ErrorCode::NotFound, message)
}

fn denied(message: &str) -> CallError {
    CallError::new(ErrorCode::Denied, message)
}
