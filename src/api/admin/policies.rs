//! `/admin/policies`: the rules that are in force and their decisions; `/admin/explain`: the decision that they would
//! make.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::body::JsonBody;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_calls::pipeline::StageVerdict;
use sekisho_calls::policy::PolicyRule;
use sekisho_core::call::Arguments;
use sekisho_core::caller::DEFAULT_TENANT;
use sekisho_core::error::ErrorCode;
use sekisho_gateway::{DecisionCount, Explained, Gateway};

/// The policies in force.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PolicyBody {
    /// Hash of the set.
    version: String,
    rules: Vec<PolicyRule>,
    /// Roles of which one is needed for tools that are `dangerous`.
    dangerous_roles: Vec<String>,
    /// About the last calls, at most 2000; the most frequent first.
    decisions: Vec<DecisionBody>,
}

/// How many calls were decided alike.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DecisionBody {
    /// `allow`, or the error code.
    decision: &'static str,
    reason: Option<String>,
    calls: usize,
}

impl Listed for PolicyRule {
    const NAME: &'static str = "rules";
    const ROUTE: &'static str = "/admin/policies";
    const COLUMNS: &'static [Column] = &[
        Column::new("rule", Form::Name).at("/name").titled("policies-rule"),
        Column::new("file", Form::Text).titled("policies-file"),
        Column::new("line", Form::Count),
    ];
}

impl Listed for DecisionCount {
    const NAME: &'static str = "decisions";
    const ROUTE: &'static str = "/admin/policies";
    const COLUMNS: &'static [Column] = &[
        Column::new("code", Form::Name).titled("policies-decision"),
        Column::new("reason", Form::Text).titled("policies-reason"),
        Column::new("calls", Form::Count).titled("nav-calls"),
    ];
}

/// A call that is not made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    tool: String,
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    arguments: Arguments,
    /// Absent for a caller without credentials.
    caller: Option<ExplainedCaller>,
    /// An example of what the tool may answer: the stage `accept` says what the rules for results would change in it.
    result: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainedCaller {
    id: String,
    #[serde(default = "default_tenant")]
    tenant: String,
    #[serde(default)]
    roles: Vec<String>,
}

/// The verdict of each stage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExplainBody {
    stages: Vec<StageVerdict>,
}

/// The rules that are in force, and how often they decided what about the calls that the caller may see.
#[utoipa::path(get, path = "/admin/policies", operation_id = "getPolicies", tag = "operation",
    responses((status = 200, body = PolicyBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    let summary = gateway.pipeline.policy.summary();
    let decisions = gateway.history().decisions(&meta.caller).await?;
    let body = PolicyBody {
        version: summary.version.to_string(),
        rules: summary.rules,
        dangerous_roles: summary.dangerous_roles,
        decisions: decisions.into_iter().map(DecisionBody::from).collect(),
    };
    Ok(reply::json(StatusCode::OK, &body))
}

/// Which stage would stop a call, and why. Nothing is run, and nothing is taken of any limit. Needs the role `operator` or
/// `admin` of `console`.
#[utoipa::path(post, path = "/admin/explain", operation_id = "explainCall", tag = "operation", request_body = ExplainRequest,
    responses((status = 200, body = ExplainBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn explain(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(body, _memory): JsonBody<ExplainRequest>,
) -> Result<Response, ErrorReply> {
    let caller = body.caller.map(|ExplainedCaller { id, tenant, roles }| (id, tenant, roles));
    let explained = Explained { tool: body.tool, arguments: body.arguments, caller, result: body.result };
    let stages = gateway.history().explain(&meta.caller, explained).await?;
    Ok(reply::json(StatusCode::OK, &ExplainBody { stages }))
}

fn default_tenant() -> String {
    DEFAULT_TENANT.to_owned()
}

impl From<DecisionCount> for DecisionBody {
    fn from(DecisionCount { code, reason, calls }: DecisionCount) -> Self {
        Self { decision: code.map_or("allow", ErrorCode::as_str), reason, calls }
    }
}
