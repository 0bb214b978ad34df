//! `/tools/openapi`: validates, registers and removes OpenAPI documents over HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use super::recorded;
use crate::body::FromAdministrator;
use crate::documentation::ReplyBody;
use crate::parameters::Name;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_core::administration::{Administrator, AdministratorProof};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Gateway, RegisterError, SourceKind};
use sekisho_openapi::load::fetch::FetchError;
use sekisho_openapi::read::operation::Api;
use sekisho_openapi::{Collection, CollectionError, Registration, SpecOrigin};

/// `POST /tools/openapi/validate`: one of the two fields is required.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateRequest {
    /// Address of the document; its host must be on the allowlist.
    #[schema(value_type = Option<String>)]
    spec_url: Option<Url>,
    /// The document itself, as JSON or YAML.
    spec_inline: Option<String>,
}

/// The result of a validation.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct Validation {
    /// Whether it is an OpenAPI document that can be registered as it is: at least one operation becomes a tool, and no reference of an
    /// operation leads nowhere.
    valid: bool,
    operations_count: usize,
    operations: Vec<FoundOperation>,
    /// The document's first server.
    base_url: Option<String>,
    /// Why the document, or a part of it, cannot be used.
    errors: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct FoundOperation {
    operation_id: Option<String>,
    method: String,
    path: String,
    description: String,
}

/// Reads an OpenAPI document and describes it, without registering anything. For administrators, since it makes the service fetch and
/// parse what the caller names.
#[utoipa::path(post, path = "/tools/openapi/validate", operation_id = "validateOpenApi", tag = "openapi", request_body = ValidateRequest,
    responses((status = 200, body = Validation), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn validate(
    State(gateway): State<Arc<Gateway>>,
    request: FromAdministrator<ValidateRequest>,
) -> Result<Response, ErrorReply> {
    let validation = match gateway.collections().loader().read(request.body.origin()?, stand_in()?).await {
        Ok(api) => Validation::of(api),
        Err(error) => Validation { errors: vec![unusable(&error)?], ..Validation::default() },
    };
    Ok(reply::json(StatusCode::OK, &validation))
}

/// Placeholder server of a document that names none: a reserved name (RFC 2606 §2).
fn stand_in() -> Result<Url, CallError> {
    Url::parse("https://server.invalid/").map_err(CallError::internal)
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
        let has_broken_references = !api.report.broken_references.is_empty();
        let problems = api.report.lost.into_iter().chain(api.report.broken_references);
        let mut errors: Vec<_> = problems.map(|note| format!("{}: {}", note.operation, note.reason)).collect();
        if api.servers.is_empty() && api.operations.iter().any(|operation| operation.servers.is_empty()) {
            errors.push(CollectionError::NoServer.to_string());
        }
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
            valid: !operations.is_empty() && !has_broken_references,
            operations_count: operations.len(),
            operations,
            base_url: api.servers.first().map(|server| server.url.to_string()),
            errors,
        }
    }
}

/// The problem of the document; an error if the document could not be fetched.
fn unusable(error: &CollectionError) -> Result<String, CallError> {
    let code = match error {
        CollectionError::Fetch(FetchError::NotAllowed { .. }) => ErrorCode::Denied,
        CollectionError::Fetch(_) => ErrorCode::UpstreamError,
        CollectionError::Busy => ErrorCode::Overloaded,
        CollectionError::Failed(problem) => return Err(CallError::internal(problem)),
        other => return Ok(other.to_string()),
    };
    Err(CallError::new(code, error.to_string()))
}

/// The result of a registration.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Registered<'a> {
    success: bool,
    collection_name: &'a str,
    /// Names of the tools.
    operations_registered: Vec<&'a str>,
    message: String,
    rate_limit: u32,
    timeout_seconds: f64,
    max_response_bytes: usize,
}

/// Offers the operations of an OpenAPI document as tools, and stores the registration for the next start. A
/// collection that was registered under the same name is replaced. For administrators: a collection of one of the tenant `default` is
/// shared, that of another is of its tenant alone.
#[utoipa::path(post, path = "/tools/openapi/register", operation_id = "registerOpenApi", tag = "openapi", request_body = Registration,
    responses((status = 200, body = Registered<'_>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn register(
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { by, meta, body, .. }: FromAdministrator<Registration>,
) -> Result<Response, ErrorReply> {
    let name = body.name.clone();
    let service = Arc::clone(&gateway);
    // Boxed, because it is large.
    let register =
        Box::pin(async move { service.collections().register(by, body).await.map_err(|error| not_registered(&error)) });
    let collection = recorded(&gateway, &meta, EventKind::CollectionRegistered, &name, register).await?;
    tracing::info!(collection = name, caller = &*meta.caller.id, "a collection was registered");
    let quarantine_note = super::mcp::quarantine_note(&gateway, &format!("openapi:{name}"));
    Ok(reply::json(StatusCode::OK, &Registered::of(&name, &collection, &quarantine_note)))
}

/// Removes a registered collection's tools. For administrators of the tenant `default`; a collection of a tenant also for those of the
/// tenant.
#[utoipa::path(delete, path = "/tools/openapi/{name}", operation_id = "removeOpenApi", tag = "openapi", params(("name" = String, Path)),
    responses((status = 200, body = Removed), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn unregister(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, ErrorReply> {
    Administrator::of(&meta.caller)?;
    let status = gateway.sources().find(&meta.caller, SourceKind::Openapi, &name).await?;
    let by = Administrator::for_owner(&meta.caller, &status.owner)?;
    let (service, removed) = (Arc::clone(&gateway), name.clone());
    let remove = async move {
        if service.collections().unregister(by, &removed).await.map_err(|error| not_registered(&error))? {
            return Ok(());
        }
        let message = "no collection of that name is registered; remove a configured collection from the configuration";
        Err(CallError::new(ErrorCode::InvalidRequest, message))
    };
    recorded(&gateway, &meta, EventKind::CollectionRemoved, &name, remove).await?;
    tracing::info!(collection = name, caller = &*meta.caller.id, "a collection was removed");
    Ok(reply::json(StatusCode::OK, &Removed { success: true, collection_name: name }))
}

/// The result of a removal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Removed {
    success: bool,
    collection_name: String,
}

impl<'a> Registered<'a> {
    fn of(name: &'a str, collection: &'a Collection, quarantine_note: &str) -> Self {
        let Collection { settings, tools, report, .. } = collection;
        let dangerous = report.dangers(|_| false).map(|note| format!("; {note}")).unwrap_or_default();
        Self {
            success: true,
            collection_name: name,
            operations_registered: tools.iter().map(|tool| tool.metadata.name.as_str()).collect(),
            message: format!("{}{dangerous}{quarantine_note}", report.summary()),
            rate_limit: settings.rate_limit,
            timeout_seconds: settings.timeout_seconds,
            max_response_bytes: settings.max_response_bytes,
        }
    }
}

pub fn not_registered(error: &RegisterError) -> CallError {
    match error {
        RegisterError::Collection(error) => match unusable(error) {
            Ok(problem) => CallError::new(ErrorCode::InvalidRequest, problem),
            Err(error) => error,
        },
        RegisterError::Store(_) | RegisterError::Unwritable(_) => CallError::internal(error),
        RegisterError::NameTaken(_) => CallError::new(ErrorCode::NameTaken, error.to_string()),
        RegisterError::TooManyOfTenant => CallError::new(ErrorCode::Overloaded, error.to_string()),
        _ => CallError::new(ErrorCode::InvalidRequest, error.to_string()),
    }
}
