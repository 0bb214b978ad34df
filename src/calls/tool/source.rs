//! The two traits between the gateway and its tools: a [`Source`] describes tools, an [`Executor`] runs one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use super::{BUILTIN, Destination, Metadata, Parameters, SentForm, SharedSchema};
use sekisho_core::administration::Ownership;
use sekisho_core::call::{Arguments, CallContext, Caller, Deadline, ToolOutput, Upstream};
use sekisho_core::error::CallError;
use sekisho_core::source_access::OnRequest;

/// A supplier of tools: the built-in ones, an MCP server, an OpenAPI document, a folder of Python functions or components.
pub trait Source: Send + Sync {
    /// The value of `source` in the source's tools and in reports.
    fn name(&self) -> &str;

    /// The tools that the source offers now, and tools that exist but cannot be offered.
    fn tools(&self) -> SourceTools;
}

/// The tools of a source for the registry.
#[derive(Debug, Clone, Default)]
pub struct SourceTools {
    pub tools: Vec<ToolDefinition>,
    /// Reported by `sekisho check` with the reason.
    pub unavailable: Vec<Unavailable>,
}

/// Sources that may list their tools later, such as MCP servers that still connect.
pub trait AwaitedTools: fmt::Debug + Send + Sync {
    /// The refusal of a call of a tool that is not offered, where one of them may have it: worth repeating.
    fn refusal(&self, tool: &str, caller: &Caller) -> Option<CallError>;
}

/// The kind of an offer: a source describes it and may be unable to offer it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum OfferKind {
    #[default]
    Tool,
    Prompt,
    Resource,
    #[strum(serialize = "resource template")]
    ResourceTemplate,
}

sekisho_core::as_str!(OfferKind);

/// A tool, prompt or resource that exists but is not offered, with the reason and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub kind: OfferKind,
    /// The name that it would have here, or its URI.
    pub name: String,
    /// The value of `source` that the tool would have.
    pub source: String,
    /// Only callers with one of these roles would see it; empty: all.
    pub roles: Box<[String]>,
    /// Only callers of its tenant would see a tenant's own offer.
    pub owner: Ownership,
    /// Callers get its source on request.
    pub on_request: Option<OnRequest>,
    pub reason: String,
}

impl Unavailable {
    /// A tool that is not offered.
    pub fn new(source: &str, tool: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::of(OfferKind::Tool, source, tool, reason)
    }

    pub fn of(kind: OfferKind, source: &str, name: impl Into<String>, reason: impl Into<String>) -> Self {
        let (roles, owner) = (Box::default(), Ownership::Shared);
        let (name, source, reason) = (name.into(), source.to_owned(), reason.into());
        Self { kind, name, source, roles, owner, on_request: None, reason }
    }

    pub fn for_roles(self, roles: &[String]) -> Self {
        Self { roles: roles.into(), ..self }
    }

    pub fn of_owner(self, owner: &Ownership) -> Self {
        Self { owner: owner.clone(), ..self }
    }

    pub fn on_request(self, on_request: Option<OnRequest>) -> Self {
        Self { on_request, ..self }
    }

    /// Whether a source from outside describes it. A built-in tool is left out by the configuration, and a tool's name
    /// that ends in `*` stands for all further tools of its source, which are reported with the source itself.
    pub fn is_described_outside(&self) -> bool {
        self.source != BUILTIN && !(self.kind == OfferKind::Tool && self.name.ends_with("__*"))
    }

    /// For people: its name, and its kind unless it is a tool.
    pub fn described(&self) -> String {
        match self.kind {
            OfferKind::Tool => self.name.clone(),
            kind => format!("{} {}", kind.as_str(), self.name),
        }
    }

    pub fn is_hidden_from(&self, caller: &Caller) -> bool {
        !self.owner.is_visible_to(&caller.tenant)
            || self.on_request.as_ref().is_some_and(|switched| !switched.0.admits(&self.source, caller))
            || !caller.tools.admits(&self.name)
            || !self.roles.is_empty() && !caller.has_one_of(&self.roles)
    }
}

/// A tool as its source describes it, before the configuration is applied.
#[derive(Clone)]
pub struct ToolDefinition {
    pub metadata: Metadata,
    /// JSON Schema 2020-12 of the arguments, `type: object`.
    pub parameters: Parameters,
    /// JSON Schema of `ToolOutput::value`, as lists show it; see [`Executor::output_schema`].
    pub output_schema: Option<Value>,
    pub executor: Arc<dyn Executor>,
}

sekisho_core::debug_fields!(ToolDefinition { metadata });

/// One attempt to run a tool, and its limits.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub call: &'a CallContext,
    /// Deadline of this attempt; never later than the deadline of the call.
    pub deadline: Deadline,
    /// Memory that this call may use, in bytes (`memory_limit_mb`).
    pub memory_limit_bytes: usize,
    /// Maximum size of the output, in bytes.
    pub max_output_bytes: usize,
}

/// The future that an executor returns. It is dropped when the caller disconnects or the deadline
/// passes; dropping it must stop the work.
pub type Execution<'a> = Pin<Box<dyn Future<Output = Result<ToolOutput, CallError>> + Send + 'a>>;

/// Runs a tool. Called only by the execute stage of the pipeline, which requires a permit for the arguments.
///
/// An executor sends only the `arguments` of the caller's input and the parts that its
/// [`destination`](Executor::destination) names: policies and approvers have seen no more.
pub trait Executor: Send + Sync {
    /// `arguments`: valid, and in the executor's own [form](Executor::sent_form).
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a>;

    /// Whether the executor marks the call as sent ([`Sending`](sekisho_core::call::Sending)). Every executor that calls
    /// another service must. The calls of other executors are charged from their begin.
    fn marks_sent(&self) -> bool {
        false
    }

    /// The upstream whose circuit breaker guards this call; `None` for a local tool. An address that the arguments name
    /// belongs to the caller who chose it: see [`Executor::callers_choose_upstream`].
    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        None
    }

    /// Whether the arguments name the upstream.
    fn callers_choose_upstream(&self) -> bool {
        false
    }

    /// The target of a call, for `tools.lock`: a request's method and URL, a server's origin, or a program. Contains no
    /// credentials and nothing that differs between machines.
    fn reaches(&self) -> Option<String> {
        None
    }

    /// The name, version and digest of the package that the tool's program was installed from, for `tools.lock`.
    fn package(&self) -> Option<Value> {
        None
    }

    /// Where a call with these arguments is sent, and in which form; `None` for a tool that calls no other service.
    fn destination<'a>(&'a self, _call: &'a CallContext, _arguments: &'a Arguments) -> Option<Destination<'a>> {
        None
    }

    /// A text that tells the server of all its calls from others and is not shown, since it may contain a secret or a
    /// local path. An approval is bound to it.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Whether its upstream declares a header by which it knows a request that it has had already. It is sent with each call then.
    fn declares_idempotency_key(&self) -> bool {
        false
    }

    /// The form in which arguments are sent, if it differs from the tool's.
    fn sent_form(&self) -> Option<&dyn SentForm> {
        None
    }

    /// The whole output schema, if the definition has only the part of it for listings.
    fn output_schema(&self) -> Option<Arc<SharedSchema>> {
        None
    }

    /// Whether the executor runs code in a sandbox. Copied to the tool's metadata.
    fn sandboxed(&self) -> bool {
        false
    }
}
