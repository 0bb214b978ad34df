//! Credentials of AWS, and requests signed with them (Signature Version 4,
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>).

mod profile_files;
mod signature;
#[cfg(test)]
mod tests;
mod web_identity;

use std::fmt;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use http::HeaderMap;
use url::Url;

use self::profile_files::FileProfile;
use self::web_identity::WebIdentity;
use super::{ModelConfigError, ModelError};
use sekisho_config::{AgentProfile, AwsConfig};
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::Outbound;

/// The service's name in signatures.
const SERVICE: &str = "bedrock";

/// The region if nothing names one.
const DEFAULT_REGION: &str = "us-east-1";

/// Signs the requests of one profile.
#[derive(Debug, Clone)]
pub(super) struct Signer {
    region: String,
    source: Source,
}

/// Where the credentials come from.
#[derive(Clone)]
enum Source {
    Keys(Credentials),
    WebIdentity(WebIdentity),
}

impl Signer {
    /// `None` if the profile has no credentials of AWS.
    /// Errors: a profile of the files that is named does not exist or cannot be used, or a file cannot be read.
    pub(super) fn of(profile: &AgentProfile) -> Result<Option<Self>, ModelConfigError> {
        let aws = &profile.aws;
        let in_file = FileProfile::read(aws).map_err(ModelConfigError::Aws)?;
        let region = region_of(profile, in_file.as_ref());
        let source = match Source::configured(aws, &region) {
            Some(source) => Some(source),
            None => match in_file {
                Some(in_file) => in_file.source(aws, &region).map_err(ModelConfigError::Aws)?,
                None => None,
            },
        };
        Ok(source.map(|source| Self { region, source }))
    }

    /// Adds the signature of a POST request with these headers and this body. Returns the secrets that were sent.
    /// Errors: there are no credentials for the role, or the request cannot be signed.
    pub(super) async fn sign(
        &self,
        outbound: &Outbound,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<SentSecrets, ModelError> {
        let credentials = match &self.source {
            Source::Keys(credentials) => credentials.clone(),
            Source::WebIdentity(identity) => identity.credentials(outbound).await?,
        };
        let scope = signature::Scope { region: &self.region, service: SERVICE, time: SystemTime::now() };
        signature::add("POST", url, headers, body, (&credentials, &scope))?;
        let mut secrets = SentSecrets::default();
        secrets.add(credentials.secret_access_key());
        secrets.add(credentials.session_token().unwrap_or_default());
        Ok(secrets)
    }
}

/// The base URL of Bedrock in the profile's region.
/// Errors: the region is not part of a host name.
pub(super) fn bedrock_url(profile: &AgentProfile) -> Result<Url, ModelConfigError> {
    // An API key needs no file.
    let in_file = FileProfile::read(&profile.aws).ok().flatten();
    let region = region_of(profile, in_file.as_ref());
    Url::parse(&format!("https://bedrock-runtime.{region}.amazonaws.com"))
        .map_err(|_| ModelConfigError::Aws(format!("`{region}` is no region of AWS; set `aws.region` or AWS_REGION")))
}

fn region_of(profile: &AgentProfile, in_file: Option<&FileProfile>) -> String {
    let in_url = profile.base_url.as_ref().and_then(|url| region_in(url.host_str()?));
    let region = in_url.or(profile.aws.region.as_deref()).or(in_file.and_then(FileProfile::region));
    region.unwrap_or(DEFAULT_REGION).to_owned()
}

/// The region in a host name of AWS: `bedrock-runtime.eu-west-1.amazonaws.com`, also of a private endpoint.
fn region_in(host: &str) -> Option<&str> {
    let mut labels = host.split('.').skip_while(|label| !label.starts_with("bedrock-runtime"));
    let _service = labels.next()?;
    let region = labels.next()?;
    host.contains(".amazonaws.").then_some(region)
}

impl Source {
    /// The credentials of the configuration and of variables.
    fn configured(aws: &AwsConfig, region: &str) -> Option<Self> {
        if let (Some(id), Some(secret)) = (&aws.access_key_id, &aws.secret_access_key) {
            let token = aws.session_token.as_ref().map(|token| token.expose().to_owned());
            return Some(Self::Keys(Credentials::new(id, secret.expose(), token, None, "sekisho")));
        }
        // A profile that is named comes before a role of the machine.
        let (Some(role), Some(file), None) = (&aws.role_arn, &aws.web_identity_token_file, &aws.profile) else {
            return None;
        };
        Some(Self::WebIdentity(WebIdentity::new(aws, role, file, region)))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(_) => formatter.write_str("Keys"),
            Self::WebIdentity(identity) => identity.fmt(formatter),
        }
    }
}
