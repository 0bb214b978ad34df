//! The page that a browser gets at the address of the gateway.

use axum::http::HeaderValue;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The page loads nothing, and no other page may show it in a frame.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>sekisho</title>
<h1>sekisho</h1>
<p>A gateway for AI agents' tool calls.</p>
<ul>
<li><a href=\"/tools/list\">Tools</a></li>
<li><a href=\"/readyz\">State</a></li>
<li><a href=\"/openapi.json\">Description of the API</a></li>
</ul>
</html>
";

/// `GET /`.
pub(crate) async fn root() -> Response {
    ([(CONTENT_TYPE, HTML), (CONTENT_SECURITY_POLICY, POLICY)], PAGE).into_response()
}
