//! What an operator may decide: one YAML file, one struct a topic, every default beside its field.

mod audit;
mod auth;
mod breaker;
mod budget;
mod execution;
mod limits;
mod outbound;
mod policy;
mod secret;
mod server;
mod session;
mod telemetry;
mod tools;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::audit::{AuditConfig, Durability};
pub use self::auth::{AnonymousAccess, ApiKeyConfig, AuthConfig, JwtConfig};
pub use self::breaker::BreakerConfig;
pub use self::budget::BudgetConfig;
pub use self::execution::ExecutionConfig;
pub use self::limits::LimitsConfig;
pub use self::outbound::OutboundConfig;
pub use self::policy::PolicyConfig;
pub use self::secret::Secret;
pub use self::server::ServerConfig;
pub use self::session::SessionConfig;
pub use self::telemetry::{LogFormat, TelemetryConfig};
pub use self::tools::{
    OutputCheck, SearchProvider, ToolOverride, ToolsConfig, WebFetchConfig, WebSearchConfig, WorkspaceConfig,
};

/// The whole configuration. `Config::default()` is what runs with no file at all.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the audit trail, the store and the workspaces stand, unless they say otherwise.
    /// Default: `$XDG_STATE_HOME/sekisho`, or `~/.local/state/sekisho`.
    pub state_directory: Option<PathBuf>,
    pub server: ServerConfig,
    pub auth: AuthConfig,
    pub tools: ToolsConfig,
    pub limits: LimitsConfig,
    pub policy: PolicyConfig,
    pub budget: BudgetConfig,
    pub breaker: BreakerConfig,
    pub execution: ExecutionConfig,
    pub outbound: OutboundConfig,
    pub session: SessionConfig,
    pub audit: AuditConfig,
    pub telemetry: TelemetryConfig,
}
