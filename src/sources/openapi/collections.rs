//! All collections of a configuration: loaded side by side, and a broken one leaves the others alive.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::collection::{Collection, Loader};
use crate::config::OpenApiConfig;
use crate::sources::{Offer, Source};

/// One state of all collections.
#[derive(Debug, Clone, Default)]
pub struct Collections {
    /// By name.
    pub loaded: BTreeMap<String, Arc<Collection>>,
    /// Name → why it could not be loaded; what was loaded of it before may still be on offer.
    pub broken: BTreeMap<String, String>,
}

impl Collections {
    /// Loads what the configuration names. One that cannot be loaded stays as it is in `before` where its
    /// settings are still the same.
    pub async fn load(config: &OpenApiConfig, loader: &Loader, before: &Self) -> Self {
        let loading = config
            .collections
            .iter()
            .map(async |(name, settings)| (name, settings, loader.load(name, settings.clone(), config).await));
        let mut next = Self::default();
        for (name, settings, outcome) in join_all(loading).await {
            let collection = match outcome {
                Ok(collection) => Some(Arc::new(collection)),
                Err(fault) => {
                    next.broken.insert(name.clone(), fault.to_string());
                    before.loaded.get(name).filter(|collection| collection.settings == *settings).cloned()
                }
            };
            next.loaded.extend(collection.map(|collection| (name.clone(), collection)));
        }
        next
    }
}

impl Source for Collections {
    fn name(&self) -> &str {
        "openapi"
    }

    fn tools(&self) -> Offer {
        let tools = self.loaded.values().flat_map(|collection| collection.tools.iter().cloned()).collect();
        Offer { tools, unavailable: Vec::new() }
    }
}
