//! The two traits between the gateway and its tools: a [`Source`] describes tools, an [`Executor`] runs one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use super::{Metadata, Parameters, SharedSchema};
use crate::core::call::{Arguments, CallContext, Deadline, ToolOutput, Upstream};
use crate::core::error::CallError;

/// A supplier of tools: the built-in ones, an MCP server, an OpenAPI document.
pub trait Source: Send + Sync {
    /// Stands in every tool's `source`, and in reports.
    fn name(&self) -> &str;

    /// The tools it offers now, and those it would offer but cannot.
    fn tools(&self) -> SourceTools;
}

/// What a source brings to the registry.
#[derive(Debug, Clone, Default)]
pub struct SourceTools {
    pub tools: Vec<ToolDefinition>,
    /// Named by `sekisho check` with the reason.
    pub unavailable: Vec<Unavailable>,
}

/// A tool that exists but is not offered, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub tool: String,
    pub reason: String,
}

/// A tool as its source describes it, before configuration has its say.
#[derive(Clone)]
pub struct ToolDefinition {
    pub metadata: Metadata,
    /// JSON Schema 2020-12 of the arguments, `type: object`.
    pub parameters: Parameters,
    /// JSON Schema of `ToolOutput::value`, as lists show it; see [`Executor::output_schema`].
    pub output_schema: Option<Value>,
    pub executor: Arc<dyn Executor>,
}

impl fmt::Debug for ToolDefinition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ToolDefinition").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// One try at running a tool, and the bounds it must keep.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub call: &'a CallContext,
    /// Of this attempt; never later than the call's own.
    pub deadline: Deadline,
    /// Bytes this call may hold at once (`memory_limit_mb`).
    pub memory_limit_bytes: usize,
    /// Largest output.
    pub max_output_bytes: usize,
}

/// The future an executor returns: dropped when the caller hangs up or the deadline passes,
/// so that dropping it must stop the work.
pub type Execution<'a> = Pin<Box<dyn Future<Output = Result<ToolOutput, CallError>> + Send + 'a>>;

/// Runs a tool. Sees plain arguments: only the execute stage of the pipeline, which takes a permit, calls it.
pub trait Executor: Send + Sync {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a>;

    /// Whether it says by itself when the work is handed over ([`Sending`](crate::core::call::Sending)), as whatever asks
    /// somebody else must. The call of any other is paid for from the moment it is begun.
    fn marks_sent(&self) -> bool {
        false
    }

    /// What a circuit breaker guards for this call; `None` for a local tool.
    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        None
    }

    /// What a call reaches, as far as a reader of `tools.lock` should know it: the request's method and address, a
    /// server's origin, a program. No credentials, and nothing that differs from one machine to the next.
    fn reaches(&self) -> Option<String> {
        None
    }

    /// The whole output schema, where the definition has only as much of it as is good to list.
    fn output_schema(&self) -> Option<Arc<SharedSchema>> {
        None
    }

    /// Whether the code it runs is shut in a sandbox. The metadata says what this says.
    fn sandboxed(&self) -> bool {
        false
    }
}
