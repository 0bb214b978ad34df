//! The credentials that are sent for a security scheme of the document, of those that are configured for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderValue, header};

use super::{Authorization, CredentialError, Credentials, DigestUser, TokenEndpoint, TokenSource};
use crate::read::operation::{Location, SecurityRequirement, SecurityScheme};
use sekisho_config::{SchemeCredentials, Secret};
use sekisho_outbound::Outbound;
use sekisho_user_tokens::credentials::{authorization, basic, bearer};
use sekisho_user_tokens::{TokenExchange, UserSource};

/// The credential of one scheme.
pub(super) enum Credential {
    ApiKey {
        name: String,
        location: Location,
        key: Secret,
    },
    /// `None` for a token that a header cannot contain.
    Authorization(Option<HeaderValue>),
    Tokens(Arc<TokenSource>),
    /// The caller's own token; without a source where nobody calls.
    User(Option<Arc<UserSource>>),
    /// A token made of the caller's.
    Exchange(Arc<TokenExchange>),
    Digest(Arc<DigestUser>),
    Certificate(Outbound),
}

impl Credential {
    /// Whether it is a token of the caller, or made of one.
    pub(super) fn is_of_caller(&self) -> bool {
        matches!(self, Self::User(_) | Self::Exchange(_))
    }

    pub(super) fn add_to(self, to: &mut Authorization) -> Result<(), CredentialError> {
        match self {
            Self::ApiKey { name, location, key } => to.add_api_key(&name, location, key.expose())?,
            Self::Authorization(value) => {
                let value = value.ok_or(CredentialError::Unsendable("token"))?;
                to.headers.insert(header::AUTHORIZATION, value);
            }
            Self::Tokens(tokens) => to.tokens = Some(tokens),
            Self::User(source) => to.user = source,
            Self::Exchange(exchange) => to.exchange = Some(exchange),
            Self::Digest(user) => to.digest = Some(user),
            Self::Certificate(outbound) => to.certified = Some(outbound),
        }
        Ok(())
    }
}

impl Credentials<'_> {
    /// The credentials of all schemes of a requirement; `None` where one is missing.
    pub(super) fn meet(&mut self, requirement: &SecurityRequirement) -> Option<Vec<Credential>> {
        // One secret is not sent under several names.
        let shares_key = self.keys_in(requirement) < 2;
        requirement.iter().map(|(name, scopes)| self.credential(name, scopes, shares_key)).collect()
    }

    /// Documents often write keys that are required together as alternatives, `[{app: []}, {user: []}]`: keys with
    /// credentials of their own are sent together, since somebody configured each for this API. `None` if `met`, the
    /// credentials of the first alternative that can be met, are anything but one key.
    pub(super) fn keys_of_alternatives(
        &self,
        required: &[SecurityRequirement],
        met: &[Credential],
    ) -> Option<Vec<Credential>> {
        if !matches!(met, [Credential::ApiKey { .. }]) {
            return None;
        }
        let own_key = |name: &String| {
            let key = self.by_scheme.get(name)?.api_key.clone()?;
            match self.api.security_schemes.get(name)? {
                SecurityScheme::ApiKey { name, location } => {
                    Some(Credential::ApiKey { name: name.clone(), location: *location, key })
                }
                _ => None,
            }
        };
        let alone = required.iter().filter(|requirement| requirement.len() == 1);
        let keys: Vec<_> = alone.flat_map(BTreeMap::keys).filter_map(own_key).collect();
        (!keys.is_empty()).then_some(keys)
    }

    /// API keys in a requirement without credentials of their own.
    pub(super) fn keys_in(&self, requirement: &SecurityRequirement) -> usize {
        let is_key =
            |name: &&String| matches!(self.api.security_schemes.get(*name), Some(SecurityScheme::ApiKey { .. }));
        let has_none = |name: &&String| self.by_scheme.get(*name).is_none_or(|own| own.api_key.is_none());
        requirement.keys().filter(is_key).filter(has_none).count()
    }

    /// Its own credentials come before the credentials of `auth_config`.
    fn credential(&mut self, scheme: &str, scopes: &[String], shares_key: bool) -> Option<Credential> {
        if let Some(user) = self.user.filter(|user| user.scheme == scheme) {
            return Some(Credential::User(user.source.clone()));
        }
        if let Some(exchange) = self.exchange
            && takes_bearer(self.api.security_schemes.get(scheme)?)
        {
            return Some(Credential::Exchange(Arc::clone(exchange)));
        }
        let own = self.by_scheme.get(scheme);
        let (api, auth) = (self.api, self.settings);
        let token = own.and_then(|own| own.token.as_ref()).or(auth.token.as_ref());
        let bearer = |token: &Secret| Credential::Authorization(bearer(token.expose()));
        match api.security_schemes.get(scheme)? {
            SecurityScheme::ApiKey { name, location } => {
                if let Some(key) = own.and_then(|own| own.api_key.clone()) {
                    return Some(Credential::ApiKey { name: name.clone(), location: *location, key });
                }
                let key = auth.api_key.clone().filter(|_| shares_key)?;
                let name = auth.api_key_name.as_ref().unwrap_or(name).clone();
                Some(Credential::ApiKey { name, location: *location, key })
            }
            SecurityScheme::Basic => {
                let of = |username: &Option<String>, password: &Option<Secret>| {
                    Some(basic(username.as_deref()?, password.as_ref()?.expose()))
                };
                let own = own.and_then(|own| of(&own.username, &own.password));
                Some(Credential::Authorization(Some(own.or_else(|| of(&auth.username, &auth.password))?)))
            }
            SecurityScheme::Digest => self.digest_user(scheme).map(Credential::Digest),
            SecurityScheme::Http(name) => {
                token.map(|token| Credential::Authorization(authorization(name, token.expose())))
            }
            SecurityScheme::Bearer => {
                token.map(bearer).or_else(|| self.tokens_of(own, None, scopes).map(Credential::Tokens))
            }
            SecurityScheme::OAuth2 { token_url, .. } => {
                let endpoint = token_url.clone().map(TokenEndpoint::Url);
                token.map(bearer).or_else(|| self.tokens_of(own, endpoint, scopes).map(Credential::Tokens))
            }
            SecurityScheme::OpenIdConnect { discovery_url } => {
                let endpoint = discovery_url.clone().map(TokenEndpoint::Discovery);
                token.map(bearer).or_else(|| self.tokens_of(own, endpoint, scopes).map(Credential::Tokens))
            }
            SecurityScheme::MutualTls => self.certified(scheme, own?).map(Credential::Certificate),
            SecurityScheme::Challenge(_) | SecurityScheme::Other(_) => None,
        }
    }

    /// The tokens of a client, by the scopes that the operation requires.
    fn tokens_of(
        &mut self,
        own: Option<&SchemeCredentials>,
        endpoint: Option<TokenEndpoint>,
        scopes: &[String],
    ) -> Option<Arc<TokenSource>> {
        if self.is_as_caller {
            // Credentials of the client itself are not used for callers.
            return None;
        }
        let auth = self.settings;
        let (id, secret) = own
            .and_then(|own| own.client_id.as_ref().zip(own.client_secret.as_ref()))
            .or_else(|| auth.client_id.as_ref().zip(auth.client_secret.as_ref()))?;
        let endpoint = own.and_then(|own| own.token_url.clone()).map(TokenEndpoint::Url).or(endpoint)?;
        let mut scopes = own.and_then(|own| own.scopes.clone()).unwrap_or_else(|| scopes.to_vec());
        scopes.sort();
        scopes.dedup();
        let key = (endpoint.clone(), id.clone(), scopes.clone());
        let source =
            self.tokens.entry(key).or_insert_with(|| Arc::new(TokenSource::new(endpoint, id, secret, &scopes)));
        Some(Arc::clone(source))
    }

    /// The user of a scheme for Digest authentication.
    fn digest_user(&mut self, scheme: &str) -> Option<Arc<DigestUser>> {
        let own = self.by_scheme.get(scheme).and_then(|own| own.username.as_ref().zip(own.password.as_ref()));
        let (username, password) =
            own.or_else(|| self.settings.username.as_ref().zip(self.settings.password.as_ref()))?;
        let user = self.digest_users.entry(scheme.to_owned());
        Some(Arc::clone(user.or_insert_with(|| Arc::new(DigestUser::new(username.clone(), password.clone())))))
    }

    /// The HTTP client with the scheme's certificate.
    fn certified(&mut self, scheme: &str, own: &SchemeCredentials) -> Option<Outbound> {
        let (certificate, key) = own.certificate_file.as_ref().zip(own.key_file.as_ref())?;
        let made = self.certified.entry(scheme.to_owned()).or_insert_with(|| {
            self.outbound.with_client_certificate(certificate, key).map_err(|error| error.to_string())
        });
        made.as_ref().ok().cloned()
    }
}

/// Whether a scheme is met by a bearer token.
fn takes_bearer(scheme: &SecurityScheme) -> bool {
    use SecurityScheme::{Bearer, OAuth2, OpenIdConnect};
    matches!(scheme, Bearer | OAuth2 { .. } | OpenIdConnect { .. })
}
