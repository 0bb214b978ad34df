//! The last stage: changes the output by the rules of `tools.transform`, has guards look at it (`guarded`), checks it,
//! bounds its text, and turns the hold into a charge. An output that is too large for a model has a preview by then (`large_result`).

use std::fmt::Write as _;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::Pipeline;
use super::charging::Charging;
use super::execute::Executed;
use super::large_result;
use super::receipt::Answer;
use super::settlement::CallScope;
use crate::budget::{Charge, Hold};
use crate::policy::Permit;
use crate::results::{LargeResult, Preview};
use crate::tool::{Tool, how_to_read_on};
use sekisho_config::OutputCheck;
use sekisho_core::call::{CallContext, ToolOutput, Via};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::json::{self, LARGE_NUMBERS};
use sekisho_core::transform_finding::{TransformFinding, TransformedPart, names_of};

/// Bytes of text that count as one token, unless the tool reports its own count.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// An output that passed every check, and its cost.
#[derive(Debug)]
pub struct Accepted {
    pub answer: Answer,
    /// Violations of the tool's output schema. Never filled when the schema is enforced: the output is refused then.
    pub violations: Vec<Detail>,
    pub charge: Charge,
}

impl Accepted {
    /// For a dry run: every stage before execution passed, and nothing was spent.
    pub fn not_run(hold: &Hold) -> Self {
        let left = hold.before();
        let charge = Charge { cost_usd: Decimal::ZERO, tokens: 0, before: left, after: left };
        Self { answer: Answer::default(), violations: Vec::new(), charge }
    }
}

/// An output that passed every check. Its text is not bounded yet.
#[derive(Debug)]
pub struct Checked {
    pub answer: Answer,
    /// Tokens of the text, as the tool reports them.
    tokens: Option<u64>,
    violations: Vec<Detail>,
    /// The output as it is stored, where it is too large for a model that can read a stored one.
    pub large: Option<Box<LargeResult>>,
}

impl Checked {
    /// Violations of the tool's output schema, which is not enforced.
    pub fn violations(&self) -> &[Detail] {
        &self.violations
    }

    /// Sets the preview that the model gets in place of the output.
    pub fn show(&mut self, preview: Preview) {
        self.answer.text = preview.text;
        self.answer.preview = Some(Box::new(preview.value));
        self.tokens = None;
    }
}

impl Pipeline {
    /// The last stage: changes and checks the output, shortens it for a model, and charges for it.
    /// Errors: the errors of [`change`], of the guards, and of [`check`].
    pub(super) async fn accept(
        &self,
        call: &CallContext,
        tool: &Tool,
        executed: Executed,
        (permit, charging): (&Permit, &Charging),
        scope: &mut CallScope<'_>,
    ) -> Result<Accepted, CallError> {
        let changed = scope.changed(tool, executed.output);
        let guarded = match self.guards_answers(tool) {
            // Boxed, because few tools have guards.
            true => Box::pin(self.guard_output(call, tool, permit, changed, scope)).await,
            false => changed,
        };
        let checked = guarded.and_then(|output| scope.checked(tool, output, charging.max_text_tokens()));
        let shortened = self.shortened(call, tool, checked, charging.max_text_tokens()).await;
        scope.accept(tool, shortened)
    }
}

/// Changes the output. Adds the changes to `findings`.
/// Errors: `output_too_large`.
pub(super) fn change(
    call: &CallContext,
    tool: &Tool,
    mut output: ToolOutput,
    findings: &mut Vec<TransformFinding>,
) -> Result<ToolOutput, CallError> {
    check_size(size_of(&output), max_bytes(call, tool))?;
    if let Some(rules) = &tool.transforms {
        findings.extend(rules.change_output(&mut output));
    }
    Ok(output)
}

/// Checks the output, selects its projection, and renders its text. `max_text_tokens`: the maximum for the text. `findings`: the changes.
/// Errors: `output_too_large`; `invalid_output` when the tool's output schema is enforced, or its projection fails.
pub(super) fn check(
    call: &CallContext,
    tool: &Tool,
    output: ToolOutput,
    max_text_tokens: u64,
    findings: &[TransformFinding],
) -> Result<Checked, CallError> {
    let violations = violations(tool, &output.value, &output.metadata);
    if !violations.is_empty() && tool.metadata.output_check == OutputCheck::Enforce {
        return Err(invalid_output(findings, &violations).with_details(violations));
    }
    let output = tool.projected(output)?;
    let size = size_of(&output);
    let ToolOutput { value, text, tokens, metadata, mcp } = output;
    if call.via == Via::Sandbox {
        // A program gets the value; no model reads a text of it.
        let output = match &tool.output {
            Some(schema) => schema.into_value(value),
            None => value,
        };
        let answer = Answer { output, text: String::new(), metadata, mcp, preview: None };
        return Ok(Checked { answer, tokens: None, violations, large: None });
    }
    let text = text.unwrap_or_else(|| render(tool.value_of(&value)));
    let is_large = large_result::is_large(call, tool, &value, (text.as_str(), tokens), max_text_tokens);
    // Beside a preview, images and the like are answered whole.
    let media = || mcp.iter().flat_map(|mcp| mcp.media()).map(json::approximate_size).sum::<usize>();
    check_size(if is_large { media() } else { size }, tool.max_output_bytes())?;
    let large = is_large.then(|| Box::new(LargeResult::new(tool.value_of(&value), &text)));
    Ok(Checked { answer: Answer { output: value, text, metadata, mcp, preview: None }, tokens, violations, large })
}

/// Bounds the text, and turns the hold into a charge.
/// Errors: the errors of [`check`]. They are charged, because the tool ran.
pub(super) fn accept(
    via: Via,
    tool: &Tool,
    checked: Result<Checked, CallError>,
    hold: Hold,
) -> Result<Accepted, CallError> {
    match checked {
        Ok(Checked { mut answer, tokens, violations, large: _ }) => {
            let (text, tokens) = bound_text(answer.text, tokens, hold.max_text_tokens(), || rest(via, tool));
            answer.text = text;
            Ok(Accepted { answer, violations, charge: hold.charge(tokens) })
        }
        Err(error) => {
            let charge = hold.charge(0);
            Err(error.costing(charge.cost_usd))
        }
    }
}

/// Measured before rendering, so that an output that is too large is never copied.
fn size_of(output: &ToolOutput) -> usize {
    let ToolOutput { value, text, mcp, .. } = output;
    let content = mcp.as_ref().map_or(0, |mcp| {
        let content: usize = mcp.content.iter().map(json::approximate_size).sum();
        let other = mcp.other.iter().map(|(name, member)| name.len() + json::approximate_size(member));
        content + other.sum::<usize>()
    });
    json::approximate_size(value).max(text.as_ref().map_or(0, String::len)).max(content)
}

/// The maximum for an output: a larger one where it is stored, projected, or where a program gets it, than where a caller does.
fn max_bytes(call: &CallContext, tool: &Tool) -> usize {
    let is_answered = call.via != Via::Sandbox && call.origin.handles.is_none() && !tool.is_projected();
    if is_answered { tool.max_output_bytes() } else { tool.max_stored_bytes() }
}

fn check_size(size: usize, limit: usize) -> Result<(), CallError> {
    if size > limit { Err(output_too_large(size, limit)) } else { Ok(()) }
}

/// `findings`: of the rules that changed the output. The message has no value, since it is logged.
fn invalid_output(findings: &[TransformFinding], violations: &[Detail]) -> CallError {
    let is_of_output = |finding: &&TransformFinding| finding.part == TransformedPart::Results;
    let of_output: Vec<_> = findings.iter().filter(is_of_output).cloned().collect();
    let mut message = match of_output.is_empty() {
        true => "the tool's output does not match its output schema".to_owned(),
        false => {
            let rules = names_of(&of_output);
            format!(
                "after the rules {rules} of tools.transform.results, the output does not match the tool's output schema"
            )
        }
    };
    if let Some(Detail { path, rule, .. }) = violations.first() {
        let place = if path.is_empty() { "the output itself".to_owned() } else { format!("`{path}`") };
        let _ = write!(message, ": {place} breaks the rule `{rule}`");
    }
    if violations.len() > 1 {
        let _ = write!(message, " (and {} more in `details`)", violations.len() - 1);
    }
    CallError::new(ErrorCode::InvalidOutput, message)
}

fn violations(tool: &Tool, value: &Value, metadata: &Map<String, Value>) -> Vec<Detail> {
    match tool.source_output() {
        Some(schema) if tool.metadata.output_check != OutputCheck::Off => {
            match metadata.get(LARGE_NUMBERS).and_then(Value::as_array) {
                // Large numbers are sent as strings, but the schema describes them as numbers.
                Some(large) => schema.violations(&json::with_numbers(value.clone(), large)),
                None => schema.violations(value),
            }
        }
        _ => Vec::new(),
    }
}

fn output_too_large(size: usize, limit: usize) -> CallError {
    CallError::new(
        ErrorCode::OutputTooLarge,
        format!("the output has {size} bytes, {limit} are allowed (max_output_bytes); request less at a time"),
    )
}

fn render(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Where the caller finds the rest of a text. An agent's model gets nothing but the text.
fn rest(via: Via, tool: &Tool) -> String {
    match via {
        Via::Agent => how_to_read_on(Some(tool.input.document())),
        Via::Rest | Via::Mcp | Via::Sandbox => "`output` has all".to_owned(),
    }
}

/// Truncates the text to at most `max` tokens, and returns it with its tokens. The count is bytes / 4, rounded up, or
/// the count that the tool reports, reduced in proportion when the text is truncated.
fn bound_text(mut text: String, tokens: Option<u64>, max: u64, rest: impl FnOnce() -> String) -> (String, u64) {
    let bytes = text.len() as u64;
    let count = tokens.unwrap_or(bytes.div_ceil(BYTES_PER_TOKEN));
    if count <= max {
        return (text, count);
    }
    let allowed = match tokens {
        Some(reported) => u64::try_from(u128::from(bytes) * u128::from(max) / u128::from(reported)).unwrap_or(bytes),
        None => max.saturating_mul(BYTES_PER_TOKEN),
    };
    truncate(&mut text, usize::try_from(allowed).unwrap_or(usize::MAX), &rest());
    let left = text.len() as u64;
    let count = match tokens {
        Some(reported) if bytes > 0 => u128::from(left) * u128::from(reported) / u128::from(bytes),
        _ => u128::from(left.div_ceil(BYTES_PER_TOKEN)),
    };
    (text, u64::try_from(count).map_or(max, |count| count.min(max)))
}

/// Truncates a text to at most `allowed` bytes, including a note about it if the note fits.
fn truncate(text: &mut String, allowed: usize, rest: &str) {
    let total = text.len();
    let note = |shown: usize| format!("\n[cut: {shown} of {total} bytes shown; {rest}]");
    match allowed.checked_sub(note(total).len()) {
        Some(rest) if rest > 0 => {
            text.truncate(text.floor_char_boundary(rest));
            text.push_str(&note(text.len()));
        }
        _ => text.truncate(text.floor_char_boundary(allowed)),
    }
}

#[cfg(test)]
mod tests;
