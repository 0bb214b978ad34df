//! How an authorization server is found, and the address to which a browser is sent there.

use std::fmt;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};
use url::Url;

use super::TokenClient;
use sekisho_config::Secret;

/// The gateway's addresses for browsers and authorization servers.
#[derive(Debug, Clone)]
pub struct OwnAddresses {
    pub callback: Url,
    /// The address of our client metadata document, if other machines can reach it.
    pub client_metadata: Option<Url>,
}

/// Finds the authorization server of one upstream.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Begins an authorization with PKCE (RFC 7636), which also asks for these `scopes`.
    ///
    /// The error is the reason, for an operator.
    fn begin<'a>(&'a self, own: &'a OwnAddresses, scopes: &'a [String])
    -> BoxFuture<'a, Result<Authorization, String>>;

    /// The secret that the configuration has for this client.
    fn secret_of(&self, client_id: &str) -> Option<&Secret>;

    /// The header of the credentials that callers store, for an upstream without an authorization server.
    fn credential_header(&self) -> Option<&HeaderName> {
        None
    }

    /// The upstream refused a token (401), and may say where tokens come from.
    fn was_challenged(&self, _headers: &HeaderMap) {}
}

/// An authorization that a browser is sent to.
pub struct Authorization {
    pub url: Url,
    pub state: String,
    pub begun: Begun,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authorization").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// The data that is needed when the browser comes back.
#[derive(Clone, Serialize, Deserialize)]
pub struct Begun {
    pub client: TokenClient,
    /// As far as it is published.
    pub issuer: Option<String>,
    /// The authorization server says that it sends `iss` (RFC 9207).
    pub names_issuer: bool,
    pub verifier: String,
    pub redirect: Url,
    /// The requested scopes.
    pub scopes: Vec<String>,
    /// The origin of the address that the browser is sent to.
    pub origin: String,
}

impl fmt::Debug for Begun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Begun")
            .field("client", &self.client)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Begun {
    /// Whether the authorization response is from this issuer (RFC 9207): another issuer must not bring its code here.
    /// For an issuer that publishes no `issuer`, the origin of the page where its users sign in counts.
    pub(super) fn is_from(&self, issuer: Option<&str>) -> bool {
        match (issuer, &self.issuer) {
            (Some(issuer), Some(known)) => issuer == known,
            (Some(issuer), None) => {
                Url::parse(issuer).is_ok_and(|issuer| issuer.origin().ascii_serialization() == self.origin)
            }
            (None, _) => !self.names_issuer,
        }
    }
}
