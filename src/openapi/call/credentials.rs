//! Credentials of a collection's calls: the document's security schemes bound to configured credentials,
//! headers sent with every call, and headers filled in from the caller's own tokens.

mod authorization;
mod digest;
mod scheme;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::header;
use thiserror::Error;

pub(crate) use self::authorization::Authorization;
use self::digest::DigestUser;
use self::scheme::Credential;
use super::executor::Access;
use crate::read::operation::{Api, Location, Operation, SecurityRequirement, SecurityScheme};
use crate::user_scheme::UserScheme;
use sekisho_config::{AuthSettings, AuthType, CollectionSettings, Identity, SchemeCredentials, Secret};
use sekisho_outbound::Outbound;
use sekisho_user_tokens::TokenExchange;
use sekisho_user_tokens::credentials::{Template, TemplateError, TokenEndpoint, basic, bearer, sensitive};
pub(crate) use sekisho_user_tokens::credentials::{Token, TokenSource};

/// A collection's credentials, checked once.
pub(crate) struct Credentials<'a> {
    api: &'a Api,
    auth_type: AuthType,
    settings: &'a AuthSettings,
    by_scheme: &'a BTreeMap<String, SchemeCredentials>,
    outbound: &'a Outbound,
    /// The scheme whose tokens are the callers' own.
    user: Option<&'a UserScheme>,
    exchange: Option<&'a Arc<TokenExchange>>,
    /// Operations are called as their caller.
    is_as_caller: bool,
    /// One source for each token URL, client and list of scopes, shared by the operations.
    tokens: HashMap<TokenKey, Arc<TokenSource>>,
    /// One user for each scheme, shared by the operations.
    digest_users: HashMap<String, Arc<DigestUser>>,
    /// The HTTP client with the certificate of each scheme, or why there is none.
    certified: BTreeMap<String, Result<Outbound, String>>,
}

/// Token URL, client and scopes.
type TokenKey = (TokenEndpoint, String, Vec<String>);

/// Credentials that cannot be sent.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CredentialError {
    #[error("`{0}` is not a header; use letters, digits and `-` in its name, and no line break in its value")]
    Header(String),
    #[error("`auth_config.headers_template.{0}` has a `${{` without `}}`")]
    Template(String),
    #[error("`auth_type` requires `auth_config.{0}`, which is missing")]
    Missing(&'static str),
    #[error("`{0}` has characters that a credential cannot contain")]
    Unsendable(&'static str),
}

impl<'a> Credentials<'a> {
    /// Errors: [`CredentialError`]: a setting that `auth_type` requires is missing.
    pub fn bind(api: &'a Api, settings: &'a CollectionSettings, access: &'a Access) -> Result<Self, CredentialError> {
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
        Ok(Self {
            api,
            auth_type: settings.auth_type,
            settings: auth,
            by_scheme: &settings.credentials,
            outbound: &access.outbound,
            user: access.user.as_ref(),
            exchange: access.exchange.as_ref(),
            is_as_caller: settings.identity != Identity::Shared,
            tokens: HashMap::new(),
            digest_users: HashMap::new(),
            certified: BTreeMap::new(),
        })
    }

    /// The credentials of the operation's requests, and a note on those that are required and not configured.
    /// Errors: [`CredentialError`] for a credential that cannot be a header value.
    pub(crate) fn of(&mut self, operation: &Operation) -> Result<(Authorization, Option<String>), CredentialError> {
        let mut authorization = Authorization::default();
        let api = self.api;
        let required = operation.security.as_ref().unwrap_or(&api.security);
        // The first alternative that can be met; "none" only when no other can.
        let alternatives = required.iter().filter(|requirement| !requirement.is_empty());
        let mut note = None;
        let is_as_caller = self.is_as_caller;
        let counts = |met: &Vec<Credential>| !is_as_caller || met.iter().any(Credential::is_of_caller);
        match alternatives.into_iter().find_map(|requirement| self.meet(requirement).filter(counts)) {
            Some(credentials) => {
                let credentials = self.keys_of_alternatives(required, &credentials).unwrap_or(credentials);
                for credential in credentials {
                    credential.add_to(&mut authorization)?;
                }
            }
            // An operation without security requirements is not sent credentials.
            None if operation.security.as_ref().is_some_and(Vec::is_empty) => {}
            // If a document says nothing of security, the operator decides about the credentials of its servers.
            None if required.is_empty() && self.exchange.is_some() => authorization.exchange = self.exchange.cloned(),
            None if self.may_be_configured(required) => self.add_configured(required, &mut authorization)?,
            None if required.is_empty() || required.iter().any(SecurityRequirement::is_empty) => {}
            None if required.iter().any(|requirement| self.has_headers_for(requirement)) => {}
            None => note = Some(self.unmet(required)),
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

    /// Names in `credentials` that the document does not have.
    pub(crate) fn unknown_schemes(&self) -> impl Iterator<Item = &'a str> {
        let schemes = &self.api.security_schemes;
        self.by_scheme.keys().filter(|name| !schemes.contains_key(*name)).map(String::as_str)
    }

    /// Whether `auth_type` decides about the credentials, where the document's schemes cannot be met.
    fn may_be_configured(&self, required: &[SecurityRequirement]) -> bool {
        if self.is_as_caller {
            // Credentials of the gateway itself are not used for callers.
            return false;
        }
        let is_challenged = |requirement: &SecurityRequirement| {
            let mut schemes = requirement.keys().filter_map(|name| self.api.security_schemes.get(name));
            schemes.any(|scheme| matches!(scheme, SecurityScheme::Digest | SecurityScheme::Challenge(_)))
        };
        match self.auth_type {
            AuthType::None => false,
            // One secret is not sent under several names.
            AuthType::ApiKey => {
                self.settings.api_key_name.is_some() || required.iter().all(|one| self.keys_in(one) < 2)
            }
            AuthType::Bearer => self.settings.token.is_some(),
            // The password must not go to a server that asked not to be sent it.
            AuthType::Basic => required.is_empty() || !required.iter().all(is_challenged),
        }
    }

    /// `auth_type`, where the document does not describe how the credential is sent.
    fn add_configured(
        &self,
        required: &[SecurityRequirement],
        authorization: &mut Authorization,
    ) -> Result<(), CredentialError> {
        let auth = self.settings;
        match self.auth_type {
            AuthType::None => Ok(()),
            AuthType::ApiKey => {
                let is_required =
                    |name: &String| required.is_empty() || required.iter().any(|one| one.contains_key(name));
                let declared = |any: bool| {
                    self.api.security_schemes.iter().find_map(|(scheme, described)| match described {
                        SecurityScheme::ApiKey { name, location } if any || is_required(scheme) => {
                            Some((name.as_str(), *location))
                        }
                        _ => None,
                    })
                };
                let (name, location) =
                    declared(false).or_else(|| declared(true)).unwrap_or(("X-API-Key", Location::Header));
                let key = auth.api_key.as_ref().map(Secret::expose).unwrap_or_default();
                authorization.add_api_key(auth.api_key_name.as_deref().unwrap_or(name), location, key)
            }
            AuthType::Bearer => {
                let token = auth.token.as_ref().map(Secret::expose).unwrap_or_default();
                let value = bearer(token).ok_or(CredentialError::Unsendable("token"))?;
                authorization.headers.insert(header::AUTHORIZATION, value);
                Ok(())
            }
            AuthType::Basic => {
                let username = auth.username.as_deref().unwrap_or_default();
                let password = auth.password.as_ref().map(Secret::expose).unwrap_or_default();
                authorization.headers.insert(header::AUTHORIZATION, basic(username, password));
                Ok(())
            }
        }
    }

    /// Whether `extra_headers` and `headers_template` have the headers that the schemes of a requirement use.
    fn has_headers_for(&self, requirement: &SecurityRequirement) -> bool {
        let AuthSettings { extra_headers, headers_template, .. } = self.settings;
        let is_sent = |name: &str| {
            let mut names = extra_headers.keys().chain(headers_template.keys());
            names.any(|given| given.eq_ignore_ascii_case(name))
        };
        requirement.keys().all(|name| match self.api.security_schemes.get(name) {
            Some(SecurityScheme::ApiKey { name, location: Location::Header }) => is_sent(name),
            Some(SecurityScheme::ApiKey { .. } | SecurityScheme::MutualTls) | None => false,
            Some(_) => is_sent("authorization"),
        })
    }

    /// The missing credentials.
    fn unmet(&self, required: &[SecurityRequirement]) -> String {
        let schemes = || required.iter().flat_map(BTreeMap::keys);
        let problems = schemes().filter_map(|name| match self.api.security_schemes.get(name) {
            Some(SecurityScheme::Challenge(scheme)) => Some(format!("HTTP {scheme} authentication is not supported")),
            Some(SecurityScheme::Other(kind)) => Some(format!("{kind} of {name} is not supported")),
            None => Some(format!("the document does not describe {name}")),
            _ => self.certified.get(name)?.as_ref().err().cloned(),
        });
        let mut problems: Vec<_> = problems.collect();
        problems.dedup();
        let problems = if problems.is_empty() { String::new() } else { format!(" ({})", problems.join("; ")) };
        let example = schemes().next().map(String::as_str).unwrap_or_default();
        let required = described(required);
        if self.is_as_caller {
            let advice = "set the client of a scheme at which callers sign in, or another `identity`";
            return format!("it requires {required}, for which there is no token of its caller (`identity`); {advice}");
        }
        format!("it requires {required}{problems}; set `credentials: {{{example}: …}}` at the collection")
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

impl From<TemplateError> for CredentialError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Header(name) => Self::Header(format!("auth_config.headers_template.{name}")),
            TemplateError::Unclosed(name) => Self::Template(name),
        }
    }
}
