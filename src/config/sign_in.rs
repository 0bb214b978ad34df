use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::Secret;
use crate::check::Findings;

/// Signs in at a provider for access tokens, in place of a key: with client credentials (RFC 6749 §4.4), as of Microsoft Entra ID,
/// or as a service account of Google (RFC 7523).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignInConfig {
    /// Of client credentials: `https://login.microsoftonline.com/TENANT/oauth2/v2.0/token`.
    pub token_url: Option<Url>,
    pub client_id: Option<String>,
    /// Best as `${ENV}`.
    pub client_secret: Option<Secret>,
    /// `https://cognitiveservices.azure.com/.default` of Azure OpenAI. Default of a service account: Google's `cloud-platform`.
    pub scopes: Vec<String>,
    /// The JSON file with the key of a service account of Google.
    pub service_account_file: Option<PathBuf>,
}

impl SignInConfig {
    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        let client = [self.token_url.is_some(), self.client_id.is_some(), self.client_secret.is_some()];
        let (is_client, is_part) = (client.iter().all(|is_set| *is_set), client.iter().any(|is_set| *is_set));
        if is_part == self.service_account_file.is_some() || is_part && !is_client {
            let advice = "set `token_url`, `client_id` and `client_secret`, or `service_account_file`";
            findings.add(at, "names neither client credentials nor a service account, or both", advice);
        }
    }
}
