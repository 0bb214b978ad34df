//! `/api/tenants`, `/api/models` and `/api/skills`: the resources of agents. Administrators of the tenant `default`
//! change records of tenants, and resources that all tenants share; a tenant's administrators change its own models and
//! skills. All others read the resources of their tenant.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use sekisho_agent::AgentService;
use sekisho_agent::catalog::{Catalog, NewResource, Resource, ResourcePage, Shown, Viewer};
use sekisho_agent::skills::Skill;
use sekisho_api::list::{Page, PageQuery};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{FromAdministrator, Name, Parameters, ReplyBody, RequestMeta, recorded};
use sekisho_audit::EventKind;
use sekisho_config::{ModelConfig, TenantConfig};
use sekisho_core::administration::{AdministratorProof, Ownership};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

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

            /// Lists them, in the order of their names: all for administrators of the tenant `default`, otherwise those that the caller's tenant
            /// has.
            #[utoipa::path(get, path = $path, operation_id = $list, tag = "agents", params(PageQuery),
                                                    responses((status = 200, body = Page<Shown<$kind>>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn list(
                meta: RequestMeta,
                Extension(agents): Extension<Arc<AgentService>>,
                Parameters(query): Parameters<PageQuery>,
            ) -> Result<Response, ErrorReply> {
                Ok(list_of::<$kind>(&meta, agents.catalog(), query).await?)
            }

            /// Adds one. For administrators: what those of the tenant `default` add is shared, and a model or skill that others add is of
            /// their tenant alone. Records of tenants are for those of `default`.
            #[utoipa::path(post, path = $path, operation_id = $create, tag = "agents", request_body = Named<$kind>,
                                                    responses((status = 201, body = Shown<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn create(
                State(gateway): State<Arc<Gateway>>,
                Extension(agents): Extension<Arc<AgentService>>,
                FromAdministrator { by, meta, body, .. }: FromAdministrator<
                    NewResource<$kind>,
                    <$kind as Resource>::Proof,
                >,
            ) -> Result<Response, ErrorReply> {
                Ok(add::<$kind>(by, &gateway, agents, &meta, body).await?)
            }

            /// Reads one: any for administrators of the tenant `default`, otherwise one of the caller's tenant.
            #[utoipa::path(get, path = $one, operation_id = $read, tag = "agents", params(("name" = String, Path)),
                                                    responses((status = 200, body = Shown<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn read(
                meta: RequestMeta,
                Extension(agents): Extension<Arc<AgentService>>,
                Name(name): Name,
            ) -> Result<Response, ErrorReply> {
                Ok(one_of::<$kind>(&meta, agents.catalog(), &name).await?)
            }

            /// Replaces one that is not of the configuration. For administrators of the tenant `default`; what is of a tenant also for
            /// those of the tenant.
            #[utoipa::path(put, path = $one, operation_id = $change, tag = "agents", params(("name" = String, Path)),
                                                    request_body = $kind,
                                                    responses((status = 200, body = Shown<$kind>), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn change(
                Name(name): Name,
                State(gateway): State<Arc<Gateway>>,
                Extension(agents): Extension<Arc<AgentService>>,
                FromAdministrator { meta, body, .. }: FromAdministrator<$kind, <$kind as Resource>::Proof>,
            ) -> Result<Response, ErrorReply> {
                Ok(replace(&gateway, agents, &meta, (name, body)).await?)
            }

            /// Removes one that is not of the configuration. For administrators of the tenant `default`; what is of a tenant also for
            /// those of the tenant.
            #[utoipa::path(delete, path = $one, operation_id = $remove, tag = "agents", params(("name" = String, Path)),
                                                    responses((status = 200, body = RemovedResource), (status = "4XX", body = ReplyBody)))]
            pub(crate) async fn remove(
                meta: RequestMeta,
                State(gateway): State<Arc<Gateway>>,
                Extension(agents): Extension<Arc<AgentService>>,
                Name(name): Name,
            ) -> Result<Response, ErrorReply> {
                Ok(remove_one::<$kind>(&gateway, agents, &meta, name).await?)
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

async fn list_of<R: Resource>(meta: &RequestMeta, catalog: &Catalog, query: PageQuery) -> Result<Response, CallError> {
    let limit = query.limit()?;
    let readable = Readable::by(meta, catalog).await?;
    let is_visible = |name: &str, owner: &Ownership| readable.has::<R>(name, owner);
    let found = catalog.list::<R>(readable.viewer(), query.after.as_deref(), limit, is_visible).await?;
    let ResourcePage { items, next } = found;
    Ok(reply::json(StatusCode::OK, &Page { items, next }))
}

async fn one_of<R: Resource>(meta: &RequestMeta, catalog: &Catalog, name: &str) -> Result<Response, CallError> {
    Ok(reply::json(StatusCode::OK, &found::<R>(meta, catalog, name).await?))
}

/// The resource of that name, if the caller may read it.
///
/// # Errors
/// `not_found`.
async fn found<R: Resource>(meta: &RequestMeta, catalog: &Catalog, name: &str) -> Result<Shown<R>, CallError> {
    let readable = Readable::by(meta, catalog).await?;
    let found = catalog.shown::<R>(readable.viewer(), name).await?;
    found.filter(|shown| readable.has::<R>(name, &shown.owner())).ok_or_else(|| Catalog::unknown::<R>(name))
}

async fn add<R: Resource>(
    by: R::Proof,
    gateway: &Gateway,
    agents: Arc<AgentService>,
    meta: &RequestMeta,
    NewResource { name, value }: NewResource<R>,
) -> Result<Response, CallError> {
    let subject = subject::<R>(&name);
    let change = async move {
        agents.catalog().add(&by, &name, &value).await?;
        Ok(Shown::new(&name, by.owner(), value))
    };
    let added = recorded(gateway, meta, EventKind::ResourceChanged, &subject, change).await?;
    Ok(reply::json(StatusCode::CREATED, &added))
}

async fn replace<R: Resource>(
    gateway: &Gateway,
    agents: Arc<AgentService>,
    meta: &RequestMeta,
    (name, value): (String, R),
) -> Result<Response, CallError> {
    let known = found::<R>(meta, agents.catalog(), &name).await?;
    let by = R::Proof::for_owner(&meta.caller, &known.owner())?;
    let subject = subject::<R>(&name);
    let change = async move {
        agents.catalog().change(&by, &name, &value).await?;
        Ok(Shown::new(&name, by.owner(), value))
    };
    let changed = recorded(gateway, meta, EventKind::ResourceChanged, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &changed))
}

async fn remove_one<R: Resource>(
    gateway: &Gateway,
    agents: Arc<AgentService>,
    meta: &RequestMeta,
    name: String,
) -> Result<Response, CallError> {
    // A caller who is no administrator learns nothing of existing resources.
    R::Proof::of(&meta.caller)?;
    let known = found::<R>(meta, agents.catalog(), &name).await?;
    let by = R::Proof::for_owner(&meta.caller, &known.owner())?;
    let subject = subject::<R>(&name);
    let change = async move {
        agents.catalog().remove::<R>(&by, &name).await?;
        Ok(RemovedResource { success: true, name })
    };
    let removed = recorded(gateway, meta, EventKind::ResourceChanged, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &removed))
}

/// As the audit trail names it.
fn subject<R: Resource>(name: &str) -> String {
    format!("{}:{}", R::KIND.as_str(), name.chars().take(100).collect::<String>())
}

impl Readable {
    async fn by(meta: &RequestMeta, catalog: &Catalog) -> Result<Self, CallError> {
        if meta.caller.administers_shared() {
            return Ok(Self::All);
        }
        let id = Arc::clone(&meta.caller.tenant);
        let settings = Box::new(catalog.tenant(&id).await?);
        Ok(Self::Tenants { id, settings })
    }

    fn viewer(&self) -> Viewer<'_> {
        match self {
            Self::All => Viewer::OfAllTenants,
            Self::Tenants { id, .. } => Viewer::OfTenant(id),
        }
    }

    /// The settings of a tenant may leave out shared resources. The tenant's own resources may be read by its callers.
    fn has<R: Resource>(&self, name: &str, owner: &Ownership) -> bool {
        match self {
            Self::All => true,
            Self::Tenants { id, settings } => !owner.is_shared() || R::is_visible(id, settings, name),
        }
    }
}
