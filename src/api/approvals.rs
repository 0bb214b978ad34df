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
use sekisho_calls::approval::Judgement;
use sekisho_core::error::CallError;
use sekisho_gateway::{APPROVER, Gateway};
use sekisho_store::ApprovalFilter;

/// Lists approvals, the latest first: an approver sees those of its tenant, others their own. Without arguments.
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
    let page = Page::from_read(found, limit as usize, |approval| approval.created.to_string());
    let page = page.map(|approval| ApprovalBody::of(&gateway, &approval));
    let approvals = page.items.clone();
    Ok(reply::json(StatusCode::OK, &ApprovalList { page, approvals }))
}

/// Shows one approval; an approver sees the arguments of the call too.
#[utoipa::path(get, path = "/approvals/{id}", operation_id = "getApproval", tag = "approvals", params(("id" = String, Path)),
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let (approval, sees_arguments) = gateway.approvals().find(&meta.caller, &id).await?;
    let mut body = ApprovalBody::of(&gateway, &approval);
    if sees_arguments {
        let approvals = &gateway.pipeline.approvals;
        // Without the key that sealed them, the rest is shown still; the call cannot be approved then.
        let report = |error: &CallError| tracing::error!(%id, cause = error.cause(), "the arguments cannot be opened");
        body.arguments = approvals.shown_arguments(&approval).inspect_err(report).ok();
        body.sent = approvals.shown_sent(&approval).inspect_err(report).ok().flatten();
        body.questions = approvals.shown_questions(&approval).inspect_err(report).unwrap_or_default();
        body.changed_arguments = approvals.shown_changed_arguments(&approval).inspect_err(report).ok().flatten();
        body.arguments_sha256 = approvals.arguments_sha256(&approval).inspect_err(report).ok();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// Approves a call. Needs the role `approver`, and another person than the caller.
#[utoipa::path(post, path = "/approvals/{id}/approve", operation_id = "approveCall", tag = "approvals",
    params(("id" = String, Path)), request_body = ApproveBody,
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn approve(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<ApproveBody>,
) -> Result<Response, ErrorReply> {
    Ok(decide(&meta, &gateway, id, body.into(), EventKind::ApprovalGiven).await?)
}

/// Denies a call, or takes back an approval that is not used up. Needs the role `approver`.
#[utoipa::path(post, path = "/approvals/{id}/deny", operation_id = "denyCall", tag = "approvals",
    params(("id" = String, Path)), request_body = DenyBody,
    responses((status = 200, body = ApprovalBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn deny(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<DenyBody>,
) -> Result<Response, ErrorReply> {
    Ok(decide(&meta, &gateway, id, body.into(), EventKind::ApprovalDenied).await?)
}

async fn decide(
    meta: &RequestMeta,
    gateway: &Arc<Gateway>,
    id: String,
    judgement: Judgement,
    kind: EventKind,
) -> Result<Response, CallError> {
    meta.require_role(APPROVER)?;
    let event = AuditEvent {
        subject: Some(id.clone()),
        detail: judgement.arguments.is_some().then(|| "with arguments that the approver wrote".to_owned()),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    };
    let (service, approver) = (Arc::clone(gateway), Arc::clone(&meta.caller));
    let change = async move { service.approvals().decide(&approver, &id, &judgement).await };
    let decided = record_change(gateway, event, change).await?;
    Ok(reply::json(StatusCode::OK, &ApprovalBody::of(gateway, &decided)))
}
