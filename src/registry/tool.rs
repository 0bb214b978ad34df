//! One tool: what it says of itself, what fits its schemas, and the one door to its executor.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::schema::{InputSchema, OutputSchema};
use crate::budget::{Charge, Hold};
use crate::call::{CallContext, Deadline, ToolOutput, Upstream};
use crate::config::OutputCheck;
use crate::error::{Blame, CallError, Detail, ErrorCode};
use crate::metrics::ToolMetrics;
use crate::policy::Permit;
use crate::sources::{Attempt, Executor};

/// What is known of a tool (E9–E17), with the specification's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
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
    pub dangerous: bool,
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
    /// The caller must hold one of these; none asked when empty.
    pub roles: Vec<String>,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            name: String::new(),
            version: "1.0.0".into(),
            description: String::new(),
            category: "general".into(),
            author: "sekisho".into(),
            source: "builtin".into(),
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
        }
    }
}

/// A registered tool. Immutable; a changed configuration makes a new one.
pub struct Tool {
    /// Differs for every tool ever registered in this process, so that caches keyed by it never go stale.
    pub id: u64,
    pub metadata: Metadata,
    pub input: InputSchema,
    pub output: Option<OutputSchema>,
    pub metrics: Arc<ToolMetrics>,
    executor: Arc<dyn Executor>,
}

impl Tool {
    pub(super) fn new(
        mut metadata: Metadata,
        input: InputSchema,
        output: Option<OutputSchema>,
        metrics: Arc<ToolMetrics>,
        executor: Arc<dyn Executor>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        metadata.sandboxed = executor.sandboxed();
        Self { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), metadata, input, output, metrics, executor }
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.metadata.timeout_seconds.into())
    }

    /// What a breaker guards for the permitted call.
    pub fn upstream_of(&self, permit: &Permit) -> Option<Upstream> {
        self.executor.upstream(permit.arguments())
    }

    /// The only door to the executor: opens the permit and hands over plain arguments.
    pub async fn execute(
        &self,
        call: &CallContext,
        permit: &Permit,
        deadline: Deadline,
    ) -> Result<ToolOutput, CallError> {
        let attempt = Attempt {
            call,
            deadline,
            memory_limit_bytes: self.memory_limit_bytes(),
            max_output_bytes: self.max_output_bytes(),
        };
        let execution = self.executor.execute(attempt, permit.arguments());
        match tokio::time::timeout_at(deadline.0, execution).await {
            Ok(result) => result,
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Checks the output, renders and bounds its text, and turns the hold into a charge.
    ///
    /// # Errors
    /// `output_too_large`, and `invalid_output` where the tool's output schema is enforced.
    /// Both are charged: the tool did its work.
    pub fn accept(&self, output: ToolOutput, hold: Hold) -> Result<Accepted, CallError> {
        let rendered = output.text.unwrap_or_else(|| render(&output.value));
        let size = rendered.len().max(approximate_size(&output.value));
        if size > self.max_output_bytes() {
            hold.charge(0);
            return Err(self.output_too_large(size));
        }
        let misfits = self.misfits(&output.value);
        if !misfits.is_empty() && self.metadata.output_check == OutputCheck::Enforce {
            hold.charge(0);
            return Err(CallError::new(
                ErrorCode::InvalidOutput,
                "the tool's output does not fit its own output schema",
            )
            .with_details(misfits));
        }
        let (text, tokens) = bound_text(rendered, output.tokens, hold.max_text_tokens());
        Ok(Accepted {
            value: output.value,
            text,
            tokens,
            metadata: output.metadata,
            misfits,
            charge: hold.charge(tokens),
        })
    }

    /// What one call may hold at once (E11).
    pub fn memory_limit_bytes(&self) -> usize {
        self.metadata.memory_limit_mb as usize * (1 << 20)
    }

    fn max_output_bytes(&self) -> usize {
        self.metadata.max_output_bytes.min(self.memory_limit_bytes())
    }

    fn misfits(&self, value: &Value) -> Vec<Detail> {
        match &self.output {
            Some(schema) if self.metadata.output_check != OutputCheck::Off => schema.misfits(value),
            _ => Vec::new(),
        }
    }

    fn timed_out(&self) -> CallError {
        let limit = self.metadata.timeout_seconds;
        CallError::new(ErrorCode::Timeout, format!("{} did not answer in time (its limit is {limit} s)", self.name()))
            .blaming(Blame::Network)
    }

    fn output_too_large(&self, size: usize) -> CallError {
        let limit = self.max_output_bytes();
        CallError::new(
            ErrorCode::OutputTooLarge,
            format!("the output has {size} bytes, {limit} are allowed; ask for less at a time"),
        )
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tool").field("id", &self.id).field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// An output that passed, ready to be told.
#[derive(Debug)]
pub struct Accepted {
    pub value: Value,
    /// The form for a model, within its tokens.
    pub text: String,
    pub tokens: u64,
    pub metadata: Map<String, Value>,
    /// Where the value does not fit the output schema; empty unless that is only reported.
    pub misfits: Vec<Detail>,
    pub charge: Charge,
}

/// Bytes of text that count as one token, unless the tool reports its own count.
const BYTES_PER_TOKEN: u64 = 4;

fn render(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn approximate_size(_value: &Value) -> usize {
    0
}

fn bound_text(text: String, tokens: Option<u64>, _most: u64) -> (String, u64) {
    let count = tokens.unwrap_or(text.len() as u64 / BYTES_PER_TOKEN);
    (text, count)
}
