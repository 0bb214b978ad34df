//! A tool: its [`Metadata`], its schemas, and the [`Executor`] that runs it. A [`Source`] describes tools. The sent
//! form of a call is a [`SentCall`].

mod enumeration;
mod flow;
mod listed;
mod metadata;
mod missing;
mod name;
mod paging;
pub mod schema;
mod sent;
mod shape;
mod source;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};

use self::shape::Shaped;
use crate::guards::Guards;
use crate::transform::Transforms;
use sekisho_core::call::{Arguments, Upstream};
use sekisho_core::error::{CallError, Detail};
use sekisho_core::record::shortened;
use sekisho_flow::ToolLabels;
use sekisho_observe::metrics::ToolMetrics;

pub use self::enumeration::{EnumeratedValues, ToolValues, enumerated_values, has_types_of};
pub use self::flow::{FlowNotes, JudgedCall};
pub use self::listed::{ListedTokens, ModelText};
pub use self::metadata::{BUILTIN, COMPONENT_SOURCE, PROGRAM_EFFECTS, PYTHON, PYTHON_SOURCE};
pub use self::metadata::{Effects, FlowMetadata, Metadata};
pub use self::missing::Missing;
pub use self::name::{InvalidToolName, ToolName, qualified_name, qualified_prefix, shortened_name};
pub use self::paging::how_to_read_on;
pub use self::schema::{
    Aliases, ArgumentSchema, Fit, InputSchema, InvalidSchema, OutputSchema, Parameters, SharedSchema, ValidArguments,
    is_pattern,
};
pub(crate) use self::sent::LOCAL;
pub use self::sent::{Destination, FilledIn, SentCall, SentForm};
pub use self::shape::Shape;
pub use self::source::{
    Attempt, AwaitedTools, Execution, Executor, OfferKind, Source, SourceTools, ToolDefinition, Unavailable,
};

/// Maximum size of an output, unless its source or the configuration has another.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Maximum size of a result that is stored.
pub const MAX_STORED_BYTES: usize = 16 << 20;

/// A registered tool. Immutable: a changed configuration creates a new one.
pub struct Tool {
    /// Unique in this process and never reused, so that caches can use it as a key.
    pub id: u64,
    pub metadata: Metadata,
    /// The name of the metadata, with a bounded length.
    shared_name: Arc<str>,
    pub input: InputSchema,
    pub output: Option<OutputSchema>,
    /// Why the output schema that its source describes is not used.
    pub output_problem: Option<String>,
    /// Suspected prompt injections in the tool's texts.
    pub flags: Vec<Detail>,
    /// The rules that change arguments and results of its calls, if there are any.
    pub transforms: Option<Arc<Transforms>>,
    /// The rules about what its calls and answers carry, if there are any.
    pub guards: Option<Arc<Guards>>,
    pub metrics: Arc<ToolMetrics>,
    /// The source's description, if the configuration describes the tool otherwise.
    own_description: Option<String>,
    /// The hash of its pin in the lock, where the lock holds it to its approved form.
    pub(crate) approved: Option<Arc<str>>,
    definition_digest: OnceLock<String>,
    /// Once it is listed by its tokens, or they are shown.
    listed_tokens: OnceLock<ListedTokens>,
    /// Once a call is judged.
    labels: OnceLock<ToolLabels>,
    /// The changes of arguments and results by `tools.overrides`, if there are any.
    shaped: Option<Box<Shaped>>,
    executor: Arc<dyn Executor>,
}

impl Tool {
    pub fn new(
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
        Self {
            id,
            shared_name: shortened(&metadata.name).into(),
            metadata,
            input,
            output,
            output_problem: None,
            flags,
            transforms: None,
            guards: None,
            metrics,
            own_description: None,
            approved: None,
            definition_digest: OnceLock::new(),
            listed_tokens: OnceLock::new(),
            labels: OnceLock::new(),
            shaped: None,
            executor,
        }
    }

    pub(crate) fn with_own_description(self, own_description: Option<String>) -> Self {
        Self { own_description, ..self }
    }

    pub(crate) fn with_approved(self, approved: Option<Arc<str>>) -> Self {
        Self { approved, ..self }
    }

    pub(crate) fn with_output_problem(self, output_problem: Option<String>) -> Self {
        Self { output_problem, ..self }
    }

    pub(crate) fn with_transforms(self, transforms: Option<Arc<Transforms>>) -> Self {
        Self { transforms, ..self }
    }

    pub(crate) fn with_guards(self, guards: Option<Arc<Guards>>) -> Self {
        Self { guards, ..self }
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The text about it in lists that models read.
    pub fn model_text(&self) -> ModelText<'_> {
        let Metadata { name, description, .. } = &self.metadata;
        ModelText { name, description, schema: self.input.document() }
    }

    /// The tokens of that text.
    pub fn listed_tokens(&self) -> ListedTokens {
        *self.listed_tokens.get_or_init(|| self.model_text().listed_tokens())
    }

    /// The name, for data about its calls that outlast them.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.shared_name
    }

    /// The arguments of a call, complete and valid: with the values of its override and those that the executor fills in, also from the
    /// `prompt_params` of the caller's session, changed by the rules, and in the form in which they are sent.
    /// Errors: `invalid_arguments`.
    pub fn valid_arguments(
        &self,
        arguments: Arguments,
        prompt_params: &Map<String, Value>,
    ) -> Result<ValidArguments, CallError> {
        let mut valid = self.completed(arguments)?;
        let (form, input) = (self.executor.sent_form(), self.complete_input());
        if let Some(form) = form {
            valid = input.fill_in(valid, form, prompt_params)?;
        }
        if let Some(rules) = &self.transforms {
            valid = input.change(valid, rules)?;
        }
        Ok(match form {
            Some(form) => valid.sent_in(form),
            None => valid,
        })
    }

    /// Arguments in the form in which they are sent. `further`: arguments for which the tool has no name.
    pub fn sent_arguments(&self, arguments: &Arguments, further: &Arguments) -> Arguments {
        match self.executor.sent_form() {
            Some(form) => form.sent(arguments, further),
            None => arguments.clone(),
        }
    }

    /// The value in an output, which FastMCP wraps.
    pub fn value_of<'v>(&self, output: &'v Value) -> &'v Value {
        self.output.as_ref().map_or(output, |schema| schema.value(output))
    }

    /// Whether the arguments of a call name the server that it is sent to.
    pub fn callers_choose_upstream(&self) -> bool {
        self.executor.callers_choose_upstream()
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

    /// Whether its upstream knows a call that it has had already, by a key that is sent with each.
    pub fn declares_idempotency_key(&self) -> bool {
        self.executor.declares_idempotency_key()
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.metadata.timeout_seconds.into())
    }

    /// The executor. Only for the execute stage, which holds the call's permit: nothing else may run a tool.
    pub fn executor(&self) -> &dyn Executor {
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

    /// The same for an output that is stored, and answered by a preview, or that a program gets. A setting below the default holds
    /// for it too.
    pub fn max_stored_bytes(&self) -> usize {
        let max = self.metadata.max_output_bytes;
        let max = if max < MAX_OUTPUT_BYTES { max } else { max.max(MAX_STORED_BYTES) };
        max.min(self.memory_limit_bytes())
    }
}

sekisho_core::debug_fields!(Tool { id, metadata });
