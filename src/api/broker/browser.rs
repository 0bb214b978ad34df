//! The way of a browser: the page of consent, its answer, and the return from the provider.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{form, network, not_stored, off, page};
use crate::documentation::ReplyBody;
use crate::request::forbid_other_sites;
use sekisho_broker::{AuthorizeRefusal, BrowserCookie, OAuthError, ProviderReply, SentBrowser};
use sekisho_gateway::Gateway;

/// Of the cookie of one request of a client; its id follows. Several requests are on their way in one browser, where an editor has several
/// servers.
const COOKIE_NAME: &str = "__Host-sekisho-broker-";

const COOKIE_SECONDS: u64 = 600;

/// Shows the page of consent for the request of a client (RFC 6749 §4.1.1, with PKCE).
#[utoipa::path(get, path = "/oauth/authorize", operation_id = "authorizeClient", tag = "authorization",
    responses((status = 200, body = String, content_type = "text/html"), (status = 303, description = "The client is told of an error."),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn authorize(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Response {
    let config = gateway.configuration().current();
    let Some(server) = gateway.broker().server(&config) else { return off() };
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let network = match network(&parts) {
        Ok(network) => network,
        Err(error) => return page::error(&error.into()),
    };
    match Box::pin(server.authorize(query, &network)).await {
        Ok(asked) => with_cookie(page::consent(&asked), &asked.cookie),
        Err(AuthorizeRefusal::Page(error)) => page::error(&error),
        Err(AuthorizeRefusal::Client(url)) => sent_to(url.as_str()),
    }
}

/// The answer of the user to the page of consent: sends the browser to the provider, or back to the client.
#[utoipa::path(post, path = "/oauth/consent", operation_id = "consentToClient", tag = "authorization",
    request_body(content = Value, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303, description = "To the sign-in provider, or to the client."),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn consent(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let config = gateway.configuration().current();
    let Some(server) = gateway.broker().server(&config) else { return off() };
    let sent = async {
        // The form counts with the cookie of its browser, too.
        forbid_other_sites(&parts)?;
        let fields = form(&gateway, &parts, body).await?;
        let field = |name: &str| fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let is_allowed = field("decision") == Some("allow");
        let request = field("request").unwrap_or_default();
        server.consent(request, is_allowed, |id| cookie(&parts.headers, id)).await
    };
    go_on(Box::pin(sent).await)
}

/// The browser comes back from the provider.
pub(crate) async fn callback(gateway: &Gateway, parts: &Parts, reply: ProviderReply) -> Response {
    let config = gateway.configuration().current();
    let Some(server) = gateway.broker().server(&config) else { return off() };
    go_on(Box::pin(server.finish(reply, |id| cookie(&parts.headers, id))).await)
}

fn go_on(sent: Result<SentBrowser, OAuthError>) -> Response {
    match sent {
        Ok(SentBrowser { url, cookie }) => with_cookie(sent_to(url.as_str()), &cookie),
        // Any site can send a browser here: a request that is no answer to its sign-in does not end the sign-in.
        Err(error) => page::error(&error),
    }
}

/// The address has a code or a state.
fn sent_to(url: &str) -> Response {
    match HeaderValue::try_from(url) {
        Ok(url) => not_stored((StatusCode::SEE_OTHER, [(LOCATION, url)]).into_response()),
        Err(_) => page::error(&OAuthError::invalid_request("the address of the client cannot be sent")),
    }
}

fn with_cookie(mut response: Response, BrowserCookie { id, text }: &BrowserCookie) -> Response {
    let seconds = if text.is_empty() { 0 } else { COOKIE_SECONDS };
    let cookie = format!("{COOKIE_NAME}{id}={text}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// The text of the cookie whose name ends with the id; `None` for none or more than one.
fn cookie(headers: &HeaderMap, id: &str) -> Option<String> {
    let name = format!("{COOKIE_NAME}{id}");
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(other, _)| *other == name).map(|(_, text)| text.to_owned());
    match (found.next(), found.next()) {
        (Some(text), None) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_counts_once() {
        for (sent, expected) in [
            (&["__Host-sekisho-broker-1=a"][..], Some("a")),
            (&["x=y; __Host-sekisho-broker-1=a; __Host-sekisho-broker-2=b"], Some("a")),
            (&["__Host-sekisho-broker-1=a; __Host-sekisho-broker-1=b"], None),
            (&["__Host-sekisho-broker-1=a", "__Host-sekisho-broker-1=b"], None),
            (&["__Host-sekisho-broker-2=b"], None),
            (&["sekisho-broker-1=a"], None),
        ] {
            let mut headers = HeaderMap::new();
            sent.iter().for_each(|text| _ = headers.append(COOKIE, HeaderValue::from_static(text)));
            assert_eq!(cookie(&headers, "1").as_deref(), expected, "{sent:?}");
        }
    }
}
