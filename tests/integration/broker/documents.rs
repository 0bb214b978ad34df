//! Servers of client metadata documents over https, and a port that nobody may reach.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::run::REDIRECT;

/// How a document differs from one that is right.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Document {
    /// Put over its members.
    over: Map<String, Value>,
    /// So many bytes more.
    padding: usize,
    /// It is a redirect to this address.
    moves_to: Option<String>,
    /// In place of the document.
    text: Option<String>,
}

/// A server of one document.
pub(super) struct DocumentServer {
    pub(super) url: String,
    /// The topics of a configuration that reaches it.
    pub(super) settings: String,
    requests: Arc<AtomicUsize>,
}

impl DocumentServer {
    pub(super) async fn start(document: &Document, folder: &TempDir) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file = folder.path().join("authority.pem");
        std::fs::write(&file, cert.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/client.json", listener.local_addr().unwrap().port());
        let settings =
            format!("outbound: {{ca_files: ['{}'], allow_networks: ['127.0.0.0/8', '::1/128']}}", file.display());
        let requests = Arc::<AtomicUsize>::default();
        let answer = (document.moves_to.clone(), text(document, &url));
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), answer, Arc::clone(&requests)));
        Self { url, settings, requests }
    }

    /// How often it was asked.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn text(document: &Document, url: &str) -> String {
    if let Some(text) = &document.text {
        return text.clone();
    }
    let mut members = json!({
        "client_id": url, "client_name": "An editor with a document", "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": "none", "software_version": "1".repeat(document.padding),
    });
    for (name, value) in &document.over {
        members[name] = value.clone();
    }
    members.to_string()
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    (moves_to, text): (Option<String>, String),
    requests: Arc<AtomicUsize>,
) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (acceptor, moves_to, text, requests) =
            (acceptor.clone(), moves_to.clone(), text.clone(), Arc::clone(&requests));
        tokio::spawn(async move {
            let Ok(socket) = acceptor.accept(socket).await else { return };
            let answer = service_fn(move |request: Request<Incoming>| {
                requests.fetch_add(1, Ordering::SeqCst);
                // What it leads to would be right.
                let target = moves_to.as_deref().filter(|_| request.uri().path() == "/client.json");
                let builder = http::Response::builder().header("content-type", "application/json");
                let response = match target {
                    Some(target) => builder.status(302).header("location", target).body(String::new()),
                    None => builder.body(text.clone()),
                };
                std::future::ready(Ok::<_, Infallible>(response.unwrap()))
            });
            let connection = auto::Builder::new(TokioExecutor::new());
            _ = connection.serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

/// A port of loopback that counts who comes.
pub(super) struct Trap {
    pub(super) port: u16,
    visits: Arc<AtomicUsize>,
}

impl Trap {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let trap = Self { port: listener.local_addr().unwrap().port(), visits: Arc::default() };
        let visits = Arc::clone(&trap.visits);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                visits.fetch_add(1, Ordering::SeqCst);
            }
        });
        trap
    }

    pub(super) fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}
