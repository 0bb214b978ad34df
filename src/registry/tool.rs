//! One tool: what it says of itself, what fits its schemas, and the one door to its executor.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::schema::{InputSchema, OutputSchema};
use crate::budget::{Charge, Hold};
use crate::config::OutputCheck;
use crate::core::call::{CallContext, CallKind, Caller, Deadline, McpResult, ToolOutput, Upstream};
use crate::core::error::{Blame, CallError, Detail, ErrorCode};
use crate::core::json;
use crate::core::json::LARGE_NUMBERS;
use crate::infra::metrics::ToolMetrics;
use crate::policy::Permit;
use crate::sources::{Attempt, Executor};

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
    pub told: Map<String, Value>,
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
            told: Map::new(),
        }
    }
}

impl Metadata {
    /// The caller holds none of the tool's `roles`: to them there is no such tool.
    pub fn is_hidden_from(&self, caller: &Caller) -> bool {
        !self.roles.is_empty() && !caller.has_one_of(&self.roles)
    }
}

/// A registered tool. Immutable; a changed configuration makes a new one.
pub struct Tool {
    /// Differs for every tool ever registered in this process, so that caches keyed by it never go stale.
    pub id: u64,
    pub metadata: Metadata,
    pub input: InputSchema,
    pub output: Option<OutputSchema>,
    /// What looks like hidden instructions in it.
    pub flags: Vec<Detail>,
    pub metrics: Arc<ToolMetrics>,
    executor: Arc<dyn Executor>,
}

impl Tool {
    pub(super) fn new(
        mut metadata: Metadata,
        input: InputSchema,
        output: Option<OutputSchema>,
        flags: Vec<Detail>,
        metrics: Arc<ToolMetrics>,
        executor: Arc<dyn Executor>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        metadata.sandboxed = executor.sandboxed();
        Self { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), metadata, input, output, flags, metrics, executor }
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether it was made of these: an executor belongs to one definition, and with it to one pair of schemas.
    pub(super) fn is_made_of(&self, metadata: &Metadata, executor: &Arc<dyn Executor>) -> bool {
        self.is_run_by(executor) && self.metadata == *metadata
    }

    /// Whether it stems from the definition that has this executor.
    pub(super) fn is_run_by(&self, executor: &Arc<dyn Executor>) -> bool {
        Arc::ptr_eq(&self.executor, executor)
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
        if !self.executor.marks_sent() {
            call.sending.begin();
        }
        let execution = self.executor.execute(attempt, permit.arguments());
        call.within(deadline, execution).await.unwrap_or_else(|| Err(self.timed_out()))
    }

    /// Checks the output, renders and bounds its text, and turns the hold into a charge.
    ///
    /// # Errors
    /// `output_too_large`, and `invalid_output` where the tool's output schema is enforced.
    /// Both are charged: the tool did its work.
    pub fn accept(&self, output: ToolOutput, hold: Hold) -> Result<Accepted, CallError> {
        match self.fit(output, hold.max_text_tokens()) {
            Ok(Fitted { value, text, tokens, metadata, mcp, misfits }) => {
                Ok(Accepted { value, text, tokens, metadata, mcp, misfits, charge: hold.charge(tokens) })
            }
            Err(error) => {
                let charge = hold.charge(0);
                Err(error.costing(charge.cost_usd))
            }
        }
    }

    fn fit(&self, output: ToolOutput, max_text_tokens: u64) -> Result<Fitted, CallError> {
        let ToolOutput { value, text, tokens, metadata, mcp } = output;
        // Counted before anything is rendered: what is too large is not copied first.
        let said = mcp.as_ref().map_or(0, |mcp| mcp.content.iter().map(approximate_size).sum());
        let size = approximate_size(&value).max(text.as_ref().map_or(0, String::len)).max(said);
        if size > self.max_output_bytes() {
            return Err(self.output_too_large(size));
        }
        let misfits = self.misfits(&value, &metadata);
        if !misfits.is_empty() && self.metadata.output_check == OutputCheck::Enforce {
            return Err(CallError::new(
                ErrorCode::InvalidOutput,
                "the tool's output does not fit its own output schema",
            )
            .with_details(misfits));
        }
        let (text, tokens) = bound_text(text.unwrap_or_else(|| render(&value)), tokens, max_text_tokens);
        Ok(Fitted { value, text, tokens, metadata, mcp, misfits })
    }

    /// What one call may hold at once (E11).
    pub fn memory_limit_bytes(&self) -> usize {
        self.metadata.memory_limit_mb as usize * (1 << 20)
    }

    fn max_output_bytes(&self) -> usize {
        self.metadata.max_output_bytes.min(self.memory_limit_bytes())
    }

    fn misfits(&self, value: &Value, metadata: &Map<String, Value>) -> Vec<Detail> {
        match &self.output {
            Some(schema) if self.metadata.output_check != OutputCheck::Off => {
                match metadata.get(LARGE_NUMBERS).and_then(Value::as_array) {
                    // The schema speaks of the numbers that the strings stand for.
                    Some(large) => schema.misfits(&json::with_numbers(value.clone(), large)),
                    None => schema.misfits(value),
                }
            }
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
    /// How an MCP server said it.
    pub mcp: Option<Box<McpResult>>,
    /// Where the value does not fit the output schema; empty unless that is only reported.
    pub misfits: Vec<Detail>,
    pub charge: Charge,
}

impl Accepted {
    /// For a dry run: every stage but execution said yes, and nothing was spent.
    pub fn not_run(hold: &Hold) -> Self {
        let left = hold.before();
        Self {
            value: Value::Null,
            text: String::new(),
            tokens: 0,
            metadata: Map::new(),
            mcp: None,
            misfits: Vec::new(),
            charge: Charge { cost_usd: Decimal::ZERO, tokens: 0, before: left, after: left },
        }
    }
}

/// An output that passed, before it is charged.
#[derive(Debug)]
struct Fitted {
    value: Value,
    text: String,
    tokens: u64,
    metadata: Map<String, Value>,
    mcp: Option<Box<McpResult>>,
    misfits: Vec<Detail>,
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

/// The length of the value's JSON, escapes not counted.
pub(crate) fn approximate_size(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(truth) => 5 - usize::from(*truth),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(unsigned), _) => digits(unsigned),
            (None, Some(signed)) => 1 + digits(signed.unsigned_abs()),
            // Between `0.5` and seventeen digits.
            (None, None) => 8,
        },
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| approximate_size(item) + 1).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(key, member)| key.len() + approximate_size(member) + 4).sum::<usize>()
        }
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |power| power as usize + 1)
}

/// The text cut so that it counts at most `most` tokens, and what it counts: bytes / 4, rounded up,
/// or what the tool reports, of a cut text the same share.
fn bound_text(mut text: String, tokens: Option<u64>, most: u64) -> (String, u64) {
    let bytes = text.len() as u64;
    let count = tokens.unwrap_or(bytes.div_ceil(BYTES_PER_TOKEN));
    if count <= most {
        return (text, count);
    }
    // For a counted text `most * BYTES_PER_TOKEN`, but for what the rounding adds.
    let allowed = match tokens {
        Some(reported) => u64::try_from(u128::from(bytes) * u128::from(most) / u128::from(reported)).unwrap_or(bytes),
        None => most.saturating_mul(BYTES_PER_TOKEN),
    };
    cut(&mut text, usize::try_from(allowed).unwrap_or(usize::MAX));
    let left = text.len() as u64;
    let count = match tokens {
        Some(reported) if bytes > 0 => u128::from(left) * u128::from(reported) / u128::from(bytes),
        _ => u128::from(left.div_ceil(BYTES_PER_TOKEN)),
    };
    (text, u64::try_from(count).map_or(most, |count| count.min(most)))
}

/// Cuts a text to at most `allowed` bytes, a note of it included where there is room for one.
fn cut(text: &mut String, allowed: usize) {
    let total = text.len();
    let note = |shown: usize| format!("\n[cut: {shown} of {total} bytes shown]");
    match allowed.checked_sub(note(total).len()) {
        Some(room) if room > 0 => {
            text.truncate(text.floor_char_boundary(room));
            text.push_str(&note(text.len()));
        }
        _ => text.truncate(text.floor_char_boundary(allowed)),
    }
}

#[cfg(test)]
mod tests;
