//! The common parts of many operations: headers of requests and responses, and authentication.

use serde_json::{Map, Value, json};

use super::super::client_request::MAX_ID_BYTES;
use super::flattened;

/// Routes that run one call, and so accept an `Idempotency-Key` and an approval.
const CALLS: [&str; 3] = ["/tools/{name}/execute", "/tools/execute", "/api/v1/tools/{name}/execute"];

/// Routes that run calls charged to the budgets that the headers name.
const RUNS: [&str; 7] = [
    "/tools/batch-execute",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/api/chat/stream",
    "/api/conversations/{id}/execute",
];

/// The routes of agents among these.
const AGENTS: [&str; 5] = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/chat/stream"];

/// Routes that run one turn of an agent, or a plan, for a request with a body, and so accept an `Idempotency-Key`.
const TURNS: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/api/conversations/{id}/execute",
    "/api/plans",
];

/// Routes without authentication.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Header, the name of its description, and its description.
const REQUEST: [(&str, &str, &str); 8] = [
    ("X-Request-Id", "request_id", "The request that the calls belong to: one budget for all of them."),
    ("X-Agent-Id", "agent_id", "The agent whose token budget the calls count against."),
    ("X-Task-Id", "task_id", "The task whose token budget the calls count against."),
    ("traceparent", "traceparent", "The caller's span (W3C Trace Context)."),
    ("Idempotency-Key", "idempotency_key", "A call or turn sent twice with the same key runs once."),
    (
        "X-Approval-Id",
        "approval_id",
        "The approval by which the call is made: `error_info.approval.id` of its refusal.",
    ),
    (
        "Prefer",
        "prefer",
        "`wait=SECONDS`, at most 600: a call that needs approval is answered once that is decided. `handle`: a large result is \
         stored, and answered by a preview with its handle.",
    ),
    ("x-openwebui-chat-id", "chat_id", "The thread whose summary is stored and sent to the model."),
];

const RATE: [(&str, &str, &str); 3] = [
    ("X-RateLimit-Limit", "rate_limit", "Limit of calls, of the rate limit with the fewest calls left."),
    ("X-RateLimit-Remaining", "rate_limit_remaining", "Calls left of that limit."),
    ("X-RateLimit-Reset", "rate_limit_reset", "Seconds until the limit is fully restored."),
];

/// Adds the parts that the routes' own descriptions lack.
pub(super) fn describe(document: &mut Value) {
    document["security"] = json!([{}, {"bearer": []}, {"api_key": []}]);
    let components = &mut document["components"];
    components["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer",
            "description": "An API key, or a token of a configured issuer. Callers without credentials are accepted if `auth.anonymous` allows it."},
        "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
    });
    components["parameters"] = REQUEST
        .into_iter()
        .map(|(header, name, description)| (name.to_owned(), parameter(header, description)))
        .collect();
    components["headers"] = headers();
    flattened::merge(document);
    leave_out_unused_tags(document);
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, operations) in paths.iter_mut() {
        for operation in operations.as_object_mut().into_iter().flat_map(Map::values_mut) {
            describe_operation(path, operation);
        }
    }
}

/// The tags of routes that this program lacks.
fn leave_out_unused_tags(document: &mut Value) {
    let paths = document["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = paths.filter_map(Value::as_object).flat_map(Map::values);
    let used: Vec<_> = operations.filter_map(|operation| operation["tags"].as_array()).flatten().cloned().collect();
    if let Some(tags) = document["tags"].as_array_mut() {
        tags.retain(|tag| used.contains(&tag["name"]));
    }
}

fn describe_operation(path: &str, operation: &mut Value) {
    if operation["description"].is_null() {
        operation["description"] = operation["summary"].clone();
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if response["description"].as_str().is_none_or(str::is_empty) {
            response["description"] = description_of(status).into();
        }
        // As `schema` it would be one of the whole stream.
        if let Some(Value::Object(stream)) = response.pointer_mut("/content/text~1event-stream")
            && let Some(schema) = stream.remove("schema")
        {
            stream.insert("x-event-schema".to_owned(), schema);
        }
    }
    if OPEN.contains(&path) {
        operation["security"] = json!([]);
        return;
    }
    let (is_call, is_run) = (CALLS.contains(&path), RUNS.contains(&path));
    let is_turn = TURNS.contains(&path) && !operation["requestBody"].is_null();
    let takes = |name: &str| match name {
        "idempotency_key" => is_call || is_turn,
        "approval_id" | "prefer" => is_call,
        "chat_id" => AGENTS.contains(&path),
        _ => is_call || is_run,
    };
    let taken = REQUEST.iter().filter(|(_, name, _)| takes(name));
    let taken: Vec<_> = taken.map(|(_, name, _)| json!({"$ref": format!("#/components/parameters/{name}")})).collect();
    if !taken.is_empty() {
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.extend(taken),
            None => operation["parameters"] = taken.into(),
        }
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let refused = matches!(status.as_str(), "4XX" | "5XX");
        let headers = [
            ("retry_after", "Retry-After", refused),
            ("idempotency_replayed", "Idempotency-Replayed", is_call || is_turn),
        ]
        .into_iter()
        .chain(RATE.map(|(header, name, _)| (name, header, is_call)));
        let headers: Map<_, _> = headers
            .filter(|(_, _, is_sent)| *is_sent)
            .map(|(name, header, _)| (header.to_owned(), json!({"$ref": format!("#/components/headers/{name}")})))
            .collect();
        if !headers.is_empty() {
            response["headers"] = headers.into();
        }
    }
}

/// Required of every response (OpenAPI 3.1, Response Object).
fn description_of(status: &str) -> &'static str {
    match status.as_bytes().first() {
        Some(b'2') => "The result.",
        Some(b'4') => "The request is refused; `error_info` says why, and what to do.",
        _ => "The request failed; `error_info` says why, and whether to try again.",
    }
}

fn parameter(header: &str, description: &str) -> Value {
    // An invalid `traceparent` is ignored.
    let schema = json!({"type": "string", "minLength": 1, "maxLength": MAX_ID_BYTES, "pattern": "^[!-~]+$"});
    json!({"name": header, "in": "header", "description": description, "schema": schema})
}

fn headers() -> Value {
    let number = |description: &str| json!({"description": description, "schema": {"type": "integer", "minimum": 0}});
    let mut headers: Map<_, _> =
        RATE.into_iter().map(|(_, name, description)| (name.to_owned(), number(description))).collect();
    headers.insert("retry_after".to_owned(), number("Seconds to wait before a retry; with 429 and 503."));
    headers.insert(
        "idempotency_replayed".to_owned(),
        json!({"description": "`true`: the reply is that of an earlier request with the same key.", "schema": {"type": "string", "enum": ["true"]}}),
    );
    headers.into()
}
