use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::Secret;
use crate::check::Findings;

/// Signs in at a provider for access tokens, in place of a key: with client credentials (RFC 6749 §4.4), as of Microsoft Entra ID,
/// as a service account of Google (RFC 7523), or with the identity of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignInConfig {
    /// Of client credentials: `https://login.microsoftonline.com/TENANT/oauth2/v2.0/token`.
    pub token_url: Option<Url>,
    pub client_id: Option<String>,
    /// Best as `${ENV}`.
    pub client_secret: Option<Secret>,
    /// In place of a secret: the file with the token of a workload, which its platform renews (`AZURE_FEDERATED_TOKEN_FILE`).
    pub client_assertion_file: Option<PathBuf>,
    /// `https://cognitiveservices.azure.com/.default` of Azure OpenAI. Default of a service account: Google's `cloud-platform`.
    pub scopes: Vec<String>,
    /// The JSON file with the key of a service account of Google, or with the configuration of a workload identity (`external_account`)
    /// whose token is in a file.
    pub service_account_file: Option<PathBuf>,
}

impl SignInConfig {
    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        let proofs = [self.client_secret.is_some(), self.client_assertion_file.is_some()];
        let has_proof = proofs.contains(&true);
        let client = [self.token_url.is_some(), self.client_id.is_some(), has_proof];
        let is_client = !client.contains(&false) && proofs.contains(&false);
        let is_part = client.contains(&true);
        if is_part == self.service_account_file.is_some() || is_part && !is_client {
            let advice = "set `token_url`, `client_id`, and `client_secret` or `client_assertion_file`; or `service_account_file`";
            findings.add(at, "names neither client credentials nor a service account, or both", advice);
        }
    }
}
