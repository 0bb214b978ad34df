//! What requests to other services prove themselves with, the same for every source of tools.

mod oauth;
mod template;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};

pub(in crate::sources) use self::oauth::{Token, TokenSource};
pub(in crate::sources) use self::template::{Template, TemplateError};

/// A header that is not shown in logs; `None` where name or value cannot be a header's.
pub(super) fn sensitive(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name).ok()?, value))
}

/// RFC 6750 §2.1.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// RFC 7617.
pub(super) fn basic(username: &str, password: &str) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    // Base64 always stands in a header.
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}
