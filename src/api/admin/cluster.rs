//! `/admin/cluster`: the replicas that share the database, and the leases of lost ones.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::recorded;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{LatestFirst, Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_core::amount::Amount;
use sekisho_core::caller::Caller;
use sekisho_gateway::Gateway;
use sekisho_store::replica::degraded_of;
use sekisho_store::{DailyScope, ReleasedLease, StoredReplica};

/// The replicas, the one started last first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClusterBody {
    /// The id of the one that answers.
    replica: String,
    #[serde(flatten)]
    page: Page<ReplicaBody>,
    /// Deprecated name of `items`, to be dropped in 0.3. All replicas, the one started first at the beginning, where no
    /// page is asked for.
    #[schema(deprecated)]
    replicas: Vec<ReplicaBody>,
}

/// A gateway that did not leave.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReplicaBody {
    /// Of one process: a restart has another.
    pub id: String,
    host: String,
    version: String,
    /// `live`; `lost`: it did not say for some seconds that it is there.
    pub status: &'static str,
    /// Digest of the configuration.
    pub configuration: String,
    /// Version of the policy set.
    pub policies: String,
    /// Where it takes requests of sessions of MCP clients that others forward to it, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The names of what does not work there, as in its `/readyz`: open circuit breakers (`circuit:`), MCP servers (`mcp:`) and
    /// documents (`openapi:`) among them; at most 50.
    degraded: Vec<String>,
    /// By the database's clock, as the next one.
    started_at: String,
    /// When it last said that it is there.
    heartbeat_at: String,
    /// What it leases of today's budgets, all accounts together: USD. Of a lost one it counts as spent.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    leased_usd: Decimal,
    leased_tokens: u64,
}

impl Listed for ReplicaBody {
    const NAME: &'static str = "replicas";
    const ROUTE: &'static str = "/admin/cluster";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).titled("replica-id").headed("id"),
        Column::new("host", Form::Text).titled("replica-host").headed("host"),
        Column::new("status", Form::Text).titled("replica-state").headed("status"),
        Column::new("live", Form::Text),
        Column::new("version", Form::Text).titled("replica-version").headed("version"),
        Column::new("address", Form::Text).headed("address"),
        Column::new("configuration", Form::Text).headed("configuration"),
        Column::new("policies", Form::Text).headed("policies"),
        Column::new("started_at", Form::Moment).headed("started"),
        Column::new("heartbeat", Form::Moment).at("/heartbeat_at").titled("replica-heartbeat").headed("last heartbeat"),
        Column::new("leased_usd", Form::Money).headed("leased"),
        Column::new("leased_tokens", Form::Count).headed("leased tokens"),
        Column::new("degraded", Form::Text).titled("replica-degraded").headed("degraded"),
    ];

    fn members(&self) -> Value {
        let mut members = serde_json::to_value(self).unwrap_or_default();
        // The column of earlier files, to be dropped in 0.3.
        members["live"] = (self.status == "live").into();
        members
    }
}

/// What was given back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReleasedBody {
    success: bool,
    /// The replica that leased it.
    replica: String,
    /// Of each caller and tenant; empty where nothing was leased.
    released: Vec<ReleasedLeaseBody>,
}

/// What was given back of one budget.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReleasedLeaseBody {
    /// In UTC, `YYYY-MM-DD`.
    day: String,
    tenant: String,
    /// Absent: the budget of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    /// USD.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    usd: Decimal,
    tokens: u64,
}

impl Listed for ReleasedLeaseBody {
    const NAME: &'static str = "released-leases";
    const ROUTE: &'static str = "/admin/cluster/replicas/{id}/release";
    const NONE: &'static str = "it leased nothing";
    const COLUMNS: &'static [Column] = &[
        Column::new("day", Form::Text).headed("day"),
        Column::new("tenant", Form::Name).headed("tenant"),
        Column::new("caller", Form::Name).headed("caller"),
        Column::new("usd", Form::Money).headed("given back"),
        Column::new("tokens", Form::Count).headed("tokens given back"),
    ];
}

/// The replicas that share the database, with what they run. For administrators of the tenant `default`.
#[utoipa::path(get, path = "/admin/cluster", operation_id = "getCluster", tag = "operation", params(PageQuery),
    responses((status = 200, body = ClusterBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (own, replicas) = gateway.cluster().list(&meta.caller).await?;
    let key = |(replica, _): &(StoredReplica, Amount)| LatestFirst::new(replica.started, &*replica.id);
    let (page, replicas) = Page::from_all_with_old_name(replicas, &query, key)?;
    let replicas = replicas.into_iter().map(ReplicaBody::from).collect();
    let body = ClusterBody { replica: own.to_owned(), page: page.map(ReplicaBody::from), replicas };
    Ok(reply::json(StatusCode::OK, &body))
}

/// Gives back what a lost replica leases of the budgets of a day, at the earliest 60 s after its last heartbeat. What it spent in
/// its last second and could not write is not known, and may be spent once more. Should it come back, it leases anew. For
/// administrators of the tenant `default`.
#[utoipa::path(post, path = "/admin/cluster/replicas/{id}/release", operation_id = "releaseReplica", tag = "operation",
    params(("id" = String, Path)),
    responses((status = 200, body = ReleasedBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn release(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(replica): Name,
) -> Result<Response, ErrorReply> {
    gateway.cluster().require_administrator(&meta.caller)?;
    let (service, of) = (Arc::clone(&gateway), replica.clone());
    let change = async move { service.cluster().release(&of).await };
    let released = recorded(&gateway, &meta, EventKind::LeasesReleased, &replica, change).await?;
    let released = released.into_iter().map(ReleasedLeaseBody::from).collect();
    Ok(reply::json(StatusCode::OK, &ReleasedBody { success: true, replica, released }))
}

impl From<ReleasedLease> for ReleasedLeaseBody {
    fn from(ReleasedLease { day, scope, key, amount }: ReleasedLease) -> Self {
        let (tenant, caller) = match scope {
            DailyScope::Tenant => (key.to_string(), None),
            DailyScope::Caller => {
                let (tenant, caller) = Caller::parts_of_key(&key);
                (tenant.to_owned(), Some(caller.to_owned()))
            }
        };
        Self { day: day.to_string(), tenant, caller, usd: amount.cost_usd, tokens: amount.tokens }
    }
}

impl From<(StoredReplica, Amount)> for ReplicaBody {
    fn from((replica, leased): (StoredReplica, Amount)) -> Self {
        let degraded = degraded_of(&replica);
        let StoredReplica { id, host, version, configuration, policies, address, started, heartbeat, is_live, .. } =
            replica;
        Self {
            id,
            host,
            version,
            status: if is_live { "live" } else { "lost" },
            configuration,
            policies,
            address: address.map(|address| address.to_string()),
            degraded,
            started_at: started.to_string(),
            heartbeat_at: heartbeat.to_string(),
            leased_usd: leased.cost_usd,
            leased_tokens: leased.tokens,
        }
    }
}
