//! The configuration of the service: one YAML file, one struct per topic. Each topic's file contains its defaults,
//! the environment variables that override it, and its checks.
//!
//! [`Config::load`] is the entry point: file → tree (`document`) → variables filled in (`interpolate`) → typed
//! (`reader`) → overrides → check. A configuration with an error is rejected as a whole.

pub mod agent;
mod approvals;
mod audit;
mod auth;
mod aws;
mod blobs;
mod breaker;
mod budget;
mod catalogue;
mod changes;
mod cluster;
mod components;
mod console;
mod embeddings;
mod execution;
mod flow;
mod guards;
mod identity;
mod labels;
mod limits;
mod mcp;
mod model_table;
mod models;
mod one_or_many;
mod openapi;
mod outbound;
mod planner;
mod policy;
mod python_tools;
mod recording;
mod reload;
mod results;
mod sandbox;
mod secret;
mod secrets;
mod server;
mod session;
mod shape;
mod store;
mod subagents;
mod telemetry;
mod tenants;
mod thinking;
mod tool_filter;
mod tools;
mod transform;

mod check;
mod environment;
mod fingerprint;
mod names;
mod opening;
mod overrides;
mod places;
mod schema;
mod settings;
mod sign_in;
mod watch;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use self::check::{Finding, Findings};
use self::overrides::Overrides;
use self::yaml::document::Document;

pub use self::agent::{
    AgentConfig, AgentProfile, BackgroundConfig, FailureClass, FallbackConfig, ProfilePrompt, Provider, Recover,
};
pub use self::approvals::{ApprovalRule, ApprovalsConfig, WebhookConfig};
pub use self::audit::{AuditArguments, AuditConfig, Durability, OnDamage};
pub use self::auth::is_secure;
pub use self::auth::{AnonymousAccess, ApiKeyConfig, AuthConfig, IntrospectionConfig, JwtConfig, OidcConfig};
pub use self::auth::{BrokerConfig, BrokerProvider, BrokerTokens, Lifetime, WorkloadConfig};
pub use self::aws::AwsConfig;
pub use self::blobs::BlobsConfig;
pub use self::breaker::{BreakerConfig, BreakerOverrides};
pub use self::budget::BudgetConfig;
pub use self::catalogue::CatalogueConfig;
pub use self::changes::ConfigPatch;
pub use self::cluster::ClusterConfig;
pub use self::components::{ComponentGrantsConfig, ComponentsConfig};
pub use self::console::{ConsoleConfig, ConsoleRole};
pub use self::embeddings::EmbeddingsConfig;
pub use self::environment::{Environment, dotenv_files};
pub use self::execution::ExecutionConfig;
pub use self::flow::{FlowConfig, FlowHistoryConfig, FlowMode, HistoryScope};
pub use self::guards::{GuardFailure, GuardRule, GuardService, GuardServiceKind, GuardsConfig, OnMatch};
pub use self::identity::{ExchangeGrant, ExchangeSettings, Identity};
pub use self::labels::{LabelSettings, Labels, SinkKindSetting, SinkSettings, TrustSetting};
pub use self::limits::{LimitRule, LimitsConfig, RuleSubject};
pub use self::mcp::file as mcp_file;
pub use self::mcp::{
    McpConfig, McpEndpoint, McpOAuth, McpPrefix, McpResults, McpRevision, McpSandbox, McpSandboxFolder, McpSandboxHome,
    McpSandboxMode, McpSandboxNetwork, McpSandboxSettings, McpServerSettings, McpShare, McpSignIn, McpTransport,
    PreparedServer, PreparedShape, PreparedTool, identity_of_headers, is_credential_header, prepared_names,
    prepared_server,
};
pub use self::model_table::{ModelRow, ModelTable, RefusedFeature, RowPrices, Wire};
pub use self::models::ModelConfig;
pub use self::names::{ExistingNames, NameKind, UnknownName, adapter_names};
pub use self::one_or_many::OneOrMany;
pub use self::openapi::{
    AdapterConfig, AuthSettings, AuthType, CollectionSettings, DangerousOperations, OpenApiConfig, PaginationSettings,
    SchemeCredentials,
};
pub use self::opening::Opening;
pub use self::outbound::{OutboundConfig, ProxyConfig};
pub use self::planner::{Branch, Condition, Evaluate, Move, PlanPreset, PlannerConfig};
pub use self::policy::{ExternalPolicyConfig, PolicyConfig};
pub use self::python_tools::{PythonToolsConfig, TOOL_FILE_RULE, is_tool_file};
pub use self::recording::{ContentConfig, RecordingConfig};
pub use self::reload::{ChangesMode, ReloadConfig, ReloadMode};
pub use self::results::ResultsConfig;
pub use self::sandbox::{InterpreterSessionsConfig, SandboxConfig};
pub use self::schema::json_schema;
pub use self::secret::Secret;
pub use self::secrets::SecretsConfig;
pub use self::server::{McpServerConfig, McpToolListing, ServerConfig, TlsConfig};
pub use self::session::SessionConfig;
pub use self::settings::{SetValues, Setting, SettingSource};
pub use self::shape::{Enumerate, OverrideCase, Summary};
pub use self::sign_in::SignInConfig;
pub use self::store::StoreConfig;
pub use self::subagents::SubAgentType;
pub use self::telemetry::{LogFormat, TelemetryConfig};
pub use self::tenants::{ResourceStatus, TenantConfig};
pub use self::thinking::{Effort, Thinking};
pub use self::tool_filter::{CALL_TOOL, SKILL, TASK, ToolFilter, WAIT};
pub use self::tools::{
    OutputCheck, SearchProvider, ToolOverride, ToolsConfig, WebFetchConfig, WebSearchConfig, WorkspaceConfig,
};
pub use self::transform::{TransformConfig, TransformRule};
pub use self::watch::Watcher;
pub use self::yaml::error::{ConfigError, ConfigLocation};
pub use self::yaml::reference::References;
pub use sekisho_guards::{Detector, Direction};

/// The whole configuration. `Config::default()` applies when there is no file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The file that it was loaded from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The values that the file and the environment set.
    #[serde(skip)]
    pub set: SetValues,
    /// The files and programs that it names values of.
    #[serde(skip)]
    pub references: References,
    /// Folder of the audit trail, the store and the workspaces, unless they set paths of their own. Default:
    /// `$XDG_STATE_HOME/sekisho`, or `~/.local/state/sekisho` (`SEKISHO_STATE_DIRECTORY`).
    pub state_directory: Option<PathBuf>,
    pub config: ReloadConfig,
    pub server: ServerConfig,
    pub auth: AuthConfig,
    pub console: ConsoleConfig,
    pub tools: ToolsConfig,
    pub sandbox: SandboxConfig,
    pub openapi: OpenApiConfig,
    pub mcp: McpConfig,
    pub catalogue: CatalogueConfig,
    pub python_tools: PythonToolsConfig,
    pub components: ComponentsConfig,
    pub agent: AgentConfig,
    /// By tenant, what its agents may use.
    pub tenants: BTreeMap<String, TenantConfig>,
    pub limits: LimitsConfig,
    pub policy: PolicyConfig,
    pub flow: FlowConfig,
    pub approvals: ApprovalsConfig,
    pub budget: BudgetConfig,
    pub breaker: BreakerConfig,
    pub execution: ExecutionConfig,
    pub outbound: OutboundConfig,
    pub session: SessionConfig,
    pub results: ResultsConfig,
    pub recording: RecordingConfig,
    pub store: StoreConfig,
    pub secrets: SecretsConfig,
    pub cluster: ClusterConfig,
    pub audit: AuditConfig,
    pub telemetry: TelemetryConfig,
}

impl Config {
    /// Loads the file, if one is given, applies the environment's overrides, and checks the result. Relative paths
    /// are relative to the working directory, but `policy.directory` to the folder of the file.
    /// Errors: all errors found: first errors of types; checks of values run only when every type is right.
    pub fn load(file: Option<&Path>, environment: &Environment) -> Result<Self, Vec<ConfigError>> {
        let document = file.map(Document::open).transpose().map_err(|error| vec![error])?;
        let config = Self::from_document(document, environment, None)?;
        let Some(file) = file else { return Ok(config) };
        let mut findings = Findings::default();
        config.policy.check_place(file, &mut findings);
        match findings.found.pop() {
            Some(finding) => Err(vec![config.set.place(finding)]),
            None => Ok(config.of_file(file)),
        }
    }

    fn of_file(mut self, file: &Path) -> Self {
        self.policy.take_beside(file);
        Self { file: Some(file.to_owned()), ..self }
    }

    /// Itself, unless its file sets nothing: a file that was cut off would open everything that it had closed, at a
    /// start as after a change.
    /// Errors: the file is empty, or has only comments.
    pub fn refuse_empty_file(self) -> Result<Self, Vec<ConfigError>> {
        match &self.file {
            Some(file) if self.set.is_empty_file() => {
                let error = ConfigError::of_file(file, "is empty: it was cut off, or is not yet written");
                Err(vec![error.advise("write the settings; for the defaults, start without a file")])
            }
            _ => Ok(self),
        }
    }

    /// Reads a text as if it were the content of `file`, to check it. Values of variables, files and programs that it names are not
    /// read, and neither are `mcp.files`, except those that are among `mcp_files`.
    /// Errors: as [`load`](Self::load), without those that such a value may cause.
    pub fn load_text(
        file: &Path,
        text: String,
        environment: &Environment,
        mcp_files: &[PathBuf],
    ) -> Result<Self, Vec<ConfigError>> {
        let document = Document::parse(file, text).map_err(|error| vec![error])?;
        let config = Self::from_document(Some(document), environment, Some(mcp_files))?;
        Ok(config.of_file(file))
    }

    /// Invalid values, although every type is right: for a configuration built in code.
    pub fn check(&self) -> Vec<ConfigError> {
        let place = |finding: Finding| {
            let setting = finding.setting.clone();
            finding.into_error(ConfigLocation::Setting(setting))
        };
        self.findings().into_iter().map(place).collect()
    }

    /// The problems of a tenant that is in no file, as sentences.
    pub fn problems_of_tenant(name: &str, tenant: &TenantConfig) -> Vec<String> {
        sentences(name, |findings| tenant.check(name, findings))
    }

    /// The problems of a model that is in no file, as sentences.
    pub fn problems_of_model(name: &str, model: &ModelConfig) -> Vec<String> {
        sentences(name, |findings| model.check(name, findings))
    }

    /// `may_read`: the files with MCP servers that may be read, if not all.
    fn from_document(
        document: Option<Document>,
        environment: &Environment,
        may_read: Option<&[PathBuf]>,
    ) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let (mut config, document) = match document {
            None => (Self::default(), None),
            Some(mut document) => {
                let (references, broken) = yaml::interpolate::interpolate(&mut document, environment);
                errors.extend(broken);
                errors.extend(PythonToolsConfig::find_reference(&document));
                errors.extend(ComponentsConfig::find_reference(&document));
                let mut config = yaml::reader::read::<Self>(&document).unwrap_or_else(|violations| {
                    errors.extend(violations);
                    Self::default()
                });
                config.mcp.record_references(&document);
                (Self { references, ..config }, Some(document))
            }
        };
        let mut overrides = Overrides::new(environment);
        config.override_from(&mut overrides);
        errors.append(&mut overrides.errors);
        let mut mcp_files = config.mcp_files();
        // The files that nobody names need not exist.
        mcp_files.retain(|file| !config.mcp.files.is_empty() || file.exists());
        mcp_files.retain(|file| may_read.is_none_or(|known| known.contains(file)));
        errors.extend(config.mcp.read_files(&mcp_files, environment));
        if may_read.is_none() {
            errors.extend(config.agent.read_models().err());
        }
        config.set = SetValues::of(document, &overrides, environment);
        if errors.is_empty() {
            let findings = config.findings().into_iter().filter(|finding| config.set.is_known(finding));
            errors.extend(findings.map(|finding| config.set.place(finding)));
        }
        errors.sort_by(|one, other| one.place.cmp(&other.place));
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("SEKISHO_STATE_DIRECTORY", "state_directory", &mut self.state_directory);
        if self.state_directory.is_none() {
            self.state_directory = environment.default_state_directory();
        }
        self.server.override_from(environment);
        self.tools.override_from(environment);
        self.sandbox.override_from(environment);
        self.mcp.override_from(environment);
        self.agent.override_from(environment);
        self.limits.override_from(environment);
        self.budget.override_from(environment);
        self.breaker.override_from(environment);
        self.outbound.override_from(environment);
        self.telemetry.override_from(environment);
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Findings::default();
        self.check_exposure(&mut findings);
        self.server.check(&mut findings);
        self.auth.check(&mut findings);
        if self.auth.broker.is_some() {
            BrokerConfig::check_public_url(self.server.mcp.public_url.as_ref(), &mut findings);
        }
        WorkloadConfig::check(&self.auth.workloads, self.server.tls.as_ref(), &mut findings);
        self.console.check(&mut findings);
        self.tools.check(&mut findings);
        self.sandbox.check(&mut findings);
        self.openapi.check(&mut findings);
        self.mcp.check(&mut findings);
        self.catalogue.check(&self.mcp, &self.openapi, &mut findings);
        self.python_tools.check(&mut findings);
        self.components.check(&mut findings);
        self.agent.check(&mut findings);
        for (name, tenant) in &self.tenants {
            let at = format!("tenants.{name}");
            findings.name(&at, name);
            tenant.check(&at, &mut findings);
        }
        self.limits.check(&mut findings);
        self.policy.check(&mut findings);
        self.flow.check(&mut findings);
        self.approvals.check(&mut findings);
        self.budget.check(&mut findings);
        self.breaker.check(&mut findings);
        self.execution.check(&mut findings);
        self.outbound.check(&mut findings);
        self.session.check(&mut findings);
        self.results.check(&mut findings);
        self.recording.check(&mut findings);
        self.store.check(&mut findings);
        self.secrets.check(&self.store, &mut findings);
        self.cluster.check(&self.store, &mut findings);
        self.audit.check(&mut findings);
        self.telemetry.check(&mut findings);
        findings.found
    }

    /// Secure by default: a server that other machines can reach requires authentication, unless configured
    /// otherwise.
    fn check_exposure(&self, findings: &mut Findings) {
        // With `never`, only the keys of `sekisho keys create` are accepted.
        let is_deliberate = self.auth.anonymous != AnonymousAccess::Loopback;
        if !self.server.is_loopback() && !self.auth.has_credentials() && !is_deliberate {
            findings.add(
                "server.listen",
                format!("{} can be reached from other machines without authentication", self.server.listen),
                "add `auth.api_keys` or `auth.jwt`, listen on 127.0.0.1, accept managed keys alone with `auth.anonymous: never`, or all callers with `always`",
            );
        }
    }
}

impl Config {
    /// Valid settings that deserve a warning: the effect of each, by its name.
    pub fn notes(&self) -> BTreeMap<String, String> {
        let OutboundConfig { mcp_allowed_domains, openapi_allowed_domains, .. } = &self.outbound;
        let lists = [
            ("outbound.mcp_allowed_domains", mcp_allowed_domains, "MCP servers are allowed on every host"),
            (
                "outbound.openapi_allowed_domains",
                openapi_allowed_domains,
                "documents and their servers are allowed on every host",
            ),
        ];
        let open = lists.into_iter().filter(|(_, hosts, _)| hosts.iter().any(|host| host.trim() == "*"));
        let open =
            open.map(|(setting, _, means)| (setting.to_owned(), format!("it contains `*`: {means}; list the hosts")));
        open.chain(self.server.notes()).chain(self.auth.notes()).chain(self.mcp.notes()).collect()
    }
}

fn sentences(name: &str, check: impl FnOnce(&mut Findings)) -> Vec<String> {
    let mut findings = Findings::default();
    findings.name("name", name);
    check(&mut findings);
    findings.found.into_iter().map(Finding::sentence).collect()
}

#[cfg(test)]
mod tests;
