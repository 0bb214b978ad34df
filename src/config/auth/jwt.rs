use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::{Host, Url};

use crate::check::Findings;
use crate::{OneOrMany, Secret};

/// Tokens of one issuer. Of a JSON Web Token signature, issuer, audience and expiry are always checked. Where its keys are, and
/// where the issuer is asked about other tokens, is found at the issuer's address (OpenID Connect Discovery, RFC 8414).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    pub issuer: String,
    /// One, or a list: a token must be for one of them.
    pub audience: OneOrMany<String>,
    /// URL of the issuer's keys; fetched again when a token has an unknown key.
    #[serde(default)]
    pub jwks_url: Option<Url>,
    /// Alternatively a file with the key set.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// Accepts tokens that only the issuer can read, by asking it (RFC 7662). For one issuer at most.
    #[serde(default)]
    pub introspection: Option<IntrospectionConfig>,
    /// The claim with the list of roles.
    #[serde(default = "default_roles_claim")]
    pub roles_claim: String,
    /// The claim with the tenant.
    #[serde(default = "default_tenant_claim")]
    pub tenant_claim: String,
    /// Maximum difference between the issuer's clock and ours, in seconds.
    #[serde(default = "default_leeway_seconds")]
    pub leeway_seconds: u64,
    /// The issuer whose subjects its tokens name, where that is another one: of the gateway's own tokens, the provider where their users
    /// signed in. A person is one caller by both.
    #[serde(skip)]
    pub subjects_of: Option<String>,
}

/// The gateway as a client of the issuer that may ask about tokens. It names itself by HTTP Basic authentication.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionConfig {
    pub client_id: String,
    /// Best as `${ENV}`.
    pub client_secret: Secret,
    /// Where it asks; without it, what the issuer publishes.
    #[serde(default)]
    pub url: Option<Url>,
}

impl JwtConfig {
    /// Maximum for `leeway_seconds`; more would keep expired tokens valid.
    const MAX_LEEWAY_SECONDS: u64 = 300;

    /// The issuer of the subjects.
    pub fn subjects(&self) -> &str {
        self.subjects_of.as_deref().unwrap_or(&self.issuer)
    }

    /// Whether the issuer is an address at which it can publish its metadata.
    pub fn is_address(&self) -> bool {
        let is_plain = |url: &Url| url.query().is_none() && url.fragment().is_none();
        Url::parse(&self.issuer).is_ok_and(|url| is_secure(&url) && is_plain(&url))
    }

    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        let at = |key: &str| format!("{setting}.{key}");
        findings.name(&at("issuer"), &self.issuer);
        if self.audience.is_empty() {
            findings.add(at("audience"), "is empty", "name for whom tokens must be, such as `sekisho`");
        }
        self.audience.iter().for_each(|audience| findings.name(&at("audience"), audience));
        findings.name(&at("roles_claim"), &self.roles_claim);
        findings.name(&at("tenant_claim"), &self.tenant_claim);
        self.check_keys(setting, findings);
        if let Some(introspection) = &self.introspection {
            introspection.check(&at("introspection"), self.is_address(), findings);
        }
        if self.leeway_seconds > Self::MAX_LEEWAY_SECONDS {
            findings.add(at("leeway_seconds"), "would keep expired tokens valid", "set at most 300 seconds");
        }
    }

    fn check_keys(&self, setting: &str, findings: &mut Findings) {
        match (&self.jwks_url, &self.jwks_file) {
            (Some(_), Some(_)) => findings.add(setting, "has both `jwks_url` and `jwks_file`", "remove one of them"),
            (None, None) if !self.is_address() => findings.add(
                setting,
                "needs `jwks_url` or `jwks_file`, since its issuer is no https address at which its keys could be found",
                "set one of them, or write the address of the issuer",
            ),
            (Some(url), None) if !is_secure(url) => findings.add(
                format!("{setting}.jwks_url"),
                "must be https: anyone who can change the keys can impersonate any caller",
                "use https://",
            ),
            _ => {}
        }
    }
}

impl IntrospectionConfig {
    fn check(&self, setting: &str, has_address: bool, findings: &mut Findings) {
        findings.name(&format!("{setting}.client_id"), &self.client_id);
        if self.client_secret.expose().is_empty() {
            let advice = "set it, such as `client_secret: ${SEKISHO_INTROSPECTION_SECRET}`";
            findings.add_secret(format!("{setting}.client_secret"), "is empty", advice);
        }
        match &self.url {
            Some(url) if !is_secure(url) => findings.add(
                format!("{setting}.url"),
                "must be https: tokens and the secret are sent there",
                "use https://",
            ),
            None if !has_address => findings.add(
                setting,
                "needs `url`, since the issuer is no https address at which it could be found",
                "set it, or write the address of the issuer",
            ),
            _ => {}
        }
    }
}

/// Whether nobody in between can read and change requests: over TLS, or within this machine.
pub fn is_secure(url: &Url) -> bool {
    let is_this_machine = || match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_this_machine())
}

fn default_roles_claim() -> String {
    "roles".into()
}

fn default_tenant_claim() -> String {
    "tenant".into()
}

fn default_leeway_seconds() -> u64 {
    30
}
