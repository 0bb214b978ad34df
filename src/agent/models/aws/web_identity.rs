//! Keys of a role, for an identity token: `AssumeRoleWithWebIdentity`
//! (<https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>).

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use jiff::Timestamp;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use crate::models::ModelError;
use sekisho_config::AwsConfig;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::Deadline;
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{Outbound, OutboundRequest, Trust};

const SESSION_NAME: &str = "sekisho";

/// How long the keys may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Keys are replaced before they expire.
const MARGIN: Duration = Duration::from_secs(300);

/// Maximum bytes of the service's answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Maximum roles whose keys are kept; then those that no request waits for go, or all. They are made again.
const MAX_ROLES: usize = 1_000;

/// The keys of all roles of the configuration, which live longer than a run.
static KEYS: LazyLock<RoleKeys> = LazyLock::new(RoleKeys::default);

/// Keys by role. Whoever has the lock of some makes new ones for all who wait.
struct RoleKeys(parking_lot::Mutex<BoundedMap<WebIdentity, SharedKeys>>);

type SharedKeys = Arc<Mutex<Option<Credentials>>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WebIdentity {
    role_arn: String,
    token_file: PathBuf,
    session_name: String,
    /// `None`: AWS's own in the region.
    sts_url: Option<Url>,
    region: String,
}

impl Default for RoleKeys {
    fn default() -> Self {
        Self(parking_lot::Mutex::new(BoundedMap::new(MAX_ROLES)))
    }
}

impl RoleKeys {
    fn of(&self, role: &WebIdentity) -> SharedKeys {
        let mut all = self.0.lock();
        if let Some(keys) = all.get(role) {
            return Arc::clone(keys);
        }
        let keys = SharedKeys::default();
        all.insert_or_clear(role.clone(), Arc::clone(&keys), |keys| Arc::strong_count(keys) == 1);
        keys
    }
}

impl WebIdentity {
    pub(super) fn new(aws: &AwsConfig, role_arn: &str, token_file: &Path, region: &str) -> Self {
        Self {
            role_arn: role_arn.to_owned(),
            token_file: token_file.to_owned(),
            session_name: aws.role_session_name.clone().unwrap_or_else(|| SESSION_NAME.to_owned()),
            sts_url: aws.sts_url.clone(),
            region: region.to_owned(),
        }
    }

    #[cfg(test)]
    pub(super) fn role_arn(&self) -> &str {
        &self.role_arn
    }

    /// The role's keys, new ones if the last expire soon.
    /// Errors: the token cannot be read, or the service gives no keys.
    pub(super) async fn credentials(&self, outbound: &Outbound) -> Result<Credentials, ModelError> {
        let keys = KEYS.of(self);
        // One request at a time: others wait for its keys.
        let mut keys = keys.lock().await;
        let is_fresh = |keys: &Credentials| keys.expiry().is_some_and(|expiry| expiry > SystemTime::now() + MARGIN);
        if let Some(keys) = keys.as_ref().filter(|keys| is_fresh(keys)) {
            return Ok(keys.clone());
        }
        let new = self.assume(outbound).await?;
        *keys = Some(new.clone());
        Ok(new)
    }

    async fn assume(&self, outbound: &Outbound) -> Result<Credentials, ModelError> {
        let token = tokio::fs::read_to_string(&self.token_file).await.map_err(|error| {
            ModelError::Refused(format!("the identity token {} cannot be read: {error}", self.token_file.display()))
        })?;
        let token = token.trim();
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", &self.role_arn)
            .append_pair("RoleSessionName", &self.session_name)
            .append_pair("WebIdentityToken", token)
            .finish();
        let mut request = OutboundRequest {
            method: Method::POST,
            body: Some(Bytes::from(form)),
            secrets: Some(Arc::from([token.to_owned()])),
            max_response_bytes: MAX_ANSWER_BYTES,
            trust: Trust::Operator,
            ..OutboundRequest::get(self.url()?, Deadline::after(TIMEOUT))
        };
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(header::CONTENT_TYPE, content_type);
        let answer = outbound.send(request).await.map_err(|error| {
            ModelError::Unavailable(format!("the keys of the role cannot be had: {}", error.message()))
        })?;
        let text = String::from_utf8_lossy(&answer.body);
        if answer.status.is_success() {
            return keys_in(&text);
        }
        let said = format!(
            "the keys of the role {}: HTTP {}: {} ({})",
            self.role_arn,
            answer.status.as_u16(),
            element(&text, "Message").unwrap_or_default(),
            element(&text, "Code").unwrap_or_default()
        );
        let mut secrets = SentSecrets::default();
        secrets.add(token);
        let said = secrets.strike(&said).into_owned();
        Err(if answer.status.is_server_error() { ModelError::Unavailable(said) } else { ModelError::Refused(said) })
    }

    fn url(&self) -> Result<Url, ModelError> {
        let own = || Url::parse(&format!("https://sts.{}.amazonaws.com/", self.region));
        self.sts_url.clone().map_or_else(own, Ok).map_err(|_| {
            ModelError::Refused(format!("`{}` is no region of AWS; set `aws.region` or AWS_REGION", self.region))
        })
    }
}

/// The keys in the service's answer.
fn keys_in(answer: &str) -> Result<Credentials, ModelError> {
    let keys = || {
        let expires: Timestamp = element(answer, "Expiration")?.parse().ok()?;
        let (id, secret) = (element(answer, "AccessKeyId")?, element(answer, "SecretAccessKey")?);
        Some(Credentials::new(id, secret, Some(element(answer, "SessionToken")?), Some(expires.into()), "sekisho"))
    };
    keys().ok_or_else(|| ModelError::Garbled("the answer of AWS's token service has no keys".into()))
}

/// The text of the first element of this name. The service writes neither attributes nor comments into it.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(html_escape::decode_html_entities(text.trim()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_many_roles_are_bounded_and_those_that_are_waited_for_stay() {
        let (aws, keys) = (AwsConfig::default(), RoleKeys::default());
        let of = |number: usize| {
            keys.of(&WebIdentity::new(&aws, &format!("role {number}"), Path::new("/token"), "eu-west-1"))
        };
        let waited_for = of(0);
        (1..3 * MAX_ROLES).for_each(|number| drop(of(number)));
        assert!(keys.0.lock().len() <= MAX_ROLES && Arc::ptr_eq(&waited_for, &of(0)));
    }
}
