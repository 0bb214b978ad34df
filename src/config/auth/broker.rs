use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::jwt::is_secure;
use crate::Secret;
use crate::check::Findings;
use sekisho_core::caller::DEFAULT_TENANT;

/// Longest lifetimes: an access token has the roles of its last refresh.
const MAX_ACCESS: Duration = Duration::from_secs(3_600);
const MAX_REFRESH: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Shortest secret of a client, in bytes: nobody slows down who guesses it.
const MIN_CLIENT_SECRET: usize = 32;

/// The gateway as the authorization server of MCP clients, in front of an identity provider where users sign in. Its redirect address
/// there is `/oauth/callback` at `server.mcp.public_url`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BrokerConfig {
    pub provider: BrokerProvider,
    /// The issuer of the provider's ID tokens (`iss`). Its metadata at this address say where users sign in.
    pub issuer: String,
    /// The gateway's id as a client there.
    pub client_id: String,
    /// Best as `${ENV}`.
    pub client_secret: Secret,
    /// The scopes of the request, in place of the ones of `provider`.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
    /// The tenant of all who sign in.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// The claim of the ID token whose values `roles` names, in place of the one of `provider`.
    #[serde(default)]
    pub roles_claim: Option<String>,
    /// By a value of that claim, the roles that it gives. Where there are some, nobody signs in who has none of the values, unless there are
    /// `default_roles`.
    #[serde(default)]
    pub roles: BTreeMap<String, Vec<String>>,
    /// The roles of all who sign in.
    #[serde(default)]
    pub default_roles: Vec<String>,
    #[serde(default)]
    pub tokens: BrokerTokens,
    /// The redirect addresses with which clients may register; a final `*` matches any rest. By default `https` addresses, `http` ones of the
    /// user's machine, and addresses of known editors.
    #[serde(default)]
    pub redirects: Vec<String>,
    /// Clients that exchange an identity assertion of the provider (ID-JAG) for a token, without a page: by the id, the secret. Without one,
    /// assertions are refused.
    #[serde(default)]
    pub assertion_clients: BTreeMap<String, Secret>,
}

/// Whose conventions the provider has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BrokerProvider {
    Entra,
    Google,
    Okta,
    Auth0,
    Keycloak,
    Authentik,
    /// Any other OpenID provider.
    Oidc,
}

/// The lifetimes of the gateway's own tokens.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerTokens {
    /// Of an access token, at most `1h`.
    pub access: Lifetime,
    /// Of a session that is not refreshed.
    pub refresh: Lifetime,
}

/// A number with `s`, `m`, `h` or `d` for seconds, minutes, hours or days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub struct Lifetime(Duration);

impl BrokerConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        match Url::parse(&self.issuer) {
            Ok(url) if is_secure(&url) && url.query().is_none() && url.fragment().is_none() => {}
            _ => findings.add(
                "auth.broker.issuer",
                "is no https address, at which users could sign in",
                "write the issuer of the provider's ID tokens, such as https://login.example.com/",
            ),
        }
        findings.name("auth.broker.client_id", &self.client_id);
        if self.client_secret.expose().is_empty() {
            findings.add_secret("auth.broker.client_secret", "is empty", "set it to the secret of the client");
        }
        findings.names("auth.broker.scopes", self.scopes.as_deref().unwrap_or_default());
        findings.name("auth.broker.tenant", &self.tenant);
        if let Some(claim) = &self.roles_claim {
            findings.name("auth.broker.roles_claim", claim);
        }
        for (value, roles) in &self.roles {
            findings.names(&format!("auth.broker.roles.{value}"), roles);
        }
        findings.names("auth.broker.default_roles", &self.default_roles);
        for (index, pattern) in self.redirects.iter().enumerate() {
            let beginning = Url::parse(pattern.strip_suffix('*').unwrap_or(pattern));
            if !beginning.is_ok_and(|url| !url.host_str().is_some_and(|host| host.contains('*'))) {
                findings.add(
                    format!("auth.broker.redirects[{index}]"),
                    "is no address, or has a `*` in its host: no client could register with it",
                    "write the host in full, such as https://app.example.com/*",
                );
            }
        }
        for (client, secret) in &self.assertion_clients {
            let setting = format!("auth.broker.assertion_clients.{client}");
            findings.name(&setting, client);
            if secret.expose().len() < MIN_CLIENT_SECRET {
                let advice = "take a random one, as of `openssl rand -hex 24`";
                findings.add_secret(setting, "has less than 32 characters, and could be guessed", advice);
            }
        }
        self.tokens.check(findings);
    }

    /// The address of the gateway is the issuer of its tokens.
    pub(crate) fn check_public_url(public_url: Option<&Url>, findings: &mut Findings) {
        let is_usable = |url: &&Url| is_secure(url) && url.path() == "/" && url.query().is_none();
        if public_url.filter(is_usable).is_none() {
            findings.add(
                "auth.broker",
                "needs the address of the gateway: an https address without a path in `server.mcp.public_url`",
                "set it to the address at which clients and browsers reach the gateway",
            );
        }
    }

    /// Anybody has an account at Google.
    pub(super) fn warning(&self) -> Option<(String, String)> {
        let is_open = self.provider == BrokerProvider::Google && self.roles.is_empty();
        let note = "everybody whom the provider signs in is a caller of this gateway: unless the client there is internal to one \
                    organization, name yours in `roles`, such as `example.com: [employee]`";
        is_open.then(|| ("auth.broker.roles".to_owned(), note.to_owned()))
    }
}

impl BrokerTokens {
    fn check(&self, findings: &mut Findings) {
        for (setting, lifetime, max, advice) in [
            ("auth.broker.tokens.access", self.access, MAX_ACCESS, "set 1s to 1h"),
            ("auth.broker.tokens.refresh", self.refresh, MAX_REFRESH, "set 1s to 365d"),
        ] {
            if lifetime.0 > max || lifetime.0.is_zero() {
                findings.add(setting, "is too long, or nothing", advice);
            }
        }
    }
}

impl Default for BrokerTokens {
    fn default() -> Self {
        let days = |days: u64| Lifetime(Duration::from_secs(days * 24 * 3_600));
        Self { access: Lifetime(Duration::from_secs(600)), refresh: days(30) }
    }
}

impl Lifetime {
    pub fn duration(self) -> Duration {
        self.0
    }

    fn read(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 24 * 3_600,
            _ => return None,
        };
        let is_number = !number.is_empty() && number.len() <= 9 && number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = is_number.then(|| number.parse().ok()).flatten()?;
        Some(Self(Duration::from_secs(number * seconds)))
    }
}

impl fmt::Debug for Lifetime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}s", self.0.as_secs())
    }
}

impl<'de> Deserialize<'de> for Lifetime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let problem = "a number with `s`, `m`, `h` or `d`, such as `10m`, is expected";
        Self::read(&text).ok_or_else(|| serde::de::Error::custom(problem))
    }
}

impl JsonSchema for Lifetime {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Lifetime".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9]{1,9}[smhd]$"})
    }
}

fn default_tenant() -> String {
    DEFAULT_TENANT.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_number_with_its_unit() {
        for (text, seconds) in
            [("10m", Some(600)), ("30d", Some(2_592_000)), ("1s", Some(1)), ("2h", Some(7_200)), ("0s", Some(0))]
        {
            assert_eq!(Lifetime::read(text).map(|read| read.0.as_secs()), seconds, "{text}");
        }
        for text in ["", "m", "10", "10 m", "-1s", "+1s", "1.5h", "10M", "1000000000d", "10é", "é"] {
            assert_eq!(Lifetime::read(text), None, "{text}");
        }
    }
}
