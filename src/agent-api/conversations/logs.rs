//! `/api/logs`: the usage, messages and calls of the caller's runs, in pages or as an export.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::find;
use sekisho_agent::conversation::stored;
use sekisho_api::csv;
use sekisho_api::list::{Page, PageQuery, invalid_after};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{Name, Parameters, ReplyBody, RequestMeta};
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_store::{ConversationLogStore, LogFilter, LogRow, MessageLog, ModelUsageRow, ToolExecution, WithModel};

/// Maximum rows of an export; the rest is exported after the last row.
const MAX_EXPORT: u32 = 10_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogQuery {
    /// Of this conversation alone.
    conversation_id: Option<String>,
    #[serde(default)]
    #[param(inline)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    /// A page.
    #[default]
    Json,
    /// One JSON object a line.
    Jsonl,
    /// With the names of the columns in the first line (RFC 4180).
    Csv,
}

/// The columns of a log by their names, in their order.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LogRow, value_type = Object)]
struct Row(Map<String, Value>);

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogPage {
    #[serde(flatten)]
    page: Page<Row>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    rows: Vec<Row>,
}

/// Rows of a log of the caller's runs, the oldest first: `usage`, `messages` or `tool_executions`. An export has as many as its
/// `limit` says: 10000 if omitted and at most.
#[utoipa::path(get, path = "/api/logs/{log}", operation_id = "readLog", tag = "conversations",
    params(("log" = String, Path, description = "`usage`, `messages` or `tool_executions`"), LogQuery, PageQuery),
    responses(
        (status = 200, description = "A page, or the rows as JSON lines or CSV.", content((LogPage = "application/json"), (String = "application/jsonl"), (String = "text/csv"))),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn read(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(log): Name,
    Parameters(LogQuery { conversation_id, format }): Parameters<LogQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    match &conversation_id {
        Some(id) => drop(find(&gateway, &meta, id).await?),
        None => meta.require_list_of_own()?,
    }
    let max = match format {
        // One row more than the page shows says whether there is a next page.
        Format::Json => query.limit_in_store()? + 1,
        Format::Jsonl | Format::Csv => {
            query.limit.map_or(MAX_EXPORT, |limit| u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, MAX_EXPORT))
        }
    };
    let after = query.after.as_deref().map(position_of).transpose()?;
    let conversation = conversation_id.as_deref();
    let filter = LogFilter { caller_key: &meta.caller.key, conversation, after, max };
    let rows = rows(&gateway.store().conversation_logs(), &log, &filter).await?;
    Ok(match format {
        Format::Json => {
            let key = |row: &Map<String, Value>| {
                format!("{}:{}", row["run_id"].as_str().unwrap_or_default(), row["position"])
            };
            let page = Page::from_read(rows, query.limit()?, key).map(Row);
            let rows = page.items.clone();
            reply::json(StatusCode::OK, &LogPage { page, rows })
        }
        Format::Jsonl => {
            let lines = rows.into_iter().map(|row| format!("{}\n", Value::Object(row)));
            with_type("application/jsonl", lines.collect())
        }
        Format::Csv => with_type("text/csv; charset=utf-8", csv(&rows)),
    })
}

async fn rows(
    store: &ConversationLogStore,
    log: &str,
    filter: &LogFilter<'_>,
) -> Result<Vec<Map<String, Value>>, CallError> {
    match log {
        "usage" => {
            let rows = store.usage(filter).await.map_err(CallError::from)?;
            Ok(rows.iter().map(|row| object(row, filter, usage(&row.row))).collect())
        }
        "messages" => {
            let rows = store.messages(filter).await.map_err(CallError::from)?;
            rows.iter().map(|row| Ok(object(row, filter, message(&row.row)?))).collect()
        }
        "tool_executions" => {
            let rows = store.tool_executions(filter).await.map_err(CallError::from)?;
            Ok(rows.iter().map(|row| object(row, filter, execution(&row.row))).collect())
        }
        _ => {
            let message = "there is no such log; read `usage`, `messages` or `tool_executions`";
            Err(CallError::new(ErrorCode::UnknownResult, message))
        }
    }
}

/// The row of a run of the filter's caller.
fn object<T>(row: &LogRow<T>, filter: &LogFilter<'_>, columns: Value) -> Map<String, Value> {
    let (tenant, caller) = Caller::parts_of_key(filter.caller_key);
    let mut object = Map::new();
    object.insert("conversation_id".to_owned(), row.conversation.clone().into());
    object.insert("run_id".to_owned(), row.run.clone().into());
    object.insert("position".to_owned(), row.position.into());
    object.insert("run_begun_at".to_owned(), row.begun.to_string().into());
    object.insert("tenant".to_owned(), tenant.into());
    object.insert("caller".to_owned(), caller.into());
    if let Value::Object(columns) = columns {
        object.extend(columns);
    }
    object
}

pub(super) fn usage(row: &ModelUsageRow) -> Value {
    json!({
        "agent": row.agent,
        "provider": row.provider,
        "model": row.model,
        "num_turns": row.used.turns,
        "tool_calls": row.used.tool_calls,
        "input_tokens": row.used.prompt_tokens,
        "output_tokens": row.used.completion_tokens,
        "cached_tokens": row.used.cached_tokens,
        "cache_write_tokens": row.used.cache_write_tokens,
        // Exact: a number would be rounded.
        "cost_usd": row.used.cost_usd.to_string(),
        "duration_ms": row.used.duration_ms,
    })
}

fn message(log: &WithModel<MessageLog>) -> Result<Value, CallError> {
    let WithModel { provider, model, row: log } = log;
    let message = stored::read(&log.message).map_err(CallError::internal)?;
    Ok(json!({"provider": provider, "model": model, "incomplete": log.incomplete, "message": message}))
}

fn execution(execution: &WithModel<ToolExecution>) -> Value {
    let WithModel { provider, model, row: execution } = execution;
    let outcome = execution.output.as_ref();
    let arguments: Value = serde_json::from_str(&execution.tool_input).unwrap_or_default();
    json!({
        "provider": provider,
        "model": model,
        "tool_use_id": execution.tool_use_id,
        "tool_name": execution.tool_name,
        "tool_input": arguments,
        "content": outcome.map(|outcome| &outcome.text),
        "is_error": outcome.map(|outcome| outcome.is_error),
        "begun_at": execution.begun.to_string(),
        "ended_at": execution.ended.map(|ended| ended.to_string()),
    })
}

fn position_of(text: &str) -> Result<(&str, i64), CallError> {
    let parts = text.split_once(':').and_then(|(run, position)| Some((run, position.parse().ok()?)));
    parts.ok_or_else(invalid_after)
}

/// All rows of a log have the same columns.
fn csv(rows: &[Map<String, Value>]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let columns: Vec<_> = first.keys().map(String::as_str).collect();
    csv::table(&columns, rows.iter().map(Map::values))
}

fn with_type(content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
