//! A tool: its [`Metadata`], its schemas, and the [`Executor`] that runs it. A [`Source`] describes tools.

mod metadata;
mod missing;
mod name;
mod paging;
pub(crate) mod schema;
mod source;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::call::{Arguments, Upstream};
use crate::core::error::{CallError, Detail};
use crate::infra::metrics::ToolMetrics;
use crate::transform::Transforms;

pub(crate) use self::metadata::{BUILTIN, COMPONENT_SOURCE, PYTHON_SOURCE};
pub use self::metadata::{Effects, Metadata};
pub use self::missing::Missing;
pub use self::name::{InvalidToolName, ToolName, qualified_name};
pub use self::paging::how_to_read_on;
pub use self::schema::{
    ArgumentSchema, Fit, InputSchema, InvalidSchema, OutputSchema, Parameters, SharedSchema, ValidArguments, is_pattern,
};
pub use self::source::{Attempt, Execution, Executor, OfferKind, Source, SourceTools, ToolDefinition, Unavailable};

/// A registered tool. Immutable: a changed configuration creates a new one.
pub struct Tool {
    /// Unique in this process and never reused, so that caches can use it as a key.
    pub id: u64,
    pub metadata: Metadata,
    pub input: InputSchema,
    pub output: Option<OutputSchema>,
    /// Why the output schema that its source describes is not used.
    pub output_problem: Option<String>,
    /// Suspected prompt injections in the tool's texts.
    pub flags: Vec<Detail>,
    /// The rules that change arguments and results of its calls, if there are any.
    pub transforms: Option<Arc<Transforms>>,
    pub metrics: Arc<ToolMetrics>,
    executor: Arc<dyn Executor>,
}

impl Tool {
    pub(crate) fn new(
        mut metadata: Metadata,
        input: InputSchema,
        output: Option<OutputSchema>,
        flags: Vec<Detail>,
        metrics: Arc<ToolMetrics>,
        executor: Arc<dyn Executor>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        metadata.sandboxed = executor.sandboxed();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, metadata, input, output, output_problem: None, flags, transforms: None, metrics, executor }
    }

    pub(crate) fn with_output_problem(self, output_problem: Option<String>) -> Self {
        Self { output_problem, ..self }
    }

    pub(crate) fn with_transforms(self, transforms: Option<Arc<Transforms>>) -> Self {
        Self { transforms, ..self }
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The arguments as they are sent: valid, changed by the rules, and valid again.
    ///
    /// # Errors
    /// `invalid_arguments`.
    pub fn valid_arguments(&self, arguments: Arguments) -> Result<ValidArguments, CallError> {
        match &self.transforms {
            None => self.input.validate(arguments),
            Some(rules) => self.input.validate_changed(arguments, rules),
        }
    }

    /// For digests: the arguments as they are sent if a rule changes them, otherwise as they came.
    pub fn sent_arguments<'a>(&self, arguments: &'a Arguments) -> Cow<'a, Arguments> {
        if !self.changes_arguments() {
            return Cow::Borrowed(arguments);
        }
        match self.valid_arguments(arguments.clone()) {
            Ok(valid) if !valid.findings().is_empty() => Cow::Owned(valid.as_map().clone()),
            _ => Cow::Borrowed(arguments),
        }
    }

    /// Whether rules may change the arguments of its calls.
    pub fn changes_arguments(&self) -> bool {
        self.transforms.as_ref().is_some_and(|rules| rules.has_arguments())
    }

    /// The upstream of all its calls; `None` for a local tool, or if the arguments name it.
    pub fn upstream(&self) -> Option<Upstream> {
        self.executor.upstream(&Arguments::default()).filter(|_| !self.executor.callers_choose_upstream())
    }

    /// Whether the tool was built from this metadata and executor. An executor belongs to one definition, and so to one
    /// pair of schemas.
    pub(crate) fn is_made_of(&self, metadata: &Metadata, executor: &Arc<dyn Executor>) -> bool {
        self.is_run_by(executor) && self.metadata == *metadata
    }

    /// Whether the tool was built from the definition with this executor.
    pub(crate) fn is_run_by(&self, executor: &Arc<dyn Executor>) -> bool {
        Arc::ptr_eq(&self.executor, executor)
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.metadata.timeout_seconds.into())
    }

    /// The executor. Only for the execute stage, which holds the call's permit: nothing else may run a tool.
    pub(crate) fn executor(&self) -> &dyn Executor {
        &*self.executor
    }

    /// Memory that one call may use, in bytes.
    pub fn memory_limit_bytes(&self) -> usize {
        self.metadata.memory_limit_mb as usize * (1 << 20)
    }

    /// Maximum size of an output, in bytes.
    pub fn max_output_bytes(&self) -> usize {
        self.metadata.max_output_bytes.min(self.memory_limit_bytes())
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tool").field("id", &self.id).field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
