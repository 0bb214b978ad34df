//! `calculator`: exact arithmetic, units and functions.
//!
//! Plain arithmetic is computed inline, in well under a microsecond ([`arithmetic`]). Everything else is left to
//! fend, which has no time limit of its own: it runs on another thread and is interrupted ([`fend`]).

mod arithmetic;
mod decimal;
mod fend;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use self::decimal::Decimal;
use super::side_thread::SideThreads;
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_core::error::{CallError, ErrorCode};

/// Longest expression. Expressions of people and models are far shorter.
const MAX_EXPRESSION_BYTES: usize = 1024;

/// Time limit of fend for one expression.
const TIME_LIMIT: Duration = Duration::from_millis(50);

pub(super) fn definition() -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "calculator".into(),
            description: DESCRIPTION.into(),
            category: "math".into(),
            rate_limit: 2_000, // E48
            timeout_seconds: 5,
            idempotent: true,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_EXPRESSION_BYTES,
                    "description": "What to compute, e.g. \"(2+3)*7\", \"2^64\", \"sqrt(2) to 20 dp\", \
                                    \"5 km/h to m/s\", \"0xff to decimal\", \"20!\"."
                }
            },
            "required": ["expression"],
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({
            "type": ["number", "string"],
            "description": "A number where JSON holds the exact result: an integer up to 2^53, or a decimal of at most \
                            15 digits. Otherwise a string: larger integers, units (\"100 km\"), and results that \
                            are not exact (\"approx. 0.3333333333\")."
        })),
        executor: Arc::new(Calculator { threads: SideThreads::new(TIME_LIMIT) }),
    }
}

const DESCRIPTION: &str = "Computes an arithmetic expression exactly: + - * / ^ ! mod, parentheses, fractions, functions \
                           such as sqrt, sin, ln, log10, abs, floor, and units with conversion (\"3 feet to cm\"). \
                           0.1+0.2 is 0.3. Nothing is kept from one call to the next.";

#[derive(Debug)]
struct Calculator {
    threads: SideThreads,
}

impl Executor for Calculator {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let expression = expression_of(arguments)?;
            if let Some(result) = arithmetic::evaluate(expression) {
                return Ok(output(result.to_string()));
            }
            let expression = fend::Expression::check(expression)?;
            self.threads.run(attempt.deadline, move |stop| expression.evaluate(stop)).await.map(output)
        })
    }
}

fn expression_of(arguments: &Arguments) -> Result<&str, CallError> {
    let invalid = |message: &str| CallError::new(ErrorCode::InvalidArguments, message);
    let Some(expression) = arguments.get("expression").and_then(Value::as_str) else {
        return Err(invalid("`expression` is missing, or is not a string"));
    };
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(invalid("`expression` is longer than 1024 bytes; compute it in parts"));
    }
    Ok(expression)
}

fn output(text: String) -> ToolOutput {
    let number = Decimal::parse(&text).and_then(Decimal::to_json);
    let value = number.map_or_else(|| Value::String(text.clone()), Value::Number);
    ToolOutput { value, text: Some(text), ..ToolOutput::default() }
}

#[cfg(test)]
mod tests;
