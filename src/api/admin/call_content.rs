//! `/admin/calls/{id}/content`: the arguments and the result of a call, where `recording.content` keeps them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::documentation::ReplyBody;
use crate::parameters::Name;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_core::record::KeptValue;
use sekisho_gateway::{Gateway, OpenedContent};

/// The arguments and the result of a call, after all rules that change them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallContentBody {
    call_id: String,
    tool: String,
    /// By the names of the tool.
    arguments: Option<Value>,
    /// The arguments are larger than `recording.content.max_bytes`.
    arguments_too_large: bool,
    /// The output, also of a tool that failed.
    result: Option<Value>,
    /// The result is larger than `recording.content.max_bytes`.
    result_too_large: bool,
}

/// Opens the arguments and the result of a call that is kept by `recording.content`: for the role `admin`. The audit trail has each opening.
#[utoipa::path(get, path = "/admin/calls/{id}/content", operation_id = "openCallContent", tag = "operation",
    params(("id" = String, Path)),
    responses((status = 200, body = CallContentBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let opened = gateway.history().open_content(&meta.caller, meta.request.as_ref(), &id).await?;
    Ok(reply::json(StatusCode::OK, &CallContentBody::from(&opened)))
}

impl From<&OpenedContent> for CallContentBody {
    fn from(OpenedContent { found, content }: &OpenedContent) -> Self {
        let (value, is_too_large) = (KeptValue::value, KeptValue::is_too_large);
        Self {
            call_id: found.call.id.to_string(),
            tool: found.call.tool.to_string(),
            arguments: value(&content.arguments),
            arguments_too_large: is_too_large(&content.arguments),
            result: value(&content.result),
            result_too_large: is_too_large(&content.result),
        }
    }
}
