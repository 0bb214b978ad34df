//! The certificate that a client shows, from files that are read again when they change: one of a workload lasts hours, and is replaced by
//! its agent (SPIFFE X.509-SVID).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;

use super::OutboundError;
use crate::pem;

/// Certificate and key, as they were last read without an error.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    current: Mutex<(Version, Arc<CertifiedKey>)>,
}

/// The numbers and times of change of both files; none for one that is not there.
type Version = [Option<(u64, i64, i64)>; 2];

impl ClientCertificate {
    /// Errors: files that cannot be read, or a key that does not belong to the certificate.
    pub(super) fn new(
        certificate: PathBuf,
        key: PathBuf,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, OutboundError> {
        // Before they are read: a later change is noticed.
        let version = version(&certificate, &key);
        let current = Mutex::new((version, read(&certificate, &key, &provider)?));
        Ok(Self { certificate, key, provider, current })
    }
}

impl ResolvesClientCert for ClientCertificate {
    /// For each connection whose server asks. While changed files cannot be used, as between the writing of the two, the last ones count.
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let mut current = self.current.lock();
        let version = version(&self.certificate, &self.key);
        if version != current.0 {
            match read(&self.certificate, &self.key, &self.provider) {
                Ok(certified) => *current = (version, certified),
                Err(error) => tracing::warn!(%error, "a changed client certificate cannot be used; the last one stays"),
            }
        }
        Some(Arc::clone(&current.1))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn version(certificate: &Path, key: &Path) -> Version {
    [certificate, key].map(|file| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec()))
    })
}

fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, OutboundError> {
    let chain = pem::certificates(certificate).map_err(OutboundError::ClientCertificate)?;
    let key = pem::private_key(key).map_err(OutboundError::ClientCertificate)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, provider)?))
}
