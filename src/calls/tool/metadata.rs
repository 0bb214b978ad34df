//! The metadata of a tool: everything except its schemas.

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::MAX_OUTPUT_BYTES;
use sekisho_config::{ApprovalRule, AuditArguments, LabelSettings, OutputCheck, PreparedShape, SinkSettings};
use sekisho_core::administration::Ownership;
use sekisho_core::call::{CallKind, Caller, READ_RESULT};
use sekisho_core::source_access::OnRequest;

/// The source name of the tools that are part of the program.
pub const BUILTIN: &str = "builtin";

/// The tool that runs programs.
pub const PYTHON: &str = "python_executor";

/// The name of the call that asks for the approval of a program's effects.
pub const PROGRAM_EFFECTS: &str = "program_effects";

/// Begins the source name of a tool that is a Python function; its file follows.
pub const PYTHON_SOURCE: &str = "python:";

/// The same for a tool of a component.
pub const COMPONENT_SOURCE: &str = "component:";

/// The metadata of a tool, with the specification's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// The kind of its calls. Only tools of kind `Tool` are listed as tools and can be called as tools.
    pub kind: CallKind,
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// Description for a model, which decides by it whether to call the tool.
    pub description: String,
    /// Why the description is not the whole one of the source.
    pub description_problem: Option<String>,
    pub category: String,
    pub author: String,
    /// `builtin`, `mcp:<server>`, `openapi:<collection>`, `python:<file>`, `component:<file>`.
    pub source: String,
    pub labels: Vec<String>,
    /// Where its results come from and what its calls do outside, as far as the configuration says it.
    pub flow: FlowMetadata,
    pub timeout_seconds: u32,
    pub memory_limit_mb: u32,
    /// Calls a minute for each caller.
    pub rate_limit: u32,
    pub cost_per_use: Decimal,
    /// The caller must hold one of `policy.dangerous_roles`.
    pub dangerous: bool,
    /// The caller must be authenticated.
    pub requires_auth: bool,
    /// Set from the executor; a value from the source is ignored.
    pub sandboxed: bool,
    pub session_aware: bool,
    /// A second call has no further effect. Only such tools are retried.
    pub idempotent: bool,
    pub max_text_tokens: u64,
    pub max_output_bytes: usize,
    /// For all callers together; the configuration's default when `None`.
    pub max_concurrent: Option<u32>,
    /// Whether the concurrency is counted over all replicas.
    pub is_concurrency_global: bool,
    pub output_check: OutputCheck,
    /// The form of a call's arguments in the audit trail.
    pub audit_arguments: AuditArguments,
    /// Which calls a person must approve, beside the calls for which a policy requires it.
    pub approval: ApprovalRule,
    /// How many persons must approve such a call.
    pub approvals_needed: u8,
    /// The tool of the same source that finds the effect of a call whose answer was lost.
    pub found_by: Option<String>,
    /// The caller must have one of these roles; empty means no role is required. The tool is hidden from others.
    pub roles: Vec<String>,
    /// The owner. A tool of one tenant is hidden from the callers of all others.
    pub owner: Ownership,
    /// Callers get its source on request: the tool is hidden from those for whom the source is off.
    pub on_request: Option<OnRequest>,
    /// The form of its arguments and results by the overlay of its server.
    pub prepared: Option<PreparedShape>,
    /// The effects of a call, if the source declares them.
    pub effects: Option<Effects>,
    /// Other members of an MCP server's listing, for clients: title, annotations, icons, execution, `_meta`.
    pub mcp_annotations: Map<String, Value>,
}

/// The settings about the values that a tool returns and the effects of its calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowMetadata {
    /// Without the names, which are `labels` of the metadata.
    pub labels: LabelSettings,
    pub sink: Option<SinkSettings>,
    /// Annotations of its server that make it less guarded count.
    pub trusts_annotations: bool,
}

impl FlowMetadata {
    /// Sets what these labels set.
    pub fn set_labels(&mut self, settings: &LabelSettings) {
        let LabelSettings { names: _, trust, secrecy, authored, asserted } = settings;
        self.labels.trust = trust.or(self.labels.trust);
        for (own, set) in [
            (&mut self.labels.secrecy, secrecy),
            (&mut self.labels.authored, authored),
            (&mut self.labels.asserted, asserted),
        ] {
            let new: Vec<_> = set.iter().filter(|one| !own.contains(one)).cloned().collect();
            own.extend(new);
        }
    }

    /// With the labels that a source has for all of its tools.
    #[must_use]
    pub fn of_source(labels: &LabelSettings) -> Self {
        let mut flow = Self::default();
        flow.set_labels(labels);
        flow
    }
}

/// The effects of a tool's call, as listed to MCP clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// The call changes nothing.
    pub read_only: bool,
    /// Whether the call may destroy something; `None` when unknown.
    pub destructive: Option<bool>,
    /// The call reaches other services.
    pub open_world: bool,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            kind: CallKind::Tool,
            name: String::new(),
            version: "1.0.0".into(),
            description: String::new(),
            description_problem: None,
            category: "general".into(),
            author: "sekisho".into(),
            source: BUILTIN.into(),
            labels: Vec::new(),
            flow: FlowMetadata::default(),
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
            max_output_bytes: MAX_OUTPUT_BYTES,
            max_concurrent: None,
            is_concurrency_global: false,
            output_check: OutputCheck::Enforce,
            audit_arguments: AuditArguments::Digest,
            approval: ApprovalRule::Never,
            approvals_needed: 1,
            found_by: None,
            roles: Vec::new(),
            owner: Ownership::Shared,
            on_request: None,
            prepared: None,
            effects: None,
            mcp_annotations: Map::new(),
        }
    }
}

impl Metadata {
    /// Whether the tool is hidden from the caller: it is another tenant's, its source is off for the caller, the caller's key or
    /// endpoint leaves it out, or the caller has none of the tool's `roles`.
    pub fn is_hidden_from(&self, caller: &Caller) -> bool {
        self.is_of_another_tenant(caller)
            || self.is_off_for(caller)
            || !caller.tools.admits(&self.name)
            || self.lacks_role(caller)
    }

    /// Whether its source is one on request, and not switched on for the caller.
    pub fn is_off_for(&self, caller: &Caller) -> bool {
        self.on_request.as_ref().is_some_and(|switched| !switched.0.admits(&self.source, caller))
    }

    /// Whether the tool is of a tenant, and the caller of another one.
    pub fn is_of_another_tenant(&self, caller: &Caller) -> bool {
        !self.owner.is_visible_to(&caller.tenant)
    }

    /// Whether the caller has none of the tool's `roles`.
    pub fn lacks_role(&self, caller: &Caller) -> bool {
        !self.roles.is_empty() && !caller.has_one_of(&self.roles)
    }

    /// The name by which keys, endpoints and scopes leave it to a caller: the list of a program's effects comes with the tool that
    /// runs programs.
    pub fn admitted_as(&self) -> &str {
        if self.kind == CallKind::Effects { PYTHON } else { &self.name }
    }

    /// Whether its calls may need approval without a policy that asks for it. The effects of a program always do.
    pub fn may_ask_itself(&self) -> bool {
        self.approval != ApprovalRule::Never || self.kind == CallKind::Effects
    }

    /// Whether a call changes nothing, as its source says; an MCP server, where its annotations are trusted. Nobody says it of a
    /// dangerous tool.
    pub fn changes_nothing(&self) -> bool {
        let annotations = self.mcp_annotations.get("annotations").filter(|_| self.flow.trusts_annotations);
        let hint = annotations.and_then(|all| all.get("readOnlyHint")).and_then(Value::as_bool);
        let is_said = self.effects.is_some_and(|effects| effects.read_only) || hint == Some(true);
        (is_said || self.source == BUILTIN && self.idempotent) && !self.dangerous
    }

    /// Whether a client may ask for a call to run as a task. For a tool of an MCP server, its server decides; a server
    /// that requires a task is the gateway's concern.
    pub fn runs_as_task(&self) -> bool {
        let said = self.mcp_annotations.get("execution").and_then(|execution| execution.get("taskSupport"));
        match said.and_then(Value::as_str) {
            Some(said) => matches!(said, "optional" | "required"),
            None => !self.source.starts_with("mcp:"),
        }
    }

    /// Whether its source says that its calls change nothing.
    pub fn only_reads(&self) -> bool {
        let annotations = self.mcp_annotations.get("annotations");
        let hint = annotations.and_then(|annotations| annotations.get("readOnlyHint"));
        self.effects.is_some_and(|effects| effects.read_only) || hint == Some(&Value::Bool(true))
    }

    /// Whether a second call may have a second effect outside of the gateway.
    pub fn has_effects(&self) -> bool {
        let is_outside = self.source.starts_with("mcp:") || self.source.starts_with("openapi:");
        is_outside && self.kind == CallKind::Tool && !self.idempotent && !self.only_reads()
    }

    /// Whether it is the tool that reads stored results: listed only for models that get handles of them.
    pub fn reads_results(&self) -> bool {
        self.source == BUILTIN && self.name == READ_RESULT
    }

    /// Whether models may be offered the tool: `_meta.ui.visibility` of an MCP server can leave it to apps.
    pub fn is_for_models(&self) -> bool {
        let visibility = self.mcp_annotations.get("_meta").and_then(|meta| meta.pointer("/ui/visibility"));
        visibility.and_then(Value::as_array).is_none_or(|visible| visible.iter().any(|to| to == "model"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_changes_nothing_only_where_a_trusted_source_says_so() {
        let hinted = |trusts_annotations: bool| Metadata {
            source: "mcp:m".into(),
            flow: FlowMetadata { trusts_annotations, ..FlowMetadata::default() },
            mcp_annotations: Map::from_iter([("annotations".to_owned(), json!({"readOnlyHint": true}))]),
            ..Metadata::default()
        };
        let repeated = |source: &str| Metadata { source: source.into(), idempotent: true, ..Metadata::default() };
        for (metadata, expected) in [
            (hinted(true), true),
            (hinted(false), false),
            (Metadata { dangerous: true, ..hinted(true) }, false),
            (repeated(BUILTIN), true),
            (repeated("mcp:m"), false),
            (Metadata::default(), false),
        ] {
            assert_eq!(metadata.changes_nothing(), expected, "{metadata:?}");
        }
    }
}
