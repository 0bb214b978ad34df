//! `/admin/lock`: the differences from `tools.lock`, and their approval.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::recorded;
use crate::body::FromSharedAdministrator;
use crate::documentation::ReplyBody;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_calls::registry::lock::Difference;
use sekisho_core::administration::{AdministratorProof, SharedAdministrator};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Approval, Gateway, LockReview};

/// What differs from the lock.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LockBody {
    differences: Vec<DifferenceBody>,
    /// Sources that are not compared, with the reason.
    out_of_reach: BTreeMap<String, String>,
}

/// One tool that differs: as `sekisho lock diff --json` shows it, and the hash with which it is approved.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DifferenceBody {
    #[serde(flatten)]
    #[schema(value_type = Object)]
    difference: Difference,
    /// Empty for a tool that was removed.
    hash: String,
}

/// The differences to approve.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApproveRequest {
    approvals: Vec<Approval>,
}

/// The result of an approval.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Approved {
    success: bool,
}

/// Shows what differs from `tools.lock`. For administrators of the tenant `default`.
#[utoipa::path(get, path = "/admin/lock", operation_id = "reviewLock", tag = "operation",
    responses((status = 200, body = LockBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn review(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    SharedAdministrator::of(&meta.caller)?;
    let review = gateway.tool_offer().review_lock().await?.ok_or_else(no_lock)?;
    Ok(reply::json(StatusCode::OK, &LockBody::from(review)))
}

/// Approves differences, writes `tools.lock`, and applies it. For administrators of the tenant `default`.
#[utoipa::path(post, path = "/admin/lock/approve", operation_id = "approveTools", tag = "operation",
    request_body = ApproveRequest,
    responses((status = 200, body = Approved), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn approve(
    State(gateway): State<Arc<Gateway>>,
    FromSharedAdministrator { by, meta, body, .. }: FromSharedAdministrator<ApproveRequest>,
) -> Result<Response, ErrorReply> {
    let approvals = body.approvals;
    let subject = subject_of(&approvals);
    let service = Arc::clone(&gateway);
    let change = Box::pin(async move { service.tool_offer().approve(by, &approvals).await });
    recorded(&gateway, &meta, EventKind::LockApproved, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &Approved { success: true }))
}

/// The approved tools, as the audit trail names them.
pub(crate) fn subject_of(approvals: &[Approval]) -> String {
    let names: Vec<_> = approvals.iter().map(|approval| &*approval.tool).collect();
    names.join(", ")
}

fn no_lock() -> CallError {
    CallError::new(ErrorCode::NotFound, "no `tools.lock` applies; create one with `sekisho lock`")
}

impl From<LockReview> for LockBody {
    fn from(review: LockReview) -> Self {
        let hashes: Vec<_> = review.differences.iter().map(|found| review.hash_of(found).to_owned()).collect();
        let differences = review.differences.into_iter().zip(hashes);
        let differences = differences.map(|(difference, hash)| DifferenceBody { difference, hash }).collect();
        Self { differences, out_of_reach: review.out_of_reach }
    }
}
