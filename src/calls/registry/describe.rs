//! The JSON shapes of tools in listings and descriptions, as in the specification and the same in every API.

use std::borrow::Cow;
use std::sync::Arc;

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::lock::Quarantined;
use crate::tool::{Metadata, Missing, OfferKind, Tool, Unavailable};
use sekisho_core::error::Detail;

/// A tool in a listing.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ToolSummary<'a> {
    name: &'a str,
    description: &'a str,
    category: &'a str,
    version: &'a str,
    source: &'a str,
    dangerous: bool,
    requires_auth: bool,
    sandboxed: bool,
    idempotent: bool,
    labels: &'a [String],
    /// Whether the caller may use the tool, as far as that is independent of a call's arguments. Only in listings for a
    /// caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    usable: Option<bool>,
    /// The requirements that the caller does not meet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
    /// Why the tool is not available now: its source is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    degraded: Option<Arc<str>>,
    /// Why calls are refused with `tool_changed` until the tool is approved. The description is the approved one.
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantined: Option<String>,
    /// What it is where it is no tool: `prompt`, `resource` or `resource template`. Only of what is `unavailable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Why the tool exists but is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<&'a str>,
    /// Why the description is not the whole one of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    description_problem: Option<&'a str>,
    /// Why its outputs are not checked: the output schema that its source describes cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema_problem: Option<&'a str>,
    /// Suspected prompt injections in the tool's texts.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    flags: &'a [Detail],
    /// The score for a query; only in search results.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

/// A tool's schemas.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolSchema<'a> {
    name: &'a str,
    description: &'a str,
    #[schema(value_type = Object)]
    parameters: &'a Value,
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Cow<'a, Value>>,
}

/// The full description of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolMetadata<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
    category: &'a str,
    author: &'a str,
    requires_auth: bool,
    /// Calls a minute for each caller.
    rate_limit: u32,
    timeout_seconds: u32,
    memory_limit_mb: u32,
    memory_limit_binds: MemoryLimitBinds,
    sandboxed: bool,
    dangerous: bool,
    /// USD.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    cost_per_use: Decimal,
    session_aware: bool,
    source: &'a str,
    labels: &'a [String],
    idempotent: bool,
    max_text_tokens: u64,
    max_output_bytes: usize,
    max_concurrent: Option<u32>,
    roles: &'a [String],
}

/// The scope of the memory limit.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryLimitBinds {
    /// The whole memory of the sandboxed interpreter.
    Sandbox,
    /// The input and output of one call, in bytes.
    BufferedBytes,
}

impl<'a> ToolSummary<'a> {
    pub fn of(tool: &'a Tool) -> Self {
        let output_schema_problem = tool.output_problem.as_deref();
        Self { output_schema_problem, ..Self::new(&tool.metadata, &tool.flags) }
    }

    pub fn of_unavailable(missing: &'a Unavailable) -> Self {
        Self {
            name: &missing.name,
            source: &missing.source,
            kind: (missing.kind != OfferKind::Tool).then(|| missing.kind.as_str()),
            unavailable: Some(&missing.reason),
            usable: Some(false),
            ..Self::default()
        }
    }

    pub fn of_quarantined(tool: &'a Quarantined) -> Self {
        let quarantined = Some(tool.violation.to_string());
        Self { quarantined, usable: Some(false), ..Self::new(&tool.metadata, &tool.flags) }
    }

    fn new(metadata: &'a Metadata, flags: &'a [Detail]) -> Self {
        Self {
            name: &metadata.name,
            description: &metadata.description,
            category: &metadata.category,
            version: &metadata.version,
            source: &metadata.source,
            dangerous: metadata.dangerous,
            requires_auth: metadata.requires_auth,
            sandboxed: metadata.sandboxed,
            idempotent: metadata.idempotent,
            labels: &metadata.labels,
            usable: None,
            missing: Vec::new(),
            degraded: None,
            quarantined: None,
            kind: None,
            unavailable: None,
            description_problem: metadata.description_problem.as_deref(),
            output_schema_problem: None,
            flags,
            score: None,
        }
    }

    pub fn name(&self) -> &str {
        self.name
    }

    /// Adds the requirements that one caller does not meet, if any.
    #[must_use]
    pub fn missing(self, missing: Vec<Missing>) -> Self {
        Self { usable: Some(missing.is_empty()), missing, ..self }
    }

    #[must_use]
    pub fn degraded(self, reason: Option<Arc<str>>) -> Self {
        Self { degraded: reason, ..self }
    }

    #[must_use]
    pub fn scored(self, score: f64) -> Self {
        Self { score: Some(score), ..self }
    }
}

impl<'a> ToolSchema<'a> {
    /// For a listing: a large output schema is shown in part.
    pub fn of(tool: &'a Tool) -> Self {
        Self {
            name: tool.name(),
            description: &tool.metadata.description,
            parameters: tool.input.document(),
            output_schema: tool.output.as_ref().map(|output| Cow::Borrowed(output.document())),
        }
    }

    /// For a single tool: with the whole output schema.
    pub fn whole(tool: &'a Tool) -> Self {
        Self { output_schema: tool.output.as_ref().map(|output| Cow::Owned(output.whole())), ..Self::of(tool) }
    }
}

impl<'a> ToolMetadata<'a> {
    pub fn of(tool: &'a Tool) -> Self {
        let metadata = &tool.metadata;
        Self {
            name: &metadata.name,
            version: &metadata.version,
            description: &metadata.description,
            category: &metadata.category,
            author: &metadata.author,
            requires_auth: metadata.requires_auth,
            rate_limit: metadata.rate_limit,
            timeout_seconds: metadata.timeout_seconds,
            memory_limit_mb: metadata.memory_limit_mb,
            memory_limit_binds: match metadata.sandboxed {
                true => MemoryLimitBinds::Sandbox,
                false => MemoryLimitBinds::BufferedBytes,
            },
            sandboxed: metadata.sandboxed,
            dangerous: metadata.dangerous,
            cost_per_use: metadata.cost_per_use,
            session_aware: metadata.session_aware,
            source: &metadata.source,
            labels: &metadata.labels,
            idempotent: metadata.idempotent,
            max_text_tokens: metadata.max_text_tokens,
            max_output_bytes: metadata.max_output_bytes,
            max_concurrent: metadata.max_concurrent,
            roles: &metadata.roles,
        }
    }
}
