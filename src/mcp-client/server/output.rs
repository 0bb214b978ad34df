//! Converts a server's `CallToolResult` to a tool's output, and errors of the connection to call errors.

use serde_json::{Map, Value, json};

use super::page_elicitation;
use crate::names::Names;
use crate::text::bounded;
use crate::transport::large_numbers;
use crate::transport::message::Failure;
use sekisho_core::call::{McpResult, ToolOutput};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::json::LARGE_NUMBERS;

/// JSON-RPC's codes for a fault of the server itself.
const INTERNAL_ERROR: i32 = -32603;
const METHOD_NOT_FOUND: i32 = -32601;

/// The members that the protocol gives a meaning, here or in its other results: a client that found such a member would take a
/// finished call for a task, or answer questions that nobody has checked.
const MEMBERS: [&str; 11] = [
    "_meta",
    "cacheScope",
    "content",
    "inputRequests",
    "isError",
    "requestState",
    "resultType",
    "structuredContent",
    "task",
    "taskId",
    "ttlMs",
];

/// The output of a tool.
/// Errors: `tool_error` if the tool reports a failure (`isError`), `upstream_error` if the answer is not a tool result.
pub(crate) fn output(mut result: Value, names: &Names) -> Result<ToolOutput, CallError> {
    names.adopt_app(&mut result);
    let structured = result.get_mut("structuredContent").map(Value::take);
    let content = match result.get_mut("content").map(Value::take) {
        Some(Value::Array(content)) => content,
        None if structured.is_some() => Vec::new(),
        _ => return Err(no_result()),
    };
    let mut meta = match result.get_mut("_meta").map(Value::take) {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    let large = large_numbers::take_paths(&mut meta);
    let failed = result.get("isError").and_then(Value::as_bool) == Some(true);
    let mut other = match result {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    other.retain(|name, _| !MEMBERS.contains(&name.as_str()));
    let mut reported = McpResult { content, structured: structured.is_some(), meta, other };
    reported.content.iter_mut().for_each(|block| names.adopt(block));
    let text = reported.text();
    let value = structured.unwrap_or_else(|| Value::String(text.clone().unwrap_or_default()));
    if failed {
        let message = text.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "the tool failed".to_owned());
        return Err(CallError::tool(message).with_output(value).as_told_by_mcp(reported));
    }
    let metadata = large.into_iter().map(|paths| (LARGE_NUMBERS.to_owned(), paths)).collect();
    Ok(ToolOutput { value, text, metadata, mcp: Some(Box::new(reported)), ..ToolOutput::default() })
}

fn no_result() -> CallError {
    CallError::new(ErrorCode::UpstreamError, "the MCP server's answer is not a tool result").blaming(Blame::Upstream)
}

/// Why a call of a server's tool has no result.
pub(crate) fn failed(server: &str, failure: Failure) -> CallError {
    match failure {
        Failure::Call(error) => error,
        Failure::Refused(error) => {
            let mut message = format!("the MCP server {server} refused the call: {}", bounded(&error.message));
            if let Some(addresses) = page_elicitation::addresses(&error) {
                message.push_str(&format!("; its user must open this page first, and then call again: {addresses}"));
            }
            let output = json!({"code": error.code.0, "message": bounded(&error.message), "data": error.data});
            let (code, blame) = match error.code.0 {
                INTERNAL_ERROR => (ErrorCode::UpstreamError, Blame::Upstream),
                METHOD_NOT_FOUND => (ErrorCode::UpstreamError, Blame::Call),
                _ => (ErrorCode::ToolError, Blame::Call),
            };
            CallError::new(code, message).blaming(blame).with_output(output)
        }
        Failure::Invalid => no_result(),
        Failure::Lost => lost(server),
    }
}

/// The connection was lost during the call.
pub(crate) fn lost(server: &str) -> CallError {
    let problem = format!("the connection to the MCP server {server} was lost before it answered");
    CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network)
}

/// The error of a request for a resource, prompt or completion. The server's JSON-RPC error is the error's output. The
/// circuit breaker never counts it: many servers return "internal error" for a missing resource, so that one caller
/// could disable the server's tools for all callers.
pub(crate) fn refused(server: &str, failure: Failure) -> CallError {
    let is_its_own = matches!(failure, Failure::Refused(_));
    let error = failed(server, failure);
    if is_its_own { error.blaming(Blame::Call) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(result: Value) -> Result<ToolOutput, CallError> {
        output(result, &Names::new(Some("s")))
    }

    #[test]
    fn content_is_told_as_text_and_kept_as_it_came() {
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let result = read(json!({"content": [{"type": "text", "text": "a map"}, image], "_meta": {"k": 1}})).unwrap();
        assert_eq!(result.text.as_deref(), Some("a map\n[image image/png]"));
        let reported = result.mcp.unwrap();
        assert_eq!((&reported.content[1], reported.structured, &reported.meta["k"]), (&image, false, &json!(1)));
        let result = read(json!({"content": [], "structuredContent": {"n": 1}})).unwrap();
        assert_eq!((result.value, result.text), (json!({"n": 1}), None));
        let result = read(json!({"content": [], "isError": false, "resultType": "complete", "x-score": 0.5})).unwrap();
        assert_eq!(Value::from(result.mcp.unwrap().other), json!({"x-score": 0.5}));
        let foreign = json!({"content": [], "task": {"taskId": "t"}, "taskId": "t", "status": "working", "requestState": "s",
            "inputRequests": {"q": {"method": "roots/list"}}, "ttlMs": 1, "cacheScope": "public"});
        assert_eq!(Value::from(read(foreign).unwrap().mcp.unwrap().other), json!({"status": "working"}));
        // Explicitly nothing is something.
        assert_eq!(read(json!({"structuredContent": null})).unwrap().value, Value::Null);
    }

    #[test]
    fn what_the_tool_calls_an_error_is_one() {
        let error = read(json!({"content": [{"type": "text", "text": "no such city"}], "isError": true})).unwrap_err();
        assert_eq!((error.code(), error.message()), (ErrorCode::ToolError, "no such city"));
        assert_eq!(error.mcp_result().unwrap().content.len(), 1);
    }

    #[test]
    fn what_is_no_result_is_the_servers_fault() {
        for result in [json!({}), json!({"content": "text"}), json!([]), json!(null), json!({"tools": []})] {
            let error = read(result).unwrap_err();
            assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Upstream));
        }
    }
}
