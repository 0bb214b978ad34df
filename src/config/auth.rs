use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::{Host, Url};

use super::Secret;
use super::check::Findings;

/// Authentication: API keys, JSON Web Tokens, or anonymous access.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// When a request without credentials is accepted, as a caller without roles.
    pub anonymous: AnonymousAccess,
    pub api_keys: Vec<ApiKeyConfig>,
    pub jwt: Option<JwtConfig>,
    /// Sign-in to the console at the issuer of `auth.jwt`.
    pub oidc: Option<OidcConfig>,
}

impl AuthConfig {
    /// Whether any credentials are configured. Managed keys are in the store.
    pub fn has_credentials(&self) -> bool {
        !self.api_keys.is_empty() || self.jwt.is_some()
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for (index, key) in self.api_keys.iter().enumerate() {
            key.check(&format!("auth.api_keys[{index}]"), findings);
        }
        self.check_unique(findings);
        if let Some(jwt) = &self.jwt {
            jwt.check(findings);
        }
        if let Some(oidc) = &self.oidc {
            oidc.check(self.jwt.as_ref(), findings);
        }
    }

    /// Two entries for one caller could have different roles, and one key must not identify two callers.
    fn check_unique(&self, findings: &mut Findings) {
        let (mut callers, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        for (index, key) in self.api_keys.iter().enumerate() {
            let setting = format!("auth.api_keys[{index}]");
            if !callers.insert((&key.tenant, &key.id)) {
                findings.add(format!("{setting}.id"), "is a duplicate in this tenant", "give each key its own id");
            }
            if key.hash().is_some_and(|hash| !hashes.insert(hash)) {
                findings.add_secret(setting, "has the same key as an earlier one", "give each caller its own key");
            }
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnonymousAccess {
    /// Only on this machine: the server listens on loopback, and the request names loopback as its host and did not
    /// come through a proxy.
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
    /// The key itself; only its SHA-256 is stored after loading.
    #[serde(default)]
    pub key: Option<Secret>,
    /// Lower-case hex SHA-256 of the key: `printf %s "$KEY" | sha256sum`.
    #[serde(default)]
    pub key_sha256: Option<String>,
    #[serde(default = "default_tenant")]
    pub tenant: String,
    #[serde(default)]
    pub roles: Vec<String>,
    /// Who uses the key, for approvals: keys of one person are one approver. Of a person with a token too, its issuer and
    /// `sub`: `https://issuer.example#SUB`. By default the id.
    #[serde(default)]
    pub person: Option<String>,
}

impl ApiKeyConfig {
    fn hash(&self) -> Option<String> {
        let of_key = self.key.as_ref().map(|key| hex::encode(Sha256::digest(key.expose())));
        of_key.or_else(|| self.key_sha256.clone())
    }

    fn check(&self, setting: &str, findings: &mut Findings) {
        findings.name(&format!("{setting}.id"), &self.id);
        findings.name(&format!("{setting}.tenant"), &self.tenant);
        findings.names(&format!("{setting}.roles"), &self.roles);
        if let Some(person) = &self.person {
            findings.name(&format!("{setting}.person"), person);
        }
        if self.tenant == "public" && self.id == "anonymous" {
            findings.add(format!("{setting}.id"), "is that of the caller without credentials", "choose another id");
        }
        match (&self.key, &self.key_sha256) {
            (Some(_), Some(_)) => findings.add_secret(setting, "has both `key` and `key_sha256`", "remove one of them"),
            (None, None) => findings.add_secret(
                setting,
                "has neither `key` nor `key_sha256`, or the variable it names is empty",
                "set one, such as `key: ${ALICE_KEY}`",
            ),
            (Some(key), None) if !is_header_text(key.expose()) => findings.add_secret(
                format!("{setting}.key"),
                "cannot be sent in a header",
                "use letters, digits and punctuation, without spaces",
            ),
            (None, Some(hash)) if !is_sha256(hash) => findings.add_secret(
                format!("{setting}.key_sha256"),
                "is not a SHA-256 in 64 lower-case hexadecimal digits",
                "compute it with: printf %s \"$KEY\" | sha256sum",
            ),
            _ => {}
        }
    }
}

fn is_header_text(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
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
    /// URL of the issuer's keys; fetched again when a token has an unknown key.
    #[serde(default)]
    pub jwks_url: Option<Url>,
    /// Alternatively a file with the key set.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// The claim with the list of roles.
    #[serde(default = "default_roles_claim")]
    pub roles_claim: String,
    /// The claim with the tenant.
    #[serde(default = "default_tenant_claim")]
    pub tenant_claim: String,
    /// Maximum difference between the issuer's clock and ours, in seconds.
    #[serde(default = "default_leeway_seconds")]
    pub leeway_seconds: u64,
}

impl JwtConfig {
    /// Maximum for `leeway_seconds`; more would keep expired tokens valid.
    const MAX_LEEWAY_SECONDS: u64 = 300;

    fn check(&self, findings: &mut Findings) {
        findings.name("auth.jwt.issuer", &self.issuer);
        findings.name("auth.jwt.audience", &self.audience);
        findings.name("auth.jwt.roles_claim", &self.roles_claim);
        findings.name("auth.jwt.tenant_claim", &self.tenant_claim);
        if self.jwks_url.is_some() == self.jwks_file.is_some() {
            findings.add("auth.jwt", "needs either `jwks_url` or `jwks_file`", "set exactly one of them");
        }
        if self.jwks_url.as_ref().is_some_and(|url| url.scheme() != "https" && !is_this_machine(url)) {
            findings.add(
                "auth.jwt.jwks_url",
                "must be https: anyone who can change the keys can impersonate any caller",
                "use https://",
            );
        }
        if self.leeway_seconds > Self::MAX_LEEWAY_SECONDS {
            findings.add("auth.jwt.leeway_seconds", "would keep expired tokens valid", "set at most 300 seconds");
        }
    }
}

/// The gateway as a client of the issuer (OpenID Connect, authorization code with PKCE). Its redirect address is
/// `/console/sign-in/callback` of this server.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    pub client_id: String,
    /// Of a confidential client, best as `${ENV}`.
    #[serde(default)]
    pub client_secret: Option<Secret>,
    /// What is asked for, beside `openid`.
    #[serde(default)]
    pub scopes: Vec<String>,
}

impl OidcConfig {
    fn check(&self, jwt: Option<&JwtConfig>, findings: &mut Findings) {
        findings.name("auth.oidc.client_id", &self.client_id);
        findings.names("auth.oidc.scopes", &self.scopes);
        if self.client_secret.as_ref().is_some_and(|secret| secret.expose().is_empty()) {
            findings.add_secret("auth.oidc.client_secret", "is empty", "set it, or leave it out for a public client");
        }
        let Some(jwt) = jwt else {
            findings.add("auth.oidc", "has no issuer", "set `auth.jwt`, whose issuer it signs in at");
            return;
        };
        match Url::parse(&jwt.issuer) {
            Ok(issuer) if issuer.scheme() == "https" || is_this_machine(&issuer) => {}
            _ => findings.add(
                "auth.jwt.issuer",
                "is no https address, at which `auth.oidc` could sign in",
                "use https://",
            ),
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
