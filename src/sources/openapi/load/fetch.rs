//! Where a document's text comes from: an address, a file of this machine, or the text itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use url::Url;

use super::cache::SpecCache;
use super::document::MAX_DOCUMENT_BYTES;
use super::location::Location;
use crate::core::call::Deadline;
use crate::core::error::CallError;
use crate::infra::outbound::{DomainList, Outbound, OutboundRequest, check_status};

/// Where a document or an overlay stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecOrigin {
    Url(Url),
    File(PathBuf),
    Inline(String),
}

/// A document's bytes, not yet read.
#[derive(Debug, Clone)]
pub(crate) struct SpecText {
    pub bytes: Bytes,
    /// What relative addresses in it count from: where it came from in the end, redirects followed.
    pub from: Option<Location>,
}

/// Why there is no text.
#[derive(Debug, Error)]
pub enum FetchError {
    #[error("{} cannot be read: {source}; check the path and its permissions", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} does not stand below {}; documents lead to files of their own folder only", path.display(), folder.display())]
    Outside { path: PathBuf, folder: PathBuf },
    #[error("{host} may not be asked; add it to `outbound.openapi_allowed_domains`")]
    NotAllowed { host: String },
    #[error("{} cannot be fetched: {problem}", without_query(url))]
    Url { url: Url, problem: String },
    #[error("{} is not asked for yet", without_query(url))]
    NotAtHand { url: Url },
}

/// Longest wait for a document, so that one slow server does not hold up a start.
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Most bytes of a document at an address that another refers to; several are fetched at once.
const MAX_REFERRED_BYTES: usize = 8 << 20;

/// Redirects followed, each to an allowed host only.
const MAX_REDIRECTS: usize = 3;

/// What fetches documents.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    pub(crate) outbound: Outbound,
    /// Hosts that may be asked.
    pub(crate) allowed: Arc<DomainList>,
    pub(crate) cache: Arc<SpecCache>,
    /// Reads files only, and leaves addresses for later.
    pub(crate) at_hand: bool,
}

impl Fetcher {
    /// Gets the text; at most one byte more than is ever read as a document.
    ///
    /// # Errors
    /// [`FetchError`], which names the file or the address.
    pub(crate) async fn fetch(&self, origin: SpecOrigin) -> Result<SpecText, FetchError> {
        match origin {
            SpecOrigin::Inline(text) => Ok(SpecText { bytes: text.into(), from: None }),
            SpecOrigin::File(path) => match read_file(&path).await {
                Ok((bytes, path)) => Ok(SpecText { bytes: bytes.into(), from: Some(Location::File(path)) }),
                Err(source) => Err(FetchError::File { path, source }),
            },
            SpecOrigin::Url(url) => self.download(url, MAX_DOCUMENT_BYTES).await,
        }
    }

    /// Gets a document that another refers to. Of files only those below `folder` are read.
    ///
    /// # Errors
    /// [`FetchError`].
    pub(crate) async fn fetch_referred(
        &self,
        location: &Location,
        folder: Option<&Path>,
    ) -> Result<SpecText, FetchError> {
        let path = match location {
            Location::Url(url) => return self.download(url.clone(), MAX_REFERRED_BYTES).await,
            Location::File(path) => path,
        };
        // Only a file leads to files, and a file has a folder.
        let folder = folder.unwrap_or(Path::new("."));
        let outside = || FetchError::Outside { path: path.clone(), folder: folder.to_owned() };
        // By its letters first, so that nothing is told of other files; then with its links followed.
        if !path.starts_with(folder) {
            return Err(outside());
        }
        match read_file(path).await {
            Ok((_, real)) if !real.starts_with(folder) => Err(outside()),
            Ok((bytes, _)) => Ok(SpecText { bytes: bytes.into(), from: Some(location.clone()) }),
            Err(source) => Err(FetchError::File { path: path.clone(), source }),
        }
    }

    async fn download(&self, url: Url, max_response_bytes: usize) -> Result<SpecText, FetchError> {
        check_allowed(&url, &self.allowed)?;
        if self.at_hand {
            return Err(FetchError::NotAtHand { url });
        }
        let (headers, known) = self.cache.find(&url).unzip();
        let request = OutboundRequest {
            headers: headers.unwrap_or_default(),
            secrets: url.query().map(|_| url.query_pairs().map(|(_, value)| value.into_owned()).collect()),
            max_response_bytes,
            max_redirects: MAX_REDIRECTS,
            allowed: &self.allowed,
            ..OutboundRequest::get(url.clone(), Deadline::after(FETCH_TIMEOUT))
        };
        let unfetched = |error: CallError| FetchError::Url { url: url.clone(), problem: error.message().to_owned() };
        let response = self.outbound.send(request).await.map_err(unfetched)?;
        if let (Some(known), StatusCode::NOT_MODIFIED) = (known, response.status) {
            return Ok(known);
        }
        check_status(&response).map_err(unfetched)?;
        let text = SpecText { bytes: response.body, from: Some(Location::Url(response.url)) };
        self.cache.keep(url, &response.headers, &text);
        Ok(text)
    }
}

/// # Errors
/// [`FetchError::NotAllowed`] for a host that is not on the list.
pub(crate) fn check_allowed(url: &Url, allowed: &DomainList) -> Result<(), FetchError> {
    if allowed.allows(url) {
        return Ok(());
    }
    Err(FetchError::NotAllowed { host: url.host_str().unwrap_or_default().to_owned() })
}

/// Some services want their key there.
fn without_query(url: &Url) -> &str {
    &url[..url::Position::AfterPath]
}

/// The bytes, and where the file really stands.
async fn read_file(path: &Path) -> io::Result<(Vec<u8>, PathBuf)> {
    let real = tokio::fs::canonicalize(path).await?;
    let file = tokio::fs::File::open(&real).await?;
    if !file.metadata().await?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    // One more than allowed, for the reader to refuse: a file may grow while it is read.
    file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    Ok((bytes, real))
}
