use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::check::Findings;

/// The certificate that is shown to a server which asks for one (mutual TLS), such as an X.509-SVID of SPIFFE. The files are PEM, and read
/// again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificateConfig {
    /// The certificate, followed by its issuers' certificates.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ClientCertificateConfig {
    /// `url`: where it is shown.
    pub(super) fn check(url: Option<&Url>, setting: String, findings: &mut Findings) {
        if url.is_none_or(|url| url.scheme() != "https") {
            findings.add(setting, "needs an https address, at which it is shown", "set `url` to one");
        }
    }
}
