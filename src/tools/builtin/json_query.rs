//! `json_query`: a JMESPath expression over JSON (<https://jmespath.org/specification.html>).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::read_arguments;
use super::side_thread::{SideThreads, Stop};
use sekisho_calls::projection::{self, Bounds};
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_core::call::Arguments;
use sekisho_core::error::CallError;

pub(super) use sekisho_calls::projection::{MAX_QUERY_BYTES, check};

/// Time limit of one query, including copying the data in and the result out.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// The share of a call's memory that goes into the values that a query walks over and builds, as counted by
/// [`projection`]; the rest is for uncounted memory (map nodes, allocator).
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
/// Errors: as [`projection::select`].
pub(super) fn select(query: &str, data: &Value, bounds: (usize, usize), stop: &Stop) -> Result<Value, CallError> {
    let (memory, output) = bounds;
    // The thread has a stack for the deepest tree.
    let bounds = Bounds { memory, output, depth: usize::MAX };
    projection::select(query, data, bounds, &|| stop.requested())
}

#[cfg(test)]
mod tests;
