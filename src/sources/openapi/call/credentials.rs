//! Credentials of a collection's calls: the document's security schemes bound to configured credentials,
//! headers sent with every call, and headers filled in from the caller's own tokens.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use serde_json::{Map, Value};
use thiserror::Error;
use url::Url;

use crate::config::{AuthSettings, AuthType, CollectionSettings, Secret};
use crate::core::error::{CallError, ErrorCode};
use crate::sources::credentials::{Template, TemplateError, basic, bearer, sensitive};
pub(in crate::sources::openapi) use crate::sources::credentials::{Token, TokenSource};
use crate::sources::openapi::read::operation::{Api, Location, Operation, SecurityRequirement, SecurityScheme};

/// A collection's credentials, checked once.
pub(crate) struct Credentials<'a> {
    api: &'a Api,
    auth_type: AuthType,
    settings: &'a AuthSettings,
    /// One for each scheme that requires one.
    tokens: Vec<(&'a str, Arc<TokenSource>)>,
}

/// Credentials that cannot be sent.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CredentialError {
    #[error("`{0}` is not a header; use letters, digits and `-` in its name, and no line break in its value")]
    Header(String),
    #[error("`auth_config.headers_template.{0}` has a `${{` without `}}`")]
    Template(String),
    #[error("`auth_type` requires `auth_config.{0}`, which is missing")]
    Missing(&'static str),
    #[error("`auth_config.{0}` has characters that a credential cannot contain")]
    Unsendable(&'static str),
}

/// The credentials of one operation's requests. No `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    headers: HeaderMap,
    /// Encoded name, value.
    query: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    templates: Vec<Template>,
    pub(in crate::sources::openapi) tokens: Option<Arc<TokenSource>>,
    /// The values of `query`, to be redacted from errors.
    pub(crate) secrets: Option<Arc<[String]>>,
}

impl<'a> Credentials<'a> {
    /// # Errors
    /// [`CredentialError`]: a setting that `auth_type` requires is missing.
    pub(crate) fn bind(api: &'a Api, settings: &'a CollectionSettings) -> Result<Self, CredentialError> {
        let auth = &settings.auth_config;
        let missing = match settings.auth_type {
            AuthType::ApiKey if auth.api_key.is_none() => Some("api_key"),
            AuthType::Bearer if auth.token.is_none() && auth.client_id.is_none() => Some("token"),
            AuthType::Basic if auth.username.is_none() => Some("username"),
            AuthType::Basic if auth.password.is_none() => Some("password"),
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(CredentialError::Missing(missing));
        }
        let tokens = api.security_schemes.iter().filter_map(|(name, scheme)| match scheme {
            SecurityScheme::ClientCredentials { token_url, scopes } => {
                let (id, secret) = (auth.client_id.as_ref()?, auth.client_secret.as_ref()?);
                Some((name.as_str(), Arc::new(TokenSource::new(token_url.clone(), id, secret, scopes))))
            }
            _ => None,
        });
        Ok(Self { api, auth_type: settings.auth_type, settings: auth, tokens: tokens.collect() })
    }

    /// The credentials of the operation's requests, and a note on those that are required and not configured.
    ///
    /// # Errors
    /// [`CredentialError`] for a credential that cannot be a header value.
    pub(crate) fn of(&self, operation: &Operation) -> Result<(Authorization, Option<String>), CredentialError> {
        let mut authorization = Authorization::default();
        let required = operation.security.as_ref().unwrap_or(&self.api.security);
        // The first alternative that can be met; "none" only when no other can.
        let met = required.iter().find(|requirement| !requirement.is_empty() && self.meets(requirement));
        let mut note = None;
        match met {
            Some(requirement) => {
                for name in requirement.keys() {
                    self.add_scheme(name, &mut authorization)?;
                }
            }
            // An operation without security requirements is not sent credentials.
            None if operation.security.as_ref().is_some_and(Vec::is_empty) => {}
            None if self.auth_type != AuthType::None => self.add_configured(&mut authorization)?,
            None if required.is_empty() || required.iter().any(SecurityRequirement::is_empty) => {}
            None => {
                note = Some(format!("it requires {}, for which no credentials are configured", described(required)));
            }
        }
        for (name, value) in &self.settings.extra_headers {
            let (name, value) = sensitive(name, value.expose())
                .ok_or_else(|| CredentialError::Header(format!("auth_config.extra_headers.{name}")))?;
            authorization.headers.insert(name, value);
        }
        for (name, text) in &self.settings.headers_template {
            authorization.templates.push(Template::parse(name, text)?);
        }
        Ok((authorization, note))
    }

    fn meets(&self, requirement: &SecurityRequirement) -> bool {
        let auth = self.settings;
        requirement.keys().all(|name| match self.api.security_schemes.get(name) {
            Some(SecurityScheme::ApiKey { .. }) => auth.api_key.is_some(),
            Some(SecurityScheme::Basic) => auth.username.is_some() && auth.password.is_some(),
            Some(SecurityScheme::ClientCredentials { .. }) => auth.token.is_some() || self.source(name).is_some(),
            Some(SecurityScheme::Bearer | SecurityScheme::Other(_)) => auth.token.is_some(),
            None => false,
        })
    }

    fn source(&self, scheme: &str) -> Option<&Arc<TokenSource>> {
        self.tokens.iter().find(|(name, _)| *name == scheme).map(|(_, source)| source)
    }

    fn add_scheme(&self, name: &str, authorization: &mut Authorization) -> Result<(), CredentialError> {
        match self.api.security_schemes.get(name) {
            Some(SecurityScheme::ApiKey { name, location }) => {
                let name = self.settings.api_key_name.as_deref().unwrap_or(name);
                self.add_api_key(name, *location, authorization)
            }
            Some(SecurityScheme::Basic) => self.add_basic(authorization),
            Some(SecurityScheme::ClientCredentials { .. }) if self.settings.token.is_none() => {
                authorization.tokens = self.source(name).cloned();
                Ok(())
            }
            _ => self.add_bearer(authorization),
        }
    }

    /// `auth_type`, where the document does not describe how the credential is sent.
    fn add_configured(&self, authorization: &mut Authorization) -> Result<(), CredentialError> {
        match self.auth_type {
            AuthType::None => Ok(()),
            AuthType::ApiKey => {
                let declared = self.api.security_schemes.values().find_map(|scheme| match scheme {
                    SecurityScheme::ApiKey { name, location } => Some((name.as_str(), *location)),
                    _ => None,
                });
                let (name, location) = declared.unwrap_or(("X-API-Key", Location::Header));
                let name = self.settings.api_key_name.as_deref().unwrap_or(name);
                self.add_api_key(name, location, authorization)
            }
            AuthType::Bearer if self.settings.token.is_none() => {
                authorization.tokens = self.tokens.first().map(|(_, source)| Arc::clone(source));
                match authorization.tokens {
                    Some(_) => Ok(()),
                    None => Err(CredentialError::Missing("token")),
                }
            }
            AuthType::Bearer => self.add_bearer(authorization),
            AuthType::Basic => self.add_basic(authorization),
        }
    }

    fn add_api_key(
        &self,
        name: &str,
        location: Location,
        authorization: &mut Authorization,
    ) -> Result<(), CredentialError> {
        let key = self.settings.api_key.as_ref().map(Secret::expose).unwrap_or_default();
        match location {
            Location::Cookie if !is_cookie(name, key) => return Err(CredentialError::Unsendable("api_key")),
            Location::Cookie => authorization.cookies.push((name.to_owned(), key.to_owned())),
            Location::Query | Location::QueryString => {
                authorization.query.push((name.to_owned(), key.to_owned()));
                authorization.secrets = Some(authorization.query.iter().map(|(_, value)| value.clone()).collect());
            }
            Location::Header | Location::Path => {
                let (name, value) = sensitive(name, key).ok_or(CredentialError::Unsendable("api_key"))?;
                authorization.headers.insert(name, value);
            }
        }
        Ok(())
    }

    fn add_bearer(&self, authorization: &mut Authorization) -> Result<(), CredentialError> {
        let token = self.settings.token.as_ref().map(Secret::expose).unwrap_or_default();
        let value = bearer(token).ok_or(CredentialError::Unsendable("token"))?;
        authorization.headers.insert(header::AUTHORIZATION, value);
        Ok(())
    }

    /// RFC 7617.
    fn add_basic(&self, authorization: &mut Authorization) -> Result<(), CredentialError> {
        let username = self.settings.username.as_deref().unwrap_or_default();
        let password = self.settings.password.as_ref().map(Secret::expose).unwrap_or_default();
        authorization.headers.insert(header::AUTHORIZATION, basic(username, password));
        Ok(())
    }
}

impl Authorization {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { headers, query, cookies, templates, tokens, secrets: _ } = self;
        headers.is_empty() && query.is_empty() && cookies.is_empty() && templates.is_empty() && tokens.is_none()
    }

    /// Adds all credentials but an OAuth token to a request. A value of the same name is replaced: a model's
    /// argument never replaces a credential.
    ///
    /// # Errors
    /// `invalid_request` when the caller did not send a token that a header needs; `invalid_arguments` for
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

/// The required schemes as text; some documents list an alternative once for each of its scopes.
fn described(required: &[SecurityRequirement]) -> String {
    let mut alternatives: Vec<String> = Vec::new();
    for requirement in required {
        let schemes: Vec<_> = requirement.keys().map(String::as_str).collect();
        let together = schemes.join(" and ");
        if !alternatives.contains(&together) {
            alternatives.push(together);
        }
    }
    alternatives.join(" or ")
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

impl From<TemplateError> for CredentialError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Header(name) => Self::Header(format!("auth_config.headers_template.{name}")),
            TemplateError::Unclosed(name) => Self::Template(name),
        }
    }
}
