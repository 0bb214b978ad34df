use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::{Host, Url};

use super::Secret;
use super::check::Findings;

/// Who may call: API keys, JSON Web Tokens, or nobody in particular.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// When a request without credentials is let in, as a caller without roles.
    pub anonymous: AnonymousAccess,
    pub api_keys: Vec<ApiKeyConfig>,
    pub jwt: Option<JwtConfig>,
}

impl AuthConfig {
    /// Is there anything a caller could prove who they are with?
    pub fn has_credentials(&self) -> bool {
        !self.api_keys.is_empty() || self.jwt.is_some()
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if self.anonymous == AnonymousAccess::Never && !self.has_credentials() {
            findings.add("auth.anonymous", "nobody could call", "add `auth.api_keys` or `auth.jwt`");
        }
        for (index, key) in self.api_keys.iter().enumerate() {
            key.check(&format!("auth.api_keys[{index}]"), findings);
        }
        self.check_unique(findings);
        if let Some(jwt) = &self.jwt {
            jwt.check(findings);
        }
    }

    /// Two entries for one caller would disagree about roles, and one key must not stand for two callers.
    fn check_unique(&self, findings: &mut Findings) {
        let (mut callers, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        for (index, key) in self.api_keys.iter().enumerate() {
            let setting = format!("auth.api_keys[{index}]");
            if !callers.insert((&key.tenant, &key.id)) {
                findings.add(format!("{setting}.id"), "stands twice in this tenant", "give each key an id of its own");
            }
            if key.hash().is_some_and(|hash| !hashes.insert(hash)) {
                findings.add_secret(setting, "has the same key as an earlier one", "give each caller its own key");
            }
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnonymousAccess {
    /// Only while the server listens on loopback.
    #[default]
    Loopback,
    Always,
    Never,
}

/// One API key: `Authorization: Bearer KEY` or `X-API-Key: KEY`. Give `key` (best as `${ENV}`) or `key_sha256`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The caller's id, in budgets, logs and policies.
    pub id: String,
    /// The key itself; kept only as its SHA-256 once loaded.
    #[serde(default)]
    pub key: Option<Secret>,
    /// Lower-case hex SHA-256 of the key: `printf %s "$KEY" | sha256sum`.
    #[serde(default)]
    pub key_sha256: Option<String>,
    #[serde(default = "default_tenant")]
    pub tenant: String,
    #[serde(default)]
    pub roles: Vec<String>,
}

impl ApiKeyConfig {
    fn hash(&self) -> Option<String> {
        let of_key = self.key.as_ref().map(|key| hex(&Sha256::digest(key.expose())));
        of_key.or_else(|| self.key_sha256.clone())
    }

    fn check(&self, setting: &str, findings: &mut Findings) {
        findings.name(&format!("{setting}.id"), &self.id);
        findings.name(&format!("{setting}.tenant"), &self.tenant);
        findings.names(&format!("{setting}.roles"), &self.roles);
        if self.tenant == "public" && self.id == "anonymous" {
            findings.add(format!("{setting}.id"), "is that of the caller without credentials", "choose another id");
        }
        match (&self.key, &self.key_sha256) {
            (Some(_), Some(_)) => findings.add_secret(setting, "has both `key` and `key_sha256`", "keep one of them"),
            (None, None) => findings.add_secret(
                setting,
                "has neither `key` nor `key_sha256`, or the variable it names is empty",
                "add one, such as `key: ${ALICE_KEY}`",
            ),
            (Some(key), None) if !is_header_text(key.expose()) => findings.add_secret(
                format!("{setting}.key"),
                "cannot travel in a header",
                "use letters, digits and punctuation, and no spaces",
            ),
            (None, Some(hash)) if !is_sha256(hash) => findings.add_secret(
                format!("{setting}.key_sha256"),
                "is not a SHA-256 in 64 lower-case hexadecimal digits",
                "make it with: printf %s \"$KEY\" | sha256sum",
            ),
            _ => {}
        }
    }
}

fn is_header_text(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_sha256(hash: &str) -> bool {
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// JSON Web Tokens of one issuer. Signature, issuer, audience and expiry are always checked.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    pub issuer: String,
    pub audience: String,
    /// Where the issuer publishes its keys; asked again when a token names an unknown key.
    #[serde(default)]
    pub jwks_url: Option<Url>,
    /// Or a file with the key set.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// The claim that holds the list of roles.
    #[serde(default = "default_roles_claim")]
    pub roles_claim: String,
    /// The claim that holds the tenant.
    #[serde(default = "default_tenant_claim")]
    pub tenant_claim: String,
    /// Seconds that the issuer's clock may differ from ours.
    #[serde(default = "default_leeway_seconds")]
    pub leeway_seconds: u64,
}

impl JwtConfig {
    /// Seconds that clocks may differ; more would keep expired tokens alive.
    const MAX_LEEWAY_SECONDS: u64 = 300;

    fn check(&self, findings: &mut Findings) {
        findings.name("auth.jwt.issuer", &self.issuer);
        findings.name("auth.jwt.audience", &self.audience);
        findings.name("auth.jwt.roles_claim", &self.roles_claim);
        findings.name("auth.jwt.tenant_claim", &self.tenant_claim);
        if self.jwks_url.is_some() == self.jwks_file.is_some() {
            findings.add("auth.jwt", "needs either `jwks_url` or `jwks_file`", "give exactly one of them");
        }
        if self.jwks_url.as_ref().is_some_and(|url| url.scheme() != "https" && !is_this_machine(url)) {
            findings.add("auth.jwt.jwks_url", "must be https: who can change the keys can be anybody", "use https://");
        }
        if self.leeway_seconds > Self::MAX_LEEWAY_SECONDS {
            findings.add("auth.jwt.leeway_seconds", "would keep expired tokens alive", "give at most 300 seconds");
        }
    }
}

fn is_this_machine(url: &Url) -> bool {
    url.scheme() == "http"
        && match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
}

fn default_tenant() -> String {
    "default".into()
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
