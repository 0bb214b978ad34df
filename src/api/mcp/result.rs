//! Results in the form of the client's revision. A reply becomes a `CallToolResult`: the tool's text for the model, its
//! structured output for a program, and for a failure or refusal the reason and how to fix it.

use std::iter;

use rmcp::model::{
    CallToolResult, ContentBlock, CustomResult, ErrorCode as McpErrorCode, ErrorData, MetaObject, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::headers::Era;
use super::methods::error_data;
use super::running_request::Outcome;
use sekisho_calls::pipeline::{Answer, ErrorInfo, Reply};
use sekisho_core::call::McpResult;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::peer::{ClientPeer, URL_ELICITATION_REQUIRED};

/// The headers of the response that the result comes from, in its `_meta`; elsewhere they are `metadata.headers`.
const HEADERS: &str = "sekisho/headers";

/// The message that answers a request.
pub(super) fn message(era: Era, id: RequestId, outcome: Outcome) -> ServerJsonRpcMessage {
    match outcome {
        Ok(mut result) => {
            match era {
                Era::Stateless => result.fill_missing_cache_hints(),
                Era::Sessions => remove_later_members(&mut result),
            }
            ServerJsonRpcMessage::response(result, id)
        }
        Err(mut error) => {
            // 2026-07-28 replaced this code.
            if era == Era::Stateless && error.code == McpErrorCode::RESOURCE_NOT_FOUND {
                error.code = McpErrorCode::INVALID_PARAMS;
            }
            ServerJsonRpcMessage::error(error, Some(id))
        }
    }
}

/// Removes the members that only 2026-07-28 has.
fn remove_later_members(result: &mut ServerResult) {
    result.strip_result_type_for_legacy_peer();
    let (ttl_ms, cache_scope) = match result {
        ServerResult::ListToolsResult(list) => (&mut list.ttl_ms, &mut list.cache_scope),
        ServerResult::ReadResourceResult(read) => (&mut read.ttl_ms, &mut read.cache_scope),
        ServerResult::CustomResult(CustomResult(Value::Object(written))) => {
            written.retain(|name, value| match name.as_str() {
                "ttlMs" | "cacheScope" => false,
                "resultType" => *value != "complete",
                _ => true,
            });
            return;
        }
        _ => return,
    };
    (*ttl_ms, *cache_scope) = (None, None);
}

/// Errors: invalid params if the tool does not exist: the only failure that belongs to the request and not to the call.
pub(super) fn of_reply(reply: &Reply, has_output_schema: bool) -> Result<CallToolResult, ErrorData> {
    match &reply.outcome {
        Ok(answer) => Ok(of_answer(answer, has_output_schema)),
        Err(error) if error.code() == ErrorCode::UnknownTool => {
            Err(unknown_tool(error.message(), error.alternatives()))
        }
        Err(error) => Ok(of_error(error)),
    }
}

/// With the members of an MCP server's result, and of its content blocks, that the protocol does not have.
pub(super) fn with_other_members(era: Era, result: CallToolResult, reply: &Reply) -> ServerResult {
    let mcp_result = match &reply.outcome {
        Ok(answer) => answer.mcp.as_deref().filter(|_| answer.preview.is_none()),
        Err(error) => error.mcp_result(),
    };
    match mcp_result {
        Some(mcp_result) if !mcp_result.other.is_empty() || mcp_result.content.iter().any(has_unknown) => {
            with_members(era, result, mcp_result)
        }
        _ => ServerResult::CallToolResult(result),
    }
}

/// Whether a content block has a member that the protocol does not have.
fn has_unknown(block: &Value) -> bool {
    let own: &[&'static str] = match block["type"].as_str() {
        Some("text") => &["text"],
        Some("image" | "audio") => &["data", "mimeType"],
        Some("resource") => &["resource"],
        Some("resource_link") => &["uri", "name", "title", "description", "mimeType", "size", "icons"],
        _ => return false,
    };
    let is_known = |name: &str| own.contains(&name) || ["type", "annotations", "_meta"].contains(&name);
    block.as_object().is_some_and(|block| block.keys().any(|name| !is_known(name)))
}

/// A result with the members of the server's own one that the protocol does not have.
pub(super) fn with_unknown(mut result: ServerResult, original: &Value) -> ServerResult {
    // A custom result would get none later.
    result.fill_missing_cache_hints();
    let Ok(mut written) = serde_json::to_value(&result) else { return result };
    if add_unknown(&mut written, original) { ServerResult::CustomResult(CustomResult(written)) } else { result }
}

/// Adds the members that the original has beside the written ones, also within them. Returns whether there are any. A
/// member that is null is as one that is left out, which clients require.
pub(super) fn add_unknown(written: &mut Value, original: &Value) -> bool {
    let mut is_changed = false;
    match (written, original) {
        (Value::Object(written), Value::Object(original)) => {
            for (name, value) in original.iter().filter(|(_, value)| !value.is_null()) {
                if let Some(known) = written.get_mut(name) {
                    is_changed |= add_unknown(known, value);
                } else {
                    written.insert(name.clone(), value.clone());
                    is_changed = true;
                }
            }
        }
        (Value::Array(written), Value::Array(original)) if written.len() == original.len() => {
            for (written, original) in written.iter_mut().zip(original) {
                is_changed |= add_unknown(written, original);
            }
        }
        _ => {}
    }
    is_changed
}

fn with_members(era: Era, result: CallToolResult, mcp_result: &McpResult) -> ServerResult {
    let mut result = ServerResult::CallToolResult(result);
    if era == Era::Sessions {
        remove_later_members(&mut result);
    }
    let Ok(Value::Object(mut written)) = serde_json::to_value(&result) else { return result };
    let blocks = written.get_mut("content").and_then(Value::as_array_mut);
    // A text in place of the blocks is none of them.
    if let Some(blocks) = blocks.filter(|blocks| blocks.len() == mcp_result.content.len()) {
        for (block, original) in blocks.iter_mut().zip(&mcp_result.content) {
            if block["type"] == original["type"] {
                add_unknown(block, original);
            }
        }
    }
    for (name, value) in &mcp_result.other {
        written.entry(name.as_str()).or_insert_with(|| value.clone());
    }
    ServerResult::CustomResult(CustomResult(Value::Object(written)))
}

/// 2026-07-28 has a separate error for a call that failed because its client lacks a capability: an upstream of that
/// revision sends it, and we send it if an older upstream had asked.
pub(super) fn missing_capability(reply: &Reply, client: &Client) -> Option<ErrorData> {
    let error = reply.outcome.as_ref().err()?;
    let refused = error.output().filter(|output| output["code"] == McpErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY.0);
    let reported = refused.and_then(|output| output.pointer("/data/requiredCapabilities")).cloned();
    let required = reported.or_else(|| client.missing())?;
    Some(ErrorData::missing_required_client_capability(serde_json::from_value(required).ok()?))
}

/// The refusal of a server whose user must open a page first, for a client with sessions that opens pages (2025-11-25).
pub(super) fn needed_pages(reply: &Reply, client: &Client) -> Option<ErrorData> {
    let opens_pages = client.capabilities().pointer("/elicitation/url").is_some_and(Value::is_object);
    let error = reply.outcome.as_ref().err().filter(|_| opens_pages)?;
    error.output().filter(|output| output["code"] == URL_ELICITATION_REQUIRED)?;
    Some(error_data(error))
}

pub(super) fn unknown_tool(message: &str, alternatives: &[String]) -> ErrorData {
    let data = json!({"error_info": {"code": ErrorCode::UnknownTool.as_str(), "alternatives": alternatives}});
    ErrorData::invalid_params(message.to_owned(), Some(data))
}

/// A new session with the server has no such tool, and only its tools are offered.
pub(super) fn added_in_session(tool: &str, server: &str) -> ErrorData {
    let message = format!(
        "the MCP server {server} added the tool {tool:?} in this session, and only the tools of a new session are offered here"
    );
    unknown_tool(&message, &[])
}

fn of_answer(answer: &Answer, has_output_schema: bool) -> CallToolResult {
    let text = || vec![ContentBlock::text(&answer.text)];
    if let Some(preview) = answer.preview.as_deref() {
        return of_preview(answer, preview);
    }
    let Some(mcp_result) = answer.mcp.as_deref() else {
        let mut result = CallToolResult::success(text());
        if has_output_schema || answer.output.is_object() {
            result.structured_content = Some(answer.output.clone());
        }
        if let Some(headers) = answer.metadata.get("headers") {
            result.meta = Some(MetaObject(Map::from_iter([(HEADERS.to_owned(), headers.clone())])));
        }
        return result;
    };
    let content = blocks(mcp_result).filter(|blocks| !is_cut(blocks, &answer.text)).unwrap_or_else(text);
    let mut result = CallToolResult::success(content);
    finish(&mut result, mcp_result, Some(&answer.output));
    result
}

/// A preview of a large result, and its images.
fn of_preview(answer: &Answer, preview: &Value) -> CallToolResult {
    let media = answer.mcp.iter().flat_map(|result| result.media());
    let media = media.filter_map(|block| ContentBlock::deserialize(block).ok());
    let mut result = CallToolResult::success(iter::once(ContentBlock::text(&answer.text)).chain(media).collect());
    result.structured_content = Some(preview.clone());
    if let Some(mcp_result) = answer.mcp.as_deref().filter(|result| !result.meta.is_empty()) {
        result.meta = Some(MetaObject(mcp_result.meta.clone()));
    }
    result
}

/// A failure or refusal, for the model to act on.
pub(super) fn of_error(error: &CallError) -> CallToolResult {
    let mcp_result = error.mcp_result();
    let content = mcp_result.and_then(blocks).unwrap_or_else(|| vec![ContentBlock::text(explanation(error))]);
    let mut result = CallToolResult::error(content);
    match mcp_result {
        Some(mcp_result) => finish(&mut result, mcp_result, error.output()),
        None => {
            let mut structured = json!({"error_info": ErrorInfo::from(error)});
            if let Some(output) = error.output() {
                structured["output"] = output.clone();
            }
            result.structured_content = Some(structured);
        }
    }
    result
}

fn finish(result: &mut CallToolResult, mcp_result: &McpResult, value: Option<&Value>) {
    if mcp_result.structured {
        result.structured_content = value.cloned();
    }
    if !mcp_result.meta.is_empty() {
        result.meta = Some(MetaObject(mcp_result.meta.clone()));
    }
}

/// `None` if a block has a type that the protocol lacks.
fn blocks(mcp_result: &McpResult) -> Option<Vec<ContentBlock>> {
    let blocks: Result<_, _> = mcp_result.content.iter().map(ContentBlock::deserialize).collect();
    blocks.inspect_err(|error| tracing::debug!(%error, "a server's content block has an unknown type")).ok()
}

/// Whether the text for the model was shortened to its token limit; then the shortened text is sent.
fn is_cut(blocks: &[ContentBlock], text: &str) -> bool {
    let lengths = blocks.iter().map(|block| match block {
        ContentBlock::Text(block) => Some(block.text.len()),
        _ => None,
    });
    lengths.sum::<Option<usize>>().is_some_and(|length| length > text.len())
}

/// The text for a model: the message, the locations, and the alternatives.
fn explanation(error: &CallError) -> String {
    let mut text = format!("{}: {}", error.code(), error.message());
    for detail in error.details() {
        text.push_str(&format!("\n- {}: {}", detail.path, detail.message));
    }
    if let Some(wait) = error.wait() {
        text.push_str(&format!("\nTry again in {} s.", wait.as_secs_f64().ceil().max(1.0)));
    }
    if !error.alternatives().is_empty() {
        text.push_str(&format!("\nAlternatives: {}", error.alternatives().join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_response_are_in_the_metadata_of_the_result() {
        let metadata = json!({"status": 201, "headers": {"location": "/pets/7"}});
        let made = Answer { metadata: metadata.as_object().cloned().unwrap_or_default(), ..Answer::default() };
        let written = |answer: &Answer| serde_json::to_value(of_answer(answer, false)).expect("JSON")["_meta"].clone();
        assert_eq!(written(&made), json!({"sekisho/headers": {"location": "/pets/7"}}));
        assert_eq!(written(&Answer::default()), Value::Null);
    }

    #[test]
    fn a_client_with_sessions_gets_no_members_of_a_later_revision() {
        let later = json!({"tools": [], "ttlMs": 7, "cacheScope": "private", "resultType": "complete"});
        let list: rmcp::model::ListToolsResult = serde_json::from_value(later.clone()).expect("a list");
        for result in [ServerResult::ListToolsResult(list), ServerResult::CustomResult(CustomResult(later))] {
            let written = |era| {
                let message = message(era, RequestId::Number(1), Ok(result.clone()));
                serde_json::to_value(message).expect("JSON")["result"].clone()
            };
            assert_eq!(written(Era::Sessions), json!({"tools": []}));
            assert_eq!(written(Era::Stateless)["ttlMs"], 7);
        }
    }

    #[test]
    fn members_that_the_protocol_does_not_have_are_passed_on() {
        let other = Map::from_iter([("x-score".to_owned(), json!(0.5)), ("content".to_owned(), json!("other"))]);
        let content = vec![json!({"type": "text", "text": "a", "name": "STDOUT", "annotations": null})];
        assert!(has_unknown(&content[0]) && !has_unknown(&json!({"type": "text", "text": "a", "_meta": {}})));
        let mcp_result = McpResult { content, other, ..McpResult::default() };
        let written = |era| {
            let result = CallToolResult::success(vec![ContentBlock::text("a")]);
            serde_json::to_value(with_members(era, result, &mcp_result)).expect("JSON")
        };
        for era in [Era::Sessions, Era::Stateless] {
            let result = written(era);
            let blocks = json!([{"type": "text", "text": "a", "name": "STDOUT"}]);
            assert_eq!((&result["x-score"], &result["content"]), (&json!(0.5), &blocks), "{result}");
        }
        assert_eq!(written(Era::Sessions)["resultType"], Value::Null);
    }

    #[test]
    fn unknown_members_within_a_result_are_passed_on() {
        let block = json!({"type": "text", "text": "hi", "name": "STDOUT", "annotations": null});
        let original = json!({"messages": [{"role": "user", "content": block, "x-turn": {"id": null}}]});
        let read =
            |value: &Value| ServerResult::GetPromptResult(serde_json::from_value(value.clone()).expect("a result"));
        let written = serde_json::to_value(with_unknown(read(&original), &original)).expect("JSON");
        let content = json!({"type": "text", "text": "hi", "name": "STDOUT"});
        assert_eq!(written["messages"], json!([{"role": "user", "content": content, "x-turn": {"id": null}}]));
        let known = json!({"messages": []});
        assert!(matches!(with_unknown(read(&known), &known), ServerResult::GetPromptResult(_)));
    }

    #[test]
    fn a_preview_is_answered_with_the_images_of_the_result() {
        let content = vec![
            json!({"type": "text", "text": "long"}),
            json!({"type": "image", "mimeType": "image/png", "data": "AAAA"}),
            json!({"type": "resource", "resource": {"uri": "a:b", "text": "long"}}),
        ];
        let preview = Some(Box::new(json!({"result_handle": "00"})));
        let mcp = Some(Box::new(McpResult { content, structured: true, ..McpResult::default() }));
        let answer = Answer { output: json!({"rows": []}), text: "first".into(), mcp, preview, ..Answer::default() };
        let written = serde_json::to_value(of_answer(&answer, true)).expect("JSON");
        assert_eq!(written["structuredContent"], json!({"result_handle": "00"}));
        let kinds: Vec<_> = written["content"].as_array().expect("blocks").iter().map(|block| &block["type"]).collect();
        assert_eq!((kinds, &written["content"][0]["text"]), (vec![&json!("text"), &json!("image")], &json!("first")));
    }
}
