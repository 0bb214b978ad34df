//! `/receipts`: the receipt of a call, for somebody who has only the gateway's public key.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::documentation::ReplyBody;
use crate::parameters::Name;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_gateway::Gateway;

/// The receipt of a call that has ended: its line of the audit trail, with the proof that a signed checkpoint includes it
/// (`c2sp.org/tlog-proof`). `sekisho receipt verify` checks it offline. For the caller of the call, and who may see it with a role of
/// `console`. A call that has just ended is signed within three seconds, for which the answer waits.
#[utoipa::path(get, path = "/receipts/{id}", operation_id = "getReceipt", tag = "operation",
    params(("id" = String, Path, description = "The id of the call, as `call_id` of its reply's receipt.")),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = ReplyBody),
        (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let receipt = gateway.history().receipt(&meta.caller, &id).await?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], receipt).into_response())
}
