use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::Secret;
use crate::check::Findings;

/// A user's sign-in (OAuth 2.1, authorization code): `POST /tools/mcp/{name}/sign_in`. Nothing is required here if
/// the authorization server registers clients itself.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpSignIn {
    /// Of a client registered in advance.
    pub client_id: Option<String>,
    /// Sent to the token endpoint of `issuer` only.
    pub client_secret: Option<Secret>,
    /// The expected authorization server; by default any that the server names.
    pub issuer: Option<String>,
    /// URL of a document that describes the client; by default the gateway's own where `server.mcp.public_url` is
    /// https.
    pub client_metadata_url: Option<Url>,
    /// The requested scopes; by default those that the server requests.
    pub scopes: Vec<String>,
}

impl McpSignIn {
    pub(super) fn check(&self, at: impl Fn(&str) -> String, findings: &mut Findings) {
        if self.client_secret.is_some() && (self.client_id.is_none() || self.issuer.is_none()) {
            let advice = "set `client_id` and `issuer`: the secret is sent only to that issuer";
            findings.add(at("client_secret"), "needs the client and the issuer it belongs to", advice);
        }
        if self.client_metadata_url.as_ref().is_some_and(|url| url.scheme() != "https") {
            findings.add(
                at("client_metadata_url"),
                "is not an https address",
                "authorization servers accept only https",
            );
        }
        findings.names(&at("scopes"), &self.scopes);
    }
}
