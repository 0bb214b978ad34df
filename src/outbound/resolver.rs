//! Resolves host names to addresses, caches them (E71), and filters them by the guard. The connector gets only
//! addresses from here, so that the checked address is the one connected to, even when a name's address changes in
//! between (DNS rebinding).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;
use tokio::time::Instant;

use super::guard::AddressGuard;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{Deadline, OnBehalf};
use sekisho_core::caller::Owner;
use sekisho_core::share::{Lease, Share};

/// Resolves a name; replaced in tests.
pub(super) type Lookup = Box<dyn Fn(String) -> LookingUp + Send + Sync>;
pub(super) type LookingUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Uses the system's resolver.
pub(super) fn system_lookup() -> Lookup {
    Box::new(|host| {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    })
}

/// The name resolves only to addresses that tools may not reach.
#[derive(Debug, Error)]
#[error("{host} is at {address}, which is not public")]
pub(super) struct RefusedAddress {
    pub(super) host: String,
    pub(super) address: IpAddr,
    /// The configuration key that would permit it.
    pub(super) key: Arc<str>,
}

/// The name has no address, or its lookup failed.
#[derive(Debug, Error)]
#[error(transparent)]
pub(super) struct Unresolved(#[from] io::Error);

/// The guard's part of the client: without a guard every address is permitted.
#[derive(Debug, Clone)]
pub(super) struct GuardedResolver {
    pub(super) names: Arc<Names>,
    pub(super) guard: Option<Arc<AddressGuard>>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { names, guard } = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let mut addresses = names.addresses(host).await.map_err(Unresolved)?;
            if let (Some(guard), Some(&first)) = (guard, addresses.first()) {
                addresses.retain(|&address| guard.permits(address));
                if addresses.is_empty() {
                    let key = Arc::clone(guard.key());
                    return Err(RefusedAddress { host: host.to_owned(), address: first, key }.into());
                }
            }
            let sockets: Vec<_> = addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(Box::new(sockets.into_iter()) as Addrs)
        })
    }
}

/// Maximum cached names; the one looked up longest ago is removed first.
const MAX_NAMES: usize = 1_024;

/// Look-ups running at once. One may take half a minute on a blocking thread that cannot be
/// stopped, and those threads serve the file tools too.
const MAX_LOOKUPS: u64 = 32;

/// Maximum wait for a look-up without a deadline of its own.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Minimum time for which an address is kept: a request looks a name up before it connects.
const MIN_KEPT: Duration = Duration::from_secs(1);

/// The addresses of names, as looked up, for `keep`.
pub(super) struct Names {
    lookup: Lookup,
    keep: Duration,
    cached: Mutex<BoundedMap<String, CachedName>>,
    /// The right to look a name up. Callers share it fairly.
    running: Arc<Share>,
}

/// Why a name's addresses are not known.
#[derive(Debug)]
pub(super) enum LookUpError {
    /// The deadline passed while others looked names up.
    NotBegun,
    Failed(io::Error),
}

struct CachedName {
    addresses: Vec<IpAddr>,
    looked_up: Instant,
}

impl Names {
    pub(super) fn new(lookup: Lookup, keep: Duration) -> Arc<Self> {
        let keep = keep.max(MIN_KEPT);
        let cached = Mutex::new(BoundedMap::new(MAX_NAMES));
        Arc::new(Self { lookup, keep, cached, running: Share::new(MAX_LOOKUPS) })
    }

    /// Looks a name up, so that its addresses are cached when the connection is made, and returns them. Waiting for
    /// others' look-ups is not part of `timeout`, nor of a call's time. Who needs none now is remembered for the reserve.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        call: Option<&OnBehalf>,
        host: &str,
        deadline: &mut Deadline,
        timeout: Duration,
    ) -> Result<Vec<IpAddr>, LookUpError> {
        let owner = OnBehalf::owner_of(call);
        if let Some(addresses) = self.cached(host) {
            self.running.see(owner);
            return Ok(addresses);
        }
        let acquire = |until: Deadline| self.running.acquire(owner, 1, usize::MAX, until.0);
        let lease = OnBehalf::queued(call, deadline, acquire).await;
        let looked_up = tokio::time::timeout(timeout, self.look_up(lease.map_err(|_| LookUpError::NotBegun)?, host));
        match looked_up.await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => Err(LookUpError::Failed(error)),
            Err(elapsed) => Err(LookUpError::Failed(elapsed.into())),
        }
    }

    async fn addresses(self: &Arc<Self>, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Some(addresses) = self.cached(host).filter(|addresses| !addresses.is_empty()) {
            return Ok(addresses);
        }
        // It expired since `prepare`. The client's timeout for connections ends the wait.
        let lease = self.running.acquire(Owner::gateway(), 1, usize::MAX, Instant::now() + MAX_WAIT).await;
        let lease = lease.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        self.look_up(lease, host).await
    }

    async fn look_up(self: &Arc<Self>, lease: Lease, host: &str) -> io::Result<Vec<IpAddr>> {
        let names = Arc::clone(self);
        let host = host.to_owned();
        // Continues without a waiter, since its thread does, and holds its lease until then.
        let task = tokio::spawn(async move {
            let _lease = lease;
            let addresses = (names.lookup)(host.clone()).await?;
            names.remember(host, addresses.clone());
            Ok(addresses)
        });
        task.await.map_err(io::Error::other)?
    }

    fn cached(&self, host: &str) -> Option<Vec<IpAddr>> {
        let cached = self.cached.lock();
        cached.get(host).filter(|entry| entry.looked_up.elapsed() < self.keep).map(|entry| entry.addresses.clone())
    }

    /// Caches the result of a look-up; nothing, for a name that could not be resolved.
    pub(super) fn remember(&self, host: String, addresses: Vec<IpAddr>) {
        let mut cached = self.cached.lock();
        cached.evict_for(&host, |_, entry| Some(entry.looked_up));
        _ = cached.try_insert(host, CachedName { addresses, looked_up: Instant::now() });
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Names").field("names", &self.cached.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use sekisho_core::call::SentFlag;

    /// Answers with the result of `answer` for the number of the look-up, and counts them.
    fn names(keep: Duration, answer: fn(usize) -> Vec<&'static str>) -> (Arc<Names>, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let lookup: Lookup = Box::new(move |_| {
            let addresses = answer(counter.fetch_add(1, Ordering::SeqCst));
            Box::pin(async move { Ok(addresses.into_iter().map(|text| text.parse().unwrap()).collect()) })
        });
        (Names::new(lookup, keep), count)
    }

    fn for_call(caller: &str) -> OnBehalf {
        let owner = Owner { tenant: caller.into(), caller: caller.into() };
        OnBehalf { owner, sent: SentFlag::default(), queueing: Arc::default() }
    }

    async fn resolve(names: &Arc<Names>, host: &str) -> Result<Vec<String>, String> {
        let guard = Some(Arc::new(AddressGuard::shared(&[]).unwrap()));
        let resolver = GuardedResolver { names: Arc::clone(names), guard };
        let addresses = resolver.resolve(host.parse().unwrap()).await.map_err(|error| error.to_string())?;
        Ok(addresses.map(|address| address.ip().to_string()).collect())
    }

    #[tokio::test]
    async fn only_permitted_addresses_come_out() {
        let (mixed, _) = names(Duration::ZERO, |_| vec!["10.0.0.1", "8.8.8.8", "::1"]);
        assert_eq!(resolve(&mixed, "mixed.example").await.unwrap(), ["8.8.8.8"]);
        let (inside, _) = names(Duration::ZERO, |_| vec!["10.0.0.1", "::1"]);
        assert_eq!(
            resolve(&inside, "inside.example").await.unwrap_err(),
            "inside.example is at 10.0.0.1, which is not public"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_look_ups_of_others_is_no_failure_of_the_name() {
        let lookup: Lookup = Box::new(|_| Box::pin(std::future::pending()));
        let names = Names::new(lookup, Duration::ZERO);
        let modest = for_call("modest");
        let prepare = async |call, mut deadline| {
            names.prepare(call, "slow.example", &mut deadline, Duration::from_secs(3)).await.map(|_| ())
        };
        for _ in 0..MAX_LOOKUPS {
            let error = prepare(None, Deadline::after(Duration::from_secs(9))).await.unwrap_err();
            assert!(matches!(error, LookUpError::Failed(_)), "its own look-up takes too long: {error:?}");
        }
        let error = prepare(Some(&modest), Deadline::after(Duration::from_secs(9))).await.unwrap_err();
        assert!(matches!(error, LookUpError::NotBegun), "{error:?}");
        assert_eq!(modest.queueing.total(), Duration::from_secs(9), "it is not its tool's time");
    }

    #[tokio::test(start_paused = true)]
    async fn who_uses_a_cached_name_keeps_a_reserve_of_look_ups() {
        let lookup: Lookup = Box::new(|host| match &*host {
            "known.example" => Box::pin(async { Ok(vec![[192, 0, 2, 1].into()]) }),
            _ => Box::pin(std::future::pending()),
        });
        let names = Names::new(lookup, Duration::from_secs(300));
        let (busy, modest) = (for_call("busy"), for_call("modest"));
        let prepare = async |call, host: &str, timeout| {
            names.prepare(Some(call), host, &mut Deadline::after(Duration::from_secs(9)), timeout).await.map(|_| ())
        };
        let second = Duration::from_secs(1);
        prepare(&modest, "known.example", second).await.unwrap();
        tokio::time::advance(Duration::from_secs(200)).await;
        prepare(&modest, "known.example", second).await.unwrap();
        let mut begun = 0;
        while let Err(LookUpError::Failed(_)) = prepare(&busy, "slow.example", Duration::from_millis(1)).await {
            begun += 1;
        }
        assert_eq!(begun, MAX_LOOKUPS * 3 / 4, "the rest is for the other one");
        let own = prepare(&modest, "slow.example", second).await.unwrap_err();
        assert!(matches!(own, LookUpError::Failed(_)), "it began at once: {own:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_changes_is_checked_anew() {
        let (rebinding, _) = names(Duration::ZERO, |turn| vec![["8.8.8.8", "127.0.0.1"][turn]]);
        assert!(resolve(&rebinding, "rebind.example").await.is_ok());
        tokio::time::advance(MIN_KEPT).await;
        assert!(resolve(&rebinding, "rebind.example").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_kept_for_its_time() {
        let (names, count) = names(Duration::from_secs(300), |_| vec!["8.8.8.8"]);
        resolve(&names, "a.example").await.unwrap();
        tokio::time::advance(Duration::from_secs(299)).await;
        resolve(&names, "a.example").await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        resolve(&names, "a.example").await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_name_is_evicted() {
        let (names, _) = names(Duration::from_secs(300), |_| vec!["8.8.8.8"]);
        for number in 0..=MAX_NAMES {
            resolve(&names, &format!("h{number}.example")).await.unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(names.cached.lock().len(), MAX_NAMES);
        assert!(names.cached("h0.example").is_none());
        assert!(names.cached("h1.example").is_some());
    }
}
