//! `json_query`: a JMESPath expression over JSON (<https://jmespath.org/specification.html>).
//!
//! Parsing and functions are the jmespath crate's; evaluation of the tree is ours ([`evaluation`]), because
//! forty bytes of JMESPath can require more memory than the machine has and the crate has no limit.

mod evaluation;
mod rendering;

use std::sync::Arc;
use std::time::Duration;

use jmespath::{ErrorReason, JmespathError, Rcvar, Variable};
use serde::Deserialize;
use serde_json::{Value, json};

use self::evaluation::Evaluation;
use super::read_arguments;
use super::side_thread::{SideThreads, Stop};
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_core::call::Arguments;
use sekisho_core::error::CallError;

pub(super) const MAX_QUERY_BYTES: usize = 4096;

/// Nested brackets and prefixes: the parser recurses on every one.
const MAX_NESTING: usize = 64;

/// Time limit of one query, including copying the data in and the result out.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// The share of a call's memory that goes into the values that a query walks over and builds, as counted by
/// [`Evaluation`]; the rest is for uncounted memory (map nodes, allocator).
const MEMORY_SHARE: usize = 4;

pub(super) fn definition() -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "json_query".into(),
            description: "Picks, filters and reshapes JSON with a JMESPath expression, without reading it all. \
                          Examples: \"people[?age > `30`].name\", \"sort_by(items, &price)[0]\", \
                          \"{count: length(@), first: [0]}\"."
                .into(),
            category: "data".into(),
            rate_limit: 600,
            timeout_seconds: 10,
            idempotent: true,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": {
                "data": {"description": "The JSON to query: any value, not JSON text in a string."},
                "query": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_QUERY_BYTES,
                    "description": "JMESPath. Write number literals in backticks and string literals in single quotes."
                }
            },
            "required": ["data", "query"],
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({"description": "What the expression selects; null when it selects nothing."})),
        executor: Arc::new(JsonQuery { threads: SideThreads::new(TIME_LIMIT) }),
    }
}

#[derive(Debug)]
struct JsonQuery {
    threads: SideThreads,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    query: &'a str,
}

impl Executor for JsonQuery {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let query = read_arguments::<Asked<'_>>(arguments)?.query;
            check(query)?;
            let query = query.to_owned();
            let data = arguments.get("data").cloned().unwrap_or_default();
            let bounds = (attempt.memory_limit_bytes / MEMORY_SHARE, attempt.max_output_bytes);
            self.threads.run(attempt.deadline, move |stop| select(&query, &data, bounds, stop)).await.map(Into::into)
        })
    }
}

/// The value that the expression selects. `bounds`: maximum bytes that it may walk over and build, and maximum bytes of
/// the result.
///
/// # Errors
/// `tool_error` with the position in the expression; `output_too_large`.
pub(super) fn select(query: &str, data: &Value, bounds: (usize, usize), stop: &Stop) -> Result<Value, CallError> {
    let (memory, output) = bounds;
    let tree = jmespath::parse(query).map_err(|error| explained(&error))?;
    let data = Rcvar::new(Variable::from_serializable(data).map_err(|error| explained(&error))?);
    let selected = Evaluation::new(query, memory, stop).evaluate(&tree, &data)?;
    rendering::render(&selected, output)
}

/// # Errors
/// `tool_error` when the expression is too long, or nested too deeply to parse safely.
pub(super) fn check(query: &str) -> Result<(), CallError> {
    if query.len() > MAX_QUERY_BYTES {
        return Err(CallError::tool(format!("the query is longer than {MAX_QUERY_BYTES} bytes")));
    }
    let (mut brackets, mut prefixes) = (0_usize, 0_usize);
    for character in query.chars().filter(|character| !character.is_whitespace()) {
        prefixes = if character == '!' { prefixes + 1 } else { 0 };
        match character {
            '(' | '[' | '{' => brackets += 1,
            ')' | ']' | '}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        if brackets.max(prefixes) > MAX_NESTING {
            return Err(CallError::tool(format!("the query is nested deeper than {MAX_NESTING}")));
        }
    }
    Ok(())
}

fn explained(error: &JmespathError) -> CallError {
    const MAX_CHARACTERS: usize = 300;
    let reason: String = match &error.reason {
        ErrorReason::Parse(reason) => reason.chars().take(MAX_CHARACTERS).collect(),
        ErrorReason::Runtime(reason) => reason.to_string().chars().take(MAX_CHARACTERS).collect(),
    };
    CallError::tool(format!("the query fails at character {}: {reason}", error.offset))
}

#[cfg(test)]
mod tests;
