//! A collection registered over HTTP: the settings a caller may give, stored as given.
//!
//! A caller can neither name a local file nor write a credential. It writes `${NAME}` instead, a reference to
//! the operator's secret of that name in `openapi.secrets`. Stored and displayed registrations therefore
//! contain no secret.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::Url;
use utoipa::ToSchema;

use sekisho_config::{AuthSettings, AuthType, CollectionSettings, DangerousOperations, SchemeCredentials, Secret};
use sekisho_core::administration::Ownership;

/// The body of `POST /tools/openapi/register`. The defaults are those of the specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// Prefix of the tools' names: `NAME__OPERATION`.
    pub name: String,
    /// Address of the document; its host must be on the allowlist. Give this or `spec_inline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub spec_url: Option<Url>,
    /// The document itself, as JSON or YAML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_inline: Option<String>,
    #[serde(default)]
    pub auth_type: AuthType,
    #[serde(default)]
    pub auth_config: Option<RegisteredAuth>,
    /// By the name of a security scheme of the document.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, RegisteredCredentials>,
    #[serde(default = "defaults::category")]
    pub category: String,
    /// Price of one call in USD.
    #[serde(default = "defaults::base_cost_per_use")]
    #[schema(value_type = f64)]
    pub base_cost_per_use: Decimal,
    /// Only operations with these ids.
    #[serde(default)]
    pub operations: Option<Vec<String>>,
    /// Only operations with one of these tags.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Operations that require a role; by default those with the method DELETE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dangerous: Option<DangerousOperations>,
    /// Replaces the document's servers.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub base_url: Option<Url>,
    /// Calls a minute for each caller and tool.
    #[serde(default = "defaults::rate_limit")]
    pub rate_limit: u32,
    #[serde(default = "defaults::timeout_seconds")]
    pub timeout_seconds: f64,
    #[serde(default = "defaults::max_response_bytes")]
    pub max_response_bytes: usize,
}

/// A registration, and its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedRegistration {
    pub owner: Ownership,
    pub registration: Registration,
}

/// The operator's secrets, by name. `None`: the collection is a tenant's, whose servers would get them, so that it cannot use any.
type Secrets<'a> = Option<&'a BTreeMap<String, Secret>>;

/// Credentials of a registered collection. Each secret is written `${NAME}`, a name in `openapi.secrets`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RegisteredAuth {
    /// The adapter to use (E39).
    pub vendor: Option<String>,
    pub api_key: Option<String>,
    /// Name of the header, query parameter or cookie that carries the key; without it the document's.
    pub api_key_name: Option<String>,
    pub token: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// OAuth 2.0 client credentials (A54).
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// Sent with every call; each value is a secret.
    pub extra_headers: BTreeMap<String, String>,
    /// Headers filled in from the caller's own tokens (C12): `{"X-User": "${user_token}"}`.
    pub headers_template: BTreeMap<String, String>,
}

/// Credentials of one security scheme. Each secret is written `${NAME}`, a name in `openapi.secrets`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RegisteredCredentials {
    /// For `apiKey`.
    pub api_key: Option<String>,
    /// For `oauth2`, `openIdConnect`, and `http` with any scheme but `basic`.
    pub token: Option<String>,
    /// For `http` with the scheme `basic`.
    pub username: Option<String>,
    pub password: Option<String>,
    /// OAuth 2.0 client credentials, for `oauth2` and `openIdConnect`.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// Replaces the token URL that the document or the discovery names.
    #[schema(value_type = Option<String>)]
    pub token_url: Option<Url>,
    /// Replaces the scopes that the operation requires.
    pub scopes: Option<Vec<String>>,
}

/// Why a registration is invalid.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum RegistrationError {
    #[error(
        "`{0}` must be `${{NAME}}`, a name in `openapi.secrets` of the configuration: a credential itself \
         is not taken, since registrations are stored"
    )]
    Literal(String),
    #[error("`{setting}` names the secret {name:?}, which is not configured; add it to `openapi.secrets`")]
    UnknownSecret { setting: String, name: String },
    #[error(
        "`{0}` uses a secret of the configuration, which only collections of all tenants may: an administrator of the tenant \
         `default` registers these"
    )]
    SharedSecret(String),
    #[error("`auth_config.headers_template.{0}` has no placeholder; write it like `Bearer ${{user_token}}`")]
    ConstantTemplate(String),
    #[error("{0}")]
    Settings(String),
}

impl Registration {
    /// The settings of the collection, with its secrets filled in.
    /// Errors: [`RegistrationError`]: a literal credential, an unconfigured secret, or invalid values.
    pub fn settings(
        &self,
        owner: &Ownership,
        secrets: &BTreeMap<String, Secret>,
    ) -> Result<CollectionSettings, RegistrationError> {
        let secrets = owner.is_shared().then_some(secrets);
        let auth_config = match &self.auth_config {
            Some(auth) => auth.settings(secrets)?,
            None => AuthSettings::default(),
        };
        let settings = CollectionSettings {
            spec_url: self.spec_url.clone(),
            spec_inline: self.spec_inline.clone(),
            auth_type: self.auth_type,
            auth_config,
            credentials: self.credentials(secrets)?,
            category: self.category.clone(),
            base_cost_per_use: self.base_cost_per_use,
            operations: self.operations.clone().unwrap_or_default(),
            tags: self.tags.clone().unwrap_or_default(),
            dangerous: self.dangerous.clone().unwrap_or_default(),
            base_url: self.base_url.clone(),
            rate_limit: self.rate_limit,
            timeout_seconds: self.timeout_seconds,
            max_response_bytes: self.max_response_bytes,
            owner: owner.clone(),
            ..CollectionSettings::default()
        };
        let errors = settings.errors(&self.name);
        if errors.is_empty() { Ok(settings) } else { Err(RegistrationError::Settings(errors.join("; "))) }
    }

    fn credentials(&self, secrets: Secrets<'_>) -> Result<BTreeMap<String, SchemeCredentials>, RegistrationError> {
        let credentials = self.credentials.iter();
        credentials.map(|(scheme, written)| Ok((scheme.clone(), written.settings(scheme, secrets)?))).collect()
    }
}

impl RegisteredCredentials {
    fn settings(&self, scheme: &str, secrets: Secrets<'_>) -> Result<SchemeCredentials, RegistrationError> {
        let secret = |setting: &str, written: &Option<String>| {
            let place = format!("credentials.{scheme}.{setting}");
            written.as_ref().map(|written| resolve(&place, written, secrets)).transpose()
        };
        Ok(SchemeCredentials {
            api_key: secret("api_key", &self.api_key)?,
            token: secret("token", &self.token)?,
            username: self.username.clone(),
            password: secret("password", &self.password)?,
            client_id: self.client_id.clone(),
            client_secret: secret("client_secret", &self.client_secret)?,
            token_url: self.token_url.clone(),
            scopes: self.scopes.clone(),
            certificate_file: None,
            key_file: None,
        })
    }
}

impl RegisteredAuth {
    fn settings(&self, secrets: Secrets<'_>) -> Result<AuthSettings, RegistrationError> {
        // An adapter of the configuration may send secrets.
        if self.vendor.is_some() && secrets.is_none() {
            return Err(RegistrationError::SharedSecret("auth_config.vendor".to_owned()));
        }
        let secret = |setting: &str, written: &Option<String>| {
            written.as_ref().map(|written| resolve(&format!("auth_config.{setting}"), written, secrets)).transpose()
        };
        let extra_headers = self.extra_headers.iter().map(|(header, written)| {
            Ok((header.clone(), resolve(&format!("auth_config.extra_headers.{header}"), written, secrets)?))
        });
        if let Some((header, _)) = self.headers_template.iter().find(|(_, text)| !text.contains("${")) {
            return Err(RegistrationError::ConstantTemplate(header.clone()));
        }
        Ok(AuthSettings {
            vendor: self.vendor.clone(),
            api_key: secret("api_key", &self.api_key)?,
            api_key_name: self.api_key_name.clone(),
            token: secret("token", &self.token)?,
            username: self.username.clone(),
            password: secret("password", &self.password)?,
            client_id: self.client_id.clone(),
            client_secret: secret("client_secret", &self.client_secret)?,
            extra_headers: extra_headers.collect::<Result<_, _>>()?,
            headers_template: self.headers_template.clone(),
            hosts: Vec::new(),
        })
    }
}

/// The secret that `${NAME}` refers to. The error does not repeat the value: it may be a secret.
fn resolve(setting: &str, written: &str, secrets: Secrets<'_>) -> Result<Secret, RegistrationError> {
    let name = written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let name = name.filter(|name| !name.contains(['$', '{', '}']));
    let name = name.ok_or_else(|| RegistrationError::Literal(setting.to_owned()))?;
    let unknown = || RegistrationError::UnknownSecret { setting: setting.to_owned(), name: name.to_owned() };
    let secrets = secrets.ok_or_else(|| RegistrationError::SharedSecret(setting.to_owned()))?;
    secrets.get(name).cloned().ok_or_else(unknown)
}

/// Settings that are not given have the configuration's defaults.
mod defaults {
    use rust_decimal::Decimal;

    use sekisho_config::CollectionSettings;

    pub(super) fn category() -> String {
        CollectionSettings::default().category
    }

    pub(super) fn base_cost_per_use() -> Decimal {
        CollectionSettings::default().base_cost_per_use
    }

    pub(super) fn rate_limit() -> u32 {
        CollectionSettings::default().rate_limit
    }

    pub(super) fn timeout_seconds() -> f64 {
        CollectionSettings::default().timeout_seconds
    }

    pub(super) fn max_response_bytes() -> usize {
        CollectionSettings::default().max_response_bytes
    }
}
