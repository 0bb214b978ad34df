//! `/sessions`: files for the workspace of a session.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::body::FileBody;
use crate::documentation::ReplyBody;
use crate::reply::{ErrorReply, answered_reply};
use crate::request::RequestMeta;
use crate::session_file::SessionFile;
use sekisho_gateway::Gateway;

/// Writes a file to the workspace of a session, whose runs of `python_executor` have it in their working directory. It is
/// a call of `file_write`, with the same roles, limits and audit, whose `encoding` is `upload` and whose `content` is the
/// SHA-256 of the body.
#[utoipa::path(put, path = "/sessions/{id}/files/{path}", operation_id = "uploadFile", tag = "tools",
    params(
        ("id" = String, Path, description = "Any name you choose; a session belongs to its caller."),
        ("path" = String, Path, description = "The path in the workspace; write `/` as `%2F`."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn upload(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    file: SessionFile,
    FileBody(upload): FileBody,
) -> Result<Response, ErrorReply> {
    let incoming = file.into_upload(upload, &meta, &gateway)?;
    Ok(answered_reply(&gateway.pipeline.call(incoming.call, incoming.arguments).await))
}
