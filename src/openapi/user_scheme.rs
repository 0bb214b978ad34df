//! The security scheme of a collection whose operations are called as their callers, and its authorization server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderName, header};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

use super::call::executor::Access;
use super::read::operation::{Api, Location, SecurityRequirement, SecurityScheme, UserFlow};
use sekisho_config::{CollectionSettings, Identity, Secret};
use sekisho_core::call::Deadline;
use sekisho_core::json;
use sekisho_outbound::{OutboundRequest, check_status};
use sekisho_user_tokens::{
    Authorization, Begun, CredentialHeader, OwnAddresses, Provider, TokenClient, TokenExchange, TokenRequests,
    UserSource, UserTokens,
};

/// For the provider's description.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Descriptions have a few kilobytes.
const MAX_BYTES: usize = 256 << 10;

/// The scope by which a provider gives refresh tokens (OpenID Connect Core 1.0 §11).
const OFFLINE_ACCESS: &str = "offline_access";

/// The scheme whose tokens are the callers' own.
#[derive(Debug, Clone)]
pub struct UserScheme {
    pub(crate) scheme: String,
    /// `None` where nobody calls: the document is only read.
    pub(crate) source: Option<Arc<UserSource>>,
}

#[derive(Debug)]
struct DescribedProvider {
    endpoints: Endpoints,
    client_id: String,
    client_secret: Secret,
    scopes: Vec<String>,
    requests: TokenRequests,
}

/// Where users sign in.
#[derive(Debug)]
enum Endpoints {
    Flow(UserFlow),
    /// The address of the provider's description (OpenID Connect Discovery 1.0).
    Discovery(Url),
}

/// The metadata of a provider (OpenID Connect Discovery 1.0 §3).
#[derive(Deserialize)]
struct Description {
    issuer: Option<String>,
    authorization_endpoint: Url,
    token_endpoint: Url,
    revocation_endpoint: Option<Url>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl UserScheme {
    /// The first scheme of the document at which users can sign in, and for which a client is configured. Of credentials that callers
    /// store, the first scheme that an operation requires and that is sent in a header.
    pub(super) fn of(
        collection: &str,
        api: &Api,
        settings: &CollectionSettings,
        access: &Access,
        tokens: Option<&Arc<UserTokens>>,
    ) -> Option<Self> {
        let provider = |scheme: &str, described: &SecurityScheme| -> Option<Box<dyn Provider>> {
            match settings.identity {
                Identity::PerUser => Some(Box::new(DescribedProvider::of(scheme, described, api, settings, access)?)),
                Identity::Stored => {
                    Some(Box::new(CredentialHeader(stored_in(described).filter(|_| is_required(api, scheme))?)))
                }
                Identity::Shared | Identity::Exchange | Identity::Forward => None,
            }
        };
        let mut schemes = api.security_schemes.iter();
        let (scheme, provider) =
            schemes.find_map(|(scheme, described)| Some((scheme.clone(), provider(scheme, described)?)))?;
        let source = tokens.map(|tokens| {
            let upstream = upstream(api, settings).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
            let requests = requests(api, settings, access);
            UserSource::new(format!("openapi:{collection}"), upstream, tokens, requests, provider)
        });
        Some(Self { scheme, source })
    }
}

/// How a token for the collection's servers is made of the caller's.
pub(super) fn exchange(
    collection: &str,
    api: &Api,
    settings: &CollectionSettings,
    access: &Access,
) -> Option<Arc<TokenExchange>> {
    let requests = requests(api, settings, access);
    TokenExchange::new(format!("openapi:{collection}"), settings.identity, &settings.exchange, requests)
}

/// The server that the tokens are for.
fn upstream<'a>(api: &'a Api, settings: &'a CollectionSettings) -> Option<&'a Url> {
    settings.base_url.as_ref().or_else(|| api.servers.first().map(|server| &server.url))
}

fn requests(api: &Api, settings: &CollectionSettings, access: &Access) -> TokenRequests {
    let is_secure = upstream(api, settings).is_some_and(|url| url.scheme() == "https");
    TokenRequests { outbound: access.outbound.clone(), allowed: Arc::clone(&access.allowed), is_secure }
}

impl DescribedProvider {
    fn of(
        scheme: &str,
        described: &SecurityScheme,
        api: &Api,
        settings: &CollectionSettings,
        access: &Access,
    ) -> Option<Self> {
        let own = settings.credentials.get(scheme);
        let auth = &settings.auth_config;
        let (client_id, client_secret) = own
            .and_then(|own| own.client_id.clone().zip(own.client_secret.clone()))
            .or_else(|| auth.client_id.clone().zip(auth.client_secret.clone()))?;
        let other_token_url = own.and_then(|own| own.token_url.clone());
        let endpoints = match described {
            SecurityScheme::OAuth2 { user_flow, .. } => {
                let flow = user_flow.clone()?;
                Endpoints::Flow(UserFlow { token_url: other_token_url.unwrap_or(flow.token_url), ..flow })
            }
            SecurityScheme::OpenIdConnect { discovery_url } => Endpoints::Discovery(discovery_url.clone()?),
            _ => return None,
        };
        let scopes = own.and_then(|own| own.scopes.clone()).unwrap_or_else(|| required_scopes(api, scheme));
        let requests = requests(api, settings, access);
        Some(Self { endpoints, client_id, client_secret, scopes, requests })
    }

    async fn authorization(&self, own: &OwnAddresses, needed: &[String]) -> Result<Authorization, String> {
        let description = match &self.endpoints {
            Endpoints::Flow(flow) => Description::of_flow(flow),
            Endpoints::Discovery(url) => self.discover(url).await?,
        };
        let mut scopes = self.scopes.clone();
        let offline = description.scopes_supported.iter().find(|scope| *scope == OFFLINE_ACCESS);
        for scope in needed.iter().chain(offline) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        let (state, verifier) = (random(), random());
        let mut url = description.authorization_endpoint.clone();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let redirect = own.callback.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", &state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
            // OpenID Connect Core 1.0 §11: otherwise the provider ignores the scope.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        let methods = &description.token_endpoint_auth_methods_supported;
        let takes = |method: &str| methods.iter().any(|known| known == method);
        let client = TokenClient {
            token_endpoint: description.token_endpoint,
            revocation_endpoint: description.revocation_endpoint,
            client_id: self.client_id.clone(),
            client_secret: None,
            secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
            resource: None,
        };
        let (issuer, names_issuer) = (description.issuer, description.authorization_response_iss_parameter_supported);
        let origin = url.origin().ascii_serialization();
        let begun = Begun { client, issuer, names_issuer, verifier, redirect, scopes, origin };
        Ok(Authorization { url, state, begun })
    }

    async fn discover(&self, url: &Url) -> Result<Description, String> {
        // Who could change the description would get the code of the caller and the secret of the client.
        if !self.requests.permits(url) {
            let problem =
                "the address of the provider's description must be https, as that of the API is, without a user name";
            return Err(problem.to_owned());
        }
        let request = OutboundRequest {
            max_response_bytes: MAX_BYTES,
            allowed: &self.requests.allowed,
            ..OutboundRequest::get(url.clone(), Deadline::after(DISCOVERY_TIMEOUT))
        };
        let response = self.requests.outbound.send(request).await.map_err(|error| error.message().to_owned())?;
        check_status(&response).map_err(|error| error.message().to_owned())?;
        json::parse_as(&response.body).map_err(|_| format!("{url} does not describe a provider's endpoints"))
    }
}

impl Provider for DescribedProvider {
    fn begin<'a>(
        &'a self,
        own: &'a OwnAddresses,
        scopes: &'a [String],
    ) -> BoxFuture<'a, Result<Authorization, String>> {
        self.authorization(own, scopes).boxed()
    }

    fn secret_of(&self, client_id: &str) -> Option<&Secret> {
        Some(&self.client_secret).filter(|_| self.client_id == client_id)
    }
}

impl Description {
    fn of_flow(flow: &UserFlow) -> Self {
        Self {
            issuer: None,
            authorization_endpoint: flow.authorization_url.clone(),
            token_endpoint: flow.token_url.clone(),
            revocation_endpoint: None,
            scopes_supported: Vec::new(),
            token_endpoint_auth_methods_supported: Vec::new(),
            authorization_response_iss_parameter_supported: false,
        }
    }
}

/// The scopes that some operation requires of the scheme.
fn required_scopes(api: &Api, scheme: &str) -> Vec<String> {
    let scopes: BTreeSet<_> = requirements(api).filter_map(|requirement| requirement.get(scheme)).flatten().collect();
    scopes.into_iter().cloned().collect()
}

/// Whether some operation requires the scheme.
fn is_required(api: &Api, scheme: &str) -> bool {
    requirements(api).any(|requirement| requirement.contains_key(scheme))
}

fn requirements(api: &Api) -> impl Iterator<Item = &SecurityRequirement> {
    api.operations.iter().flat_map(move |operation| operation.security.as_ref().unwrap_or(&api.security))
}

/// The header in which the credential of a scheme is sent.
fn stored_in(described: &SecurityScheme) -> Option<HeaderName> {
    match described {
        SecurityScheme::ApiKey { name, location: Location::Header } => HeaderName::try_from(name).ok(),
        SecurityScheme::Basic
        | SecurityScheme::Bearer
        | SecurityScheme::Http(_)
        | SecurityScheme::OAuth2 { .. }
        | SecurityScheme::OpenIdConnect { .. } => Some(header::AUTHORIZATION),
        SecurityScheme::ApiKey { .. }
        | SecurityScheme::Digest
        | SecurityScheme::MutualTls
        | SecurityScheme::Challenge(_)
        | SecurityScheme::Other(_) => None,
    }
}

/// 256 bits, in characters that need no encoding.
fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::OutboundConfig;
    use sekisho_outbound::{DomainList, Outbound};

    #[tokio::test]
    async fn of_an_api_with_tls_the_provider_is_described_over_tls_too() {
        let url = Url::parse("http://login.example/.well-known/openid-configuration").unwrap();
        let requests = TokenRequests {
            outbound: Outbound::new(&OutboundConfig::default()).unwrap(),
            allowed: Arc::new(DomainList::any().clone()),
            is_secure: true,
        };
        let provider = DescribedProvider {
            endpoints: Endpoints::Discovery(url),
            client_id: "sekisho".to_owned(),
            client_secret: Secret::new("s"),
            scopes: Vec::new(),
            requests,
        };
        let callback = Url::parse("https://gateway.example/back").unwrap();
        let own = OwnAddresses { callback, client_metadata: None };
        let refused = provider.begin(&own, &[]).await.err().unwrap();
        assert!(refused.contains("must be https"), "{refused}");
    }
}
