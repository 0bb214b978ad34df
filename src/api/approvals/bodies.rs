//! The bodies of `/approvals`. Texts of callers and approvers have their control characters escaped: a person decides by them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::column::{Column, Form, Listed};
use crate::list::Page;
use sekisho_calls::approval::{Approval, Decision, Judgement};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::call::Arguments;
use sekisho_core::error::CallError;
use sekisho_core::visible_text::visible;
use sekisho_gateway::Gateway;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalQuery {
    pub status: Option<ApprovalState>,
    pub tool: Option<String>,
    /// The id of the caller.
    pub caller: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalList {
    #[serde(flatten)]
    pub page: Page<ApprovalBody>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    pub approvals: Vec<ApprovalBody>,
}

/// A call that a person must approve, and what was decided.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalBody {
    pub id: String,
    pub status: ApprovalState,
    /// The page where it is decided.
    pub url: String,
    pub tool: String,
    /// `tool`, `resource`, `prompt` or `completion`; `effects` for those that a program proposes, which are in the arguments.
    pub kind: String,
    /// The resource or prompt, for what is no tool.
    pub target: Option<String>,
    pub caller: ApprovalCaller,
    /// Why a person must approve it.
    pub reasons: Vec<String>,
    /// For approvers. What the policies mask has its length and digest instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// For approvers: what is sent. `method`, `address` and `coding`, or of a tool that runs in the gateway or its sandbox its `source`;
    /// with `arguments` where they are sent by other names or with other values, `meta` where the caller adds something to them, and
    /// `as_task` for one that runs as a task of MCP.
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
    /// For approvers: the beginning of the request to the agent that makes the call. Absent where the policies mask something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub request: Option<String>,
    /// For approvers: the values that strangers may have written, each with `argument`, `value`, `kind`, `state`, `origin` (call,
    /// tool, path), the `sentence` that has it, and its news (`new`); absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<Object>)]
    pub questions: Vec<Value>,
    /// The calls of its run, conversation or session that wait and are decided with it, itself included; 1 for a single one, or a
    /// decided one.
    pub calls: u64,
    /// The other calls of it that wait, the oldest first, each as this one; at most 50. Lists lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<Object>)]
    pub with: Vec<ApprovalBody>,
    pub session_id: Option<String>,
    /// `rest`, `mcp`, `agent` or `sandbox`.
    pub via: String,
    /// Of the call that asked first.
    pub call_id: String,
    /// RFC 3339.
    pub created_at: String,
    /// When it can no longer be decided, or used.
    pub expires_at: String,
    pub changed_at: String,
    /// How many persons must approve it.
    pub approvals_needed: u8,
    pub decisions: Vec<DecisionBody>,
    /// What it covers, once it is approved.
    pub scope: Option<ApprovalScope>,
    /// Calls that it let through.
    pub uses: i64,
    /// Of the tool's arguments.
    pub schema_hash: String,
    /// Of the policies that asked for it.
    pub policy_version: String,
}

impl Listed for ApprovalBody {
    const NAME: &'static str = "approvals";
    const ROUTE: &'static str = "/approvals";
    const NONE: &'static str = "no such approvals: a call that a person must approve is listed here";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).headed("id"),
        Column::new("status", Form::Text).titled("tool-state").headed("status"),
        Column::new("tool", Form::Name).titled("tool-name").leading().headed("tool"),
        Column::new("caller", Form::Name).at("/caller/id").titled("call-caller").headed("caller"),
        Column::new("tenant", Form::Name).at("/caller/tenant").headed("tenant"),
        Column::new("reasons", Form::Line).titled("policies-reason").headed("reasons"),
        Column::new("created_at", Form::Moment).titled("approval-asked"),
        Column::new("expires_at", Form::Moment).titled("approval-expires").headed("expires"),
        Column::new("uses", Form::Count),
        Column::new("calls", Form::Count).titled("approval-calls").headed("calls"),
    ];
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ApprovalCaller {
    pub id: String,
    pub tenant: String,
    /// Who uses the caller's credentials.
    pub person: String,
}

/// What one approver decided.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ApprovalDecision)]
pub struct DecisionBody {
    pub approver: String,
    /// Who uses the approver's credentials.
    pub person: String,
    pub approved: bool,
    pub reason: String,
    pub scope: ApprovalScope,
    pub minutes: Option<u32>,
    /// The approver put other arguments in place of those of the call.
    pub changed_arguments: bool,
    /// RFC 3339.
    pub at: String,
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
    /// Of the effects that a program proposes: those that are not made, by `call`. None that is made may need the value of one of them.
    #[schema(max_items = 1000)]
    strike: Vec<u32>,
    /// That of the approval as the approver has seen it: other arguments are not approved. Required once an approver has changed
    /// them.
    arguments_sha256: Option<String>,
    /// The ids of others of `with` of the approval: they are approved too, once or in the same `scope`. One that cannot be leaves all
    /// undecided.
    #[schema(max_items = 50)]
    with: Vec<String>,
    /// The ids of others of `with` of the approval: they are denied in the same decision, for the same reason.
    #[schema(max_items = 50)]
    deny: Vec<String>,
}

/// A denial of a call.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DenyBody {
    /// The caller reads it.
    #[schema(max_length = 1000)]
    reason: String,
    /// The ids of others of `with` of the approval: they are denied too.
    #[schema(max_items = 50)]
    with: Vec<String>,
}

impl ApprovalBody {
    /// As an approver sees it. Without the key that sealed them, the rest is shown still; the call cannot be approved then.
    pub(super) fn for_approver(gateway: &Gateway, approval: &Approval) -> Self {
        let (approvals, id) = (&gateway.pipeline.approvals, &approval.id);
        let report = |error: &CallError| tracing::error!(%id, cause = error.cause(), "the arguments cannot be opened");
        Self {
            arguments: approvals.shown_arguments(approval).inspect_err(report).ok(),
            sent: approvals.shown_sent(approval).inspect_err(report).ok().flatten(),
            request: approvals.shown_request(approval).inspect_err(report).ok().flatten(),
            questions: approvals.shown_questions(approval).inspect_err(report).unwrap_or_default(),
            changed_arguments: approvals.shown_changed_arguments(approval).inspect_err(report).ok().flatten(),
            arguments_sha256: approvals.arguments_sha256(approval).inspect_err(report).ok(),
            ..Self::of(gateway, approval)
        }
    }

    /// Without the arguments.
    pub(super) fn of(gateway: &Gateway, approval: &Approval) -> Self {
        let details = &approval.details;
        Self {
            id: approval.id.to_string(),
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
            request: None,
            questions: Vec::new(),
            calls: 1,
            with: Vec::new(),
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

impl ApproveBody {
    /// The decisions about the approval with this id, and about the others. The arguments that the approver wrote are for the first
    /// one.
    pub(super) fn decisions(self, id: String) -> Vec<(String, Judgement)> {
        let Self { reason, scope, minutes, arguments, strike, arguments_sha256, with, deny } = self;
        let denial = denial(reason);
        let other = Judgement { approved: true, scope, minutes, ..denial.clone() };
        let first = Judgement { arguments, strike, arguments_sha256, ..other.clone() };
        let others = with.into_iter().map(|id| (id, other.clone()));
        let denied = deny.into_iter().map(|id| (id, denial.clone()));
        std::iter::once((id, first)).chain(others).chain(denied).collect()
    }
}

impl DenyBody {
    /// The decisions about the approval with this id, and about the others.
    pub(super) fn decisions(self, id: String) -> Vec<(String, Judgement)> {
        let denial = denial(self.reason);
        std::iter::once(id).chain(self.with).map(|id| (id, denial.clone())).collect()
    }
}

fn denial(reason: String) -> Judgement {
    let (scope, minutes, arguments, arguments_sha256) = (ApprovalScope::Once, None, None, None);
    Judgement { approved: false, reason, scope, minutes, arguments, strike: Vec::new(), sent: None, arguments_sha256 }
}

fn shown(text: &str) -> String {
    visible(text).into_owned()
}
