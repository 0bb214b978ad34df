//! Requests to MCP servers other than tool calls, run through the pipeline like tool calls.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{ErrorCode as McpErrorCode, ErrorData};
use serde_json::{Value, json};

use sekisho_calls::pipeline::ErrorInfo;
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_mcp_client::OperationRequest;

/// Runs the operation as `call`, and returns the server's result.
/// Errors: why a stage refused it, or how it failed.
pub(in crate::mcp) async fn run(
    gateway: &Gateway,
    call: CallContext,
    request: OperationRequest,
) -> Result<Value, CallError> {
    let (call, arguments) = request.into_call(call);
    let max_wait = |_| ready(Duration::ZERO).boxed();
    let answer = gateway.approvals().call_when_approved(Box::new(call), arguments, max_wait).await;
    // Only replies to calls that are sent twice at once are shared.
    let reply =
        Arc::into_inner(answer.answered.reply).ok_or_else(|| CallError::internal("the reply is in use elsewhere"))?;
    reply.outcome.map(|answer| answer.output)
}

/// The JSON-RPC error for a call that did not succeed: the server's own, if it sent one.
pub(in crate::mcp) fn error_data(error: &CallError) -> ErrorData {
    if let Some(own) = error.output().and_then(server_error) {
        return own;
    }
    let data = Some(json!({"error_info": ErrorInfo::from(error)}));
    let message = error.message().to_owned();
    match error.code() {
        ErrorCode::UnknownTool => ErrorData::invalid_params(message, None),
        ErrorCode::InvalidArguments | ErrorCode::InvalidRequest => ErrorData::invalid_params(message, data),
        ErrorCode::Denied
        | ErrorCode::ApprovalRequired
        | ErrorCode::ApprovalDenied
        | ErrorCode::ApprovalExpired
        | ErrorCode::ApprovalMismatch
        | ErrorCode::Unauthenticated
        | ErrorCode::SignInRequired => ErrorData::invalid_request(message, data),
        _ => ErrorData::internal_error(message, data),
    }
}

fn server_error(output: &Value) -> Option<ErrorData> {
    let code = i32::try_from(output.get("code")?.as_i64()?).ok()?;
    let message = output.get("message")?.as_str()?.to_owned();
    let data = output.get("data").filter(|data| !data.is_null()).cloned();
    Some(ErrorData::new(McpErrorCode(code), message, data))
}
