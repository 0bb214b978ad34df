//! OpenAPI collections while the service runs: fetches documents by URL in the background, and registers
//! collections over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio_util::sync::CancellationToken;

use super::housekeeping::HOUSEKEEPING;
use super::parts::{log_dangerous_operations, report_broken_collections};
use super::source_names::is_of_configured_source;
use super::{Configuration, StartError, ToolOffer};
use sekisho_calls::pipeline::Pipeline;
use sekisho_config::Config;
use sekisho_core::administration::{Administrator, AdministratorProof, Ownership};
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::{
    Collection, CollectionError, Collections, DesiredCollections, Loader, OwnedRegistration, Registration,
    RegistrationError, Wait,
};
use sekisho_store::{RegistrationStore, Registrations, Store, StoreError, StoredResource, WriteOutcome};

/// Maximum number of shared collections registered over HTTP; each holds a document's tools in memory. The store bounds
/// the collections of tenants.
const MAX_REGISTERED: usize = 100;

/// Why a collection is not registered. The offered tools do not change.
#[derive(Debug, Error)]
pub enum RegisterError {
    #[error("the configuration has a collection named {0:?}; choose another name")]
    Configured(String),
    #[error("{MAX_REGISTERED} collections are registered, which is the maximum; remove one of them")]
    TooMany,
    #[error(
        "your tenant has as many collections as it may register, or all tenants together have; remove one of yours"
    )]
    TooManyOfTenant,
    /// The name belongs to another owner, or to the configuration: the text does not name the owner.
    #[error("the name {0:?} is in use; choose another one")]
    NameTaken(String),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error(transparent)]
    Collection(#[from] CollectionError),
    #[error("no operation of the document became a tool{0}")]
    NoTools(String),
    #[error("{0}")]
    Clash(StartError),
    #[error("the registration cannot be stored: {0}")]
    Unwritable(#[from] serde_json::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The registered collections of the store. A record that cannot be read, perhaps of another version, is kept.
pub(super) async fn registered(store: &RegistrationStore) -> Result<BTreeMap<String, OwnedRegistration>, StoreError> {
    let mut registered = BTreeMap::new();
    for StoredResource { name, owner, value } in store.list(Registrations::Collections).await? {
        match serde_json::from_str(&value) {
            Ok(registration) => _ = registered.insert(name, OwnedRegistration { owner, registration }),
            Err(error) => tracing::error!(collection = name, %error, "a registered collection cannot be read"),
        }
    }
    Ok(registered)
}

/// The OpenAPI collections: of the configuration, and registered over HTTP.
#[derive(Debug)]
pub struct OpenapiCollections {
    configuration: Arc<Configuration>,
    pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    store: RegistrationStore,
    tool_offer: Arc<ToolOffer>,
    loader: Loader,
    /// The collections registered over HTTP, as in the store. Changed while the changes of the offered tools are
    /// locked.
    registered: ArcSwap<BTreeMap<String, OwnedRegistration>>,
    fetch_locks: FetchLocks,
    /// Notified when documents are added.
    documents_pending: Notify,
}

impl OpenapiCollections {
    pub(super) fn new(
        tool_offer: &Arc<ToolOffer>,
        store: &Store,
        loader: Loader,
        registered: BTreeMap<String, OwnedRegistration>,
    ) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            readiness: Arc::clone(&tool_offer.readiness),
            store: store.registrations(),
            tool_offer: Arc::clone(tool_offer),
            loader,
            registered: ArcSwap::from_pointee(registered),
            fetch_locks: FetchLocks::default(),
            documents_pending: Notify::new(),
        }
    }

    /// The loader of their documents.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Loads a collection, offers its tools, and stores it for the next start. Replaces a registered collection of the
    /// same name and owner.
    pub async fn register(
        &self,
        by: Administrator,
        registration: Registration,
    ) -> Result<Arc<Collection>, RegisterError> {
        let (name, owner) = (registration.name.clone(), by.owner());
        let config = self.configuration.current_arc();
        self.check_free(&name, owner)?;
        if !owner.is_shared() && is_of_configured_source(&name, &config) {
            return Err(RegisterError::NameTaken(name));
        }
        let settings = registration.settings(owner, &config.openapi.secrets)?;
        let collection = Arc::new(self.loader.load(&name, settings.clone(), &config.openapi).await?);
        collection.check_servers(self.loader.allowed()).map_err(CollectionError::from)?;
        if collection.tools.is_empty() {
            let first = collection.report.lost.first();
            return Err(RegisterError::NoTools(first.map(|note| format!(": {}", note.reason)).unwrap_or_default()));
        }
        let text = serde_json::to_string(&registration)?;

        let _changing = self.tool_offer.changing.lock().await;
        self.check_free(&name, owner)?;
        self.check_tools_free(&name, &collection)?;
        let mut next = Collections::clone(&self.tool_offer.collections.load());
        next.settle(&name, settings, Ok(Arc::clone(&collection)));
        let change = self.prepare(next).map_err(RegisterError::Clash)?;
        match self.store.keep(Registrations::Collections, owner, &name, &text).await? {
            WriteOutcome::Stored => {}
            WriteOutcome::NameTaken => return Err(RegisterError::NameTaken(name)),
            WriteOutcome::Full => return Err(RegisterError::TooManyOfTenant),
        }
        self.offer(change);
        let mut registered = BTreeMap::clone(&self.registered.load());
        registered.insert(name, OwnedRegistration { owner: owner.clone(), registration });
        self.registered.store(Arc::new(registered));
        Ok(collection)
    }

    /// Removes a registered collection and its tools; returns whether the owner had one of that name.
    /// Errors: [`RegisterError`]: the store cannot be written, or the collection belongs to the configuration.
    pub async fn unregister(&self, by: Administrator, name: &str) -> Result<bool, RegisterError> {
        let _changing = self.tool_offer.changing.lock().await;
        if self.registered.load().get(name).is_none_or(|known| known.owner != *by.owner()) {
            return Ok(false);
        }
        let mut next = Collections::clone(&self.tool_offer.collections.load());
        if !self.configuration.current().openapi.collections.contains_key(name) {
            next.remove(name);
        }
        let change = self.prepare(next).map_err(RegisterError::Clash)?;
        self.store.forget(Registrations::Collections, by.owner(), name).await?;
        self.offer(change);
        let mut registered = BTreeMap::clone(&self.registered.load());
        registered.remove(name);
        self.registered.store(Arc::new(registered));
        Ok(true)
    }

    /// Takes over the registered collections of the store, which another replica may have changed. Whether they differ.
    pub(super) async fn adopt_registered(&self) -> Result<bool, StoreError> {
        let _changing = self.tool_offer.changing.lock().await;
        let registered = registered(&self.store).await?;
        let differ = registered != **self.registered.load();
        self.registered.store(Arc::new(registered));
        Ok(differ)
    }

    /// Offers the tools of these collections, and fetches pending documents.
    pub(super) fn offer_all(&self, collections: Collections) {
        match self.prepare(collections) {
            Ok(change) => self.offer(change),
            Err(problem) => tracing::error!(%problem, "a collection that another replica registered cannot be offered"),
        }
        self.documents_pending.notify_one();
    }

    /// Fetches the pending documents concurrently, and offers the tools of each when it arrives.
    pub async fn fetch_pending_documents(&self) {
        let collections = self.tool_offer.collections.load_full();
        join_all(collections.pending.keys().map(|name| self.fetch_pending(name))).await;
    }

    /// Fetches one pending document. A second caller waits for the first fetch and uses its result.
    async fn fetch_pending(&self, name: &str) {
        let turn = self.fetch_locks.turn_of(name);
        let _turn = turn.lock().await;
        let (collections, config) = (self.tool_offer.collections.load_full(), self.configuration.current_arc());
        let Some(settings) = collections.pending.get(name) else { return };
        let outcome = self.loader.load(name, settings.clone(), &config.openapi).await.map(Arc::new);
        let _changing = self.tool_offer.changing.lock().await;
        let mut next = Collections::clone(&self.tool_offer.collections.load());
        // A reload may have changed or removed the collection in between.
        if next.pending.get(name) != Some(settings) || !Arc::ptr_eq(&config, &self.configuration.current()) {
            return;
        }
        next.settle(name, settings.clone(), outcome);
        match self.prepare(next) {
            Ok(change) => self.offer(change),
            Err(problem) => self.give_up(name, &problem),
        }
    }

    /// Retries unreachable documents while the service runs. Documents that a reload adds do not wait for slow ones.
    pub(super) async fn keep_documents(self: Arc<Self>, closing: CancellationToken) {
        let mut tick = tokio::time::interval(HOUSEKEEPING);
        let mut fetching = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                Some(()) = fetching.next() => continue,
                _ = tick.tick() => {}
                () = self.documents_pending.notified() => {}
            }
            fetching.push(self.fetch_pending_documents());
        }
    }

    /// The collections of the next configuration, and the right to offer them. Documents by URL are pending and keep
    /// their former tools, so that neither the reload nor a registration waits for other servers.
    pub(super) async fn next(&self, next: &Config) -> (Collections, MutexGuard<'_, ()>) {
        loop {
            let registered = self.registered.load_full();
            let wanted = DesiredCollections::of(&next.openapi, &registered);
            let before = self.tool_offer.collections.load_full();
            let load = Collections::load(wanted, &next.openapi, &self.loader, Wait::ForLocalDocuments, &before);
            let collections = load.await;
            let changing = self.tool_offer.changing.lock().await;
            // Documents may have arrived, been registered or been removed in between: keep these changes.
            if Arc::ptr_eq(&before, &self.tool_offer.collections.load()) {
                return (collections, changing);
            }
        }
    }

    /// Reads a document as a registration does, and offers nothing.
    pub async fn try_out(&self, by: &Administrator, registration: &Registration) -> Result<Collection, RegisterError> {
        let config = self.configuration.current_arc();
        let settings = registration.settings(by.owner(), &config.openapi.secrets)?;
        let collection = self.loader.load(&registration.name, settings, &config.openapi).await?;
        collection.check_servers(self.loader.allowed()).map_err(CollectionError::from)?;
        Ok(collection)
    }

    /// Has the pending documents fetched now.
    pub(super) fn fetch_soon(&self) {
        self.documents_pending.notify_one();
    }

    /// The owner of a registered collection.
    pub(super) fn owner_of_registered(&self, name: &str) -> Option<Ownership> {
        self.registered.load().get(name).map(|known| known.owner.clone())
    }

    fn check_free(&self, name: &str, owner: &Ownership) -> Result<(), RegisterError> {
        if self.configuration.current().openapi.collections.contains_key(name) {
            return Err(match owner {
                Ownership::Shared => RegisterError::Configured(name.to_owned()),
                Ownership::Tenant(_) => RegisterError::NameTaken(name.to_owned()),
            });
        }
        let registered = self.registered.load();
        match registered.get(name) {
            Some(known) if known.owner != *owner => Err(RegisterError::NameTaken(name.to_owned())),
            None if owner.is_shared() && shared_count(&registered) >= MAX_REGISTERED => Err(RegisterError::TooMany),
            _ => Ok(()),
        }
    }

    /// If two tools had one name, the tenant's tool would not be offered.
    /// Errors: [`RegisterError::NameTaken`]: another source offers a tool of the same name as a tool of a tenant's
    /// collection.
    fn check_tools_free(&self, name: &str, collection: &Collection) -> Result<(), RegisterError> {
        if collection.settings.owner.is_shared() {
            return Ok(());
        }
        let (snapshot, source) = (self.pipeline.registry.snapshot(), format!("openapi:{name}"));
        let is_taken = |tool: &str| snapshot.get(tool).is_some_and(|known| known.metadata.source != source);
        let taken = collection.tools.iter().map(|tool| &tool.metadata.name).find(|tool| is_taken(tool));
        taken.map_or(Ok(()), |tool| Err(RegisterError::NameTaken(tool.clone())))
    }

    /// The snapshot with these collections.
    fn prepare(&self, collections: Collections) -> Result<Change, StartError> {
        let config = self.configuration.current();
        let before = self.pipeline.registry.snapshot();
        let snapshot =
            self.tool_offer.tool_set(self.tool_offer.lock.load_full()).rebuild(&config, &collections, &before)?;
        Ok(Change { snapshot, collections })
    }

    fn offer(&self, Change { snapshot, collections }: Change) {
        self.tool_offer.replace(snapshot);
        let before = self.tool_offer.collections.load();
        report_broken_collections(&self.readiness, &before, &collections);
        log_dangerous_operations(&self.configuration.current().tools, &before, &collections);
        self.tool_offer.collections.store(Arc::new(collections));
    }

    /// Reports a fetched document whose tools conflict with others.
    fn give_up(&self, name: &str, problem: &StartError) {
        let before = self.tool_offer.collections.load_full();
        let mut next = Collections::clone(&before);
        next.pending.remove(name);
        next.broken.insert(name.to_owned(), problem.to_string());
        report_broken_collections(&self.readiness, &before, &next);
        self.tool_offer.collections.store(Arc::new(next));
    }
}

fn shared_count(registered: &BTreeMap<String, OwnedRegistration>) -> usize {
    registered.values().filter(|known| known.owner.is_shared()).count()
}

/// The documents that are being fetched, by the name of their collection.
#[derive(Debug, Default)]
struct FetchLocks(parking_lot::Mutex<BTreeMap<String, Arc<Mutex<()>>>>);

impl FetchLocks {
    /// Held while that collection's document is fetched.
    fn turn_of(&self, name: &str) -> Arc<Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(name.to_owned()).or_default())
    }
}

/// Collections, and the snapshot with their tools. Created and applied while [`ToolOffer::changing`] is held.
struct Change {
    snapshot: sekisho_calls::registry::Snapshot,
    collections: Collections,
}
