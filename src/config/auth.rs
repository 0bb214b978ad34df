mod broker;
mod jwt;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

use super::check::Findings;
use super::{OneOrMany, Secret};
use sekisho_core::caller::DEFAULT_TENANT;

pub use self::broker::{BrokerConfig, BrokerProvider, BrokerTokens, Lifetime};
pub use self::jwt::is_secure;
pub use self::jwt::{IntrospectionConfig, JwtConfig};
pub use self::workload::WorkloadConfig;

/// Characters, and different ones, that a key has without a warning.
const MIN_KEY: usize = 16;
const MIN_DIFFERENT: usize = 6;

/// Authentication: API keys, tokens of issuers, or anonymous access.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// When a request without credentials is accepted, as a caller without roles.
    pub anonymous: AnonymousAccess,
    pub api_keys: Vec<ApiKeyConfig>,
    /// One issuer, or a list of them. With several, the id of a caller is `ISSUER#SUB`, since each may have the same subjects.
    pub jwt: OneOrMany<JwtConfig>,
    /// By scope of a token, the names of the tools that need it; a final `*` matches any rest. A tool may need several. Callers with
    /// a key have no scopes, and need none.
    pub scopes: BTreeMap<String, Vec<String>>,
    /// Sign-in to the console at the issuer of `auth.jwt`, the first if there are several.
    pub oidc: Option<OidcConfig>,
    /// An authorization server of the gateway in front of an identity provider, for clients that cannot register there.
    pub broker: Option<BrokerConfig>,
    /// Workloads that are known by the certificate of their connection.
    pub workloads: Vec<WorkloadConfig>,
}

impl AuthConfig {
    /// Whether any credentials are configured. Managed keys are in the store.
    pub fn has_credentials(&self) -> bool {
        !self.api_keys.is_empty() || !self.workloads.is_empty() || self.has_tokens()
    }

    /// Whether tokens of issuers are accepted, one of which may be the gateway.
    pub fn has_tokens(&self) -> bool {
        !self.jwt.is_empty() || self.broker.is_some()
    }

    /// The key of an issuer's settings.
    pub fn setting_of_issuer(&self, index: usize) -> String {
        match self.jwt.len() {
            1 => "auth.jwt".to_owned(),
            _ => format!("auth.jwt[{index}]"),
        }
    }

    /// Warnings about keys that can be guessed.
    pub(super) fn notes(&self) -> impl Iterator<Item = (String, String)> {
        let weak = self.api_keys.iter().enumerate().filter(|(_, key)| key.is_weak());
        let weak = weak.map(|(index, key)| {
            let note = format!(
                "the key of {:?} can be guessed: it has less than {MIN_KEY} characters, or few different ones; take a random \
                 one, as of `openssl rand -hex 24`",
                key.id
            );
            (format!("auth.api_keys[{index}].key"), note)
        });
        weak.chain(self.broker.as_ref().and_then(BrokerConfig::warning))
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for (index, key) in self.api_keys.iter().enumerate() {
            key.check(&format!("auth.api_keys[{index}]"), findings);
        }
        self.check_unique(findings);
        self.check_issuers(findings);
        self.check_scopes(findings);
        if let Some(oidc) = &self.oidc {
            oidc.check(self.jwt.first(), &self.setting_of_issuer(0), findings);
        }
        if let Some(broker) = &self.broker {
            broker.check(findings);
        }
    }

    fn check_issuers(&self, findings: &mut Findings) {
        let mut issuers = BTreeSet::new();
        for (index, jwt) in self.jwt.iter().enumerate() {
            let setting = self.setting_of_issuer(index);
            jwt.check(&setting, findings);
            if !issuers.insert(&jwt.issuer) {
                findings.add(format!("{setting}.issuer"), "is a duplicate", "give each issuer one entry");
            }
            // The id of a caller is `ISSUER#SUB`, in which a subject may have one too.
            if self.jwt.len() > 1 && jwt.issuer.contains('#') {
                findings.add(format!("{setting}.issuer"), "contains `#`", "write the issuer as its tokens do");
            }
        }
        if self.jwt.iter().filter(|jwt| jwt.introspection.is_some()).count() > 1 {
            let advice = "leave it at one: a token that only its issuer can read does not say of which it is";
            findings.add("auth.jwt", "has several issuers with `introspection`", advice);
        }
    }

    fn check_scopes(&self, findings: &mut Findings) {
        if !self.scopes.is_empty() && !self.has_tokens() {
            findings.add("auth.scopes", "has no issuer whose tokens could have scopes", "set `auth.jwt`");
        }
        for (scope, tools) in &self.scopes {
            let setting = format!("auth.scopes.{scope}");
            // RFC 6749 §3.3.
            if scope.is_empty() || !scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')) {
                let advice = "use visible ASCII characters other than `\"` and `\\`, without spaces";
                findings.add(&setting, "is no scope", advice);
            }
            findings.names(&setting, tools);
            let has_inner_star = |pattern: &String| pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
            if tools.is_empty() {
                findings.add(setting, "names no tools", "name some, such as `crm__*`");
            } else if tools.iter().any(has_inner_star) {
                findings.add(setting, "has a `*` that is not at the end", "write `crm__*`");
            }
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
    /// SHA-256 of the key, in hexadecimal digits.
    pub(super) fn hash(&self) -> Option<String> {
        let of_key = self.key.as_ref().map(|key| hex::encode(Sha256::digest(key.expose())));
        of_key.or_else(|| self.key_sha256.clone())
    }

    fn is_weak(&self) -> bool {
        let different = |key: &str| key.bytes().collect::<BTreeSet<_>>().len();
        self.key.as_ref().map(Secret::expose).is_some_and(|key| key.len() < MIN_KEY || different(key) < MIN_DIFFERENT)
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
    fn check(&self, jwt: Option<&JwtConfig>, setting_of_issuer: &str, findings: &mut Findings) {
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
            Ok(issuer) if is_secure(&issuer) => {}
            _ => findings.add(
                format!("{setting_of_issuer}.issuer"),
                "is no https address, at which `auth.oidc` could sign in",
                "use https://",
            ),
        }
    }
}

fn default_tenant() -> String {
    DEFAULT_TENANT.into()
}
