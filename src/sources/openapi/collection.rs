//! One collection: a document, changed by its overlays and read, as tools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;
use url::Url;

use super::adapter::{Adapter, AdapterFault};
use super::document::{self, DocumentFault};
use super::fetch::{self, FetchFault, SpecOrigin, SpecText};
use super::operation::Api;
use super::overlay::{self, OverlayFault};
use super::report::Report;
use super::{Access, CredentialFault, definitions, reader};
use crate::call::{Arguments, Upstream};
use crate::config::{CollectionSettings, OpenApiConfig};
use crate::outbound::{DomainList, Outbound};
use crate::sources::ToolDefinition;

/// The tools of one document. Immutable; a reload makes a new one.
#[derive(Debug)]
pub struct Collection {
    pub settings: CollectionSettings,
    pub tools: Vec<ToolDefinition>,
    pub report: Report,
}

impl Collection {
    /// Whether the hosts that its tools ask may be asked.
    ///
    /// # Errors
    /// [`FetchFault::NotAllowed`] with the first that may not.
    pub fn check_servers(&self, allowed: &DomainList) -> Result<(), FetchFault> {
        let nothing = Arguments::new();
        let servers = self.tools.iter().filter_map(|tool| tool.executor.upstream(&nothing));
        let urls = servers.filter_map(|Upstream(server)| Url::parse(&server).ok());
        urls.collect::<BTreeSet<_>>().iter().try_for_each(|url| fetch::check_allowed(url, allowed))
    }
}

/// Why a collection has no tools.
#[derive(Debug, Error)]
pub enum CollectionFault {
    #[error("no document is named; give `spec_url`, `spec_file` or `spec_inline`")]
    NoDocument,
    #[error(transparent)]
    Fetch(#[from] FetchFault),
    #[error(transparent)]
    Document(#[from] DocumentFault),
    #[error("the overlay {file}: {fault}")]
    Overlay { file: String, fault: OverlayFault },
    #[error("the overlay {file}: {fault}")]
    OverlayText { file: String, fault: DocumentFault },
    #[error("`openapi.adapters.{vendor}`: {fault}")]
    Adapter { vendor: String, fault: AdapterFault },
    #[error(transparent)]
    Credentials(#[from] CredentialFault),
    #[error("too many documents are being read; none was done within {} s, try again later", READ_WITHIN.as_secs())]
    Busy,
    #[error("reading the document failed: {0}")]
    Failed(#[from] tokio::task::JoinError),
}

impl CollectionFault {
    /// Whether the same collection may load later without anybody changing it.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Busy | Self::Fetch(FetchFault::Url { .. }))
    }
}

/// What collections are loaded with.
#[derive(Debug, Clone)]
pub struct Loader {
    pub outbound: Outbound,
    /// `outbound.openapi_allowed_domains`: hosts of documents and of servers.
    pub allowed: Arc<DomainList>,
    reading: Arc<Semaphore>,
}

/// Documents read at once: each takes a core, and much memory.
const READ_AT_ONCE: usize = 2;

/// Longest that a document waits for its turn to be read.
const READ_WITHIN: Duration = Duration::from_secs(30);

impl Loader {
    pub fn new(outbound: Outbound, allowed: DomainList) -> Self {
        Self { outbound, allowed: Arc::new(allowed), reading: Arc::new(Semaphore::new(READ_AT_ONCE)) }
    }

    /// Fetches the document and its overlays, and makes tools of it.
    ///
    /// # Errors
    /// [`CollectionFault`]. A part of the document that cannot be used is a line of the report instead.
    pub async fn load(
        &self,
        name: &str,
        settings: CollectionSettings,
        config: &OpenApiConfig,
    ) -> Result<Collection, CollectionFault> {
        let adapter = adapter(name, &settings, config)?;
        if let Some(base) = &settings.base_url {
            fetch::check_allowed(base, &self.allowed)?;
        }
        let text = self.fetch(origin(&settings)?).await?;
        let mut overlays = Vec::with_capacity(settings.overlays.len());
        for file in &settings.overlays {
            let overlay = self.fetch(SpecOrigin::File(file.clone())).await?;
            overlays.push((file.display().to_string(), overlay));
        }
        let access = Arc::new(Access {
            outbound: self.outbound.clone(),
            allowed: Arc::clone(&self.allowed),
            adapter,
            max_response_bytes: settings.max_response_bytes,
        });
        let name = name.to_owned();
        self.aside(move || {
            let api = read(&text, &overlays)?;
            let (tools, report) = definitions(&name, &api, &settings, &access)?;
            Ok(Collection { settings, tools, report })
        })
        .await
    }

    /// The API that a document describes, without making tools of it.
    ///
    /// # Errors
    /// [`CollectionFault`]: out of reach, not allowed, or no OpenAPI document.
    pub async fn read(&self, origin: SpecOrigin) -> Result<Api, CollectionFault> {
        let text = self.fetch(origin).await?;
        self.aside(move || read(&text, &[])).await
    }

    /// A large document takes a second: not on a thread that serves calls. The place among those read at
    /// once is held until it ends, also when nobody waits for it any more.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CollectionFault> + Send + 'static,
    ) -> Result<T, CollectionFault> {
        let place = Arc::clone(&self.reading).acquire_owned();
        let place = tokio::time::timeout(READ_WITHIN, place).await.map_err(|_| CollectionFault::Busy)?;
        tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        })
        .await?
    }

    async fn fetch(&self, origin: SpecOrigin) -> Result<SpecText, FetchFault> {
        fetch::fetch(origin, &self.outbound, &self.allowed).await
    }
}

fn origin(settings: &CollectionSettings) -> Result<SpecOrigin, CollectionFault> {
    let url = settings.spec_url.clone().map(SpecOrigin::Url);
    let file = || settings.spec_file.clone().map(SpecOrigin::File);
    let inline = || settings.spec_inline.clone().map(SpecOrigin::Inline);
    url.or_else(file).or_else(inline).ok_or(CollectionFault::NoDocument)
}

fn adapter(
    collection: &str,
    settings: &CollectionSettings,
    config: &OpenApiConfig,
) -> Result<Option<Arc<Adapter>>, CollectionFault> {
    let Some(vendor) = settings.adapter_name() else { return Ok(None) };
    let Some(declared) = config.adapters.get(vendor) else {
        tracing::warn!(collection, vendor, "a vendor adapter is named and not declared; requests go as they are");
        return Ok(None);
    };
    let compiled = Adapter::compile(declared.clone());
    let adapter = compiled.map_err(|fault| CollectionFault::Adapter { vendor: vendor.to_owned(), fault })?;
    Ok(Some(Arc::new(adapter)))
}

fn read(text: &SpecText, overlays: &[(String, SpecText)]) -> Result<Api, CollectionFault> {
    let mut document = document::parse(&text.bytes)?;
    let mut selecting_nothing = Vec::new();
    for (file, overlay) in overlays {
        let unused = apply(&mut document, file, overlay)?;
        selecting_nothing.extend(unused.into_iter().map(|target| (file, target)));
    }
    let mut api = reader::read(&document, text.base.as_ref())?;
    for (file, target) in selecting_nothing {
        api.report.approximated(&target, format!("the overlay {file} has an action for it, and it selects nothing"));
    }
    Ok(api)
}

fn apply(document: &mut Value, file: &str, overlay: &SpecText) -> Result<Vec<String>, CollectionFault> {
    let overlay = document::parse(&overlay.bytes)
        .map_err(|fault| CollectionFault::OverlayText { file: file.to_owned(), fault })?;
    overlay::apply(document, &overlay).map_err(|fault| CollectionFault::Overlay { file: file.to_owned(), fault })
}
