//! `read_result`: a part of a result that was too large for a model, by its handle. `GET /results/{handle}` is a call of it too,
//! so that each read has an audit line. A program gets all of it at once, by `tools.result`.

mod page;

use std::sync::Arc;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, json};

use super::json_query::{self, MAX_QUERY_BYTES};
use super::read_arguments;
use super::side_thread::{SideThreads, Stop};
use sekisho_calls::results::Results;
use sekisho_calls::tool::{Attempt, Execution, Executor, Metadata, ToolDefinition};
use sekisho_config::AuditArguments;
use sekisho_core::call::{Arguments, READ_RESULT, RESULT_TOOL, ToolOutput, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::MAX_VALUE_BYTES;

use self::page::{Bounds, Part};

/// Time limit of one read, without the time limit of the store.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// The share of a call's memory that goes into the values that a query walks over and builds.
const MEMORY_SHARE: usize = 4;

/// Maximum memory of a compiled regular expression.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// Elements or lines of a page, unless the call says how many.
const DEFAULT_LIMIT: usize = 100;

const MAX_LIMIT: usize = 10_000;

/// Bytes of a page for a caller who gets results whole.
const MAX_PAGE_BYTES: usize = 256 << 10;

/// Bytes of an output: the bytes of a whole result that a program can take. The pipeline estimates sizes, at most as
/// three times their JSON.
const MAX_OUTPUT_BYTES: usize = 3 * MAX_VALUE_BYTES;

/// Tokens of a page's text: as many as [`results.max_inline_bytes`](sekisho_config::ResultsConfig) are by default.
const MAX_TEXT_TOKENS: u64 = 8_192;

/// As the pipeline estimates them.
const BYTES_PER_TOKEN: u64 = 4;

pub(super) fn definition(results: &Arc<Results>) -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: READ_RESULT.into(),
            description: "Reads a part of an earlier result that was too large to be shown, by its result_handle: elements \
                          of a list or lines of a text by offset and limit, what a JMESPath query selects of JSON, or \
                          what matches a regular expression."
                .into(),
            category: "data".into(),
            rate_limit: 600,
            timeout_seconds: 10,
            idempotent: true,
            max_text_tokens: MAX_TEXT_TOKENS,
            max_output_bytes: MAX_OUTPUT_BYTES,
            audit_arguments: AuditArguments::Full,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": {
                "handle": {"type": "string", "minLength": 1, "maxLength": 100, "description": "The result_handle."},
                "query": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_QUERY_BYTES,
                    "description": "JMESPath, for JSON: \"items[?price > `10`].name\", \"rows[:5]\", \"length(rows)\"."
                },
                "grep": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_QUERY_BYTES,
                    "description": "A regular expression: only the lines of a text, or the elements of a list, that match."
                },
                "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Elements or lines to skip."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_LIMIT,
                    "default": DEFAULT_LIMIT,
                    "description": "Most elements or lines; fewer are returned where they are long."
                },
                "whole": {
                    "type": "boolean",
                    "description": "All of it at once, in programs alone: tools.result(handle)."
                }
            },
            "required": ["handle"],
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "content_type": {"type": "string"},
                "value": {"description": "The whole of a value that is no list; with `whole` of any."},
                "items": {"type": "array", "description": "Elements of a list, or of an object `{key, value}`."},
                "text": {"type": "string", "description": "Lines; with `grep` each after its number."},
                "total": {"type": "integer", "description": "Elements or lines of all pages."},
                "next_offset": {"type": "integer", "description": "Of the next page, if there is one."}
            },
            "required": ["content_type"]
        })),
        executor: Arc::new(ReadResult { results: Arc::clone(results), threads: SideThreads::new(TIME_LIMIT) }),
    }
}

#[derive(Debug)]
struct ReadResult {
    results: Arc<Results>,
    threads: SideThreads,
}

#[derive(Deserialize)]
struct Asked {
    handle: String,
    query: Option<String>,
    grep: Option<String>,
    #[serde(default)]
    offset: usize,
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(default)]
    whole: bool,
}

impl Executor for ReadResult {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let Asked { handle, query, grep, offset, limit, whole } = read_arguments(arguments)?;
            if whole && attempt.call.via != Via::Sandbox {
                return Err(only_for_programs());
            }
            if let Some(query) = &query {
                json_query::check(query)?;
            }
            let part = Part { query, grep: grep.as_deref().map(compiled).transpose()?, offset, limit };
            let result = self.results.read(attempt.call, &handle).await?;
            let metadata = Map::from_iter([(RESULT_TOOL.to_owned(), result.tool.clone().into())]);
            let max_bytes = match &attempt.call.origin.handles {
                Some(handles) => handles.max_inline_bytes.min(max_text_bytes()),
                None => MAX_PAGE_BYTES,
            };
            let bounds = Bounds { page: max_bytes, memory: attempt.memory_limit_bytes / MEMORY_SHARE };
            let read = move |stop: &Stop| match whole {
                true => page::whole(result),
                false => page::read(&result, &part, bounds, stop),
            };
            let value = self.threads.run(attempt.deadline, read).await?;
            Ok(ToolOutput { metadata, ..ToolOutput::from(value) })
        })
    }
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

fn max_text_bytes() -> usize {
    usize::try_from(MAX_TEXT_TOKENS * BYTES_PER_TOKEN).unwrap_or(usize::MAX)
}

fn only_for_programs() -> CallError {
    let message = "`whole` is for programs, whose results no model reads: use `offset` and `limit`, or tools.result(handle) in a \
                   program of `python_executor`";
    CallError::new(ErrorCode::InvalidArguments, message)
}

fn compiled(pattern: &str) -> Result<Regex, CallError> {
    RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
        CallError::new(ErrorCode::InvalidArguments, format!("`grep` is no regular expression: {error}"))
    })
}

#[cfg(test)]
mod tests;
