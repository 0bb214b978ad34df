//! TLS of the listener. Certificate and key come from files, which are read again when they change: a certificate is
//! renewed without a restart. The certificate of a client may name a workload.

use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use super::connections::Stream;
use sekisho_config::{TlsConfig, Watcher};
use sekisho_core::spiffe_id::SpiffeId;
use sekisho_observe::readiness::Readiness;
use sekisho_outbound::pem::{self, PemFileError};

/// Certificate and key, as they were last read without an error.
#[derive(Debug)]
pub(super) struct Tls {
    files: TlsConfig,
    current: ArcSwap<ServerConfig>,
    /// Begun before the files were read: later changes are noticed.
    watcher: Mutex<Watcher>,
}

/// Files that TLS cannot use.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("server.tls: {0}")]
    File(#[from] PemFileError),
    #[error("server.tls: {key} is not the key of {certificate}, or cannot be used: {problem}")]
    Key { key: String, certificate: String, problem: rustls::Error },
    #[error("server.tls.client_ca: {0}")]
    ClientAuthority(String),
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// The component in `/readyz`.
const COMPONENT: &str = "tls";

impl Tls {
    /// Errors: a file that cannot be read, or a key that is not the certificate's.
    pub(super) fn load(files: &TlsConfig) -> Result<Arc<Self>, TlsError> {
        let TlsConfig { certificate, key, client_ca } = files.clone();
        let watcher = Watcher::new([certificate, key].into_iter().chain(client_ca).collect(), Vec::new());
        let current = ArcSwap::from_pointee(read(files)?);
        Ok(Arc::new(Self { files: files.clone(), current, watcher: Mutex::new(watcher) }))
    }

    /// The encrypted connection, after the handshake.
    /// Errors: the client does not speak TLS, does not trust the certificate, or has none although one is required.
    pub(super) async fn accept<S>(self: Arc<Self>, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.current.load_full()).accept(stream).await
    }

    /// Reads the files again whenever they change, for ever. As long as they cannot be used, the last ones stay.
    pub(super) async fn reload_on_change(self: Arc<Self>, readiness: Arc<Readiness>) {
        let mut watcher = self.watcher.lock().await;
        loop {
            watcher.changed().await;
            match read(&self.files) {
                Ok(config) => {
                    self.current.store(Arc::new(config));
                    tracing::info!("the changed TLS certificate is in use");
                    readiness.restore(COMPONENT);
                }
                Err(problem) => readiness.degrade(COMPONENT, format!("{problem}; the last certificate stays in use")),
            }
        }
    }
}

/// The workload that a certificate names (X.509-SVID §2 and §5.2): one name of that form, and no other URI. The handshake has verified the
/// certificate, which is none of an authority.
fn workload_of(certificate: &CertificateDer<'_>) -> Option<SpiffeId> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_uri_names();
    let (name, other) = (names.next()?, names.next());
    SpiffeId::parse(name).filter(|_| other.is_none())
}

impl<S: Stream> Stream for TlsStream<S> {
    fn workload(&self) -> Option<SpiffeId> {
        workload_of(self.get_ref().1.peer_certificates()?.first()?)
    }
}

/// Checks the files without using them.
/// Errors: as [`Tls::load`].
pub fn check_tls(files: &TlsConfig) -> Result<(), TlsError> {
    read(files).map(drop)
}

fn read(files: &TlsConfig) -> Result<ServerConfig, TlsError> {
    let (chain, key) = (pem::certificates(&files.certificate)?, pem::private_key(&files.key)?);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(pem::authorities(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::ClientAuthority(error.to_string()))?)
        }
    };
    let shown = |file: &Path| file.display().to_string();
    let unusable = |problem| TlsError::Key { key: shown(&files.key), certificate: shown(&files.certificate), problem };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    if files.client_ca.is_some() {
        // A session that goes on would be of the certificate that it began with, which may have expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
