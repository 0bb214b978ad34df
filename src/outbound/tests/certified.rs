//! A client that shows a certificate of its own.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;

/// The address of a server that answers only clients with the trusted certificate, and a client's TLS that trusts the
/// server.
async fn server(client: &CertifiedKey<rcgen::KeyPair>) -> (SocketAddr, ClientConfig) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (mut clients, mut servers) = (RootCertStore::empty(), RootCertStore::empty());
    clients.add(client.cert.der().clone()).unwrap();
    servers.add(cert.der().clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider)).build().unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config.unwrap().with_client_cert_verifier(verifier);
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![cert.der().clone()], key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut socket) = acceptor.accept(socket).await else { continue };
            let _ = socket.read(&mut [0; 1_024]).await;
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone").await;
        }
    });
    let trusting = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    (address, trusting.with_root_certificates(servers).with_no_client_auth())
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_it() {
    let client = generate_simple_self_signed(["client.example".to_owned()]).unwrap();
    let (address, trusting) = server(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("client.pem"), folder.path().join("client.key"));
    std::fs::write(&certificate, client.cert.pem()).unwrap();
    std::fs::write(&key, client.signing_key.serialize_pem()).unwrap();
    let url = Url::parse(&format!("https://{address}/")).unwrap();
    let plain = Outbound::with(&loopback(), system_lookup(), &trusting).unwrap();
    assert!(plain.send(request(url.clone())).await.is_err());
    let certified = plain.with_client_certificate(&certificate, &key).unwrap();
    assert_eq!(certified.send(request(url.clone())).await.unwrap().body, "done");
    // It has the guard of the client that it was made from.
    let public = Outbound::with(&OutboundConfig::default(), system_lookup(), &trusting).unwrap();
    let error = public.with_client_certificate(&certificate, &key).unwrap().send(request(url)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Denied);

    let missing = plain.with_client_certificate(&folder.path().join("none.pem"), &key).unwrap_err();
    assert!(missing.to_string().contains("none.pem"), "{missing}");
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_with_its_key() {
    let [client, stranger] = [(); 2].map(|()| generate_simple_self_signed(["client.example".to_owned()]).unwrap());
    let (address, trusting) = server(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("client.pem"), folder.path().join("client.key"));
    // As agents do, so that nobody reads a half of it.
    let replace = |file: &Path, pem: String| {
        let next = folder.path().join("next");
        std::fs::write(&next, pem).unwrap();
        std::fs::rename(&next, file).unwrap();
    };
    replace(&certificate, client.cert.pem());
    replace(&key, client.signing_key.serialize_pem());
    let plain = Outbound::with(&loopback(), system_lookup(), &trusting).unwrap();
    let certified = plain.with_client_certificate(&certificate, &key).unwrap();
    let url = Url::parse(&format!("https://{address}/")).unwrap();
    let is_answered = async || certified.send(request(url.clone())).await.is_ok();
    assert!(is_answered().await);
    replace(&certificate, stranger.cert.pem());
    assert!(is_answered().await, "the last pair, as long as the key is of another certificate");
    replace(&key, stranger.signing_key.serialize_pem());
    assert!(!is_answered().await, "the server does not trust the new one");
    replace(&key, client.signing_key.serialize_pem());
    replace(&certificate, client.cert.pem());
    assert!(is_answered().await, "the first one again");
    std::fs::remove_file(&certificate).unwrap();
    assert!(is_answered().await, "the last one");
}
