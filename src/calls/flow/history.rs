//! The destinations that calls have reached: learnt from calls that ended well and were not in question, or were approved.
//! They are written in the background, and read only for a destination that is in question.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::untrusted;
use sekisho_config::{FlowHistoryConfig, HistoryScope};
use sekisho_core::bounded::{BoundedCache, BoundedMap};
use sekisho_core::call::{CallContext, Caller};
use sekisho_flow::{Destination, DestinationKind, DestinationPlaces, KnownDestinations, Sink, SinkKind, ToolLabels};
use sekisho_store::{FlowDestination, FlowDestinationStore, Store, StoreError, StoredFlowDestination};

/// Destinations that are known to be known, or to be unknown: some 2 MB.
const MAX_CACHED: usize = 10_000;

/// Destinations that wait to be written. A further one is learnt by a later call.
const MAX_WAITING: usize = 10_000;

/// How long this process goes by a known destination without asking the store: another replica may have forgotten it.
const KNOWN_TTL: Duration = Duration::from_secs(60);

/// The same for an unknown one: another replica may have learnt it.
const UNKNOWN_TTL: Duration = Duration::from_secs(5);

/// How long a destination that was written is not written again for a further call.
const WRITTEN_TTL: Duration = Duration::from_secs(3_600);

/// Maximum destinations that one command looks through.
const MAX_FORGOTTEN: usize = 100_000;

/// The hash in place of a destination's for a call of the tool itself.
const OF_TOOL: &str = "";

/// The tool in place of one for a host, which is the same for all of them.
const ALL_TOOLS: &str = "";

#[derive(Debug)]
pub(super) struct History {
    store: FlowDestinationStore,
    cache: BoundedCache<CacheKey, Cached>,
    waiting: Mutex<BoundedMap<CacheKey, FlowDestination>>,
    /// Days for which a destination is known, as the configuration had them last.
    days: AtomicU32,
}

/// Tenant, caller, tool, hash.
type CacheKey = (Arc<str>, Arc<str>, Box<str>, Box<str>);

#[derive(Debug, Clone, Copy)]
struct Cached {
    is_known: bool,
    until: Instant,
    /// It was written, and is not written again until then.
    written_until: Option<Instant>,
}

/// A destination that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDestination {
    /// Within its tenant; without the destination itself.
    pub key: String,
    /// Empty for a host: it is known for all tools.
    pub tool: String,
    /// The argument that named it; empty for a call of the tool itself.
    pub member: String,
    /// For whom: a caller, or all of the tenant.
    pub caller: Option<String>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub expires: Timestamp,
}

/// Which destinations are removed: those for which all of the members hold that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForgetDestinations {
    /// Of calls of this tool.
    pub tool: Option<String>,
    /// A mail address, a URL, a host, an account or another destination, as a call names it.
    pub destination: Option<String>,
    /// Those that were first reached at this moment or later.
    pub since: Option<Timestamp>,
    /// All of the tenant.
    pub all: bool,
}

/// The destinations of one call that are known.
#[derive(Debug, Default)]
pub(super) struct KnownOfCall {
    hashes: HashSet<Box<str>>,
}

impl KnownDestinations for KnownOfCall {
    fn knows(&self, tool: &str, destination: &Destination) -> bool {
        self.hashes.contains(destination.hash(tool).as_str())
    }

    fn knows_tool(&self, _tool: &str) -> bool {
        self.hashes.contains(OF_TOOL)
    }
}

impl History {
    pub(super) fn new(store: &Store) -> Self {
        Self {
            store: store.flow_destinations(),
            cache: BoundedCache::new(MAX_CACHED),
            waiting: Mutex::new(BoundedMap::new(MAX_WAITING)),
            days: FlowHistoryConfig::default().days.into(),
        }
    }

    /// The destinations among these that are known. Where the store does not answer, none is: a person is asked then.
    pub(super) async fn known(
        &self,
        config: &FlowHistoryConfig,
        call: &CallContext,
        tool: &str,
        destinations: &[Destination],
    ) -> KnownOfCall {
        let owner = owner_of(config, &call.caller);
        let of_destination = |one: &Destination| (tool_of(one, tool), Box::<str>::from(one.hash(tool).as_str()));
        let wanted = destinations.iter().map(of_destination).chain([(tool, Box::<str>::from(OF_TOOL))]);
        let (mut known, mut missing) = (KnownOfCall::default(), Vec::new());
        for (tool, hash) in wanted {
            match self.cached(&key_of(&owner, tool, &hash)) {
                Some(true) => _ = known.hashes.insert(hash),
                Some(false) => {}
                None => missing.push((tool, hash)),
            }
        }
        if missing.is_empty() {
            return known;
        }
        let hashes: Vec<_> = missing.iter().map(|(_, hash)| &**hash).collect();
        match self.store.known((&owner.0, &owner.1), [tool, ALL_TOOLS], &hashes).await {
            Ok(found) => {
                let found: HashSet<_> = found.into_iter().map(String::into_boxed_str).collect();
                for (tool, hash) in missing {
                    let is_known = found.contains(&hash);
                    self.remember(key_of(&owner, tool, &hash), is_known, false);
                    if is_known {
                        known.hashes.insert(hash);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "known destinations cannot be read: a person is asked about them"),
        }
        known
    }

    fn cached(&self, key: &CacheKey) -> Option<bool> {
        let now = Instant::now();
        self.cache.get(key, |cached| (cached.until > now).then_some(cached.is_known))
    }

    fn remember(&self, key: CacheKey, is_known: bool, is_written: bool) {
        let now = Instant::now();
        let until = now + if is_known { KNOWN_TTL } else { UNKNOWN_TTL };
        let written_before = self.cache.get(&key, |cached| cached.written_until);
        let written_until = if is_written { Some(now + WRITTEN_TTL) } else { written_before };
        self.cache.insert(key, Cached { is_known, until, written_until }, |cached| cached.until <= now);
    }

    fn was_written(&self, key: &CacheKey) -> bool {
        self.cache.get(key, |cached| cached.written_until).is_some_and(|until| until > Instant::now())
    }

    /// Learns destinations: known at once here, and to other replicas once they are written.
    pub(super) fn learn(
        &self,
        config: &FlowHistoryConfig,
        call: &CallContext,
        tool: &str,
        destinations: &[Destination],
    ) {
        let owner = owner_of(config, &call.caller);
        let of_destination =
            |one: &Destination| (tool_of(one, tool), one.member.clone(), one.hash(tool).as_str().to_owned());
        let rows = destinations.iter().map(of_destination).chain([(tool, String::new(), OF_TOOL.to_owned())]);
        for (tool, member, hash) in rows {
            let key = key_of(&owner, tool, &hash);
            if self.was_written(&key) {
                continue;
            }
            let (tenant, caller_key) = (owner.0.to_string(), owner.1.to_string());
            let row = FlowDestination { tenant, caller_key, tool: tool.to_owned(), member, hash };
            if self.waiting.lock().try_insert(key.clone(), row).is_ok() {
                self.remember(key, true, true);
            }
        }
        self.days.store(config.days, Ordering::Relaxed);
    }

    /// Writes those that wait. Where the store does not take them, they wait on, as far as there is room.
    pub(super) async fn write(&self) {
        let rows: Vec<_> = self.waiting.lock().take().into_iter().collect();
        if rows.is_empty() {
            return;
        }
        let lifetime = Duration::from_secs(86_400 * u64::from(self.days.load(Ordering::Relaxed)));
        let destinations: Vec<_> = rows.iter().map(|(_, row)| row.clone()).collect();
        if let Err(error) = self.store.learn(&destinations, lifetime).await {
            tracing::warn!(%error, "destinations that calls have reached cannot be written yet");
            let mut waiting = self.waiting.lock();
            for (key, row) in rows {
                _ = waiting.try_insert(key, row);
            }
        }
    }

    pub(super) async fn list(
        &self,
        tenant: &str,
        after: Option<(Timestamp, &str)>,
        max: usize,
    ) -> Result<Vec<KnownDestination>, StoreError> {
        Ok(self.store.of_tenant(tenant, after, max).await?.into_iter().map(KnownDestination::from).collect())
    }

    pub(super) async fn forget(&self, tenant: &str, forget: &ForgetDestinations) -> Result<u64, StoreError> {
        let (mut forgotten, named) = (0, forget.destination.as_deref().map(named_destinations));
        for stored in self.store.of_tenant(tenant, None, MAX_FORGOTTEN).await? {
            if forget.is_about(&stored, named.as_deref()) && self.store.forget(&stored.destination).await? {
                forgotten += 1;
            }
        }
        self.cache.retain(|_, _| false);
        Ok(forgotten)
    }

    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        self.store.sweep().await
    }
}

impl ForgetDestinations {
    /// `named`: what its destination may be.
    fn is_about(&self, stored: &StoredFlowDestination, named: Option<&[Destination]>) -> bool {
        let FlowDestination { tool, member, hash, .. } = &stored.destination;
        let is_it = |named: &Destination| {
            let in_place = Destination { member: member.clone(), ..named.clone() };
            in_place.hash(tool).as_str() == hash
        };
        let is_chosen = self.all || self.tool.is_some() || self.destination.is_some() || self.since.is_some();
        is_chosen
            && self.tool.as_ref().is_none_or(|wanted| wanted == tool)
            && self.since.is_none_or(|since| stored.first_seen >= since)
            && named.is_none_or(|named| named.iter().any(is_it))
    }
}

/// The destinations that a text may name: as an argument of a call, such as the host of a URL, and itself as each kind, since the kind
/// is not stored.
fn named_destinations(text: &str) -> Vec<Destination> {
    const KINDS: [DestinationKind; 8] = [
        DestinationKind::Mail,
        DestinationKind::Host,
        DestinationKind::Account,
        DestinationKind::Phone,
        DestinationKind::Path,
        DestinationKind::Key,
        DestinationKind::Number,
        DestinationKind::Name,
    ];
    let text = text.trim();
    let sink = Sink { kind: SinkKind::Send, destinations: DestinationPlaces::ByName, constants: BTreeSet::new() };
    let sends = ToolLabels { sink: Some(sink), ..untrusted() };
    let mut named = sekisho_flow::destinations(&sends, &json!({"to": text}));
    let spellings: [String; 3] = [text.to_owned(), text.to_lowercase(), text.split_whitespace().collect()];
    for kind in KINDS {
        let as_kind = |identity: &String| Destination { kind, member: String::new(), identity: identity.clone() };
        named.extend(spellings.iter().map(as_kind));
    }
    named
}

impl From<StoredFlowDestination> for KnownDestination {
    fn from(stored: StoredFlowDestination) -> Self {
        let StoredFlowDestination { destination, first_seen, last_seen, expires } = stored;
        let key = destination.key();
        let FlowDestination { tenant: _, caller_key, tool, member, hash: _ } = destination;
        let caller = (!caller_key.is_empty()).then(|| Caller::parts_of_key(&caller_key).1.to_owned());
        Self { key, tool, member, caller, first_seen, last_seen, expires }
    }
}

/// The tenant, and the caller where destinations are known to callers.
fn owner_of(config: &FlowHistoryConfig, caller: &Caller) -> (Arc<str>, Arc<str>) {
    let of_caller = match config.scope {
        HistoryScope::Tenant => "".into(),
        HistoryScope::Caller => Arc::clone(&caller.key),
    };
    (Arc::clone(&caller.tenant), of_caller)
}

/// The tool for which a destination of its call is known.
fn tool_of<'a>(destination: &Destination, tool: &'a str) -> &'a str {
    match destination.kind {
        DestinationKind::Host => ALL_TOOLS,
        _ => tool,
    }
}

fn key_of(owner: &(Arc<str>, Arc<str>), tool: &str, hash: &str) -> CacheKey {
    (Arc::clone(&owner.0), Arc::clone(&owner.1), tool.into(), hash.into())
}
