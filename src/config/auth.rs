use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;

/// Who may call: API keys, JSON Web Tokens, or nobody in particular.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// When a request without credentials is let in, as a caller without roles.
    pub anonymous: AnonymousAccess,
    pub api_keys: Vec<ApiKeyConfig>,
    pub jwt: Option<JwtConfig>,
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
