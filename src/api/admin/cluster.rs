//! `/admin/cluster`: the replicas that share the database.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rust_decimal::Decimal;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::documentation::ReplyBody;
use crate::api::reply;
use crate::api::request::RequestMeta;
use crate::core::amount::Amount;
use crate::core::error::CallError;
use crate::gateway::Gateway;
use crate::infra::store::StoredReplica;

/// The replicas, the one started first at the beginning.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClusterBody {
    /// The id of the one that answers.
    replica: String,
    replicas: Vec<ReplicaBody>,
}

/// A gateway that did not leave.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReplicaBody {
    /// Of one process: a restart has another.
    id: String,
    host: String,
    version: String,
    /// `live`; `lost`: it did not say for some seconds that it is there.
    status: &'static str,
    /// Digest of the configuration.
    configuration: String,
    /// Version of the policy set.
    policies: String,
    /// Where it takes requests of sessions of MCP clients that others forward to it, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
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

/// The replicas that share the database, with what they run. For administrators of the tenant `default`.
#[utoipa::path(get, path = "/admin/cluster", operation_id = "getCluster", tag = "operation",
    responses((status = 200, body = ClusterBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(origin: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, CallError> {
    let (own, replicas) = gateway.replicas(&origin.caller).await?;
    let replicas = replicas.into_iter().map(ReplicaBody::from).collect();
    Ok(reply::json(StatusCode::OK, &ClusterBody { replica: own.to_owned(), replicas }))
}

impl From<(StoredReplica, Amount)> for ReplicaBody {
    fn from((replica, leased): (StoredReplica, Amount)) -> Self {
        let StoredReplica { id, host, version, configuration, policies, address, started, heartbeat, is_live } =
            replica;
        Self {
            id,
            host,
            version,
            status: if is_live { "live" } else { "lost" },
            configuration,
            policies,
            address: address.map(|address| address.to_string()),
            started_at: started.to_string(),
            heartbeat_at: heartbeat.to_string(),
            leased_usd: leased.cost_usd,
            leased_tokens: leased.tokens,
        }
    }
}
