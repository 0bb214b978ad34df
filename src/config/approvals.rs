use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::check::Findings;

/// A shorter key can be guessed.
const MIN_KEY_BYTES: usize = 24;

/// Approval of calls by a person.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    /// Whether approvers may approve their own calls, for a gateway with one user.
    #[serde(rename = "self")]
    pub own: bool,
    /// Where it is sent what waits and what was decided.
    pub webhook: Option<WebhookConfig>,
}

impl ApprovalsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        let Some(webhook) = &self.webhook else { return };
        if !matches!(webhook.url.scheme(), "http" | "https") || webhook.url.host().is_none() {
            findings.add("approvals.webhook.url", "is no web address", "write https://HOST/PATH");
        }
        if webhook.key().is_none() {
            let advice = "set `whsec_` and the output of `openssl rand -base64 32`";
            findings.add_secret("approvals.webhook.secret", "is no key of 24 bytes or more in base64", advice);
        }
    }
}

/// A receiver of webhooks, which are signed as <https://www.standardwebhooks.com> says.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    pub url: Url,
    /// `whsec_` and 24 random bytes or more in base64, best as `${ENV}`.
    pub secret: Secret,
}

impl WebhookConfig {
    /// The key that signs.
    pub fn key(&self) -> Option<Vec<u8>> {
        let key = STANDARD.decode(self.secret.expose().strip_prefix("whsec_")?).ok()?;
        (key.len() >= MIN_KEY_BYTES).then_some(key)
    }
}

/// Which calls of a tool a person must approve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalRule {
    /// None, unless a policy asks for it.
    #[default]
    Never,
    /// Those of a caller for whom no call of this version of the tool was approved yet.
    FirstUse,
    Always,
}
