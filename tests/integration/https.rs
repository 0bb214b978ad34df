//! Which certificates the gateway trusts for https addresses.

use std::convert::Infallible;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use sekisho::Gateway;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::app::{TestApp, config};
use super::cli::{sekisho, text};

/// A server that returns the HTTP version of the request: its certificate, and the port.
async fn serve(name: &str, protocols: &[&str]) -> (String, u16) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not believe the certificate goes away here.
                let Ok(socket) = acceptor.accept(socket).await else { return };
                let answer = service_fn(async |request: Request<Incoming>| {
                    Ok::<_, Infallible>(http::Response::new(format!("asked in {:?}", request.version())))
                });
                let connection = auto::Builder::new(TokioExecutor::new());
                _ = connection.serve_connection(TokioIo::new(socket), answer).await;
            });
        }
    });
    (cert.pem(), port)
}

/// A company's authority, beside those of the machine.
#[tokio::test]
async fn a_certificate_of_a_ca_file_is_trusted_too() {
    let directory = TempDir::new().unwrap();
    let (listed, listed_port) = serve("localhost", &["h2"]).await;
    let (_, other_port) = serve("localhost", &["h2"]).await;
    let file = directory.path().join("company.pem");
    std::fs::write(&file, listed).unwrap();
    let web = format!("allow_networks: ['127.0.0.1/32', '::1'], allow_ports: [{listed_port}, {other_port}]");
    let yaml = format!("outbound: {{ca_files: ['{}']}}\ntools: {{web_fetch: {{{web}}}}}", file.display());
    let app = TestApp::in_directory(directory, &yaml).await;
    let fetch = async |port: u16| app.call("web_fetch", json!({"url": format!("https://localhost:{port}/")})).await.1;
    let reply = fetch(listed_port).await;
    assert!(reply["output"].to_string().contains("asked in HTTP/2.0"), "{reply}");
    assert_eq!(fetch(other_port).await["success"], false);
    let directory = app.stop().await;
    for content in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let file = directory.path().join("company.pem");
        std::fs::write(&file, content).unwrap();
        let config = config(&directory, &format!("outbound: {{ca_files: ['{}']}}", file.display()));
        let refused = Gateway::start(config).await.unwrap_err().to_string();
        assert!(refused.contains("outbound.ca_files") && refused.contains("company.pem"), "{content}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_believed_by_a_certificate_this_machine_trusts_and_by_no_other() {
    let (newer, newer_port) = serve("localhost", &["h2", "http/1.1"]).await;
    let (older, older_port) = serve("localhost", &["http/1.1"]).await;
    let (other, other_port) = serve("other.example", &["http/1.1"]).await;
    let refused = "no connection to localhost: the TLS handshake failed";
    for (port, trusted, expected) in [
        (newer_port, &newer, "asked in HTTP/2.0"),
        (older_port, &older, "asked in HTTP/1.1"),
        (older_port, &newer, refused),
        (other_port, &other, refused),
        (older_port, &String::new(), refused),
    ] {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("trusted.pem"), trusted).unwrap();
        let open = format!("tools: {{web_fetch: {{allow_networks: ['127.0.0.1/32'], allow_ports: [{port}]}}}}");
        std::fs::write(directory.path().join("here.yaml"), open).unwrap();
        let mut command = sekisho(&directory);
        // A proxy of the environment would be outside of the address guard; it is not used.
        command.env("HTTPS_PROXY", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1").env_remove("NO_PROXY");
        command.env("SSL_CERT_FILE", "trusted.pem").args(["--config", "here.yaml", "call", "web_fetch"]);
        command.arg(format!(r#"{{"url": "https://localhost:{port}/"}}"#));
        let called = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(text(&called).contains(expected), "{expected}: {}", text(&called));
        assert_eq!(called.status.success(), expected != refused, "{}", text(&called));
    }
}
