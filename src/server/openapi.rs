//! `/tools/openapi`: looking at an OpenAPI document before its operations become tools.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use super::documentation::ReplyBody;
use super::reply;
use super::request::{Origin, json_body};
use crate::error::{CallError, ErrorCode};
use crate::gateway::Gateway;
use crate::sources::openapi::fetch::FetchFault;
use crate::sources::openapi::operation::Api;
use crate::sources::openapi::{CollectionFault, SpecOrigin};

/// `POST /tools/openapi/validate`: one of the two is given.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateRequest {
    /// Where the document stands; its host must be on the allowlist.
    #[schema(value_type = Option<String>)]
    spec_url: Option<Url>,
    /// The document itself, as JSON or YAML.
    spec_inline: Option<String>,
}

/// What was found in a document.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct Validation {
    /// It is an OpenAPI document, and can be registered.
    valid: bool,
    operations_count: usize,
    operations: Vec<FoundOperation>,
    /// The document's first server.
    base_url: Option<String>,
    /// Why the document cannot be used, or what of it.
    errors: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct FoundOperation {
    operation_id: Option<String>,
    method: String,
    path: String,
    description: String,
}

/// Reads an OpenAPI document and tells what is in it. Nothing is registered. For the role `admin`, since
/// it makes the service fetch and read what the caller names.
#[utoipa::path(post, path = "/tools/openapi/validate", tag = "openapi", request_body = ValidateRequest,
    responses((status = 200, body = Validation), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn validate(
    origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, CallError> {
    origin.require_role("admin")?;
    let request: ValidateRequest = json_body(&gateway, &headers, body).await?;
    let validation = match gateway.loader().read(request.origin()?).await {
        Ok(api) => Validation::of(api),
        Err(fault) => Validation { errors: vec![unusable(&fault)?], ..Validation::default() },
    };
    Ok(reply::json(StatusCode::OK, &validation))
}

impl ValidateRequest {
    fn origin(self) -> Result<SpecOrigin, CallError> {
        match (self.spec_url, self.spec_inline) {
            (Some(url), None) => Ok(SpecOrigin::Url(url)),
            (None, Some(text)) => Ok(SpecOrigin::Inline(text)),
            _ => Err(CallError::new(ErrorCode::InvalidRequest, "send one of `spec_url` and `spec_inline`")),
        }
    }
}

impl Validation {
    fn of(api: Api) -> Self {
        let operations: Vec<_> = api
            .operations
            .into_iter()
            .map(|operation| FoundOperation {
                operation_id: operation.id,
                method: operation.method.to_string(),
                path: operation.path,
                description: if operation.summary.is_empty() { operation.description } else { operation.summary },
            })
            .collect();
        Self {
            valid: true,
            operations_count: operations.len(),
            operations,
            base_url: api.servers.first().map(|server| server.url.to_string()),
            errors: api.report.lost.into_iter().map(|note| format!("{}: {}", note.operation, note.reason)).collect(),
        }
    }
}

/// What is wrong with the document; an error where the document was not seen at all.
fn unusable(fault: &CollectionFault) -> Result<String, CallError> {
    let code = match fault {
        CollectionFault::Fetch(FetchFault::NotAllowed { .. }) => ErrorCode::Denied,
        CollectionFault::Fetch(_) => ErrorCode::UpstreamError,
        CollectionFault::Failed(problem) => return Err(CallError::internal(problem)),
        other => return Ok(other.to_string()),
    };
    Err(CallError::new(code, fault.to_string()))
}
