//! JMESPath expressions over JSON, within bounds: queries of `json_query`, and projections of results (`project` of `tools.overrides`).
//!
//! Parsing and functions are the jmespath crate's; evaluation of the tree is ours ([`evaluation`]), because
//! forty bytes of JMESPath can require more memory than the machine has and the crate has no limit.

mod evaluation;
mod rendering;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use jmespath::ast::Ast;
use jmespath::{ErrorReason, JmespathError, Rcvar, Variable};
use serde_json::Value;
use thiserror::Error;

use self::evaluation::Evaluation;
use sekisho_core::error::CallError;

pub const MAX_QUERY_BYTES: usize = 4096;

/// Nested brackets and prefixes: the parser recurses on every one.
const MAX_NESTING: usize = 64;

/// Levels of a projection's tree, which is walked on the stack of a thread that serves calls.
const MAX_PROJECTION_DEPTH: usize = 100;

/// Time limit of one projection.
const PROJECTION_TIME: Duration = Duration::from_secs(2);

/// The bounds of one evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum bytes that it may walk over and build.
    pub memory: usize,
    /// Maximum bytes of the selected value.
    pub output: usize,
    /// Maximum levels of the syntax tree.
    pub depth: usize,
}

/// A compiled expression of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    expression: String,
    tree: Ast,
}

/// An expression that is no JMESPath.
#[derive(Debug, Error)]
#[error("`{setting}` ({expression}) cannot be used: {problem}")]
pub struct InvalidProjection {
    pub setting: String,
    pub expression: String,
    pub problem: String,
}

impl Projection {
    /// Errors: [`InvalidProjection`], which names the setting and the place in the expression.
    pub fn compile(setting: &str, expression: &str) -> Result<Self, InvalidProjection> {
        let tree = check(expression).and_then(|()| parse(expression)).map_err(|error| InvalidProjection {
            setting: setting.to_owned(),
            expression: sekisho_core::record::shortened(expression).to_owned(),
            problem: error.message().to_owned(),
        })?;
        Ok(Self { expression: expression.to_owned(), tree })
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The value that it selects. `memory`: maximum bytes that it may walk over and build; `output`: of the value.
    /// Errors: as [`select`].
    pub fn of(&self, value: &Value, memory: usize, output: usize) -> Result<Value, CallError> {
        let end = Instant::now() + PROJECTION_TIME;
        let bounds = Bounds { memory, output, depth: MAX_PROJECTION_DEPTH };
        evaluate(&self.expression, &self.tree, value, bounds, &|| Instant::now() >= end)
    }
}

/// The value that an expression selects. `stop` is asked now and then whether to end.
/// Errors: `tool_error` with the position in the expression; `output_too_large`.
pub fn select(query: &str, data: &Value, bounds: Bounds, stop: &dyn Fn() -> bool) -> Result<Value, CallError> {
    evaluate(query, &parse(query)?, data, bounds, stop)
}

fn evaluate(
    query: &str,
    tree: &Ast,
    data: &Value,
    bounds: Bounds,
    stop: &dyn Fn() -> bool,
) -> Result<Value, CallError> {
    let data = Rcvar::new(Variable::from_serializable(data).map_err(|error| explained(&error))?);
    let selected = Evaluation::new(query, bounds, stop).evaluate(tree, &data)?;
    rendering::render(&selected, bounds.output)
}

/// Errors: `tool_error` when the expression is too long, or nested too deeply to parse safely.
pub fn check(query: &str) -> Result<(), CallError> {
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

fn parse(query: &str) -> Result<Ast, CallError> {
    jmespath::parse(query).map_err(|error| explained(&error))
}

fn explained(error: &JmespathError) -> CallError {
    const MAX_CHARACTERS: usize = 300;
    let reason: String = match &error.reason {
        ErrorReason::Parse(reason) => reason.chars().take(MAX_CHARACTERS).collect(),
        ErrorReason::Runtime(reason) => reason.to_string().chars().take(MAX_CHARACTERS).collect(),
    };
    CallError::tool(format!("the query fails at character {}: {reason}", error.offset))
}
