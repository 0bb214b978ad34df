//! What is known of a tool beside its schemas.

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::config::OutputCheck;
use crate::core::call::{CallKind, Caller};

/// The source of the tools that come with the program.
pub(crate) const BUILTIN: &str = "builtin";

/// What is known of a tool (E9–E17), with the specification's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// What its calls ask for. What is no tool is in no list of tools, and no call of a tool finds it.
    pub kind: CallKind,
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// What a model reads to decide whether to call it.
    pub description: String,
    pub category: String,
    pub author: String,
    /// `builtin`, `mcp:<server>`, `openapi:<collection>`.
    pub source: String,
    pub labels: Vec<String>,
    pub timeout_seconds: u32,
    pub memory_limit_mb: u32,
    /// Calls a minute for each caller.
    pub rate_limit: u32,
    pub cost_per_use: Decimal,
    /// The caller must hold one of `policy.dangerous_roles`.
    pub dangerous: bool,
    /// The caller must have said who they are.
    pub requires_auth: bool,
    /// Derived from the executor, whatever the source wrote.
    pub sandboxed: bool,
    pub session_aware: bool,
    /// Calling it twice does what calling it once does: only such tools are retried.
    pub idempotent: bool,
    pub max_text_tokens: u64,
    pub max_output_bytes: usize,
    /// Over all callers; the configuration's default when `None`.
    pub max_concurrent: Option<u32>,
    pub output_check: OutputCheck,
    /// The caller must hold one of these; none asked when empty. To others there is no such tool.
    pub roles: Vec<String>,
    /// What a call does to the world, where its source knows.
    pub effects: Option<Effects>,
    /// What else an MCP server says of it to clients: title, annotations, icons, execution, `_meta`.
    pub mcp_annotations: Map<String, Value>,
}

/// What a call of a tool does to the world, as MCP clients are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// It changes nothing.
    pub read_only: bool,
    /// It may take something away, or does not; `None`: nobody knows.
    pub destructive: Option<bool>,
    /// It leads to other services.
    pub open_world: bool,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            kind: CallKind::Tool,
            name: String::new(),
            version: "1.0.0".into(),
            description: String::new(),
            category: "general".into(),
            author: "sekisho".into(),
            source: BUILTIN.into(),
            labels: Vec::new(),
            timeout_seconds: 30,
            memory_limit_mb: 128,
            rate_limit: 60,
            cost_per_use: Decimal::ZERO,
            dangerous: false,
            requires_auth: false,
            sandboxed: false,
            session_aware: false,
            idempotent: false,
            max_text_tokens: 2_000,
            max_output_bytes: 1 << 20,
            max_concurrent: None,
            output_check: OutputCheck::Enforce,
            roles: Vec::new(),
            effects: None,
            mcp_annotations: Map::new(),
        }
    }
}

impl Metadata {
    /// The caller holds none of the tool's `roles`: to them there is no such tool.
    pub fn is_hidden_from(&self, caller: &Caller) -> bool {
        !self.roles.is_empty() && !caller.has_one_of(&self.roles)
    }
}
