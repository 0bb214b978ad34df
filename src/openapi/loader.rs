//! Loads collections: fetches a document, applies its overlays, bundles the documents it refers to, and reads
//! the result.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::Semaphore;
use url::Url;

use super::call::adapter::Adapter;
use super::collection::{Collection, CollectionError, DocumentNames};
use super::load::bundle::Bundle;
use super::load::document;
use super::load::document::Budget;
use super::load::fetch;
use super::load::fetch::{FetchError, Fetcher, SpecOrigin, SpecText};
use super::load::flaws::Cost;
use super::load::identifiers::resolve_identifiers;
use super::load::location::Location;
use super::load::overlay;
use super::read::operation::{Api, Server};
use super::read::report::Note;
use super::tool::without_false_hints;
use super::user_scheme::{UserScheme, exchange};
use super::{Access, definitions, read};
use sekisho_config::{CollectionSettings, OpenApiConfig};
use sekisho_outbound::{DomainList, Outbound};
use sekisho_user_tokens::UserTokens;

/// Loads collections. Clones share the document cache.
#[derive(Debug, Clone)]
pub struct Loader {
    fetcher: Fetcher,
    reading: Arc<Semaphore>,
    /// Where the tokens of callers are, in a gateway that runs.
    users: Option<Arc<UserTokens>>,
}

/// Documents read concurrently: each takes a core and much memory.
const READ_AT_ONCE: usize = 2;

/// Longest wait of a document for a free reader.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for all documents that one document refers to.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Referenced documents fetched concurrently.
const FETCHED_AT_ONCE: usize = 8;

/// A document bundled with all that it refers to, not yet read.
struct Whole {
    document: Value,
    /// Its address or file, unless it was given inline.
    from: Option<Location>,
    /// Notes for the report, in addition to the reader's.
    notes: Vec<Note>,
    /// Operations that were removed, with the reason.
    lost: Vec<Note>,
    /// Documents bundled into it.
    bundled: Vec<Location>,
}

impl Loader {
    /// `allowed` are the hosts of documents and of servers (`outbound.openapi_allowed_domains`).
    pub fn new(outbound: Outbound, allowed: DomainList) -> Self {
        let fetcher = Fetcher { outbound, allowed: Arc::new(allowed), cache: Arc::default(), at_hand: false };
        Self { fetcher, reading: Arc::new(Semaphore::new(READ_AT_ONCE)), users: None }
    }

    /// A loader whose collections may be called as their callers.
    #[must_use]
    pub fn with_user_tokens(self, users: &Arc<UserTokens>) -> Self {
        Self { users: Some(Arc::clone(users)), ..self }
    }

    /// A loader that makes no requests: documents at addresses are [`FetchError::NotAtHand`].
    pub(super) fn at_hand(&self) -> Self {
        let mut loader = self.clone();
        loader.fetcher.at_hand = true;
        loader
    }

    /// Hosts that documents and servers may be on.
    pub fn allowed(&self) -> &DomainList {
        &self.fetcher.allowed
    }

    /// Fetches the document and its overlays, and generates its tools.
    /// Errors: [`CollectionError`]. A part of the document that cannot be used is a line of the report instead.
    pub async fn load(
        &self,
        name: &str,
        settings: CollectionSettings,
        config: &OpenApiConfig,
    ) -> Result<Collection, CollectionError> {
        if let Some(base) = &settings.base_url {
            fetch::check_allowed(base, &self.fetcher.allowed)?;
        }
        let collection = self.make(name, settings, config, None).await?;
        if collection.lacks_servers() { Err(CollectionError::NoServer) } else { Ok(collection) }
    }

    /// Previews a collection. A document without a server gets a placeholder.
    /// Errors: as [`Loader::load`].
    pub async fn preview(
        &self,
        name: &str,
        settings: CollectionSettings,
        config: &OpenApiConfig,
        stand_in: &Url,
    ) -> Result<Collection, CollectionError> {
        self.make(name, settings, config, Some(stand_in)).await
    }

    async fn make(
        &self,
        name: &str,
        settings: CollectionSettings,
        config: &OpenApiConfig,
        stand_in: Option<&Url>,
    ) -> Result<Collection, CollectionError> {
        let loader = self.for_collection(name, &settings, config)?;
        let adapter = adapter(name, &settings, config)?;
        let text = loader.fetcher.fetch(origin(&settings)?).await?;
        let mut overlays = Vec::with_capacity(settings.overlays.len());
        for file in &settings.overlays {
            let overlay = loader.fetcher.fetch(SpecOrigin::File(file.clone())).await?;
            overlays.push((file.display().to_string(), overlay));
        }
        let mut access = Access {
            outbound: loader.fetcher.outbound.clone(),
            allowed: Arc::clone(&loader.fetcher.allowed),
            adapter,
            max_response_bytes: settings.max_response_bytes,
            pagination: settings.pagination.clone(),
            user: None,
            exchange: None,
        };
        let users = self.users.clone();
        let whole = loader.whole(text, overlays).await?;
        let (name, stand_in) = (name.to_owned(), stand_in.cloned());
        loader
            .on_blocking_thread(move || {
                let files = whole.files();
                let mut api = whole.read()?;
                if let (Some(url), None, true) = (stand_in, &settings.base_url, api.servers.is_empty()) {
                    let reason = "the document names no server; set `base_url` to make its tools callable";
                    api.report.approximated("the document", reason);
                    api.servers.push(Server { url, description: String::new() });
                }
                access.exchange = exchange(&name, &api, &settings, &access);
                access.user = UserScheme::of(&name, &api, &settings, &access, users.as_ref());
                let user_source = access.user.as_ref().and_then(|user| user.source.clone());
                let (tools, report) = definitions(&name, &api, &settings, &Arc::new(access))?;
                let names = DocumentNames::of(&api);
                Ok(Collection { settings, tools, report, files, user_source, names, loaded: SystemTime::now() })
            })
            .await
    }

    /// The HTTP client with this collection's settings. A registered collection has no client key of its own.
    fn for_collection(
        &self,
        name: &str,
        settings: &CollectionSettings,
        config: &OpenApiConfig,
    ) -> Result<Self, CollectionError> {
        let mut loader = self.clone();
        if config.collections.contains_key(name) {
            let key = format!("openapi.collections.{name}.allow_networks");
            loader.fetcher.outbound = self.fetcher.outbound.for_source(&settings.allow_networks, &key)?;
        }
        Ok(loader)
    }

    /// The API that a document describes. Its report is about the tools that it would become, and operations that would
    /// not become one are left out.
    /// Errors: [`CollectionError`]: the document is unreachable, not allowed, or not an OpenAPI document.
    pub async fn read(&self, origin: SpecOrigin, stand_in: Url) -> Result<Api, CollectionError> {
        let text = self.fetcher.fetch(origin).await?;
        let whole = self.whole(text, Vec::new()).await?;
        let settings = CollectionSettings::default();
        let access = Arc::new(Access {
            outbound: self.fetcher.outbound.clone(),
            allowed: Arc::clone(&self.fetcher.allowed),
            adapter: None,
            max_response_bytes: settings.max_response_bytes,
            pagination: settings.pagination.clone(),
            user: None,
            exchange: None,
        });
        self.on_blocking_thread(move || {
            let mut api = whole.read()?;
            let lacks_servers = api.servers.is_empty();
            if lacks_servers {
                api.servers.push(Server { url: stand_in, description: String::new() });
            }
            api.report = definitions("api", &api, &settings, &access)?.1;
            if lacks_servers {
                api.servers.clear();
            }
            let lost: HashSet<_> = api.report.lost.iter().map(|note| note.operation.as_str()).collect();
            api.operations.retain(|operation| !lost.contains(&*operation.label()));
            Ok(api)
        })
        .await
    }

    /// The document with its overlays applied, bundled with the documents it refers to.
    async fn whole(&self, text: SpecText, overlays: Vec<(String, SpecText)>) -> Result<Whole, CollectionError> {
        let (mut bundle, Cost { lost, approximated: mut notes }) =
            self.on_blocking_thread(move || opened(&text, &overlays)).await?;
        let from = bundle.from().cloned();
        let until = tokio::time::Instant::now() + BUNDLE_TIMEOUT;
        loop {
            let missing = bundle.missing();
            if missing.is_empty() {
                break;
            }
            let mut addresses = missing.iter().filter_map(Location::as_url).filter(|url| self.allowed().allows(url));
            if let (true, Some(url)) = (self.fetcher.at_hand, addresses.next()) {
                return Err(FetchError::NotAtHand { url: url.clone() }.into());
            }
            let folder = match &from {
                Some(Location::File(file)) => file.parent(),
                _ => None,
            };
            match tokio::time::timeout_at(until, self.fetch_all(missing, folder)).await {
                Ok(texts) => bundle = self.on_blocking_thread(move || Ok(bundle.with(texts))).await?,
                Err(_) => {
                    bundle.give_up(&format!("the documents did not all arrive within {} s", BUNDLE_TIMEOUT.as_secs()));
                }
            }
        }
        self.on_blocking_thread(move || {
            let bundled = bundle.bundled().cloned().collect();
            let (document, more) = bundle.finish();
            notes.extend(more);
            Ok(Whole { document, from, notes, lost, bundled })
        })
        .await
    }

    async fn fetch_all(
        &self,
        locations: Vec<Location>,
        folder: Option<&Path>,
    ) -> Vec<(Location, Result<SpecText, FetchError>)> {
        let fetch = async |location: Location| {
            let text = self.fetcher.fetch_referred(&location, folder).await;
            (location, text)
        };
        futures_util::stream::iter(locations).map(fetch).buffered(FETCHED_AT_ONCE).collect().await
    }

    /// A large document takes a second, so it is read on a blocking thread. The permit is held until reading
    /// ends, also when the caller has given up.
    async fn on_blocking_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CollectionError> + Send + 'static,
    ) -> Result<T, CollectionError> {
        let place = Arc::clone(&self.reading).acquire_owned();
        let place = tokio::time::timeout(READ_TIMEOUT, place).await.map_err(|_| CollectionError::Busy)?;
        tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        })
        .await?
    }
}

impl Whole {
    fn read(self) -> Result<Api, CollectionError> {
        let base = self.from.as_ref().and_then(Location::as_url);
        let mut api = read::read(&self.document, base)?;
        api.report.approximated.extend(self.notes);
        api.report.operations += self.lost.len();
        api.report.lost.extend(self.lost);
        Ok(api)
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        let file = |location: &Location| match location {
            Location::File(path) => Some(path.clone()),
            Location::Url(_) => None,
        };
        self.bundled.iter().filter_map(file).collect()
    }
}

/// The parsed document with its overlays applied, and the cost of the flaws of all.
fn opened(text: &SpecText, overlays: &[(String, SpecText)]) -> Result<(Bundle, Cost), CollectionError> {
    let budget = Budget::default();
    let mut document = document::parse_within(&text.bytes, &budget)?;
    let mut cost = Cost::of(budget.take_flaws(), &mut document);
    without_false_hints(&mut document);
    for (file, overlay) in overlays {
        for target in apply(&mut document, file, overlay)? {
            let reason = format!("an action of the overlay {file} has this target, which selects nothing");
            cost.approximated.push(Note { operation: target, reason });
        }
    }
    // Before the documents it refers to are fetched.
    document::version(&document)?;
    resolve_identifiers(&mut document);
    Ok((Bundle::new(document, text.from.clone(), budget), cost))
}

fn apply(document: &mut Value, file: &str, overlay: &SpecText) -> Result<Vec<String>, CollectionError> {
    let overlay = document::parse(&overlay.bytes)
        .map_err(|error| CollectionError::OverlayText { file: file.to_owned(), error })?;
    overlay::apply(document, &overlay).map_err(|error| CollectionError::Overlay { file: file.to_owned(), error })
}

fn origin(settings: &CollectionSettings) -> Result<SpecOrigin, CollectionError> {
    let url = settings.spec_url.clone().map(SpecOrigin::Url);
    let file = || settings.spec_file.clone().map(SpecOrigin::File);
    let inline = || settings.spec_inline.clone().map(SpecOrigin::Inline);
    url.or_else(file).or_else(inline).ok_or(CollectionError::NoDocument)
}

fn adapter(
    collection: &str,
    settings: &CollectionSettings,
    config: &OpenApiConfig,
) -> Result<Option<Arc<Adapter>>, CollectionError> {
    let Some(vendor) = settings.adapter_name() else { return Ok(None) };
    let named = config.adapters.iter().find(|(name, _)| name.eq_ignore_ascii_case(vendor));
    let Some((_, declared)) = named else {
        tracing::warn!(collection, vendor, "the vendor adapter is not declared; requests are sent unchanged");
        return Ok(None);
    };
    let compiled = Adapter::compile(declared.clone());
    let adapter = compiled.map_err(|error| CollectionError::Adapter { vendor: vendor.to_owned(), error })?;
    Ok(Some(Arc::new(adapter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E40.
    #[test]
    fn without_its_adapter_a_collection_works() {
        let settings = CollectionSettings { vendor_adapter: Some("nobody".into()), ..CollectionSettings::default() };
        assert!(adapter("c", &settings, &OpenApiConfig::default()).unwrap().is_none());
    }
}
