//! A reply as a `CallToolResult`: what the tool said for the model, what it said for a program, and when it
//! failed or was refused, why and what to do.

use rmcp::model::{CallToolResult, ContentBlock, ErrorCode as McpErrorCode, ErrorData, MetaObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use crate::core::call::McpResult;
use crate::core::error::{CallError, ErrorCode};
use crate::pipeline::{Answer, ErrorInfo, Reply};

/// # Errors
/// Invalid params where there is no such tool: the one failure that is the request's and not the call's.
pub(super) fn of_reply(reply: &Reply, has_output_schema: bool) -> Result<CallToolResult, ErrorData> {
    match &reply.outcome {
        Ok(answer) => Ok(of_answer(answer, has_output_schema)),
        Err(error) if error.code() == ErrorCode::UnknownTool => {
            Err(unknown_tool(error.message(), error.alternatives()))
        }
        Err(error) => Ok(of_error(error)),
    }
}

/// A call that failed because its client does not answer some kind of question is told apart in 2026-07-28: so
/// says an upstream of that revision, and so do we where an older one had asked.
pub(super) fn missing_capability(reply: &Reply, client: &Client) -> Option<ErrorData> {
    let error = reply.outcome.as_ref().err()?;
    let refused = error.output().filter(|output| output["code"] == McpErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY.0);
    let told = refused.and_then(|output| output.pointer("/data/requiredCapabilities")).cloned();
    let required = told.or_else(|| client.missing())?;
    Some(ErrorData::missing_required_client_capability(serde_json::from_value(required).ok()?))
}

pub(super) fn unknown_tool(message: &str, alternatives: &[String]) -> ErrorData {
    let data = json!({"error_info": {"code": ErrorCode::UnknownTool.as_str(), "alternatives": alternatives}});
    ErrorData::invalid_params(message.to_owned(), Some(data))
}

fn of_answer(answer: &Answer, has_output_schema: bool) -> CallToolResult {
    let text = || vec![ContentBlock::text(&answer.text)];
    let Some(said) = answer.mcp.as_deref() else {
        let mut result = CallToolResult::success(text());
        if has_output_schema || answer.output.is_object() {
            result.structured_content = Some(answer.output.clone());
        }
        return result;
    };
    let content = blocks(said).filter(|blocks| !is_cut(blocks, &answer.text)).unwrap_or_else(text);
    let mut result = CallToolResult::success(content);
    finish(&mut result, said, Some(&answer.output));
    result
}

/// A failure or refusal, for the model to act on.
pub(super) fn of_error(error: &CallError) -> CallToolResult {
    let said = error.mcp_result();
    let content = said.and_then(blocks).unwrap_or_else(|| vec![ContentBlock::text(explanation(error))]);
    let mut result = CallToolResult::error(content);
    match said {
        Some(said) => finish(&mut result, said, error.output()),
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

fn finish(result: &mut CallToolResult, said: &McpResult, value: Option<&Value>) {
    if said.structured {
        result.structured_content = value.cloned();
    }
    if !said.meta.is_empty() {
        result.meta = Some(MetaObject(said.meta.clone()));
    }
}

/// `None` where a block is of no kind that the protocol knows.
fn blocks(said: &McpResult) -> Option<Vec<ContentBlock>> {
    let blocks: Result<_, _> = said.content.iter().map(ContentBlock::deserialize).collect();
    blocks.inspect_err(|error| tracing::debug!(%error, "a server's content block is of no known kind")).ok()
}

/// Whether the text for the model was cut to the tokens it may have: then the cut one is told.
fn is_cut(blocks: &[ContentBlock], text: &str) -> bool {
    let lengths = blocks.iter().map(|block| match block {
        ContentBlock::Text(block) => Some(block.text.len()),
        _ => None,
    });
    lengths.sum::<Option<usize>>().is_some_and(|told| told > text.len())
}

/// What a model reads: the sentence, where exactly, and what there is instead.
fn explanation(error: &CallError) -> String {
    let mut text = format!("{}: {}", error.code(), error.message());
    for detail in error.details() {
        text.push_str(&format!("\n- {}: {}", detail.path, detail.message));
    }
    if let Some(wait) = error.wait() {
        text.push_str(&format!("\nTry again in {} s.", wait.as_secs_f64().ceil().max(1.0)));
    }
    if !error.alternatives().is_empty() {
        text.push_str(&format!("\nInstead there is: {}", error.alternatives().join(", ")));
    }
    text
}
