//! All collections: loaded concurrently, each independent of the failure of another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::collection::{Collection, CollectionError};
use super::loader::Loader;
use super::registration::OwnedRegistration;
use sekisho_calls::tool::{Source, SourceTools};
use sekisho_config::{CollectionSettings, OpenApiConfig};
use sekisho_core::administration::Ownership;

/// One state of all collections.
#[derive(Debug, Clone, Default)]
pub struct Collections {
    /// By name.
    pub loaded: BTreeMap<String, Arc<Collection>>,
    /// Name → why it could not be loaded; its previous tools may still be offered.
    pub broken: BTreeMap<String, String>,
    /// Collections whose document is still to be fetched: deferred, or unreachable at the last attempt.
    pub pending: BTreeMap<String, CollectionSettings>,
}

/// The desired collections: of the configuration, and registered over HTTP.
#[derive(Debug, Default)]
pub struct DesiredCollections {
    settings: BTreeMap<String, CollectionSettings>,
    /// Registered, but invalid with this configuration: name → why.
    unusable: BTreeMap<String, String>,
}

/// Whether loading waits for documents at addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    ForAll,
    /// Only for local documents: a start must not depend on other servers.
    ForLocalDocuments,
}

/// Longest wait of a start for one local document.
const LOCAL_DOCUMENT_TIMEOUT: Duration = Duration::from_secs(10);

const BEING_LOADED: &str = "its document is being loaded";

impl DesiredCollections {
    /// A configured collection takes precedence over a registered one of the same name.
    pub fn of(config: &OpenApiConfig, registered: &BTreeMap<String, OwnedRegistration>) -> Self {
        let mut desired = Self { settings: config.collections.clone(), unusable: BTreeMap::new() };
        for (name, OwnedRegistration { owner, registration }) in registered {
            if desired.settings.contains_key(name) {
                tracing::warn!(
                    collection = name,
                    "the name is registered over HTTP too; the configured collection is offered"
                );
                continue;
            }
            match registration.settings(owner, &config.secrets) {
                Ok(settings) => _ = desired.settings.insert(name.clone(), settings),
                Err(error) => _ = desired.unusable.insert(name.clone(), error.to_string()),
            }
        }
        desired
    }
}

impl Collections {
    /// Loads the desired collections. A collection that cannot be loaded stays as in `before` if its settings are
    /// unchanged.
    pub async fn load(
        desired: DesiredCollections,
        config: &OpenApiConfig,
        loader: &Loader,
        wait: Wait,
        before: &Self,
    ) -> Self {
        let DesiredCollections { settings, unusable } = desired;
        let mut next = Self { broken: unusable, ..Self::default() };
        let loading = settings.into_iter().map(async |(name, settings)| {
            let load = async |loader: &Loader| loader.load(&name, settings.clone(), config).await;
            let outcome = match wait {
                Wait::ForAll => Some(load(loader).await),
                Wait::ForLocalDocuments => {
                    let outcome = tokio::time::timeout(LOCAL_DOCUMENT_TIMEOUT, load(&loader.at_hand())).await;
                    outcome.ok().filter(|outcome| !outcome.as_ref().is_err_and(CollectionError::leads_elsewhere))
                }
            };
            (name, settings, outcome)
        });
        for (name, settings, outcome) in join_all(loading).await {
            let known = before.loaded.get(&name).filter(|collection| collection.settings == settings);
            if let Some(known) = known {
                next.loaded.insert(name.clone(), Arc::clone(known));
            }
            match outcome {
                Some(outcome) => next.settle(&name, settings, outcome.map(Arc::new)),
                None => next.await_later(name, settings),
            }
        }
        next
    }

    /// Records the result of loading a collection; an unreachable one is retried later.
    pub fn settle(
        &mut self,
        name: &str,
        settings: CollectionSettings,
        outcome: Result<Arc<Collection>, CollectionError>,
    ) {
        self.broken.remove(name);
        self.pending.remove(name);
        match outcome {
            Ok(collection) => _ = self.loaded.insert(name.to_owned(), collection),
            Err(error) => {
                self.broken.insert(name.to_owned(), error.to_string());
                if error.may_pass() {
                    self.pending.insert(name.to_owned(), settings);
                }
            }
        }
    }

    /// Without the collection of that name.
    pub fn remove(&mut self, name: &str) {
        self.loaded.remove(name);
        self.broken.remove(name);
        self.pending.remove(name);
    }

    fn await_later(&mut self, name: String, settings: CollectionSettings) {
        if !self.loaded.contains_key(&name) {
            self.broken.insert(name.clone(), BEING_LOADED.to_owned());
        }
        self.pending.insert(name, settings);
    }
}

impl Collections {
    /// The tools of the collections of tenants. [`Source::tools`] has the tools of the shared ones.
    pub fn tools_of_tenants(&self) -> SourceTools {
        self.tools_where(|owner| !owner.is_shared())
    }

    fn tools_where(&self, is_wanted: impl Fn(&Ownership) -> bool) -> SourceTools {
        let wanted = self.loaded.values().filter(|collection| is_wanted(&collection.settings.owner));
        let tools = wanted.flat_map(|collection| collection.tools.iter().cloned()).collect();
        SourceTools { tools, unavailable: Vec::new() }
    }
}

impl Source for Collections {
    fn name(&self) -> &str {
        "openapi"
    }

    fn tools(&self) -> SourceTools {
        self.tools_where(Ownership::is_shared)
    }
}
