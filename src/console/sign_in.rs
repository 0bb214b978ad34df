//! Signing in with a key or token of the gateway, and out. The browser gets a cookie; the key is kept by nobody.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::html;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use url::{Position, Url};

use super::visit::{Address, COOKIE_NAME, Guest, Visit, no_role};
use super::{Console, error_page, format, frame, headers, redirect};
use sekisho_api::read_form;
use sekisho_api::reply::status as status_of;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_auth::SignedIn;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Destination {
    /// The page to show after it.
    pub to: String,
}

/// `GET /console/sign-in`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    guest: Guest,
    Address(destination): Address<Destination>,
) -> Response {
    form(&console, &guest, StatusCode::OK, &destination.to, None)
}

/// `POST /console/sign-in`.
pub(super) async fn sign_in(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let guest = match Guest::from_request_parts(&mut parts, &console).await {
        Ok(guest) => guest,
        Err(response) => return response,
    };
    if let Err(error) = guest.request.require_same_origin() {
        return error_page::of_guest(&guest, &error);
    }
    let fields = match read_form(&parts, body, &guest.request.client_owner, &console.gateway).await {
        Ok(fields) => fields,
        Err(error) => return error_page::of_guest(&guest, &error),
    };
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str());
    match start(&console, &guest, field("key")).await {
        Ok(cookie) => {
            let mut response = redirect(&local_path(field("to")));
            response.headers_mut().insert(SET_COOKIE, cookie);
            response
        }
        Err(error) => form(&console, &guest, status_of(error.code()), field("to"), Some(&error)),
    }
}

/// `POST /console/sign-out`.
pub(super) async fn sign_out(State(console): State<Arc<Console>>, request: Request<Body>) -> Response {
    let (mut parts, body) = request.into_parts();
    let visit = match Visit::from_request_parts(&mut parts, &console).await {
        Ok(visit) => visit,
        Err(response) => return response,
    };
    let fields = read_form(&parts, body, &visit.caller.owner, &console.gateway).await;
    if let Err(error) = fields.and_then(|fields| visit.require_token(&fields)) {
        return error_page::of_visit(&visit, &error);
    }
    if let Some(secret) = &visit.guest.secret {
        console.sessions.end(secret);
    }
    if let Ok(slot) = console.gateway.pipeline.settlement.audit.reserve() {
        _ = slot.write_event(event(&visit.guest, EventKind::ConsoleSignedOut, &visit.caller, None));
    }
    let mut response = redirect("/console/sign-in");
    response.headers_mut().insert(SET_COOKIE, cookie("", "; Max-Age=0"));
    response
}

/// Starts a session, and gives its cookie.
async fn start(console: &Console, guest: &Guest, key: &str) -> Result<HeaderValue, CallError> {
    require_encryption(guest)?;
    let accepted = console.gateway.keys().authenticator().sign_in(key, &guest.request.client_owner).await;
    let signed_in = accepted.inspect_err(|error| {
        console.gateway.pipeline.settlement.unauthenticated(error, guest.request.request.as_ref(), None);
    })?;
    begin(console, guest, signed_in)
}

/// Errors: `denied`: the browser would not keep the cookie.
pub(super) fn require_encryption(guest: &Guest) -> Result<(), CallError> {
    if guest.request.is_encrypted || guest.request.is_local {
        return Ok(());
    }
    let message = "a browser keeps the cookie of a session only over https, or on this machine; open the console under \
                   an https address (`server.tls`, or a proxy in `server.trusted_proxies`)";
    Err(CallError::new(ErrorCode::Denied, message))
}

/// Begins the session of a sign-in in place of the one that the browser had, and gives its cookie.
/// Errors: `denied`: the caller has no role in the console; `overloaded`: the audit trail cannot take the line.
pub(super) fn begin(console: &Console, guest: &Guest, signed_in: SignedIn) -> Result<HeaderValue, CallError> {
    let caller = Arc::clone(signed_in.caller());
    // No session begins without a line in the audit trail.
    let slot = console.gateway.pipeline.settlement.audit.reserve()?;
    let refused = console.gateway.configuration().console_roles(&caller).is_empty().then(no_role);
    _ = slot.write_event(event(guest, EventKind::ConsoleSignedIn, &caller, refused.as_ref()));
    match refused {
        Some(error) => Err(error),
        None => Ok(cookie(console.sessions.start(signed_in, guest.secret.as_ref()).as_str(), "")),
    }
}

fn event(guest: &Guest, kind: EventKind, caller: &Arc<Caller>, refusal: Option<&CallError>) -> AuditEvent {
    AuditEvent {
        caller: Some(Arc::clone(caller)),
        success: refusal.is_none(),
        detail: refusal.map(|refusal| refusal.message().to_owned()),
        ..AuditEvent::new(kind).of_request(guest.request.request.as_ref(), None)
    }
}

fn form(console: &Console, guest: &Guest, status: StatusCode, to: &str, error: Option<&CallError>) -> Response {
    let texts = guest.texts;
    let config = console.gateway.configuration().current();
    let provider = config.auth.jwt.first().filter(|_| config.auth.oidc.is_some());
    let (title, to) = (texts.get("sign-in-title"), local_path(to));
    let page = frame::narrow(
        guest,
        &title,
        &html! {
            h1 { (title) }
            p.quiet { (texts.get("sign-in-lead")) }
            @if let Some(error) = error {
                div.notice.bad #failure role="alert" { p { (format::text(error.message())) } p.quiet { code { (guest.request_id()) } } }
            }
            form.stack method="post" action="/console/sign-in" {
                input type="hidden" name="to" value=(to);
                div.field {
                    label for="key" { (texts.get("sign-in-key")) }
                    input #key type="password" name="key" required autocomplete="current-password" spellcheck="false"
                        aria-describedby=(if error.is_some() { "key-help failure" } else { "key-help" });
                    p.help #key-help { (texts.get("sign-in-help")) }
                }
                button.main { (texts.get("sign-in-button")) }
            }
            p.quiet { (texts.get("sign-in-local")) " " code { "sekisho console" } }
            @if let Some(jwt) = provider {
                p { a href={ "/console/sign-in/provider?to=" (utf8_percent_encode(&to, NON_ALPHANUMERIC)) } {
                    (texts.with("sign-in-provider", [("issuer", jwt.issuer.clone().into())]))
                } }
            }
        },
    );
    (status, [(CONTENT_TYPE, headers::HTML)], page.into_string()).into_response()
}

/// Only a page of the console follows a sign-in: never an address that another person wrote into a link.
pub(super) fn local_path(to: &str) -> String {
    page_of_console(to).filter(|page| page.len() <= 2_048).unwrap_or_else(|| "/console".to_owned())
}

/// As browsers read it: for them `%2e%2e` is `..` too.
fn page_of_console(to: &str) -> Option<String> {
    // Browsers leave out tabs and line breaks, and read `\` as `/`.
    let is_plain = to.starts_with("/console") && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    // No browser gets this host: it stands for the gateway's own.
    let own = Url::parse("https://gateway.invalid/").ok()?;
    let url = own.join(to).ok().filter(|url| is_plain && url.origin() == own.origin())?;
    let is_page = url.path() == "/console" || url.path().starts_with("/console/");
    // A proxy in front may decode characters that browsers do not.
    let decoded = percent_decode_str(url.path()).collect::<Vec<u8>>();
    let leads_up = decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|step| step == b"..");
    (is_page && !leads_up).then(|| url[Position::BeforePath..].to_owned())
}

fn cookie(secret: &str, end: &str) -> HeaderValue {
    let text = format!("{COOKIE_NAME}={secret}; Path=/; Secure; HttpOnly; SameSite=Lax{end}");
    // Cannot fail: hexadecimal digits.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sign_in_leads_to_a_page_of_the_console_alone() {
        for kept in [
            "/console",
            "/console/",
            "/console/tools?q=a%20b",
            "/console?x=1",
            "/console/calls?q=a..b#end",
            "/console/tools/a%2Fb",
            "/console/..calls",
            "/console/a..",
        ] {
            assert_eq!(local_path(kept), kept);
        }
        for (to, page) in [
            ("/console/tools/../calls", "/console/calls"),
            ("/console/tools/%2e%2E/calls?q=1", "/console/calls?q=1"),
            ("/console/./calls", "/console/calls"),
            ("/console/calls/..", "/console/"),
        ] {
            assert_eq!(local_path(to), page, "{to}");
        }
        for other in [
            "",
            "//evil.example",
            "https://evil.example",
            "/console.evil",
            "/consolex",
            "/console/../mcp",
            "/console/%2e%2e/api/chat/stream?message=x",
            "/console/%2E%2e/mcp",
            "/console/.%2e/mcp",
            "/console/%2e./mcp",
            "/console/a/../../mcp",
            "/console/tools/%2e%2e/%2e%2e/mcp",
            "/console/%2e%2e//evil.example",
            "/console/%2e%2e/console.evil",
            "/console/..",
            "/console/%2e%2e",
            "/console/..%2fmcp",
            "/console/..%2Fmcp",
            "/console/..%5cmcp",
            "/console/%2e%2e%2fmcp",
            "/console/%2e%2e%5Cmcp",
            "/console/.\t./mcp",
            "/console/\n../mcp",
            "/\t/evil.example",
            "\t//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "///evil.example",
            "/console@evil.example",
            "console",
            "./console",
            "?/console",
            "javascript:alert(1)//console",
            "https:/console",
            "https:console",
            "/Console",
            "/console/\u{00e9}",
            "/console/\\evil",
            "/console/ a",
            "/console/\r\nx: y",
            "/tools/list",
        ] {
            assert_eq!(local_path(other), "/console", "{other:?}");
        }
        assert_eq!(local_path(&format!("/console?q={}", "a".repeat(2_048))), "/console", "long");
    }

    proptest! {
        /// For any parts, the address that a browser makes of it is below the console.
        #[test]
        fn no_address_leads_out_of_the_console(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "/", "\\", "..", ".", "%2e", "%2E", "%2f", "%5c", "console", "mcp", "//evil.example", "@", ":", "?", "#",
                    "\t", "\n", "%09", "%00", ";", "a", "https:", " ",
                ]),
                0..12,
            ),
        ) {
            let to = format!("/console{}", parts.concat());
            let page = local_path(&to);
            let own = Url::parse("https://gateway.invalid/console/sign-in").unwrap();
            let seen = own.join(&page).unwrap();
            prop_assert_eq!(seen.origin(), own.origin());
            prop_assert!(seen.path() == "/console" || seen.path().starts_with("/console/"), "{:?}: {}", to, seen);
            prop_assert_eq!(&seen[Position::BeforePath..], &page, "it is read as it is written");
        }
    }
}
