//! `/api/plans`: plans of agents, which go on by themselves and can be followed, paused, changed and continued.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::keyed_turn::{self, Turn};
use super::{requested_run, run_events};
use sekisho_agent::catalog::ResolvedModel;
use sekisho_agent::plan::{Entry, NewPlan, Node, Plan, PlanStatus, Step, StepChange, Used};
use sekisho_agent::{AgentRequest, AgentService, Event, Message};
use sekisho_api::column::{Column, Form, Listed};
use sekisho_api::event_stream::{self, LoggedFrame};
use sekisho_api::list::{Page, PageQuery};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{DigestedBody, JsonBody, Name, Parameters, ReplyBody, RequestMeta};
use sekisho_config::{PlanPreset, PlannerConfig};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

/// The goal of a plan.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanRequest {
    #[schema(min_length = 1)]
    goal: String,
    /// The profile of the agent, or a model; the tenant's default if omitted.
    profile: Option<String>,
    /// The same; send one of them.
    model: Option<String>,
    /// `steps` or `plan_and_act`; the profile's if omitted.
    #[schema(value_type = Option<String>)]
    preset: Option<PlanPreset>,
    /// Whether the first step waits for `approve`.
    #[serde(default)]
    approve_plan: bool,
    /// The session of the tool calls, with its files; without one, a new one.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    session_id: Option<String>,
}

/// Other open steps, in place of all that are not completed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanChange {
    steps: Vec<StepChange>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PlanList {
    #[serde(flatten)]
    page: Page<PlanSummary>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    plans: Vec<PlanSummary>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlanSummary {
    pub id: String,
    pub goal: String,
    /// The profile of its agent.
    pub profile: String,
    pub status: PlanStatus,
    /// RFC 3339.
    pub created_at: String,
    pub changed_at: String,
    /// Deprecated name of `created_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    created: String,
    /// Deprecated name of `changed_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    changed: String,
}

impl Listed for PlanSummary {
    const NAME: &'static str = "plans";
    const ROUTE: &'static str = "/api/plans";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name),
        Column::new("goal", Form::Line).titled("plan-goal"),
        Column::new("status", Form::Text).titled("tool-state"),
        Column::new("agent", Form::Name).at("/profile").titled("agent-name"),
        Column::new("created", Form::Moment).at("/created_at"),
        Column::new("changed", Form::Moment).at("/changed_at").titled("column-changed"),
    ];
}

/// A plan as it is now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanReply {
    #[serde(flatten)]
    pub summary: PlanSummary,
    pub session_id: Option<String>,
    /// `steps` or `plan_and_act`.
    #[schema(value_type = String)]
    pub preset: PlanPreset,
    /// The node that it comes to next.
    pub node: Node,
    pub plan: Vec<Step>,
    pub success_criteria: String,
    /// The index of the current step.
    pub step_idx: usize,
    /// Attempts at the current step, and at all steps of all plans.
    pub attempts: u32,
    pub max_attempts: u32,
    pub total_attempts: u32,
    pub last_observation: String,
    pub need_replan: bool,
    /// Whether the goal is reached.
    pub finished: bool,
    /// Why it is not on, or did not reach its goal.
    pub reason: String,
    pub answer: String,
    /// What happened, in the order of time.
    pub history: Vec<Entry>,
    pub usage: Used,
}

/// Begins a plan. It goes on without the client.
#[utoipa::path(post, path = "/api/plans", operation_id = "createPlan", tag = "plans", request_body = PlanRequest,
    responses((status = 201, body = PlanReply), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn create(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    DigestedBody(request, memory, body): DigestedBody<PlanRequest>,
) -> Result<Response, ErrorReply> {
    let turn = Turn { route: "/api/plans".to_owned(), body };
    keyed_turn::answer(&gateway, meta, turn, move |meta, _progress| async move {
        let _memory = memory;
        Ok(begin(&meta, &agents, request).await?)
    })
    .await
}

async fn begin(meta: &RequestMeta, agents: &Arc<AgentService>, request: PlanRequest) -> Result<Response, CallError> {
    let PlanRequest { goal, profile, model, preset, approve_plan: approve, session_id } = request;
    let name = match (profile, model) {
        (Some(_), Some(_)) => {
            let message = "`profile` and `model` are synonyms; send one of them";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        (one, other) => one.or(other),
    };
    let session = session_id.unwrap_or_else(|| Uuid::new_v4().to_string());
    let goal = vec![Message::User(goal.into())];
    let request = agent_request(meta, agents, name.as_deref(), Some(&session), goal).await?;
    let planner = request.profile.planner.clone().unwrap_or_default();
    let planner = PlannerConfig { preset: preset.unwrap_or(planner.preset), ..planner };
    let plan = agents.start_plan(NewPlan { request, planner, approve }).await?;
    Ok(reply::json(StatusCode::CREATED, &PlanReply::from(plan)))
}

/// Lists the caller's plans, the latest first.
#[utoipa::path(get, path = "/api/plans", operation_id = "listPlans", tag = "plans",
    params(PageQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = PlanList), (status = "4XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    query: Result<Parameters<PageQuery>, ErrorReply>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let Parameters(query) = query?;
    let (limit, before) = (query.limit_in_store()?, query.after()?.unwrap_or(Timestamp::MAX));
    // One plan more than the page shows says whether there is a next page.
    let found = agents.plans_of(&meta.caller, before, limit + 1).await?;
    let page = Page::from_read(found, limit as usize, |plan| plan.created.to_string());
    let page = page.map(|plan| PlanSummary::of(&plan));
    let plans = page.items.clone();
    Ok(reply::json(StatusCode::OK, &PlanList { page, plans }))
}

/// Shows a plan.
#[utoipa::path(get, path = "/api/plans/{id}", operation_id = "getPlan", tag = "plans", params(("id" = String, Path)),
    responses((status = 200, body = PlanReply), (status = "4XX", body = ReplyBody)))]
pub(super) async fn show(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    Ok(answer(agents.plan(&meta.caller, &id).await)?)
}

/// Replaces the open steps of a plan that is paused or waits for approval.
#[utoipa::path(patch, path = "/api/plans/{id}", operation_id = "changePlan", tag = "plans", params(("id" = String, Path)),
    request_body = PlanChange, responses((status = 200, body = PlanReply), (status = "4XX", body = ReplyBody)))]
pub(super) async fn change(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
    JsonBody(change, _memory): JsonBody<PlanChange>,
) -> Result<Response, ErrorReply> {
    Ok(answer(agents.change_plan(&meta.caller, &id, change.steps).await)?)
}

/// Pauses a plan after the node that it is at.
#[utoipa::path(post, path = "/api/plans/{id}/pause", operation_id = "pausePlan", tag = "plans", params(("id" = String, Path)),
    responses((status = 200, body = PlanReply), (status = "4XX", body = ReplyBody)))]
pub(super) async fn pause(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    Ok(answer(agents.pause_plan(&meta.caller, &id).await)?)
}

/// Ends a plan at once.
#[utoipa::path(post, path = "/api/plans/{id}/cancel", operation_id = "cancelPlan", tag = "plans", params(("id" = String, Path)),
    responses((status = 200, body = PlanReply), (status = "4XX", body = ReplyBody)))]
pub(super) async fn cancel(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    Ok(answer(agents.cancel_plan(&meta.caller, &id).await)?)
}

/// Goes on with a plan that was paused, interrupted or failed, at its last node.
#[utoipa::path(post, path = "/api/plans/{id}/continue", operation_id = "continuePlan", tag = "plans", params(("id" = String, Path)),
    responses((status = 200, body = PlanReply), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn resume(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    Ok(go_on(&meta, &agents, &id, false).await?)
}

/// Approves a plan that waits for it, and begins with its first step.
#[utoipa::path(post, path = "/api/plans/{id}/approve", operation_id = "approvePlan", tag = "plans", params(("id" = String, Path)),
    responses((status = 200, body = PlanReply), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn approve(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    Ok(go_on(&meta, &agents, &id, true).await?)
}

/// The events of a plan: those so far and those to come. With `Last-Event-ID`, those after that event. Events are kept until
/// ten minutes after the plan stops; later the plan as it is stands for them.
#[utoipa::path(get, path = "/api/plans/{id}/events", operation_id = "followPlan", tag = "plans",
    params(("id" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, description = "Server-sent events", content_type = "text/event-stream"),
        (status = "4XX", body = ReplyBody)))]
pub(super) async fn events(
    meta: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
    parts: Parts,
) -> Result<Response, ErrorReply> {
    let after = event_stream::last_event_id(&parts.headers)?;
    if let Some(events) = agents.plan_events(&meta.caller, &id, after).await? {
        let events = events.take_until(agents.gateway().keys().ended(&meta.caller));
        return Ok(event_stream::respond_logged(events.map(|event| run_events::frame(&event))));
    }
    let plan = agents.plan(&meta.caller, &id).await?;
    let status = Event::Status { status: plan.status.as_str().to_owned(), message: String::new() };
    let status = serde_json::to_string(&status).map_err(CallError::internal)?;
    let now = serde_json::to_string(&PlanReply::from(plan)).map_err(CallError::internal)?;
    let frames = [("plan", now), ("status", status)].map(|(name, data)| LoggedFrame { id: None, name, data });
    Ok(event_stream::respond_logged(stream::iter(frames)))
}

async fn go_on(
    meta: &RequestMeta,
    agents: &Arc<AgentService>,
    id: &str,
    is_approval: bool,
) -> Result<Response, CallError> {
    let plan = agents.plan(&meta.caller, id).await?;
    let request = agent_request(meta, agents, Some(&plan.agent), plan.session.as_deref(), Vec::new()).await?;
    answer(agents.continue_plan(id, request, is_approval).await)
}

/// The agent of a plan, as this caller may use it now.
async fn agent_request(
    meta: &RequestMeta,
    agents: &AgentService,
    name: Option<&str>,
    session: Option<&str>,
    messages: Vec<Message>,
) -> Result<AgentRequest, CallError> {
    let gateway = agents.gateway();
    let ResolvedModel { name, profile } = agents.catalog().model(&meta.caller.tenant, name).await?;
    let session = session.map(|id| gateway.pipeline.sessions.prepare(&meta.caller, id)).transpose()?;
    let id = session.as_ref().map(|session| Arc::clone(&session.id));
    let toolbox = Arc::new(requested_run::toolbox(meta, gateway, session));
    Ok(AgentRequest { session: id, ..requested_run::agent_request(meta, &name, profile, toolbox, messages) })
}

fn answer(plan: Result<Plan, CallError>) -> Result<Response, CallError> {
    plan.map(|plan| reply::json(StatusCode::OK, &PlanReply::from(plan)))
}

impl PlanSummary {
    fn of(plan: &Plan) -> Self {
        Self {
            id: plan.id.to_string(),
            goal: plan.state.goal().to_owned(),
            profile: plan.agent.clone(),
            status: plan.status,
            created_at: plan.created.to_string(),
            changed_at: plan.changed.to_string(),
            created: plan.created.to_string(),
            changed: plan.changed.to_string(),
        }
    }
}

impl From<Plan> for PlanReply {
    fn from(plan: Plan) -> Self {
        let (summary, state) = (PlanSummary::of(&plan), plan.state);
        Self {
            summary,
            session_id: plan.session,
            preset: state.planner.preset,
            node: state.node,
            max_attempts: state.planner.max_attempts(),
            plan: state.plan,
            success_criteria: state.success_criteria,
            step_idx: state.step_idx,
            attempts: state.attempts,
            total_attempts: state.total_attempts,
            last_observation: state.last_observation,
            need_replan: state.need_replan,
            finished: plan.status == PlanStatus::Finished,
            reason: state.reason,
            answer: state.answer,
            history: state.memory.entries,
            usage: state.used,
        }
    }
}
