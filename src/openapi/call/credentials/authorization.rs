//! The credentials of one operation, and how they are added to its requests.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use serde_json::{Map, Value};
use url::Url;

use super::{CredentialError, DigestUser, TokenSource};
use crate::read::operation::Location;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::Outbound;
use sekisho_user_tokens::credentials::{Template, sensitive};
use sekisho_user_tokens::{TokenExchange, UserSource};

/// The credentials of one operation's requests. No `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    pub(super) headers: HeaderMap,
    /// Encoded name, value.
    pub(super) query: Vec<(String, String)>,
    pub(super) cookies: Vec<(String, String)>,
    pub(super) templates: Vec<Template>,
    pub(crate) tokens: Option<Arc<TokenSource>>,
    /// Where the callers' own tokens come from.
    pub(crate) user: Option<Arc<UserSource>>,
    /// How a token is made of the caller's.
    pub(crate) exchange: Option<Arc<TokenExchange>>,
    pub(crate) digest: Option<Arc<DigestUser>>,
    /// The values in the query, to be redacted from errors.
    pub(crate) secrets: Option<Arc<[String]>>,
    /// The HTTP client with the certificate that the operation requires.
    pub(crate) certified: Option<Outbound>,
}

impl Authorization {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { headers, query, cookies, templates, tokens, user, exchange, digest, secrets: _, certified } = self;
        let has_tokens = tokens.is_some() || user.is_some() || exchange.is_some();
        let is_unsigned = !has_tokens && digest.is_none() && certified.is_none();
        headers.is_empty() && query.is_empty() && cookies.is_empty() && templates.is_empty() && is_unsigned
    }

    /// Values to be redacted from errors.
    pub(crate) fn add_secrets(&mut self, values: impl IntoIterator<Item = String>) {
        let known = self.secrets.iter().flat_map(|known| known.iter().cloned());
        let all: Vec<_> = known.chain(values).collect();
        self.secrets = (!all.is_empty()).then(|| all.into());
    }

    /// Errors: [`CredentialError::Unsendable`] for a key that cannot be sent there.
    pub(super) fn add_api_key(&mut self, name: &str, location: Location, key: &str) -> Result<(), CredentialError> {
        match location {
            Location::Cookie if !is_cookie(name, key) => return Err(CredentialError::Unsendable("api_key")),
            Location::Cookie => self.cookies.push((name.to_owned(), key.to_owned())),
            Location::Query | Location::QueryString => {
                self.query.push((name.to_owned(), key.to_owned()));
                self.add_secrets([key.to_owned()]);
            }
            Location::Header | Location::Path => {
                let (name, value) = sensitive(name, key).ok_or(CredentialError::Unsendable("api_key"))?;
                self.headers.insert(name, value);
            }
        }
        Ok(())
    }

    /// Adds all credentials to a request but those that differ from attempt to attempt: an OAuth token, a digest. A value of the same name is replaced: a model's
    /// argument never replaces a credential.
    /// Errors: `invalid_request` when the caller did not send a token that a header needs; `invalid_arguments` for
    /// cookies that a header cannot contain.
    pub(crate) fn apply(
        &self,
        url: &mut Url,
        headers: &mut HeaderMap,
        tool_parameters: &Map<String, Value>,
    ) -> Result<(), CallError> {
        if !self.query.is_empty() {
            let taken = |name: &str| self.query.iter().any(|(ours, _)| ours == name);
            let kept: Vec<(String, String)> =
                url.query_pairs().filter(|(name, _)| !taken(name)).map(|(n, v)| (n.into(), v.into())).collect();
            let replaces = kept.len() != url.query_pairs().count();
            let mut pairs = url.query_pairs_mut();
            if replaces {
                pairs.clear().extend_pairs(kept);
            }
            pairs.extend_pairs(&self.query);
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        if !self.cookies.is_empty() {
            add_cookies(headers, &self.cookies)?;
        }
        let tokens = tool_parameters.get("tokens").and_then(Value::as_object);
        for template in &self.templates {
            headers.insert(template.header.clone(), template.fill(tokens)?);
        }
        Ok(())
    }
}

/// A credential replaces cookie arguments of the same name.
fn add_cookies(headers: &mut HeaderMap, cookies: &[(String, String)]) -> Result<(), CallError> {
    let sent = headers.get(header::COOKIE).map(HeaderValue::as_bytes).unwrap_or_default();
    let sent = String::from_utf8_lossy(sent);
    let ours = |pair: &&str| !cookies.iter().any(|(name, _)| pair.split('=').next() == Some(name));
    let mut all: Vec<String> =
        sent.split("; ").filter(|pair| !pair.is_empty()).filter(ours).map(str::to_owned).collect();
    all.extend(cookies.iter().map(|(name, value)| format!("{name}={value}")));
    let mut value = HeaderValue::try_from(all.join("; "))
        .map_err(|_| CallError::new(ErrorCode::InvalidArguments, "a cookie cannot hold control characters"))?;
    value.set_sensitive(true);
    headers.insert(header::COOKIE, value);
    Ok(())
}

/// RFC 6265 §4.1.1: a `;` would begin another cookie.
fn is_cookie(name: &str, value: &str) -> bool {
    let stands_in_header = |text: &str| HeaderValue::from_str(text).is_ok();
    !name.contains([';', '=']) && !value.contains(';') && stands_in_header(name) && stands_in_header(value)
}
