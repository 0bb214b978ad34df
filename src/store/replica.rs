//! This gateway as one of several replicas on a PostgreSQL database: its registration, and its knowledge of the others.

mod key;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock_difference;
use crate::{ReplicaIdentity, Store, StoreError, StoredReplica};
use sekisho_core::boot_clock;
use sekisho_core::database_clock::DatabaseTime;
use sekisho_observe::metrics::ReplicaState;
use sekisho_observe::readiness::Readiness;

pub use self::key::{ClusterKeys, SecretKeys, SigningKey};

/// The interval of a replica's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(3);

/// How long ago the last heartbeat of a lost replica was, at least.
pub const LOST_AFTER: Duration = Duration::from_secs(12);

/// The database's time is taken over from an answer to a heartbeat that took less.
const MAX_CLOCK_AGE: Duration = Duration::from_secs(1);

/// How long a lost replica is listed.
const LISTED_LOST: Duration = Duration::from_secs(86_400);

/// How long replicas may differ in their files before it is reported: a deployment changes them one by one.
const MAX_DIFFERENCE: Duration = Duration::from_secs(60);

/// Its name in readiness.
const COMPONENT: &str = "cluster";

/// The registration of this process.
#[derive(Debug)]
pub struct Replica {
    id: Arc<str>,
    host: String,
    store: Store,
    readiness: Arc<Readiness>,
    /// By the last heartbeat, this one included.
    listed: ArcSwap<Vec<StoredReplica>>,
    confirmed: Mutex<Confirmed>,
    differs_since: Mutex<Option<Instant>>,
    /// `None` if replicas forward nothing to each other.
    keys: ArcSwapOption<ClusterKeys>,
    /// The address at which it takes requests of others, while it does.
    address: Mutex<Option<SocketAddr>>,
    known: Mutex<KnownAddresses>,
    /// Held during a heartbeat, so that the last one has the last address.
    beating: tokio::sync::Mutex<()>,
}

/// The result of the last heartbeat and of look-ups since then.
#[derive(Debug, Default)]
struct KnownAddresses {
    /// Addresses of replicas that take requests of others, by id.
    addresses: HashMap<String, SocketAddr>,
    /// Ids that were looked up, and take none.
    absent: HashSet<String>,
}

/// A heartbeat that was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// When it was sent, by [`boot_clock`].
    pub sent: Duration,
    /// How often an administrator had released this replica's leases by then.
    pub releases: i64,
}

/// The files that decide, which all replicas should have alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Digest of the configuration.
    pub configuration: String,
    /// Version of the policy set.
    pub policies: Arc<str>,
}

impl Replica {
    /// Registers this process. Without `keys` it forwards nothing to others.
    pub async fn register(
        store: Store,
        readiness: Arc<Readiness>,
        files: &Files,
        keys: Option<ClusterKeys>,
    ) -> Result<Arc<Self>, StoreError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let replica = Self {
            id: Uuid::new_v4().to_string().into(),
            host,
            store,
            readiness,
            listed: ArcSwap::default(),
            confirmed: Mutex::default(),
            differs_since: Mutex::default(),
            keys: ArcSwapOption::from_pointee(keys),
            address: Mutex::default(),
            known: Mutex::default(),
            beating: tokio::sync::Mutex::default(),
        };
        replica.try_beat(files, &[]).await?;
        tracing::info!(replica = &*replica.id, live = replica.live(), "this gateway is a replica");
        Ok(Arc::new(replica))
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The name of its machine.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// All replicas that had not left at the last heartbeat.
    pub fn states(&self) -> Vec<ReplicaState> {
        let listed = self.listed.load();
        let states = listed.iter().map(|replica| ReplicaState {
            id: replica.id.clone(),
            host: replica.host.clone(),
            is_live: replica.is_live,
            degraded: degraded_of(replica),
        });
        states.collect()
    }

    /// How many of them were live, at least 1.
    pub fn live(&self) -> u32 {
        let live = self.listed.load().iter().filter(|replica| replica.is_live).count();
        u32::try_from(live).unwrap_or(u32::MAX).max(1)
    }

    /// The database's time, as the last heartbeat found it.
    pub fn database_time(&self) -> DatabaseTime {
        self.store.now()
    }

    /// The keys that sign the requests that replicas forward to each other, if they do.
    pub fn keys(&self) -> Option<Arc<ClusterKeys>> {
        self.keys.load_full()
    }

    /// Replaces the keys, if there are some: whether replicas forward to each other is known from the start.
    pub fn set_keys(&self, keys: ClusterKeys) {
        if self.keys.load().is_some() {
            self.keys.store(Some(Arc::new(keys)));
        }
    }

    /// From the next heartbeat on other replicas know this address for their requests; with `None`, this replica takes
    /// none.
    pub fn set_address(&self, address: Option<SocketAddr>) {
        *self.address.lock() = address;
    }

    /// Where a live replica takes requests of others; `None` if it is lost, has left or takes none. A replica that the
    /// last heartbeat did not find is looked up once.
    pub async fn address_of(&self, id: &str) -> Result<Option<SocketAddr>, StoreError> {
        let known = {
            let known = self.known.lock();
            let address = known.addresses.get(id).copied();
            address.map(Some).or_else(|| known.absent.contains(id).then_some(None))
        };
        match known {
            Some(address) => Ok(address),
            None => self.look_up(id).await,
        }
    }

    /// As [`address_of`](Self::address_of), as the database has it now.
    pub async fn look_up(&self, id: &str) -> Result<Option<SocketAddr>, StoreError> {
        let found = self.store.replicas().address_of(id, LOST_AFTER).await?;
        let mut known = self.known.lock();
        match found {
            Some(address) => drop(known.addresses.insert(id.to_owned(), address)),
            None => {
                known.addresses.remove(id);
                known.absent.insert(id.to_owned());
            }
        }
        Ok(found)
    }

    /// The last heartbeat that was answered.
    pub fn confirmed(&self) -> Confirmed {
        *self.confirmed.lock()
    }

    /// All replicas that did not leave.
    pub async fn list(&self) -> Result<Vec<StoredReplica>, StoreError> {
        self.store.replicas().list(LOST_AFTER).await
    }

    /// Reports to the database that this replica is there, and its components that do not work. Reports in readiness
    /// the problems of the cluster.
    pub async fn beat(&self, files: &Files, degraded: &[String]) {
        let beat = self.try_beat(files, degraded).await;
        clock_difference::report(&self.store, &self.readiness);
        match beat {
            Ok(None) => self.readiness.restore(COMPONENT),
            Ok(Some(difference)) => self.readiness.degrade(COMPONENT, difference),
            Err(error) => {
                let reason = format!("replica {} cannot say that it is there: {error}", self.id);
                self.readiness.degrade(COMPONENT, reason);
            }
        }
    }

    /// Removes the remains of replicas that were lost long ago.
    pub async fn forget_lost(&self) {
        if let Err(error) = self.store.replicas().forget_lost_for(LISTED_LOST, &self.id, LOST_AFTER).await {
            tracing::warn!(%error, "cannot remove replicas that were lost long ago");
        }
    }

    /// Removes the registration.
    pub async fn leave(&self) {
        if let Err(error) = self.store.replicas().remove(&self.id).await {
            tracing::warn!(%error, replica = &*self.id, "this replica could not be removed: it counts as lost in time");
        }
    }

    /// How the files of the replicas differ, if they do so for too long.
    async fn try_beat(&self, files: &Files, degraded: &[String]) -> Result<Option<String>, StoreError> {
        let Files { configuration, policies } = files;
        let (version, degraded) = (env!("CARGO_PKG_VERSION"), described(degraded));
        let _beating = self.beating.lock().await;
        let address = *self.address.lock();
        let identity = ReplicaIdentity {
            id: &self.id,
            host: &self.host,
            version,
            configuration,
            policies,
            address,
            degraded: &degraded,
        };
        let sent = boot_clock::now();
        let found = self.store.replicas().beat(identity, LOST_AFTER).await?;
        let before = std::mem::replace(&mut *self.confirmed.lock(), Confirmed { sent, releases: found.releases });
        // An old time of the database is worse than the known one, but for the first time.
        if before == Confirmed::default() || boot_clock::now().saturating_sub(sent) < MAX_CLOCK_AGE {
            self.store.clock().set(found.now);
        }
        let live = || found.replicas.iter().filter(|replica| replica.is_live);
        let configurations = live().map(|replica| &replica.configuration).collect::<BTreeSet<_>>().len();
        let policy_sets = live().map(|replica| &replica.policies).collect::<BTreeSet<_>>().len();
        let count = live().count();
        let addresses = live().filter_map(|replica| Some((replica.id.clone(), replica.address?))).collect();
        *self.known.lock() = KnownAddresses { addresses, absent: HashSet::new() };
        self.listed.store(Arc::new(found.replicas));
        let mut since = self.differs_since.lock();
        if configurations <= 1 && policy_sets <= 1 {
            *since = None;
            return Ok(None);
        }
        let lasts = since.get_or_insert_with(Instant::now).elapsed();
        let difference = format!(
            "the {count} live replicas have {configurations} configurations and {policy_sets} policy sets: `sekisho cluster` \
             shows which"
        );
        Ok((lasts > MAX_DIFFERENCE).then_some(difference))
    }
}

/// Maximum names of components that do not work that a replica tells the others: a heartbeat stays small.
const MAX_DEGRADED: usize = 50;

fn described(degraded: &[String]) -> String {
    let told = &degraded[..degraded.len().min(MAX_DEGRADED)];
    // A list of only texts is always JSON.
    serde_json::to_string(told).unwrap_or_default()
}

/// The names of a replica's components that do not work. Another version may say it otherwise.
pub fn degraded_of(replica: &StoredReplica) -> Vec<String> {
    serde_json::from_str(&replica.degraded).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    fn files(configuration: &str) -> Files {
        Files { configuration: configuration.to_owned(), policies: "p".into() }
    }

    #[tokio::test]
    async fn a_replica_is_there_until_it_leaves() {
        let store = test_store().await;
        let one = Replica::register(store.clone(), Arc::default(), &files("c"), None).await.unwrap();
        let other = Replica::register(store.clone(), Arc::default(), &files("c"), None).await.unwrap();
        assert_eq!((one.live(), other.live()), (1, 2));
        one.beat(&files("c"), &[]).await;
        assert_eq!(one.live(), 2);
        let ahead = one.database_time().duration_since(jiff::Timestamp::now());
        assert!(ahead.abs() < jiff::SignedDuration::from_mins(5), "{ahead}");
        let degraded: Vec<_> = (0..60).map(|n| format!("mcp:{n}")).collect();
        one.beat(&files("c"), &degraded).await;
        // Both may have begun in the same millisecond, so that either is listed first.
        let states = one.states();
        let own = states.iter().find(|state| *state.id == **one.id()).unwrap();
        assert_eq!(own.degraded, degraded[..MAX_DEGRADED]);
        other.leave().await;
        one.beat(&files("c"), &[]).await;
        assert_eq!(one.live(), 1);
        assert_eq!(one.list().await.unwrap().into_iter().map(|found| found.id).collect::<Vec<_>>(), [&**one.id()]);
    }

    #[tokio::test]
    async fn replicas_with_other_files_are_reported_after_a_minute() {
        let (store, readiness) = (test_store().await, Arc::new(Readiness::default()));
        let one = Replica::register(store.clone(), Arc::clone(&readiness), &files("old"), None).await.unwrap();
        let other = Replica::register(store.clone(), Arc::default(), &files("new"), None).await.unwrap();
        one.beat(&files("old"), &[]).await;
        assert!(readiness.degraded().is_empty(), "a deployment may take a minute");
        let long_ago = Instant::now().checked_sub(MAX_DIFFERENCE + Duration::from_secs(1)).unwrap();
        *one.differs_since.lock() = Some(long_ago);
        one.beat(&files("old"), &[]).await;
        assert!(readiness.degraded()[COMPONENT].contains("2 configurations and 1 policy sets"));
        other.beat(&files("old"), &[]).await;
        one.beat(&files("old"), &[]).await;
        assert!(readiness.degraded().is_empty());
    }

    #[tokio::test]
    async fn a_replica_that_cannot_say_that_it_is_there_is_degraded() {
        let (store, readiness) = (test_store().await, Arc::new(Readiness::default()));
        let replica = Replica::register(store.clone(), Arc::clone(&readiness), &files("c"), None).await.unwrap();
        store.close().await;
        replica.beat(&files("c"), &[]).await;
        assert!(readiness.degraded()[COMPONENT].contains("cannot say that it is there"));
    }

    #[tokio::test]
    async fn an_address_is_known_to_others_while_its_replica_takes_requests() {
        let store = test_store().await;
        let register = async || Replica::register(store.clone(), Arc::default(), &files("c"), None).await.unwrap();
        let (one, other) = (register().await, register().await);
        assert_eq!(one.address_of(other.id()).await.unwrap(), None, "it takes no requests yet");
        let address = SocketAddr::from(([10, 0, 0, 3], 8790));
        other.set_address(Some(address));
        other.beat(&files("c"), &[]).await;
        assert_eq!(
            one.address_of(other.id()).await.unwrap(),
            None,
            "what was looked up counts until the next heartbeat"
        );
        one.beat(&files("c"), &[]).await;
        assert_eq!(one.address_of(other.id()).await.unwrap(), Some(address));
        other.set_address(None);
        other.beat(&files("c"), &[]).await;
        assert_eq!(one.address_of(other.id()).await.unwrap(), Some(address), "as of the last heartbeat");
        assert_eq!(one.look_up(other.id()).await.unwrap(), None);
        assert_eq!(one.address_of(other.id()).await.unwrap(), None);
        // A replica that starts after the last heartbeat is looked up.
        let third = register().await;
        third.set_address(Some(address));
        third.beat(&files("c"), &[]).await;
        assert_eq!(one.address_of(third.id()).await.unwrap(), Some(address));
        third.leave().await;
        one.beat(&files("c"), &[]).await;
        assert_eq!(one.address_of(third.id()).await.unwrap(), None);
        store.close().await;
        assert!(one.address_of("unknown").await.is_err(), "nobody knows whether it is live");
    }
}
