//! Connections that wait to be used again.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Node and uvicorn end a connection that was idle for five seconds, load balancers after sixty. They may do so in the
/// moment in which it is used again; this server does it in that moment always.
#[tokio::test]
async fn a_connection_is_not_used_again_once_its_server_may_end_it() {
    let (acceptor, trusting) = encryption();
    for (scheme, acceptor, keep_alive, turns) in [
        ("http", None, 5, [(0, 1), (3, 1), (5, 2), (3, 2)]),
        ("https", Some(acceptor), 60, [(0, 1), (45, 1), (60, 2), (45, 2)]),
    ] {
        let opened = Arc::new(AtomicUsize::new(0));
        let address = impatient_server(acceptor, Duration::from_secs(keep_alive), Arc::clone(&opened)).await;
        let url = Url::parse(&format!("{scheme}://{address}/")).unwrap();
        let outbound = Outbound::with(&loopback(), system_lookup(), &trusting).unwrap();
        for (idle_seconds, connections) in turns {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(idle_seconds)).await;
            tokio::time::resume();
            let answer = outbound.send(request(url.clone())).await;
            assert_eq!(answer.unwrap().body, "done", "{scheme}, after {idle_seconds} s");
            assert_eq!(opened.load(Ordering::SeqCst), connections, "{scheme}, after {idle_seconds} s");
        }
    }
}

/// A server's side of encryption, and a client's that trusts it.
pub(super) fn encryption() -> (TlsAcceptor, ClientConfig) {
    encryption_for("127.0.0.1")
}

pub(super) fn encryption_for(host: &str) -> (TlsAcceptor, ClientConfig) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([host.to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let server = server.unwrap().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    let mut trusted = RootCertStore::empty();
    trusted.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    (TlsAcceptor::from(Arc::new(server)), client.with_root_certificates(trusted).with_no_client_auth())
}

/// Where a server listens that ends a connection once it was idle for longer, and counts those it `opened`.
pub(super) async fn impatient_server(
    acceptor: Option<TlsAcceptor>,
    keep_alive: Duration,
    opened: Arc<AtomicUsize>,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            opened.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    Some(acceptor) => answer(acceptor.accept(socket).await.unwrap(), keep_alive).await,
                    None => answer(socket, keep_alive).await,
                }
            });
        }
    });
    address
}

async fn answer(mut socket: impl AsyncRead + AsyncWrite + Unpin, keep_alive: Duration) {
    let mut answered = Instant::now();
    while socket.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) && answered.elapsed() < keep_alive {
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await.unwrap();
        socket.flush().await.unwrap();
        answered = Instant::now();
    }
}
