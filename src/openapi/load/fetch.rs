//! Fetches a document's text: from an address, a local file, or inline.

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
use sekisho_core::call::Deadline;
use sekisho_core::error::CallError;
use sekisho_outbound::{DomainList, Outbound, OutboundRequest, check_status};

/// The source of a document or an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecOrigin {
    Url(Url),
    File(PathBuf),
    Inline(String),
}

/// A document's bytes, not yet parsed.
#[derive(Debug, Clone)]
pub(crate) struct SpecText {
    pub bytes: Bytes,
    /// The base of its relative addresses: where it was found after redirects.
    pub from: Option<Location>,
}

/// Why the text cannot be fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    #[error("{} cannot be read: {source}; check the path and its permissions", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{} is not in {}, and a document may refer only to files of its own folder: bundle it \
         into one file, such as with `redocly bundle`",
        path.display(),
        folder.display()
    )]
    Outside { path: PathBuf, folder: PathBuf },
    #[error("{host} is not allowed; add it to `outbound.openapi_allowed_domains`")]
    NotAllowed { host: String },
    #[error("{} cannot be fetched: {problem}", without_query(url))]
    Url { url: Url, problem: String },
    #[error("{} is not fetched yet", without_query(url))]
    NotAtHand { url: Url },
}

/// Timeout for a document, so that one slow server does not delay a start.
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Most bytes of a referenced document at an address; several are fetched concurrently.
const MAX_REFERRED_BYTES: usize = 8 << 20;

/// Redirects followed, each to an allowed host only.
const MAX_REDIRECTS: usize = 3;

/// Fetches documents.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    pub(crate) outbound: Outbound,
    /// Hosts that requests may be sent to.
    pub(crate) allowed: Arc<DomainList>,
    pub(crate) cache: Arc<SpecCache>,
    /// Reads files only, and leaves addresses for later.
    pub(crate) at_hand: bool,
}

impl Fetcher {
    /// Fetches the text; at most one byte more than the document limit.
    /// Errors: [`FetchError`], which names the file or the address.
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

    /// Fetches a referenced document. Files are read only below `folder`.
    pub(crate) async fn fetch_referred(
        &self,
        location: &Location,
        folder: Option<&Path>,
    ) -> Result<SpecText, FetchError> {
        let path = match location {
            Location::Url(url) => return self.download(url.clone(), MAX_REFERRED_BYTES).await,
            Location::File(path) => path,
        };
        // Only a file may refer to files, and a file has a folder.
        let folder = folder.unwrap_or(Path::new("."));
        let outside = || FetchError::Outside { path: path.clone(), folder: folder.to_owned() };
        // First by its text, so that errors reveal nothing about other files; then with its links resolved.
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

/// Errors: [`FetchError::NotAllowed`] for a host that is not on the list.
pub(crate) fn check_allowed(url: &Url, allowed: &DomainList) -> Result<(), FetchError> {
    if allowed.allows(url) {
        return Ok(());
    }
    Err(FetchError::NotAllowed { host: url.host_str().unwrap_or_default().to_owned() })
}

/// Some services expect their key in the query.
fn without_query(url: &Url) -> &str {
    &url[..url::Position::AfterPath]
}

/// The bytes, and the file's path with links resolved.
async fn read_file(path: &Path) -> io::Result<(Vec<u8>, PathBuf)> {
    let real = tokio::fs::canonicalize(path).await?;
    let file = tokio::fs::File::open(&real).await?;
    if !file.metadata().await?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the parser refuses it: a file may grow while it is read.
    file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    Ok((bytes, real))
}
