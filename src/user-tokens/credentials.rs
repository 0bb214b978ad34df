//! Credentials for requests to other services, shared by all sources of tools.

mod oauth;
mod template;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};

pub use self::oauth::{Token, TokenEndpoint, TokenSource};
pub use self::template::{Template, TemplateError};

/// A header that is redacted in logs; `None` if its name or value is invalid.
pub fn sensitive(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name).ok()?, value))
}

/// RFC 6750 §2.1.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    authorization("Bearer", token)
}

/// RFC 9110 §11.6.2, with a credential that is one text.
pub fn authorization(scheme: &str, token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("{scheme} {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// RFC 7617.
pub fn basic(username: &str, password: &str) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    // Base64 is always valid in a header.
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}
