//! `/approvals`: calls that a person must approve. No GET changes anything.

mod bodies;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;

pub use self::bodies::{ApprovalBody, DecisionBody};
use self::bodies::{ApprovalList, ApprovalQuery, ApproveBody, DenyBody};
use super::admin::record_changes;
use super::body::JsonBody;
use super::documentation::ReplyBody;
use super::list::{Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_calls::approval::{Approval, Judgement};
use sekisho_core::approval::ApprovalState;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{APPROVER, Gateway};
use sekisho_store::ApprovalFilter;

/// Maximum calls of one decision: an approval shows 50 others.
const MAX_CALLS: usize = 51;

/// Maximum bytes of an id.
const MAX_ID: usize = 128;

/// Lists approvals, the latest first: an approver sees those of its tenant, others their own. Without arguments. The calls of one run,
/// conversation or session that wait are one item, with their number.
#[utoipa::path(get, path = "/approvals", operation_id = "listApprovals", tag = "approvals",
    params(ApprovalQuery, PageQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = ApprovalList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(ApprovalQuery { status, tool, caller }): Parameters<ApprovalQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let limit = query.limit_in_store()?;
    let filter = ApprovalFilter {
        state: status,
        tool: tool.as_deref(),
        caller: caller.as_deref(),
        before: query.after::<Timestamp>()?,
        // One approval more than the page shows says whether there is a next page.
        max: limit + 1,
        ..ApprovalFilter::default()
    };
    let found = gateway.approvals().list(&meta.caller, filter).await?;
    let calls = gateway.pipeline.approvals.count_calls(&found).await?;
    let found: Vec<_> = found.into_iter().zip(calls).collect();
    let page = Page::from_read(found, limit as usize, |(approval, _)| approval.created.to_string());
    let page = page.map(|(approval, calls)| ApprovalBody { calls, ..ApprovalBody::of(&gateway, &approval) });
    let approvals = page.items.clone();
    Ok(reply::json(StatusCode::OK, &ApprovalList { page, approvals }))
}

/// Shows one approval, with the other calls of its run, conversation or session that wait. An approver sees the arguments too.
#[utoipa::path(get, path = "/approvals/{id}", operation_id = "getApproval", tag = "approvals", params(("id" = String, Path)),
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let (approval, sees_arguments) = gateway.approvals().find(&meta.caller, &id).await?;
    let body_of: fn(&Gateway, &Approval) -> ApprovalBody = match sees_arguments {
        true => ApprovalBody::for_approver,
        false => ApprovalBody::of,
    };
    let waiting = gateway.pipeline.approvals.waiting_with(&approval).await?;
    let with: Vec<_> = waiting.iter().map(|other| body_of(&gateway, other)).collect();
    let calls = if approval.state == ApprovalState::Pending { with.len() as u64 + 1 } else { 1 };
    Ok(reply::json(StatusCode::OK, &ApprovalBody { with, calls, ..body_of(&gateway, &approval) }))
}

/// Approves a call, and approves or denies others that wait with it: all of that, or nothing. Needs the role `approver`, and another
/// person than the caller.
#[utoipa::path(post, path = "/approvals/{id}/approve", operation_id = "approveCall", tag = "approvals",
    params(("id" = String, Path)), request_body = ApproveBody,
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn approve(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<ApproveBody>,
) -> Result<Response, ErrorReply> {
    decide(&meta, &gateway, body.decisions(id)).await
}

/// Denies a call and others that wait with it, or takes back an approval that is not used up. Needs the role `approver`.
#[utoipa::path(post, path = "/approvals/{id}/deny", operation_id = "denyCall", tag = "approvals",
    params(("id" = String, Path)), request_body = DenyBody,
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn deny(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<DenyBody>,
) -> Result<Response, ErrorReply> {
    decide(&meta, &gateway, body.decisions(id)).await
}

/// Decides about the first one, and about the others that wait with it: one decision, with a line of the audit trail for each.
async fn decide(
    meta: &RequestMeta,
    gateway: &Arc<Gateway>,
    decisions: Vec<(String, Judgement)>,
) -> Result<Response, ErrorReply> {
    meta.require_role(APPROVER)?;
    if decisions.len() > MAX_CALLS || decisions.iter().any(|(id, _)| id.len() > MAX_ID) {
        let most = MAX_CALLS - 1;
        let message = format!("name at most {most} others in all, each by an id that `with` of the approval has");
        return Err(CallError::new(ErrorCode::InvalidRequest, message).into());
    }
    let events = decisions.iter().map(|(id, judgement)| event_of(meta, id, judgement)).collect();
    let (service, approver) = (Arc::clone(gateway), Arc::clone(&meta.caller));
    let change = async move { service.approvals().decide(&approver, &decisions).await };
    let decided = Box::pin(record_changes(gateway, events, change)).await?;
    let mut bodies = decided.iter().map(|approval| ApprovalBody::of(gateway, approval));
    let first = bodies.next().ok_or_else(|| CallError::internal("nothing was decided"))?;
    Ok(reply::json(StatusCode::OK, &ApprovalBody { with: bodies.collect(), ..first }))
}

fn event_of(meta: &RequestMeta, id: &str, judgement: &Judgement) -> AuditEvent {
    let detail = match (&judgement.arguments, &judgement.strike[..]) {
        (Some(_), _) => Some("with arguments that the approver wrote".to_owned()),
        (None, []) => None,
        (None, struck) => Some(format!("without the effects {struck:?}")),
    };
    let kind = if judgement.approved { EventKind::ApprovalGiven } else { EventKind::ApprovalDenied };
    AuditEvent {
        subject: Some(id.to_owned()),
        detail,
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    }
}
