//! The conventions of identity providers. A `resource` (RFC 8707) is sent to none of them: Entra and Google refuse it, and the tokens of
//! clients are the gateway's own.

use sekisho_config::{BrokerConfig, BrokerProvider};

/// The parameters of one provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preset {
    scopes: &'static [&'static str],
    /// Parameters by which its users are asked for access without them, which gives a refresh token.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
    roles_claim: &'static str,
}

/// In the ID token are the names of the user; with the last, the answer has a refresh token.
const OFFLINE: &[&str] = &["openid", "profile", "email", "offline_access"];

impl Preset {
    pub(crate) fn of(provider: BrokerProvider) -> Self {
        let with_groups = Self { scopes: OFFLINE, parameters: &[], roles_claim: "groups" };
        match provider {
            BrokerProvider::Entra | BrokerProvider::Auth0 => Self { roles_claim: "roles", ..with_groups },
            // The claim is the domain of an organization's account. Groups are in no token of Google.
            BrokerProvider::Google => Self {
                scopes: &["openid", "profile", "email"],
                parameters: &[("access_type", "offline"), ("prompt", "consent")],
                roles_claim: "hd",
            },
            BrokerProvider::Okta | BrokerProvider::Keycloak | BrokerProvider::Authentik => with_groups,
            // OpenID Connect Core 1.0 §11.
            BrokerProvider::Oidc => Self { parameters: &[("prompt", "consent")], ..with_groups },
        }
    }
}

/// The scopes of the request, with a space between them.
pub(crate) fn scopes(config: &BrokerConfig) -> String {
    let preset = Preset::of(config.provider).scopes;
    let mut scopes: Vec<&str> = match &config.scopes {
        Some(scopes) => scopes.iter().map(String::as_str).collect(),
        None => preset.to_vec(),
    };
    if !scopes.contains(&"openid") {
        scopes.insert(0, "openid");
    }
    scopes.join(" ")
}

pub(crate) fn roles_claim(config: &BrokerConfig) -> &str {
    config.roles_claim.as_deref().unwrap_or(Preset::of(config.provider).roles_claim)
}
