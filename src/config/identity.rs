use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::Secret;
use super::check::Findings;

/// As whom the gateway calls an upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The same for all callers: configured credentials, or the sign-in of one user.
    #[default]
    Shared,
    /// As the caller, who signs in to the upstream (OAuth 2.1, authorization code).
    PerUser,
    /// As the caller, with a key or password for the upstream that the caller has stored in the gateway.
    Stored,
    /// As the caller, with a token that is exchanged for the caller's own (RFC 8693, RFC 7523).
    Exchange,
    /// As the caller, with the caller's own token, if it is for `exchange.audience`.
    Forward,
}

impl Identity {
    /// Whether the store has tokens or a credential of each caller.
    pub fn is_kept(self) -> bool {
        matches!(self, Self::PerUser | Self::Stored)
    }
}

/// How a token for an upstream is made of the caller's, with `identity: exchange` or `forward`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeSettings {
    /// The token endpoint. Its host must be one that the upstream may be on.
    pub token_url: Option<Url>,
    pub grant: ExchangeGrant,
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    /// For whom the token is to be; with `forward`, for whom the caller's must be; with `id_jag`, the issuer of the upstream's authorization
    /// server.
    pub audience: Option<String>,
    /// With `id_jag`, the upstream's own identifier (RFC 9728), where the provider needs it.
    pub resource: Option<String>,
    pub scopes: Vec<String>,
    /// Whether the gateway names itself as the actor, by a token of its client: the new token has it as `act`.
    pub actor: bool,
}

/// How the caller's token is presented.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeGrant {
    /// As the subject of an exchange (RFC 8693).
    #[default]
    TokenExchange,
    /// As an authorization grant (RFC 7523 §2.1).
    JwtBearer,
    /// Not itself: by the caller's sign-in at the gateway (`auth.broker`) the provider gives an identity assertion, which is presented as an
    /// authorization grant.
    IdJag,
}

impl ExchangeSettings {
    /// Checks the conditions of `identity`; `setting` is the path of these settings.
    pub(super) fn check(&self, identity: Identity, setting: &str, findings: &mut Findings) {
        let mut require = |key: &str, is_set: bool| {
            if !is_set {
                findings.add(format!("{setting}.{key}"), "is missing, and `identity` requires it", "set it");
            }
        };
        match identity {
            Identity::Exchange => {
                require("token_url", self.token_url.is_some());
                require("client_id", self.client_id.is_some());
                if self.grant == ExchangeGrant::IdJag {
                    require("audience", self.audience.is_some());
                }
                if self.resource.is_some() && self.grant != ExchangeGrant::IdJag {
                    findings.add(format!("{setting}.resource"), "is only for `id_jag`", "remove it, or set `grant`");
                }
                if self.actor && self.grant != ExchangeGrant::TokenExchange {
                    let advice = "remove it: only an exchange (`token_exchange`) has an actor";
                    findings.add(format!("{setting}.actor"), "is not for this `grant`", advice);
                }
            }
            Identity::Forward => require("audience", self.audience.is_some()),
            Identity::Shared | Identity::PerUser | Identity::Stored => {}
        }
        if self.actor && self.client_secret.is_none() {
            findings.add_secret(format!("{setting}.client_secret"), "is missing, and `actor` requires it", "set it");
        }
        if self.token_url.as_ref().is_some_and(|url| !matches!(url.scheme(), "http" | "https")) {
            let advice = "write it like https://auth.example.com/token";
            findings.add(format!("{setting}.token_url"), "is not an http or https address", advice);
        }
    }
}
