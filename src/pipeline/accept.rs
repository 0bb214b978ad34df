//! The last stage: an output is checked, its text is bounded, and the hold becomes a charge.

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::receipt::Answer;
use crate::budget::{Charge, Hold};
use crate::config::OutputCheck;
use crate::core::call::ToolOutput;
use crate::core::error::{CallError, Detail, ErrorCode};
use crate::core::json::{self, LARGE_NUMBERS};
use crate::tool::Tool;

/// Bytes of text that count as one token, unless the tool reports its own count.
const BYTES_PER_TOKEN: u64 = 4;

/// An output that passed every check, with what it cost.
#[derive(Debug)]
pub struct Accepted {
    pub answer: Answer,
    /// Where the output does not fit the tool's output schema; empty unless that is only reported.
    pub violations: Vec<Detail>,
    pub charge: Charge,
}

impl Accepted {
    /// For a dry run: every stage but execution passed, and nothing was spent.
    pub fn not_run(hold: &Hold) -> Self {
        let left = hold.before();
        let charge = Charge { cost_usd: Decimal::ZERO, tokens: 0, before: left, after: left };
        Self { answer: Answer::default(), violations: Vec::new(), charge }
    }
}

/// Checks the output, renders and bounds its text, and turns the hold into a charge.
///
/// # Errors
/// `output_too_large`, and `invalid_output` where the tool's output schema is enforced. Both are charged: the tool did
/// its work.
pub(super) fn accept(tool: &Tool, output: ToolOutput, hold: Hold) -> Result<Accepted, CallError> {
    match check(tool, output, hold.max_text_tokens()) {
        Ok((answer, tokens, violations)) => Ok(Accepted { answer, violations, charge: hold.charge(tokens) }),
        Err(error) => {
            let charge = hold.charge(0);
            Err(error.costing(charge.cost_usd))
        }
    }
}

/// The answer, the tokens of its text, and where it does not fit the output schema.
fn check(tool: &Tool, output: ToolOutput, max_text_tokens: u64) -> Result<(Answer, u64, Vec<Detail>), CallError> {
    let ToolOutput { value, text, tokens, metadata, mcp } = output;
    // Counted before anything is rendered: what is too large is not copied first.
    let content = mcp.as_ref().map_or(0, |mcp| mcp.content.iter().map(json::approximate_size).sum());
    let size = json::approximate_size(&value).max(text.as_ref().map_or(0, String::len)).max(content);
    if size > tool.max_output_bytes() {
        return Err(output_too_large(size, tool.max_output_bytes()));
    }
    let violations = violations(tool, &value, &metadata);
    if !violations.is_empty() && tool.metadata.output_check == OutputCheck::Enforce {
        return Err(CallError::new(ErrorCode::InvalidOutput, "the tool's output does not fit its own output schema")
            .with_details(violations));
    }
    let (text, tokens) = bound_text(text.unwrap_or_else(|| render(&value)), tokens, max_text_tokens);
    Ok((Answer { output: value, text, metadata, mcp }, tokens, violations))
}

fn violations(tool: &Tool, value: &Value, metadata: &Map<String, Value>) -> Vec<Detail> {
    match &tool.output {
        Some(schema) if tool.metadata.output_check != OutputCheck::Off => {
            match metadata.get(LARGE_NUMBERS).and_then(Value::as_array) {
                // The schema speaks of the numbers that the strings stand for.
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
        format!("the output has {size} bytes, {limit} are allowed; ask for less at a time"),
    )
}

fn render(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
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
