use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::Secret;
use crate::check::Findings;

/// Credentials of one security scheme of a document; which of them count depends on the scheme's type.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemeCredentials {
    /// For `apiKey`: sent under the scheme's own name.
    pub api_key: Option<Secret>,
    /// For `oauth2`, `openIdConnect`, and `http` with any scheme but `basic`: sent as `Authorization: SCHEME TOKEN`.
    pub token: Option<Secret>,
    /// For `http` with the scheme `basic`.
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// OAuth 2.0 client credentials, for `oauth2` and `openIdConnect`.
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    /// Replaces the token URL that the document or the discovery names.
    pub token_url: Option<Url>,
    /// Replaces the scopes that the operation requires.
    pub scopes: Option<Vec<String>>,
    /// For `mutualTLS`: PEM files with the client's certificate and its private key.
    pub certificate_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

impl SchemeCredentials {
    /// Checks that each credential is complete; `setting` is its path.
    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        let pairs = [
            ("username", self.username.is_some(), "password", self.password.is_some()),
            ("client_id", self.client_id.is_some(), "client_secret", self.client_secret.is_some()),
            ("certificate_file", self.certificate_file.is_some(), "key_file", self.key_file.is_some()),
        ];
        for (one, has_one, other, has_other) in pairs {
            if has_one != has_other {
                let (given, missing) = if has_one { (one, other) } else { (other, one) };
                let message = format!("is missing, and `{given}` requires it");
                findings.add_secret(format!("{setting}.{missing}"), &message, "set both, or neither");
            }
        }
        if self.token_url.as_ref().is_some_and(|url| !matches!(url.scheme(), "http" | "https")) {
            let advice = "write it like https://auth.example.com/token";
            findings.add(format!("{setting}.token_url"), "is not an http or https address", advice);
        }
        if *self == Self::default() {
            findings.add(setting, "has no credential", "set what the scheme needs, or remove the entry");
        }
    }
}
