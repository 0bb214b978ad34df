//! `/api/runs/{id}/timeline`: the steps of a run in time.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::bodies::RunBody;
use crate::background::BackgroundRuns;
use sekisho_agent::conversation::timeline::{self, RunStep};
use sekisho_agent::conversation::unknown_run;
use sekisho_api::list::{Page, PageQuery};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{Name, Parameters, ReplyBody, RequestMeta};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

/// A run as steps in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = RunTimeline)]
pub struct TimelineBody {
    /// With the usage so far, by agent and model.
    pub run: RunBody,
    /// Turns of its own model.
    pub turns: usize,
    /// Calls, with the calls of sub-agents.
    pub calls: usize,
    /// The end of the last step that has ended, where that is later than the run's: a call that was approved later. RFC 3339.
    pub until: Option<String>,
    /// The steps of the page, in the order of their beginnings.
    #[serde(flatten)]
    pub page: Page<RunStep>,
}

/// The steps of a run in time: the turns of its model with their usage, and below each its calls.
#[utoipa::path(get, path = "/api/runs/{id}/timeline", operation_id = "showRunTimeline", tag = "conversations",
    params(("id" = String, Path), PageQuery),
    responses((status = 200, body = TimelineBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    Name(id): Name,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (limit, skipped) = (query.limit()?, query.after::<usize>()?.unwrap_or_default());
    let id = background.run_id(&meta.caller.key, id).await?;
    let store = gateway.store();
    let found = store.conversation_runs().get(&meta.caller.key, &id).await.map_err(CallError::from)?;
    let run = found.ok_or_else(|| unknown_run(&id))?;
    let usage = store.conversation_logs().usage_of_run(&id).await.map_err(CallError::from)?;
    let steps = timeline::steps(store, &run).await?;
    let turns = steps.iter().filter(|step| step.depth == 0).count();
    let calls = steps.len() - turns;
    let ends = steps.iter().filter_map(|step| step.ended_at.as_deref()?.parse::<Timestamp>().ok());
    let later = ends.filter(|end| run.ended.is_some_and(|ended| *end > *ended)).max();
    let (run, until) = (RunBody::of(run, Some(usage)), later.map(|end| end.to_string()));
    let page = Page::from_read(steps.into_iter().skip(skipped).collect(), limit, |_| {
        skipped.saturating_add(limit).to_string()
    });
    Ok(reply::json(StatusCode::OK, &TimelineBody { run, turns, calls, until, page }))
}
