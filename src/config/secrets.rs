use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::{Secret, StoreConfig};

/// The keys that seal what is secret in the store, such as the arguments of calls that wait for approval.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecretsConfig {
    /// 64 hexadecimal digits, best as `${ENV}`, the same at all replicas: `openssl rand -hex 32`. By default
    /// generated into `secrets.key` in the state directory; with `store.url` it must be set where approvals are asked.
    pub key: Option<Secret>,
    /// The key before: it still opens what it sealed, and seals nothing.
    pub previous_key: Option<Secret>,
}

impl SecretsConfig {
    pub(super) fn check(&self, store: &StoreConfig, findings: &mut Findings) {
        for (setting, key) in [("secrets.key", &self.key), ("secrets.previous_key", &self.previous_key)] {
            if key.as_ref().is_some_and(|key| !is_key(key.expose())) {
                let advice = "set the output of `openssl rand -hex 32`";
                findings.add_secret(setting, "is not a key of 64 hexadecimal digits", advice);
            }
        }
        if self.previous_key.is_some() && self.key.is_none() {
            let advice = match store.url {
                Some(_) => "set `secrets.key` to the new key",
                None => "set `secrets.key` to the new key, and `secrets.previous_key` to that of the file",
            };
            findings.add_secret("secrets.previous_key", "requires `secrets.key`", advice);
        }
    }
}

fn is_key(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
