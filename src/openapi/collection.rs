//! One collection: a document's operations as tools, or why there are none.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use thiserror::Error;
use url::Url;

use super::CredentialError;
use super::call::adapter::AdapterError;
use super::load::document::DocumentError;
use super::load::fetch;
use super::load::fetch::FetchError;
use super::load::overlay::OverlayError;
use super::loader::READ_TIMEOUT;
use super::read::operation::Api;
use super::read::report::Report;
use sekisho_calls::tool::ToolDefinition;
use sekisho_config::CollectionSettings;
use sekisho_core::call::Arguments;
use sekisho_outbound::{DomainList, InvalidNetwork};
use sekisho_user_tokens::UserSource;

/// Why an operation without a server is lost.
pub(super) const NO_SERVER: &str = "it has no server; set base_url";

/// The tools of one document. Immutable; a reload makes a new one.
#[derive(Debug)]
pub struct Collection {
    pub settings: CollectionSettings,
    pub tools: Vec<ToolDefinition>,
    pub report: Report,
    /// Files that the document refers to; a change of one causes a reload.
    pub files: Vec<PathBuf>,
    /// Where its callers' own tokens come from, with `identity: per_user` or `stored`.
    pub user_source: Option<Arc<UserSource>>,
    /// The names that settings may refer to.
    pub names: DocumentNames,
    /// When it was read.
    pub loaded: SystemTime,
}

/// The names of a document that settings may refer to.
#[derive(Debug, Default)]
pub struct DocumentNames {
    /// Ids of operations.
    pub ids: BTreeSet<String>,
    /// Operations by `METHOD /path`.
    pub operations: BTreeSet<String>,
    pub paths: BTreeSet<String>,
    pub tags: BTreeSet<String>,
    pub methods: BTreeSet<String>,
    pub security_schemes: BTreeSet<String>,
}

impl DocumentNames {
    pub(super) fn of(api: &Api) -> Self {
        let mut names = Self { security_schemes: api.security_schemes.keys().cloned().collect(), ..Self::default() };
        for operation in &api.operations {
            names.ids.extend(operation.id.clone());
            names.operations.insert(format!("{} {}", operation.method, operation.path));
            names.paths.insert(operation.path.clone());
            names.tags.extend(operation.tags.iter().cloned());
            names.methods.insert(operation.method.to_string());
        }
        names
    }
}

impl Collection {
    /// Whether it was read from the same document as these settings name.
    pub fn is_of_document(&self, settings: &CollectionSettings) -> bool {
        let CollectionSettings { spec_url, spec_file, spec_inline, overlays, .. } = &self.settings;
        let origin = (spec_url, spec_file, spec_inline, overlays);
        origin == (&settings.spec_url, &settings.spec_file, &settings.spec_inline, &settings.overlays)
    }

    /// Whether there are no tools because no server is named.
    pub(super) fn lacks_servers(&self) -> bool {
        self.tools.is_empty() && self.report.lost.iter().any(|note| note.reason == NO_SERVER)
    }

    /// The servers that its tools send requests to, as `scheme://host:port`.
    pub fn servers(&self) -> BTreeSet<Url> {
        let nothing = Arguments::new();
        let servers = self.tools.iter().filter_map(|tool| tool.executor.upstream(&nothing));
        servers.filter_map(|server| Url::parse(&server.name).ok()).collect()
    }

    /// Checks that the hosts of its tools are allowed.
    /// Errors: [`FetchError::NotAllowed`] with the first that is not.
    pub fn check_servers(&self, allowed: &DomainList) -> Result<(), FetchError> {
        self.servers().iter().try_for_each(|url| fetch::check_allowed(url, allowed))
    }
}

/// Why a collection has no tools.
#[derive(Debug, Error)]
pub enum CollectionError {
    #[error("no document is configured; give `spec_url`, `spec_file` or `spec_inline`")]
    NoDocument,
    #[error(transparent)]
    Network(#[from] InvalidNetwork),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("the document names no server that can be called; set `base_url`")]
    NoServer,
    #[error("the overlay {file}: {error}")]
    Overlay { file: String, error: OverlayError },
    #[error("the overlay {file}: {error}")]
    OverlayText { file: String, error: DocumentError },
    #[error("`openapi.adapters.{vendor}`: {error}")]
    Adapter { vendor: String, error: AdapterError },
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error("too many documents are being read; no reader became free within {} s; try again later", READ_TIMEOUT.as_secs())]
    Busy,
    #[error("reading the document failed: {0}")]
    Failed(#[from] tokio::task::JoinError),
}

impl CollectionError {
    /// Whether loading the same collection may succeed later without a change to its settings.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Busy | Self::Fetch(FetchError::Url { .. })) || self.leads_elsewhere()
    }

    /// Whether only files were to be read, and the document is at an address or refers to one.
    pub(super) fn leads_elsewhere(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::NotAtHand { .. }))
    }
}
