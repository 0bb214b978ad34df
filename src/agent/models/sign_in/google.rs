//! Files of Google's tools with which a program signs in: the key of a service account (RFC 7523,
//! <https://developers.google.com/identity/protocols/oauth2/service-account#httprest>), and the workload identity of another
//! platform (RFC 8693, <https://google.aip.dev/auth/4117>).

use std::path::{Path, PathBuf};

use http::HeaderValue;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::{Granted, granted, posted, token_in};
use crate::models::ModelError;
use sekisho_outbound::Outbound;

/// Seconds for which a token is asked: Google's maximum.
const TOKEN_SECONDS: i64 = 3_600;

/// The scope of a file for which none is set, and of an exchange before another service.
const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The key file of a service account.
#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: Url,
}

/// The configuration of a workload identity. It has no secret.
#[derive(Deserialize)]
struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: Url,
    /// Where the token becomes one of a service account.
    service_account_impersonation_url: Option<Url>,
    credential_source: CredentialSource,
}

/// Where the token of the platform is.
#[derive(Deserialize)]
struct CredentialSource {
    file: Option<PathBuf>,
    #[serde(default)]
    format: SourceFormat,
}

/// Of the file: a text, or an object with the text.
#[derive(Default, Deserialize)]
struct SourceFormat {
    subject_token_field_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfServiceAccount {
    access_token: String,
    /// RFC 3339.
    expire_time: String,
}

/// Errors: the file cannot be used, or the service gives no token.
pub(super) async fn token(outbound: &Outbound, file: &Path, scopes: &[String]) -> Result<Granted, ModelError> {
    let refused = |problem: &str| ModelError::Refused(format!("the service account {}: {problem}", file.display()));
    let text = tokio::fs::read(file).await.map_err(|error| refused(&error.to_string()))?;
    let credentials: Value = serde_json::from_slice(&text).map_err(|_| refused("it is no key file in JSON"))?;
    if credentials["type"] == "external_account" {
        let account: ExternalAccount = serde_json::from_value(credentials)
            .map_err(|_| refused("it is no configuration of a workload identity"))?;
        return exchanged(outbound, &account, scopes, refused).await;
    }
    let account: ServiceAccount =
        serde_json::from_value(credentials).map_err(|_| refused("it is no key file in JSON"))?;
    let assertion = assertion_of(&account, scopes, refused)?;
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
        .append_pair("assertion", &assertion)
        .finish();
    granted(outbound, account.token_uri, form, &assertion).await
}

/// Errors: the account has no key of RSA.
fn assertion_of(
    account: &ServiceAccount,
    scopes: &[String],
    refused: impl Fn(&str) -> ModelError,
) -> Result<String, ModelError> {
    let key = EncodingKey::from_rsa_pem(account.private_key.as_bytes()).map_err(|_| refused("it has no key of RSA"))?;
    let scope = if scopes.is_empty() { CLOUD_PLATFORM.to_owned() } else { scopes.join(" ") };
    let issued = Timestamp::now().as_second();
    let claims = json!({
        "iss": account.client_email,
        "scope": scope,
        "aud": account.token_uri,
        "iat": issued,
        "exp": issued.saturating_add(TOKEN_SECONDS),
    });
    let header = Header { kid: account.private_key_id.clone(), ..Header::new(Algorithm::RS256) };
    jsonwebtoken::encode(&header, &claims, &key).map_err(|_| refused("its key cannot sign"))
}

/// A token in exchange for the platform's.
async fn exchanged(
    outbound: &Outbound,
    account: &ExternalAccount,
    scopes: &[String],
    refused: impl Fn(&str) -> ModelError,
) -> Result<Granted, ModelError> {
    let source = &account.credential_source;
    let Some(file) = &source.file else {
        return Err(refused("its `credential_source` has no `file`; only tokens in files are read"));
    };
    let text = token_in(file).await?;
    let subject = match &source.format.subject_token_field_name {
        None => text,
        Some(name) => {
            let object: Value = serde_json::from_str(&text).unwrap_or_default();
            let found = object.get(name).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| {
                refused("the file of its `credential_source` has no member `subject_token_field_name`")
            })?
        }
    };
    let own_scopes = || if scopes.is_empty() { vec![CLOUD_PLATFORM.to_owned()] } else { scopes.to_vec() };
    let impersonation = account.service_account_impersonation_url.as_ref();
    let scope = if impersonation.is_some() { CLOUD_PLATFORM.to_owned() } else { own_scopes().join(" ") };
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
        .append_pair("requested_token_type", "urn:ietf:params:oauth:token-type:access_token")
        .append_pair("audience", &account.audience)
        .append_pair("scope", &scope)
        .append_pair("subject_token", &subject)
        .append_pair("subject_token_type", &account.subject_token_type)
        .finish();
    let federated = granted(outbound, account.token_url.clone(), form, &subject).await?;
    let Some(url) = impersonation else { return Ok(federated) };
    let body = json!({"scope": own_scopes(), "lifetime": format!("{TOKEN_SECONDS}s")}).to_string();
    let bearer = HeaderValue::try_from(format!("Bearer {}", federated.access_token));
    let mut bearer = bearer.map_err(|_| ModelError::Garbled("the token is no value of a header".into()))?;
    bearer.set_sensitive(true);
    let body = ("application/json", body, Some(bearer));
    let answer = posted(outbound, url.clone(), body, &federated.access_token).await?;
    let OfServiceAccount { access_token, expire_time } = serde_json::from_slice(&answer)
        .map_err(|_| ModelError::Garbled("the answer for the service account has no token".into()))?;
    let until: Option<Timestamp> = expire_time.parse().ok();
    let seconds = until.map(|until| until.as_second().saturating_sub(Timestamp::now().as_second()).max(0));
    Ok(Granted { access_token, expires_in: seconds.map(Value::from) })
}
