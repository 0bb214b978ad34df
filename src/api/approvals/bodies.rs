//! The bodies of `/approvals`. Texts of callers and approvers have their control characters escaped: a person decides by them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use sekisho_calls::approval::{Approval, Decision, Judgement};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::call::Arguments;
use sekisho_core::visible_text::visible;
use sekisho_gateway::Gateway;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalQuery {
    pub status: Option<ApprovalState>,
    pub tool: Option<String>,
    /// The id of the caller.
    pub caller: Option<String>,
    /// Maximum number of approvals: 50 if omitted, at most 200.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Approvals that were asked before this time: `next` of the page before.
    pub before: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalList {
    /// The latest first.
    pub approvals: Vec<ApprovalBody>,
    /// `before` of the next page, if there may be one.
    pub next: Option<String>,
}

/// A call that a person must approve, and what was decided.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalBody {
    #[schema(value_type = String)]
    id: Arc<str>,
    status: ApprovalState,
    /// The page where it is decided.
    url: String,
    tool: String,
    /// `tool`, `resource`, `prompt` or `completion`.
    kind: String,
    /// The resource or prompt, for what is no tool.
    target: Option<String>,
    caller: ApprovalCaller,
    /// Why a person must approve it.
    reasons: Vec<String>,
    /// For approvers. What the policies mask has its length and digest instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// For approvers: what is sent. `method`, `address` and `coding`; with `arguments` where they are sent by other names or with
    /// other values, `meta` where the caller adds something to them, and `as_task` for one that runs as a task of MCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<Object>)]
    pub sent: Option<Value>,
    /// Those that an approver put in their place, seen in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<Object>)]
    pub changed_arguments: Option<Value>,
    /// For approvers: SHA-256 of the arguments with which the call is made, which are the changed ones if there are any. By it an
    /// approver says what it has looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub arguments_sha256: Option<String>,
    session_id: Option<String>,
    /// `rest`, `mcp`, `agent` or `sandbox`.
    via: String,
    /// Of the call that asked first.
    call_id: String,
    /// RFC 3339.
    created_at: String,
    /// When it can no longer be decided, or used.
    expires_at: String,
    changed_at: String,
    /// How many persons must approve it.
    approvals_needed: u8,
    decisions: Vec<DecisionBody>,
    /// What it covers, once it is approved.
    scope: Option<ApprovalScope>,
    /// Calls that it let through.
    uses: i64,
    /// Of the tool's arguments.
    schema_hash: String,
    /// Of the policies that asked for it.
    policy_version: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct ApprovalCaller {
    id: String,
    tenant: String,
    /// Who uses the caller's credentials.
    person: String,
}

/// What one approver decided.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApprovalDecision)]
struct DecisionBody {
    approver: String,
    /// Who uses the approver's credentials.
    person: String,
    approved: bool,
    reason: String,
    scope: ApprovalScope,
    minutes: Option<u32>,
    /// The approver put other arguments in place of those of the call.
    changed_arguments: bool,
    /// RFC 3339.
    at: String,
}

/// An approval of a call.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApproveBody {
    #[schema(max_length = 1000)]
    reason: String,
    /// This call once (default), each exactly like it for some minutes, or each of this tool in this session.
    scope: ApprovalScope,
    /// For the scope `minutes`.
    #[schema(minimum = 1, maximum = 1440)]
    minutes: Option<u32>,
    /// In place of those of the call, which the run of an agent must make: it is told of them. What is masked stays, and cannot be
    /// left out.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Arguments>,
    /// That of the approval as the approver has seen it: other arguments are not approved. Required once an approver has changed
    /// them.
    arguments_sha256: Option<String>,
}

/// A denial of a call.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DenyBody {
    /// The caller reads it.
    #[schema(max_length = 1000)]
    reason: String,
}

impl ApprovalBody {
    /// Without the arguments.
    pub(super) fn of(gateway: &Gateway, approval: &Approval) -> Self {
        let details = &approval.details;
        Self {
            id: Arc::clone(&approval.id),
            status: approval.state,
            url: gateway.pipeline.approvals.page_of(approval),
            tool: shown(&approval.tool),
            kind: details.kind.clone(),
            target: details.target.as_deref().map(shown),
            caller: ApprovalCaller {
                id: shown(&approval.caller_id),
                tenant: shown(&approval.tenant),
                person: shown(&details.person),
            },
            reasons: details.reasons.iter().map(|reason| shown(reason)).collect(),
            arguments: None,
            sent: None,
            changed_arguments: None,
            arguments_sha256: None,
            session_id: details.session.as_deref().map(shown),
            via: details.via.clone(),
            call_id: details.call_id.clone(),
            created_at: approval.created.to_string(),
            expires_at: approval.expires.to_string(),
            changed_at: approval.changed.to_string(),
            approvals_needed: details.needed,
            decisions: approval.decisions.iter().map(DecisionBody::of).collect(),
            scope: approval.scope,
            uses: approval.uses,
            schema_hash: details.schema_hash.clone(),
            policy_version: details.policy_version.clone(),
        }
    }
}

impl DecisionBody {
    fn of(decision: &Decision) -> Self {
        Self {
            approver: shown(&decision.approver),
            person: shown(&decision.person),
            approved: decision.approved,
            reason: shown(&decision.reason),
            scope: decision.scope,
            minutes: decision.minutes,
            changed_arguments: decision.changed_arguments,
            at: decision.at.clone(),
        }
    }
}

impl From<ApproveBody> for Judgement {
    fn from(ApproveBody { reason, scope, minutes, arguments, arguments_sha256 }: ApproveBody) -> Self {
        Self { approved: true, reason, scope, minutes, arguments, sent: None, arguments_sha256 }
    }
}

impl From<DenyBody> for Judgement {
    fn from(DenyBody { reason }: DenyBody) -> Self {
        let (scope, minutes, arguments, arguments_sha256) = (ApprovalScope::Once, None, None, None);
        Self { approved: false, reason, scope, minutes, arguments, sent: None, arguments_sha256 }
    }
}

fn shown(text: &str) -> String {
    visible(text).into_owned()
}
