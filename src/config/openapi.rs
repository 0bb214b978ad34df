mod credentials;
mod dangerous;

use std::collections::BTreeMap;
use std::path::PathBuf;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use utoipa::ToSchema;

use super::Secret;
use super::check::{Finding, Findings};
use super::identity::{ExchangeSettings, Identity};
use super::labels::Labels;
use super::schema::Money;
use super::tools::{TOOL_NAME_RULE, is_tool_name};
use sekisho_core::administration::Ownership;

pub use self::credentials::SchemeCredentials;
pub use self::dangerous::DangerousOperations;

/// Documents whose operations are offered as tools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenApiConfig {
    /// By name, which is the prefix of the tools' names: `NAME__OPERATION`.
    pub collections: BTreeMap<String, CollectionSettings>,
    /// By vendor.
    pub adapters: BTreeMap<String, AdapterConfig>,
    /// Credentials that a collection registered over HTTP may reference as `${NAME}`.
    pub secrets: BTreeMap<String, Secret>,
}

impl OpenApiConfig {
    /// The files of all collections; a change of one triggers a reload.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.collections.values().flat_map(|settings| settings.spec_file.iter().chain(&settings.overlays))
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for (name, settings) in &self.collections {
            let setting = format!("openapi.collections.{name}");
            check_name(name, &setting, findings);
            settings.check(&setting, findings);
        }
        for name in self.secrets.keys().filter(|name| !is_tool_name(name)) {
            findings.add(format!("openapi.secrets.{name}"), "is not a valid name of a secret", TOOL_NAME_RULE);
        }
        for (vendor, adapter) in &self.adapters {
            let setting = format!("openapi.adapters.{vendor}.response");
            if adapter.response.as_ref().is_some_and(|expression| expression.trim().is_empty()) {
                findings.add(setting, "is empty", "write a JMESPath expression, or omit the setting");
            }
        }
    }
}

/// One document and how its operations are offered. The defaults are those of the specification.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CollectionSettings {
    /// URL of the document; exactly one of the three `spec_` settings is required.
    pub spec_url: Option<Url>,
    /// A file on this machine: only in the configuration.
    pub spec_file: Option<PathBuf>,
    /// The document itself, as JSON or YAML.
    pub spec_inline: Option<String>,
    pub auth_type: AuthType,
    pub auth_config: AuthSettings,
    /// By the name of a security scheme of the document.
    pub credentials: BTreeMap<String, SchemeCredentials>,
    /// As whom its operations are called. With `per_user`, the client of an `oauth2` or `openIdConnect` scheme is the one that
    /// callers sign in with.
    pub identity: Identity,
    pub exchange: ExchangeSettings,
    pub category: String,
    /// Labels of its tools for policies, beside the tags of their operations, or a mapping with them and with where their
    /// results come from.
    pub labels: Labels,
    /// Price of one call in USD.
    #[schemars(with = "Money")]
    pub base_cost_per_use: Decimal,
    /// Only operations with these ids; empty: all.
    pub operations: Vec<String>,
    /// Only operations with one of these tags; empty: all.
    pub tags: Vec<String>,
    /// Only operations of these paths, as in the document; `*` at the end matches any rest. Empty: all.
    pub paths: Vec<String>,
    /// Only operations of these methods, such as `get`; empty: all.
    pub methods: Vec<String>,
    /// Operations for which a caller needs a role; by default those that delete.
    pub dangerous: DangerousOperations,
    /// operationId, or `METHOD /path` → its replacement in the tool's name.
    pub renames: BTreeMap<String, String>,
    /// operationId, or `METHOD /path` → the tool's description.
    pub descriptions: BTreeMap<String, String>,
    /// operationId, or `METHOD /path` → the media type of its request body, one of those that the document offers.
    pub media_types: BTreeMap<String, String>,
    /// Replaces the document's servers.
    pub base_url: Option<Url>,
    /// Non-public addresses and address ranges (CIDR) that this collection's documents, servers and token server may
    /// have, in addition to those of `outbound.allow_networks`.
    pub allow_networks: Vec<String>,
    /// Calls per minute for each caller and tool.
    pub rate_limit: u32,
    /// Maximum duration of one call, in seconds.
    pub timeout_seconds: f64,
    /// Maximum size of one response, in bytes, decompressed.
    pub max_response_bytes: usize,
    /// Overlay documents (1.0 or 1.1), applied in this order before the document is read.
    pub overlays: Vec<PathBuf>,
    /// The adapter to use; same as `auth_config.vendor`.
    pub vendor_adapter: Option<String>,
    /// Whether and how one call fetches the further pages of a list.
    pub pagination: PaginationSettings,
    /// Its owner. Collections of the configuration are shared.
    #[serde(skip)]
    pub owner: Ownership,
}

impl Default for CollectionSettings {
    fn default() -> Self {
        Self {
            spec_url: None,
            spec_file: None,
            spec_inline: None,
            auth_type: AuthType::None,
            auth_config: AuthSettings::default(),
            credentials: BTreeMap::new(),
            identity: Identity::Shared,
            exchange: ExchangeSettings::default(),
            category: "api".into(),
            labels: Labels::default(),
            base_cost_per_use: Decimal::new(1, 3),
            operations: Vec::new(),
            tags: Vec::new(),
            paths: Vec::new(),
            methods: Vec::new(),
            dangerous: DangerousOperations::default(),
            renames: BTreeMap::new(),
            descriptions: BTreeMap::new(),
            media_types: BTreeMap::new(),
            base_url: None,
            allow_networks: Vec::new(),
            rate_limit: 30,
            timeout_seconds: 30.0,
            max_response_bytes: 10 << 20,
            overlays: Vec::new(),
            vendor_adapter: None,
            pagination: PaginationSettings::default(),
            owner: Ownership::Shared,
        }
    }
}

impl CollectionSettings {
    /// The adapter's name; a missing adapter is a warning, not an error (E40).
    pub fn adapter_name(&self) -> Option<&str> {
        self.vendor_adapter.as_deref().or(self.auth_config.vendor.as_deref())
    }

    /// Checks settings that are not in a file, and the collection's name; one message per error.
    pub fn errors(&self, name: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_name(name, name, &mut findings);
        self.check(name, &mut findings);
        findings.found.into_iter().map(Finding::sentence).collect()
    }

    /// Checks values whose types are right; `setting` is the path of the collection.
    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        let at = |key: &str| format!("{setting}.{key}");
        self.check_origin(setting, findings);
        self.auth_config.check(self.auth_type, &at("auth_config"), findings);
        for (scheme, credentials) in &self.credentials {
            credentials.check(&at(&format!("credentials.{scheme}")), findings);
        }
        self.exchange.check(self.identity, &at("exchange"), findings);
        findings.domains(&at("auth_config.hosts"), &self.auth_config.hosts, false);
        findings.networks(&at("allow_networks"), &self.allow_networks);
        findings.name(&at("category"), &self.category);
        self.labels.check(&at("labels"), findings);
        if self.base_cost_per_use < Decimal::ZERO {
            findings.add(at("base_cost_per_use"), "must not be below zero", "set an amount in USD, such as 0.001");
        }
        findings.names(&at("operations"), &self.operations);
        findings.names(&at("tags"), &self.tags);
        findings.names(&at("paths"), &self.paths);
        findings.names(&at("methods"), &self.methods);
        self.dangerous.check(&at("dangerous"), findings);
        for (operation, name) in self.renames.iter().filter(|(_, name)| !is_tool_name(name)) {
            findings.add(at(&format!("renames.{operation}")), format!("{name:?} is not a name"), TOOL_NAME_RULE);
        }
        for (operation, _) in self.descriptions.iter().filter(|(_, text)| text.trim().is_empty()) {
            let advice = "describe what the tool does: models choose tools by it";
            findings.add(at(&format!("descriptions.{operation}")), "is empty", advice);
        }
        findings.above_zero(&at("rate_limit"), self.rate_limit);
        findings.duration(&at("timeout_seconds"), self.timeout_seconds);
        findings.above_zero(&at("max_response_bytes"), self.max_response_bytes);
        self.pagination.check(&at("pagination"), findings);
    }

    fn check_origin(&self, setting: &str, findings: &mut Findings) {
        let given = [self.spec_url.is_some(), self.spec_file.is_some(), self.spec_inline.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            let message = "needs one of `spec_url`, `spec_file` and `spec_inline`";
            findings.add(setting, message, "set exactly one of them");
        }
        for (key, url) in [("spec_url", &self.spec_url), ("base_url", &self.base_url)] {
            if url.as_ref().is_some_and(|url| !matches!(url.scheme(), "http" | "https")) {
                let advice = "write it like https://api.example.com/openapi.json";
                findings.add(format!("{setting}.{key}"), "is not an http or https address", advice);
            }
        }
    }
}

/// How GET operations fetch the next page: by the response's `Link` header, a cursor, or a page number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PaginationSettings {
    /// Maximum pages that one call fetches; 1: only the requested one.
    pub max_pages: u32,
    /// JSON Pointer (RFC 6901) to the list in a page; empty: the page is the list.
    pub items: String,
    /// JSON Pointer to the next page's cursor, or to its URL.
    pub next: Option<String>,
    /// Query parameter for the cursor; without it the value at `next` is a URL.
    pub cursor_parameter: Option<String>,
    /// Query parameter for the page number, from 1.
    pub page_parameter: Option<String>,
}

impl Default for PaginationSettings {
    fn default() -> Self {
        Self { max_pages: 1, items: String::new(), next: None, cursor_parameter: None, page_parameter: None }
    }
}

impl PaginationSettings {
    fn check(&self, setting: &str, findings: &mut Findings) {
        findings.above_zero(&format!("{setting}.max_pages"), self.max_pages);
        for (key, pointer) in [("items", Some(&self.items)), ("next", self.next.as_ref())] {
            if pointer.is_some_and(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
                findings.add(format!("{setting}.{key}"), "is not a JSON Pointer", "write it like /meta/next");
            }
        }
    }
}

fn check_name(name: &str, setting: &str, findings: &mut Findings) {
    if !is_tool_name(name) {
        findings.add(setting, "is not a valid collection name", TOOL_NAME_RULE);
    }
}

/// How a collection's calls authenticate, in addition to the document's schemes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthType {
    #[default]
    None,
    ApiKey,
    Bearer,
    Basic,
}

/// Credentials of a collection, and headers of every call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSettings {
    /// The adapter to use (E39).
    pub vendor: Option<String>,
    pub api_key: Option<Secret>,
    /// Name of the header, query parameter or cookie for the key; by default the document's.
    pub api_key_name: Option<String>,
    pub token: Option<Secret>,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// OAuth 2.0 client credentials (A54).
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    /// Sent with every call.
    pub extra_headers: BTreeMap<String, Secret>,
    /// Like `extra_headers`, with `${name}` replaced by the caller's own tokens (C12).
    pub headers_template: BTreeMap<String, String>,
    /// Further hosts that get the collection's credentials, where the document has operations with servers of their
    /// own.
    pub hosts: Vec<String>,
}

impl AuthSettings {
    /// Whether the credentials for the authentication type are set.
    fn check(&self, auth_type: AuthType, setting: &str, findings: &mut Findings) {
        let missing = match auth_type {
            AuthType::ApiKey if self.api_key.is_none() => "api_key",
            AuthType::Bearer if self.token.is_none() && self.client_id.is_none() => "token",
            AuthType::Basic if self.username.is_none() => "username",
            AuthType::Basic if self.password.is_none() => "password",
            _ => return,
        };
        let message = "is missing, and `auth_type` requires it";
        findings.add_secret(format!("{setting}.{missing}"), message, "set it, best as `${NAME}` from the environment");
    }
}

/// A vendor adapter (E39–E44): the mapping between a tool's arguments and the vendor's API.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterConfig {
    /// Only operations with these ids; empty: all.
    pub operations: Vec<String>,
    /// Argument → the vendor's name for it.
    pub keys: BTreeMap<String, String>,
    /// Field, by the vendor's name → alias → value: for a string, and for each string of a list.
    pub values: BTreeMap<String, BTreeMap<String, String>>,
    /// Field → the member of `prompt_params` that it is filled from; a value of the model is replaced.
    pub inject: BTreeMap<String, String>,
    /// Fields with a time range → new names of its members, such as `{start: startTime, end: endTime}`.
    pub time_ranges: BTreeMap<String, BTreeMap<String, String>>,
    /// Field → its default value.
    pub defaults: BTreeMap<String, Value>,
    /// Sent with every call.
    pub headers: BTreeMap<String, Secret>,
    /// JMESPath expression that selects the result from the vendor's response.
    pub response: Option<String>,
}
