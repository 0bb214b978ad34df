use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::check::Findings;
use super::overrides::Overrides;

/// Credentials of AWS, with which requests to Amazon Bedrock are signed (Signature Version 4) where the profile has no
/// `api_key`. Without keys here, in a file or from a role there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AwsConfig {
    /// `AWS_REGION`, `AWS_DEFAULT_REGION`. Default: that of the profile in the files, else us-east-1. A `base_url` with a
    /// region takes precedence.
    pub region: Option<String>,
    /// `AWS_ACCESS_KEY_ID`, with the next two. The variables count where the file sets no credentials.
    pub access_key_id: Option<String>,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: Option<Secret>,
    /// `AWS_SESSION_TOKEN`, of temporary keys.
    pub session_token: Option<Secret>,
    /// A profile of the two files (`AWS_PROFILE`). Default: `default`, if there are no other credentials.
    pub profile: Option<String>,
    /// `AWS_SHARED_CREDENTIALS_FILE`. Default: `~/.aws/credentials`.
    pub credentials_file: Option<PathBuf>,
    /// `AWS_CONFIG_FILE`. Default: `~/.aws/config`.
    pub config_file: Option<PathBuf>,
    /// The role to assume with the identity token in `web_identity_token_file` (`AWS_ROLE_ARN`).
    pub role_arn: Option<String>,
    /// `AWS_WEB_IDENTITY_TOKEN_FILE`, such as that of a Kubernetes service account. It is read again for each session.
    pub web_identity_token_file: Option<PathBuf>,
    /// `AWS_ROLE_SESSION_NAME`. Default: `sekisho`.
    pub role_session_name: Option<String>,
    /// The service that gives the role's keys (`AWS_ENDPOINT_URL_STS`). Default: AWS's own of the region.
    pub sts_url: Option<Url>,
}

impl AwsConfig {
    /// Whether it says where the credentials come from.
    pub fn names_credentials(&self) -> bool {
        self.access_key_id.is_some() || self.profile.is_some() || self.role_arn.is_some()
    }

    /// `at`: the setting of the profile.
    pub(super) fn override_from(&mut self, at: &str, environment: &mut Overrides<'_>) {
        let setting = |key: &str| format!("{at}.{key}");
        environment.apply("AWS_DEFAULT_REGION", &setting("region"), &mut self.region);
        environment.apply("AWS_REGION", &setting("region"), &mut self.region);
        if !self.names_credentials() {
            environment.apply("AWS_ACCESS_KEY_ID", &setting("access_key_id"), &mut self.access_key_id);
            environment.apply("AWS_SECRET_ACCESS_KEY", &setting("secret_access_key"), &mut self.secret_access_key);
            environment.apply("AWS_SESSION_TOKEN", &setting("session_token"), &mut self.session_token);
            environment.apply("AWS_PROFILE", &setting("profile"), &mut self.profile);
            environment.apply("AWS_ROLE_ARN", &setting("role_arn"), &mut self.role_arn);
            let file = &mut self.web_identity_token_file;
            environment.apply("AWS_WEB_IDENTITY_TOKEN_FILE", &setting("web_identity_token_file"), file);
            environment.apply("AWS_ROLE_SESSION_NAME", &setting("role_session_name"), &mut self.role_session_name);
        }
        environment.apply("AWS_ENDPOINT_URL_STS", &setting("sts_url"), &mut self.sts_url);
        environment.apply("AWS_SHARED_CREDENTIALS_FILE", &setting("credentials_file"), &mut self.credentials_file);
        environment.apply("AWS_CONFIG_FILE", &setting("config_file"), &mut self.config_file);
        self.credentials_file = self.credentials_file.take().or_else(|| environment.in_home(".aws/credentials"));
        self.config_file = self.config_file.take().or_else(|| environment.in_home(".aws/config"));
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        if self.access_key_id.is_some() != self.secret_access_key.is_some() {
            let what = "`access_key_id` and `secret_access_key` belong together, and one of them is missing";
            findings.add(at, what, "set both, or neither");
        }
        if self.role_arn.is_some() != self.web_identity_token_file.is_some() {
            let what = "`role_arn` and `web_identity_token_file` belong together, and one of them is missing";
            findings.add(at, what, "set both, or neither");
        }
    }
}
