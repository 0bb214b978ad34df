//! `/approvals`: calls that a person must approve. No GET changes anything.

mod bodies;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;

pub use self::bodies::{ApprovalBody, DecisionBody};
use self::bodies::{ApprovalList, ApprovalQuery, ApproveBody, DenyBody};
use super::admin::record_change;
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

/// Approves a call, and others that wait with it. Needs the role `approver`, and another person than the caller.
#[utoipa::path(post, path = "/approvals/{id}/approve", operation_id = "approveCall", tag = "approvals",
    params(("id" = String, Path)), request_body = ApproveBody,
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn approve(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(mut body, _): JsonBody<ApproveBody>,
) -> Result<Response, ErrorReply> {
    let ids = (id, std::mem::take(&mut body.with));
    Ok(Box::pin(decide(&meta, &gateway, ids, body.into(), EventKind::ApprovalGiven)).await?)
}

/// Denies a call and others that wait with it, or takes back an approval that is not used up. Needs the role `approver`.
#[utoipa::path(post, path = "/approvals/{id}/deny", operation_id = "denyCall", tag = "approvals",
    params(("id" = String, Path)), request_body = DenyBody,
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn deny(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(mut body, _): JsonBody<DenyBody>,
) -> Result<Response, ErrorReply> {
    let ids = (id, std::mem::take(&mut body.with));
    Ok(Box::pin(decide(&meta, &gateway, ids, body.into(), EventKind::ApprovalDenied)).await?)
}

/// Decides about one, and then about the others that wait with it.
async fn decide(
    meta: &RequestMeta,
    gateway: &Arc<Gateway>,
    (id, with): (String, Vec<String>),
    judgement: Judgement,
    kind: EventKind,
) -> Result<Response, CallError> {
    meta.require_role(APPROVER)?;
    if !with.is_empty() {
        let (approval, _) = gateway.approvals().find(&meta.caller, &id).await?;
        let waiting = gateway.pipeline.approvals.waiting_with(&approval).await?;
        if let Some(unknown) = with.iter().find(|id| !waiting.iter().any(|other| *other.id == ***id)) {
            let message = format!("the approval {unknown} does not wait with this one: name those that its `with` has");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
    }
    // The arguments that the approver wrote are for the first one.
    let of_others = Judgement { arguments: None, strike: Vec::new(), arguments_sha256: None, ..judgement.clone() };
    let mut body = Box::pin(decide_one(meta, gateway, id, judgement, kind)).await?;
    for id in with {
        body.with.push(Box::pin(decide_one(meta, gateway, id, of_others.clone(), kind)).await?);
    }
    Ok(reply::json(StatusCode::OK, &body))
}

async fn decide_one(
    meta: &RequestMeta,
    gateway: &Arc<Gateway>,
    id: String,
    judgement: Judgement,
    kind: EventKind,
) -> Result<ApprovalBody, CallError> {
    let detail = match (&judgement.arguments, &judgement.strike[..]) {
        (Some(_), _) => Some("with arguments that the approver wrote".to_owned()),
        (None, []) => None,
        (None, struck) => Some(format!("without the effects {struck:?}")),
    };
    let event = AuditEvent {
        subject: Some(id.clone()),
        detail,
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    };
    let (service, approver) = (Arc::clone(gateway), Arc::clone(&meta.caller));
    let change = async move { service.approvals().decide(&approver, &id, &judgement).await };
    let decided = record_change(gateway, event, change).await?;
    Ok(ApprovalBody::of(gateway, &decided))
}
