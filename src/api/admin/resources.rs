//! `/api/tenants`, `/api/models` and `/api/skills`: what agents are made of. All tenants share them, so that administrators of the
//! tenant `default` change them; all others read what is their tenant's.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::recorded;
use crate::agent::AgentService;
use crate::agent::catalog::{Catalog, NewResource, Page, Resource, Shown};
use crate::agent::skills::Skill;
use crate::api::body::FromSharedAdministrator;
use crate::api::documentation::ReplyBody;
use crate::api::parameters::{Name, Parameters};
use crate::api::reply;
use crate::api::request::RequestMeta;
use crate::config::{ModelConfig, TenantConfig};
use crate::core::administration::SharedAdministrator;
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::Gateway;
use crate::infra::audit::EventKind;

/// Entries of a page, if the request names no number.
const PAGE: usize = 50;
const MAX_PAGE: usize = 200;

/// The part of a list to return.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Entries of the page; 50 by default, 200 at most.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// The `next` of the page before.
    pub(in crate::api) after: Option<String>,
}

impl PageQuery {
    /// # Errors
    /// `invalid_request`: no page has so many entries.
    pub(in crate::api) fn limit(&self) -> Result<usize, CallError> {
        match self.limit.unwrap_or(PAGE) {
            limit @ 1..=MAX_PAGE => Ok(limit),
            _ => Err(CallError::new(ErrorCode::InvalidRequest, format!("`limit` must be 1 to {MAX_PAGE}"))),
        }
    }
}

/// A resource with its name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Named<T> {
    name: String,
    #[serde(flatten)]
    value: T,
}

/// The result of a removal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RemovedResource {
    success: bool,
    name: String,
}

/// Which resources a caller may read.
enum Readable {
    All,
    Tenants { id: Arc<str>, settings: Box<TenantConfig> },
}

/// The five routes of one kind. utoipa needs a function for each.
macro_rules! routes_of {
    ($module:ident, $kind:ty, $path:tt, $one:tt, $list:tt, $create:tt, $read:tt, $change:tt, $remove:tt) => {
        pub(crate) mod $module {
            use super::*;

            /// Lists them, in the order of their names: all for administrators of the tenant `default`, otherwise those of the caller's tenant.
            #[utoipa::path(get, path = $path, operation_id = $list, tag = "agents", params(PageQuery),
                                                    responses((status = 200, body = Page<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn list(
                origin: RequestMeta,
                Extension(agents): Extension<Arc<AgentService>>,
                Parameters(query): Parameters<PageQuery>,
            ) -> Result<Response, CallError> {
                list_of::<$kind>(&origin, agents.catalog(), query).await
            }

            /// Adds one. For administrators of the tenant `default`.
            #[utoipa::path(post, path = $path, operation_id = $create, tag = "agents", request_body = Named<$kind>,
                                                    responses((status = 201, body = Shown<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn create(
                State(gateway): State<Arc<Gateway>>,
                Extension(agents): Extension<Arc<AgentService>>,
                FromSharedAdministrator { by, origin, body, .. }: FromSharedAdministrator<NewResource<$kind>>,
            ) -> Result<Response, CallError> {
                add(by, &gateway, agents, &origin, body).await
            }

            /// Reads one: any for administrators of the tenant `default`, otherwise one of the caller's tenant.
            #[utoipa::path(get, path = $one, operation_id = $read, tag = "agents", params(("name" = String, Path)),
                                                    responses((status = 200, body = Shown<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn read(
                origin: RequestMeta,
                Extension(agents): Extension<Arc<AgentService>>,
                Name(name): Name,
            ) -> Result<Response, CallError> {
                one_of::<$kind>(&origin, agents.catalog(), &name).await
            }

            /// Replaces one that is not of the configuration. For administrators of the tenant `default`.
            #[utoipa::path(put, path = $one, operation_id = $change, tag = "agents", params(("name" = String, Path)),
                                                    request_body = $kind,
                                                    responses((status = 200, body = Shown<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn change(
                Name(name): Name,
                State(gateway): State<Arc<Gateway>>,
                Extension(agents): Extension<Arc<AgentService>>,
                FromSharedAdministrator { by, origin, body, .. }: FromSharedAdministrator<$kind>,
            ) -> Result<Response, CallError> {
                replace(by, &gateway, agents, &origin, (name, body)).await
            }

            /// Removes one that is not of the configuration. For administrators of the tenant `default`.
            #[utoipa::path(delete, path = $one, operation_id = $remove, tag = "agents", params(("name" = String, Path)),
                                                    responses((status = 200, body = RemovedResource), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn remove(
                origin: RequestMeta,
                State(gateway): State<Arc<Gateway>>,
                Extension(agents): Extension<Arc<AgentService>>,
                Name(name): Name,
            ) -> Result<Response, CallError> {
                remove_one::<$kind>(&gateway, agents, &origin, name).await
            }
        }
    };
}

routes_of!(
    tenants,
    TenantConfig,
    "/api/tenants",
    "/api/tenants/{name}",
    "listTenants",
    "createTenant",
    "getTenant",
    "changeTenant",
    "removeTenant"
);
routes_of!(
    models,
    ModelConfig,
    "/api/models",
    "/api/models/{name}",
    "listModelAliases",
    "createModelAlias",
    "getModelAlias",
    "changeModelAlias",
    "removeModelAlias"
);
routes_of!(
    skills,
    Skill,
    "/api/skills",
    "/api/skills/{name}",
    "listSkills",
    "createSkill",
    "getSkill",
    "changeSkill",
    "removeSkill"
);

async fn list_of<R: Resource>(
    origin: &RequestMeta,
    catalog: &Catalog,
    query: PageQuery,
) -> Result<Response, CallError> {
    let limit = query.limit()?;
    let readable = Readable::by(origin, catalog).await?;
    let is_visible = |name: &str| readable.has::<R>(name);
    Ok(reply::json(StatusCode::OK, &catalog.list::<R>(query.after.as_deref(), limit, is_visible).await?))
}

async fn one_of<R: Resource>(origin: &RequestMeta, catalog: &Catalog, name: &str) -> Result<Response, CallError> {
    let found = match Readable::by(origin, catalog).await?.has::<R>(name) {
        true => catalog.shown::<R>(name).await?,
        false => None,
    };
    found.map(|shown| reply::json(StatusCode::OK, &shown)).ok_or_else(|| Catalog::unknown::<R>(name))
}

async fn add<R: Resource>(
    by: SharedAdministrator,
    gateway: &Gateway,
    agents: Arc<AgentService>,
    origin: &RequestMeta,
    NewResource { name, value }: NewResource<R>,
) -> Result<Response, CallError> {
    let subject = subject::<R>(&name);
    let change = async move {
        agents.catalog().add(by, &name, &value).await?;
        Ok(Shown { name, configured: false, value })
    };
    let added = recorded(gateway, origin, EventKind::ResourceChanged, &subject, change).await?;
    Ok(reply::json(StatusCode::CREATED, &added))
}

async fn replace<R: Resource>(
    by: SharedAdministrator,
    gateway: &Gateway,
    agents: Arc<AgentService>,
    origin: &RequestMeta,
    (name, value): (String, R),
) -> Result<Response, CallError> {
    let subject = subject::<R>(&name);
    let change = async move {
        agents.catalog().change(by, &name, &value).await?;
        Ok(Shown { name, configured: false, value })
    };
    let changed = recorded(gateway, origin, EventKind::ResourceChanged, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &changed))
}

async fn remove_one<R: Resource>(
    gateway: &Gateway,
    agents: Arc<AgentService>,
    origin: &RequestMeta,
    name: String,
) -> Result<Response, CallError> {
    let by = SharedAdministrator::of(&origin.caller)?;
    let subject = subject::<R>(&name);
    let change = async move {
        agents.catalog().remove::<R>(by, &name).await?;
        Ok(RemovedResource { success: true, name })
    };
    let removed = recorded(gateway, origin, EventKind::ResourceChanged, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &removed))
}

/// As the audit trail names it.
fn subject<R: Resource>(name: &str) -> String {
    format!("{}:{}", R::KIND.as_str(), name.chars().take(100).collect::<String>())
}

impl Readable {
    async fn by(origin: &RequestMeta, catalog: &Catalog) -> Result<Self, CallError> {
        if origin.caller.administers_shared() {
            return Ok(Self::All);
        }
        let id = Arc::clone(&origin.caller.tenant);
        let settings = Box::new(catalog.tenant(&id).await?);
        Ok(Self::Tenants { id, settings })
    }

    fn has<R: Resource>(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tenants { id, settings } => R::is_visible(id, settings, name),
        }
    }
}
