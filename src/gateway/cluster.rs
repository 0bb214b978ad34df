//! The replicas that share the database with this gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use super::parts::component_error;
use super::{
    BackgroundWork, Configuration, McpRegistrations, OpenapiCollections, Reach, SourceCatalogue, StartError, Status,
    limit_tenants,
};
use sekisho_calls::budget::BudgetLeases;
use sekisho_calls::pipeline::Pipeline;
use sekisho_calls::policy::Policy;
use sekisho_config::Config;
use sekisho_core::amount::Amount;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::lease::budget::RELEASED_AFTER;
use sekisho_observe::readiness::Readiness;
use sekisho_outbound::blobs::Blobs;
use sekisho_store::replica::{ClusterKeys, Files, HEARTBEAT, LOST_AFTER, Replica};
use sekisho_store::{Release, ReleasedLease, Store, StoreError, StoreLocation, StoredReplica};
use sekisho_tools::builtin::Workspaces;

/// How often it is looked whether another replica changed registrations.
const REGISTRATIONS_POLL: Duration = Duration::from_secs(1);

/// How long a start or a stop waits for the database to have this replica's address; a later heartbeat writes it too.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(2);

/// The replicas that share a database with this gateway, if it is one of them, and the object storage that they share.
#[derive(Debug)]
pub struct Cluster {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) store: Store,
    pub(super) workspaces: Workspaces,
    pub(super) status: Arc<Status>,
    pub(super) mcp_registrations: Arc<McpRegistrations>,
    pub(super) collections: Arc<OpenapiCollections>,
    pub(super) source_catalogue: Arc<SourceCatalogue>,
    /// If this gateway is one.
    pub(super) replica: Option<Arc<Replica>>,
    /// If they share one.
    pub(super) blobs: Option<Blobs>,
}

impl Cluster {
    /// This gateway as one of several, if it is one.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref()
    }

    /// Announces to the other replicas the address at which this replica takes their requests; with `None`, that it
    /// takes no more.
    pub async fn announce_address(&self, address: Option<SocketAddr>) {
        let Some(replica) = &self.replica else { return };
        replica.set_address(address);
        if timeout(ANNOUNCE_TIMEOUT, self.beat(replica)).await.is_err() {
            tracing::warn!("the database did not take this replica's address in time");
        }
    }

    /// This gateway's id among the replicas, if it is one.
    pub fn replica_id(&self) -> Option<&str> {
        self.replica.as_ref().map(|replica| &**replica.id())
    }

    /// The id of this replica, and all replicas that did not leave, each with its leases of today's budgets.
    /// Errors: `denied` to all but administrators of the tenant `default`; `not_found` for a gateway that is no
    /// replica; `overloaded` when the store cannot be read.
    pub async fn list(&self, caller: &Caller) -> Result<(&str, Vec<(StoredReplica, Amount)>), CallError> {
        let replica = self.replica_shown_to(caller)?;
        let mut leased = self.store.budget_leases().leased_on(self.pipeline.budget.today()).await?;
        let replicas = replica.list().await?.into_iter().map(|replica| {
            let leased = leased.remove(&replica.id).unwrap_or_default();
            (replica, leased)
        });
        Ok((replica.id(), replicas.collect()))
    }

    /// Checks that this caller may release the leases of replicas.
    /// Errors: as [`list`](Self::list).
    pub fn require_administrator(&self, caller: &Caller) -> Result<(), CallError> {
        self.replica_shown_to(caller).map(drop)
    }

    /// Gives back the part of a day's budgets that a lost replica leases and that is not known as spent.
    /// Errors: `not_found` for an unknown replica; `invalid_request` for one that may be live; `overloaded` when the
    /// store cannot be written.
    pub async fn release(&self, id: &str) -> Result<Vec<ReleasedLease>, CallError> {
        match self.store.budget_leases().release(id, RELEASED_AFTER).await? {
            Release::Done(given_back) => Ok(given_back),
            Release::TooEarly(silent) => Err(may_be_live(id, silent)),
            Release::Unknown => {
                let message = format!(
                    "there is no replica {id:?} that is lost: `sekisho cluster` lists the ids. One that stopped gave back what it \
                     leased, and one that is restarted has another id"
                );
                Err(CallError::new(ErrorCode::NotFound, message))
            }
        }
    }

    fn replica_shown_to(&self, caller: &Caller) -> Result<&Arc<Replica>, CallError> {
        if self.configuration.reach(caller) != Reach::AllTenants {
            let message = "the replicas serve all tenants: they are for administrators of the tenant `default` alone";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        self.replica.as_ref().ok_or_else(|| {
            let message =
                "this gateway is no replica: set `cluster.enabled`, and `store.url` to the database of all of them";
            CallError::new(ErrorCode::NotFound, message)
        })
    }

    /// Takes over the secrets of a changed configuration.
    pub(super) fn renew_keys(&self, config: &Config) {
        if let (Some(replica), Some(keys)) = (&self.replica, keys_of(config)) {
            replica.set_keys(keys);
        }
    }

    /// Sends the heartbeats of this replica.
    async fn keep_registered(self: Arc<Self>, closing: CancellationToken) {
        let Some(replica) = &self.replica else { return };
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            self.beat(replica).await;
            self.apply_membership(replica);
        }
    }

    async fn beat(&self, replica: &Replica) {
        let files = files_of(&self.configuration.current(), self.pipeline.policy.version());
        let degraded: Vec<_> = self.status.degraded().into_keys().collect();
        replica.beat(&files, &degraded).await;
    }

    /// Starts the background work of a replica: its heartbeat, leases of budgets and rates, registrations of others,
    /// the object storage.
    pub(super) fn start(self: &Arc<Self>, background: &BackgroundWork) {
        let Some(replica) = &self.replica else { return };
        self.apply_membership(replica);
        self.pipeline.replies.set_replica(replica.id());
        self.pipeline.approvals.set_replica(replica.id());
        self.pipeline.journals.set_replica(replica.id());
        background.spawn_of(self, Self::keep_registered);
        let id = Arc::clone(replica.id());
        background.spawn_of(&self.pipeline, |pipeline, closing| async move {
            pipeline.limits.exchange(&id, closing).await;
        });
        background.spawn_of(self, Self::follow_registrations);
        let (leases, closing) = (self.budget_leases(replica), background.closing().clone());
        background.spawn(async move { leases.run(closing).await });
        self.start_blobs(background);
    }

    /// Looks every second whether another replica changed registrations, tenants, models or skills, and takes them over.
    async fn follow_registrations(self: Arc<Self>, closing: CancellationToken) {
        let mut ticks = tokio::time::interval(REGISTRATIONS_POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Every change since the start read the store is taken over once more.
        let mut known = None;
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            // The component `cluster` says when the store cannot be read.
            let Ok(version) = self.store.registrations().version().await else { continue };
            if known == Some(version) {
                continue;
            }
            match self.adopt_registrations().await {
                Ok(()) => {
                    known = Some(version);
                    self.pipeline.registry.set_shared_version(version);
                }
                Err(error) => tracing::warn!(%error, "registrations of other replicas cannot be read"),
            }
        }
    }

    async fn adopt_registrations(&self) -> Result<(), StoreError> {
        let config = self.configuration.current_arc();
        if self.collections.adopt_registered().await? {
            let (collections, _changing) = self.collections.next(&config).await;
            self.collections.offer_all(collections);
        }
        self.mcp_registrations.adopt(&config).await?;
        self.source_catalogue.adopt().await?;
        limit_tenants(&self.pipeline.budget, &self.configuration.current(), &self.store.resources()).await
    }

    /// Gives back the leases of this replica, and removes its registration.
    pub(super) async fn leave(&self) {
        let Some(replica) = &self.replica else { return };
        self.budget_leases(replica).give_back().await;
        replica.leave().await;
    }

    /// Removes the remains of replicas that were lost long ago.
    pub(super) async fn forget_lost(&self) {
        let Some(replica) = &self.replica else { return };
        replica.forget_lost().await;
        if let Err(error) = self.budget_leases(replica).forget_old().await {
            tracing::warn!(%error, "cannot remove leases of past days from the store");
        }
        if let Err(error) = self.pipeline.limits.clean_up(replica.id()).await {
            tracing::warn!(%error, "cannot remove full buckets and slots of lost replicas from the store");
        }
    }

    fn budget_leases(&self, replica: &Arc<Replica>) -> BudgetLeases {
        BudgetLeases::new(&self.pipeline.budget, &self.store, replica, &self.readiness)
    }

    fn apply_membership(&self, replica: &Replica) {
        self.pipeline.budget.set_database_time(*replica.database_time());
        self.pipeline.budget.confirm_leases(replica.confirmed());
        self.pipeline.limits.set_replicas(replica.live());
    }
}

fn may_be_live(id: &str, silent: Duration) -> CallError {
    let (heard, wait) = (silent.as_secs(), RELEASED_AFTER.saturating_sub(silent));
    let after = RELEASED_AFTER.as_secs();
    let message = if silent < LOST_AFTER {
        format!(
            "replica {id} is live: its last heartbeat was {heard} s ago. It gives back by itself what it does not use. To take it out \
             of service, stop it with SIGTERM; if it is killed, release what it leases {after} s later"
        )
    } else {
        format!(
            "replica {id} is lost since {heard} s, and may still spend what it leases, if it was only cut off: that can be released \
             after {after} s without a heartbeat. Try again in {} s",
            wait.as_secs() + 1
        )
    };
    CallError::new(ErrorCode::InvalidRequest, message)
}

/// Registers this gateway, if the configuration makes it a replica.
/// Errors: the store cannot be written.
pub(super) async fn register(
    config: &Config,
    policy: &Policy,
    store: &Store,
    readiness: &Arc<Readiness>,
) -> Result<Option<Arc<Replica>>, StartError> {
    if !config.cluster.enabled {
        return Ok(None);
    }
    let files = files_of(config, policy.version());
    let registered = Replica::register(store.clone(), Arc::clone(readiness), &files, keys_of(config)).await;
    registered.map(Some).map_err(component_error("cluster"))
}

/// The keys for signatures of replicas for each other, if they forward requests.
fn keys_of(config: &Config) -> Option<ClusterKeys> {
    let (_, secret) = config.cluster.forwarding()?;
    Some(ClusterKeys::new(secret, config.cluster.accepted_secret.as_ref()))
}

/// The digests of the files that all replicas should have alike.
pub(super) fn files_of(config: &Config, policies: Arc<str>) -> Files {
    let mut digest = Sha256::new();
    for (topic, settings) in config.fingerprint() {
        digest.update(format!("{topic} {settings}\n"));
    }
    Files { configuration: hex::encode(&digest.finalize()[..8]), policies }
}

/// The replicas that are live in the database of a configuration, and its digest, without writing anything.
/// Errors: the database cannot be read.
pub async fn live_replicas(config: &Config) -> Result<(Vec<StoredReplica>, String), StartError> {
    let failed = component_error("store");
    let store = Store::open_copy(&StoreLocation::of(config)).await.map_err(&failed)?;
    let mut replicas = store.replicas().list(LOST_AFTER).await.map_err(&failed)?;
    store.close().await;
    replicas.retain(|replica| replica.is_live);
    Ok((replicas, files_of(config, "".into()).configuration))
}
