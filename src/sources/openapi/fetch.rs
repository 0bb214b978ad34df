//! Where a document's text comes from: an address, a file of this machine, or the text itself.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use url::Url;

use super::document::MAX_DOCUMENT_BYTES;
use crate::call::Deadline;
use crate::error::CallError;
use crate::outbound::{DomainList, Outbound, OutboundRequest, check_status};

/// Where a document or an overlay stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecOrigin {
    Url(Url),
    File(PathBuf),
    Inline(String),
}

/// A document's bytes, not yet read.
#[derive(Debug)]
pub struct SpecText {
    pub bytes: Bytes,
    /// What relative addresses in it count from: where it came from in the end, redirects followed.
    pub base: Option<Url>,
}

/// Why there is no text.
#[derive(Debug, Error)]
pub enum FetchFault {
    #[error("{} cannot be read: {source}; check the path and its permissions", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{host} may not be asked; add it to `outbound.openapi_allowed_domains`")]
    NotAllowed { host: String },
    #[error("{url} cannot be fetched: {problem}")]
    Url { url: Url, problem: String },
}

/// Longest wait for a document, so that one slow server does not hold up a start.
const FETCH_WITHIN: Duration = Duration::from_secs(20);

/// Redirects followed, each to an allowed host only.
const MAX_REDIRECTS: usize = 3;

/// Gets the text; at most one byte more than is ever read as a document.
///
/// # Errors
/// [`FetchFault`], which names the file or the address.
pub async fn fetch(origin: SpecOrigin, outbound: &Outbound, allowed: &DomainList) -> Result<SpecText, FetchFault> {
    match origin {
        SpecOrigin::Inline(text) => Ok(SpecText { bytes: text.into(), base: None }),
        SpecOrigin::File(path) => match read_file(&path).await {
            Ok(bytes) => Ok(SpecText { bytes: bytes.into(), base: None }),
            Err(source) => Err(FetchFault::File { path, source }),
        },
        SpecOrigin::Url(url) => download(url, outbound, allowed).await,
    }
}

/// # Errors
/// [`FetchFault::NotAllowed`] for a host that is not on the list.
pub(super) fn check_allowed(url: &Url, allowed: &DomainList) -> Result<(), FetchFault> {
    if allowed.allows(url) {
        return Ok(());
    }
    Err(FetchFault::NotAllowed { host: url.host_str().unwrap_or_default().to_owned() })
}

async fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    if !file.metadata().await?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    // One more than allowed, for the reader to refuse: a file may grow while it is read.
    file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

async fn download(url: Url, outbound: &Outbound, allowed: &DomainList) -> Result<SpecText, FetchFault> {
    check_allowed(&url, allowed)?;
    let request = OutboundRequest {
        max_response_bytes: MAX_DOCUMENT_BYTES,
        max_redirects: MAX_REDIRECTS,
        allowed,
        ..OutboundRequest::get(url.clone(), Deadline::after(FETCH_WITHIN))
    };
    let unfetched = |error: CallError| FetchFault::Url { url: url.clone(), problem: error.message().to_owned() };
    let response = outbound.send(request).await.map_err(unfetched)?;
    check_status(&response).map_err(unfetched)?;
    Ok(SpecText { base: Some(response.url), bytes: response.body })
}
