//! Which web pages may reach `/mcp`: a page of another site must not use a browser's network access (the protocol's
//! security rules for HTTP). Host names are checked for all routes, before.

use axum::http::Uri;
use axum::http::header::ORIGIN;
use axum::http::request::Parts;

use crate::request_guard::Connection;
use sekisho_config::ServerConfig;
use sekisho_core::error::{CallError, ErrorCode};

/// Origins of pages that a browser on the same machine loads from loopback.
const LOOPBACK_PAGES: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// Errors: `denied`: `server.mcp.allowed_origins` lacks the page.
pub(super) fn check(server: &ServerConfig, parts: &Parts) -> Result<(), CallError> {
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let connection = Connection::of(parts)?;
    if connection.forwarded.is_some() {
        // Checked at the replica to which the page's request came.
        return Ok(());
    }
    let is_local = connection.client.is_local;
    let own_pages = LOOPBACK_PAGES.into_iter().filter(|_| is_local);
    let mut allowed = own_pages.chain(server.mcp.allowed_origins.iter().map(String::as_str));
    if allowed.any(|allowed| origin.to_str().is_ok_and(|origin| matches(allowed, origin))) {
        return Ok(());
    }
    let message = "web pages of this origin may not use /mcp; add it to `server.mcp.allowed_origins`";
    Err(CallError::new(ErrorCode::Denied, message))
}

/// Whether an entry of the list allows the origin (RFC 6454): `scheme://host`, with a port, `:*` for any port, or
/// without for any port. `null` is the origin of pages without one.
fn matches(allowed: &str, origin: &str) -> bool {
    let (allowed, any_port) = match allowed.trim().strip_suffix(":*") {
        Some(base) => (base, true),
        None => (allowed.trim(), false),
    };
    if allowed.eq_ignore_ascii_case("null") {
        return origin.eq_ignore_ascii_case("null") && !any_port;
    }
    let (Some(allowed), Some(origin)) = (parsed(allowed), parsed(origin)) else { return false };
    if any_port && allowed.2.is_some() {
        return false;
    }
    let same_port = any_port || allowed.2.is_none_or(|port| origin.2.or(default_port(&origin.0)) == Some(port));
    allowed.0 == origin.0 && allowed.1 == origin.1 && same_port
}

/// Scheme, host and port.
fn parsed(origin: &str) -> Option<(String, String, Option<u16>)> {
    let uri = Uri::try_from(origin.trim()).ok()?;
    let authority = uri.authority()?;
    Some((uri.scheme_str()?.to_ascii_lowercase(), authority.host().to_ascii_lowercase(), authority.port_u16()))
}

/// A browser leaves out the default port of an origin (RFC 6454, §6.2).
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_allows_its_scheme_host_and_port() {
        for (allowed, origin, expected) in [
            ("https://app.example", "https://app.example", true),
            ("https://app.example", "https://app.example:8443", true),
            ("https://app.example", "http://app.example", false),
            ("https://app.example", "https://other.example", false),
            ("https://App.Example:443", "https://app.example", true),
            ("https://app.example:443", "https://app.example:8443", false),
            ("https://app.example:8443", "https://app.example:8443", true),
            ("http://[::1]:*", "http://[::1]:5173", true),
            ("http://localhost:*", "http://localhost.evil.example", false),
            ("https://app.example:443:*", "https://app.example", false),
            ("null", "null", true),
            ("null:*", "null", false),
            ("https://app.example", "null", false),
            ("https://app.example", "app.example", false),
            ("", "https://app.example", false),
        ] {
            assert_eq!(matches(allowed, origin), expected, "{allowed} {origin}");
        }
    }
}
