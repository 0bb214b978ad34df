//! All collections: loaded side by side, and a broken one leaves the others alive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::collection::{Collection, CollectionError};
use super::loader::Loader;
use super::registration::Registration;
use crate::config::{CollectionSettings, OpenApiConfig};
use crate::tool::{Source, SourceTools};

/// One state of all collections.
#[derive(Debug, Clone, Default)]
pub struct Collections {
    /// By name.
    pub loaded: BTreeMap<String, Arc<Collection>>,
    /// Name → why it could not be loaded; what was loaded of it before may still be on offer.
    pub broken: BTreeMap<String, String>,
    /// Those whose document is still to be fetched: not waited for, or out of reach when last asked for.
    pub awaited: BTreeMap<String, CollectionSettings>,
}

/// Collections that there should be: those of the configuration, and those registered over HTTP.
#[derive(Debug, Default)]
pub struct DesiredCollections {
    settings: BTreeMap<String, CollectionSettings>,
    /// Registered, and of no use with this configuration: name → why.
    unusable: BTreeMap<String, String>,
}

/// Whether loading waits for documents that stand at addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    ForAll,
    /// Only for what is at hand: a start must not depend on other servers.
    ForWhatIsAtHand,
}

/// Longest that a start waits for one document at hand.
const AT_HAND_TIMEOUT: Duration = Duration::from_secs(10);

const BEING_LOADED: &str = "its document is being loaded";

impl DesiredCollections {
    /// A name of the configuration is the configuration's, whatever was registered under it.
    pub fn of(config: &OpenApiConfig, registered: &BTreeMap<String, Registration>) -> Self {
        let mut wanted = Self { settings: config.collections.clone(), unusable: BTreeMap::new() };
        for (name, registration) in registered {
            if wanted.settings.contains_key(name) {
                tracing::warn!(collection = name, "it is registered over HTTP too; the configuration's is offered");
                continue;
            }
            match registration.settings(&config.secrets) {
                Ok(settings) => _ = wanted.settings.insert(name.clone(), settings),
                Err(fault) => _ = wanted.unusable.insert(name.clone(), fault.to_string()),
            }
        }
        wanted
    }
}

impl Collections {
    /// Loads what is wanted. One that cannot be loaded stays as it is in `before` where its settings are
    /// still the same.
    pub async fn load(
        wanted: DesiredCollections,
        config: &OpenApiConfig,
        loader: &Loader,
        wait: Wait,
        before: &Self,
    ) -> Self {
        let DesiredCollections { settings, unusable } = wanted;
        let mut next = Self { broken: unusable, ..Self::default() };
        let loading = settings.into_iter().map(async |(name, settings)| {
            let load = async |loader: &Loader| loader.load(&name, settings.clone(), config).await;
            let outcome = match wait {
                Wait::ForAll => Some(load(loader).await),
                Wait::ForWhatIsAtHand => {
                    let outcome = tokio::time::timeout(AT_HAND_TIMEOUT, load(&loader.at_hand())).await;
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

    /// What came of loading a collection; one that is out of reach is asked for again later.
    pub fn settle(
        &mut self,
        name: &str,
        settings: CollectionSettings,
        outcome: Result<Arc<Collection>, CollectionError>,
    ) {
        self.broken.remove(name);
        self.awaited.remove(name);
        match outcome {
            Ok(collection) => _ = self.loaded.insert(name.to_owned(), collection),
            Err(fault) => {
                self.broken.insert(name.to_owned(), fault.to_string());
                if fault.may_pass() {
                    self.awaited.insert(name.to_owned(), settings);
                }
            }
        }
    }

    /// Without the collection of that name.
    pub fn remove(&mut self, name: &str) {
        self.loaded.remove(name);
        self.broken.remove(name);
        self.awaited.remove(name);
    }

    fn await_later(&mut self, name: String, settings: CollectionSettings) {
        if !self.loaded.contains_key(&name) {
            self.broken.insert(name.clone(), BEING_LOADED.to_owned());
        }
        self.awaited.insert(name, settings);
    }
}

impl Source for Collections {
    fn name(&self) -> &str {
        "openapi"
    }

    fn tools(&self) -> SourceTools {
        let tools = self.loaded.values().flat_map(|collection| collection.tools.iter().cloned()).collect();
        SourceTools { tools, unavailable: Vec::new() }
    }
}
