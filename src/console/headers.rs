//! The headers of every page: the sources that a browser may load, and that it keeps nothing.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;

/// Nothing but files of this server. Pictures that a tool returned are in the page itself, as `data:`; a picture runs no
/// script.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; script-src 'self'; \
     style-src 'self'; img-src 'self' data:; connect-src 'self'",
);

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

pub(super) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Adds them to a response.
pub(super) async fn add(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    // `no-referrer` would make browsers send `Origin: null` with forms.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(VARY, HeaderValue::from_static("cookie, accept-language"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
