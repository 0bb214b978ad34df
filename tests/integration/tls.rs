//! TLS of the gateway's own listener.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CertifiedKey, IsCa, KeyPair, SanType,
    generate_simple_self_signed,
};
use reqwest::{Client, ClientBuilder, StatusCode, Version};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::app::TestApp;
use crate::cli::{sekisho, text};

/// A certificate for `localhost` and its key in `directory`, which the gateway uses; the PEM of the certificate.
fn issue(directory: &Path) -> String {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("tls.key"), signing_key.serialize_pem()).unwrap();
    std::fs::write(directory.join("tls.crt"), cert.pem()).unwrap();
    cert.pem()
}

fn settings(directory: &Path) -> String {
    let shown = directory.display();
    format!("certificate: '{shown}/tls.crt', key: '{shown}/tls.key'")
}

/// A gateway with TLS; the PEM of its certificate, and the address.
async fn gateway(further: &str) -> (TestApp, String, String) {
    gateway_with(&format!("{further}}}, read_timeout_seconds: 1")).await
}

/// The same, where the text ends the settings of TLS.
async fn gateway_with(further: &str) -> (TestApp, String, String) {
    let directory = TempDir::new().unwrap();
    let trusted = issue(directory.path());
    let yaml = format!("server: {{tls: {{{}{further}}}", settings(directory.path()));
    let app = TestApp::in_directory(directory, &yaml).await;
    let url = app.url.replace("http://127.0.0.1", "https://localhost");
    (app, trusted, url)
}

/// Trusts certificates, and has one of its own.
fn client(trusted: &str, own: Option<(String, String)>) -> ClientBuilder {
    client_of(trusted, own, &["h2", "http/1.1"])
}

/// The same, for these protocols.
fn client_of(trusted: &str, own: Option<(String, String)>, protocols: &[&str]) -> ClientBuilder {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut tls = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
    };
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let address = ([127, 0, 0, 1], 0).into();
    Client::builder().no_proxy().tls_backend_preconfigured(tls).resolve("localhost", address)
}

async fn status(client: &Client, url: &str) -> Option<StatusCode> {
    Some(client.get(format!("{url}/healthz")).send().await.ok()?.status())
}

#[tokio::test]
async fn calls_are_encrypted_over_both_versions_of_http() {
    let (app, trusted, url) = gateway("").await;
    let newer = client(&trusted, None).build().unwrap().get(format!("{url}/tools/list")).send().await.unwrap();
    assert_eq!((newer.status(), newer.version()), (StatusCode::OK, Version::HTTP_2), "loopback is anonymous");
    let older = client_of(&trusted, None, &["http/1.1"]).build().unwrap();
    let older = older.get(format!("{url}/healthz")).send().await.unwrap();
    assert_eq!((older.status(), older.version()), (StatusCode::OK, Version::HTTP_11));
    assert!(app.get("/healthz").send().await.is_err(), "HTTP without TLS");
    let other = issue(TempDir::new().unwrap().path());
    assert_eq!(status(&client(&other, None).build().unwrap(), &url).await, None, "another certificate is expected");
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_disconnected() {
    let (app, _, _) = gateway("").await;
    let mut stream = TcpStream::connect(app.url.trim_start_matches("http://")).await.unwrap();
    let closed = timeout(Duration::from_secs(10), stream.read(&mut [0])).await.expect("disconnected in time");
    assert!(matches!(closed, Ok(0) | Err(_)));
}

/// An authority, and a client's certificate of it with the key, as PEM.
fn authority() -> (String, (String, String)) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["client.example".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    (authority.pem(), (certificate.pem(), key.serialize_pem()))
}

#[tokio::test]
async fn with_a_client_ca_only_clients_with_its_certificate_are_answered() {
    let ((clients, known), (_, unknown)) = (authority(), authority());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), clients).unwrap();
    let (_app, trusted, url) = gateway(&format!(", client_ca: '{}'", file.path().display())).await;
    for (own, expected) in [(Some(known), Some(StatusCode::OK)), (Some(unknown), None), (None, None)] {
        assert_eq!(status(&client(&trusted, own).build().unwrap(), &url).await, expected);
    }
}

#[tokio::test]
async fn a_workload_is_known_by_the_only_uri_in_its_certificate() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let of_workload = |names: &[&str]| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
        params.subject_alt_names.extend(names.iter().map(|name| SanType::URI((*name).try_into().unwrap())));
        (params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem())
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let yaml = format!(
        ", client_ca: '{}'}}}}\nauth: {{anonymous: never, api_keys: [{{id: pat, key: key-of-pat}}], workloads: [\
         {{id: 'spiffe://a.example/agents/one', roles: [admin]}}, {{id: 'spiffe://a.example/users/*', tenant: acme}}]",
        file.path().display()
    );
    let (app, trusted, url) = gateway_with(&yaml).await;
    let (one, other) = ("spiffe://a.example/agents/one", "spiffe://a.example/users/u");
    for (names, key, expected) in [
        (&[one][..], None, StatusCode::OK),
        (&[other], None, StatusCode::FORBIDDEN),
        (&["spiffe://a.example/agents/two"], None, StatusCode::UNAUTHORIZED),
        (&["spiffe://b.example/agents/one"], None, StatusCode::UNAUTHORIZED),
        (&["https://a.example/agents/one"], None, StatusCode::UNAUTHORIZED),
        (&[one, other], None, StatusCode::UNAUTHORIZED),
        (&[one, "https://a.example/"], None, StatusCode::UNAUTHORIZED),
        (&[], None, StatusCode::UNAUTHORIZED),
        (&[one], Some("key-of-pat"), StatusCode::FORBIDDEN),
        (&[one], Some("wrong"), StatusCode::UNAUTHORIZED),
    ] {
        let client = client(&trusted, Some(of_workload(names))).build().unwrap();
        let request = client.get(format!("{url}/admin/keys"));
        let request = match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        assert_eq!(request.send().await.unwrap().status(), expected, "{names:?} {key:?}");
    }
    let client = client(&trusted, Some(of_workload(&[one]))).build().unwrap();
    let body = json!({"arguments": {"expression": "6 * 7"}});
    let called = client.post(format!("{url}/tools/calculator/execute")).json(&body).send().await.unwrap();
    assert_eq!(called.status(), StatusCode::OK);
    let trail = std::fs::read_to_string(app.stop().await.path().join("state/audit.jsonl")).unwrap();
    assert!(trail.contains(one), "{trail}");
}

/// Asks in a new connection, until the answer is as expected.
async fn until(what: &str, trusted: &str, url: &str, is_so: impl Fn(Option<Value>) -> bool) {
    let waiting = async {
        loop {
            let answer = client(trusted, None).build().unwrap().get(format!("{url}/readyz")).send().await.ok();
            let ready = match answer {
                Some(answer) => answer.json().await.ok(),
                None => None,
            };
            if is_so(ready) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), waiting).await.expect(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_certificate_is_used_and_an_unusable_one_is_reported() {
    let (app, first, url) = gateway("").await;
    assert_eq!(status(&client(&first, None).build().unwrap(), &url).await, Some(StatusCode::OK));
    let second = issue(app.directory.path());
    until("the new certificate is in use", &second, &url, |ready| ready.is_some()).await;
    assert_eq!(status(&client(&first, None).build().unwrap(), &url).await, None);
    std::fs::write(app.directory.path().join("tls.crt"), "no certificate").unwrap();
    let reason = |ready: Option<Value>| ready.unwrap()["degraded"]["tls"].as_str().map(str::to_owned);
    until("the second one stays, and the fault is reported", &second, &url, |ready| {
        reason(ready).is_some_and(|reason| {
            reason.contains("server.tls") && reason.contains("tls.crt: it contains no certificate")
        })
    })
    .await;
    std::fs::write(app.directory.path().join("tls.crt"), &second).unwrap();
    until("it works again", &second, &url, |ready| reason(ready).is_none()).await;
}

/// Calls a tool until `ended`; how often. Each call must succeed.
async fn call_until(ended: CancellationToken, url: String, client: impl Fn() -> Client) -> usize {
    let mut calls = 0;
    while !ended.is_cancelled() {
        let call = client().post(format!("{url}/tools/calculator/execute"));
        let answer = call.json(&json!({"arguments": {"expression": "6*7"}})).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        answer.bytes().await.expect("the whole answer");
        calls += 1;
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_certificates_are_renewed() {
    let unlimited = "limits: {caller_rate_limit: 1000000}\ntools: {overrides: {calculator: {rate_limit: 1000000}}";
    let (app, first, url) = gateway_with(&format!("}}}}\n{unlimited}")).await;
    let renewals: Vec<_> = (0..2).map(|_| TempDir::new().unwrap()).map(|new| (issue(new.path()), new)).collect();
    let all = renewals.iter().fold(first.clone(), |all, (certificate, _)| all + certificate);
    let ended = CancellationToken::new();
    let mut callers = JoinSet::new();
    // A connection that stays open: another one would not trust what comes after the first certificate.
    for protocol in ["h2", "http/1.1"] {
        let client = client_of(&first, None, &[protocol]).build().unwrap();
        callers.spawn(call_until(ended.clone(), url.clone(), move || client.clone()));
    }
    // A connection for each call.
    callers.spawn(call_until(ended.clone(), url.clone(), move || client(&all, None).build().unwrap()));
    for (certificate, new) in &renewals {
        for file in ["tls.key", "tls.crt"] {
            std::fs::copy(new.path().join(file), app.directory.path().join(file)).unwrap();
        }
        until("the new certificate is in use", certificate, &url, |ready| ready.is_some()).await;
    }
    ended.cancel();
    let calls = callers.join_all().await;
    assert!(calls.iter().all(|calls| *calls > 10), "{calls:?}");
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start_and_are_found_by_check() {
    let directory = TempDir::new().unwrap();
    issue(directory.path());
    let (other, closed) = (TempDir::new().unwrap(), directory.path().join("closed.yaml"));
    issue(other.path());
    let yaml = |certificate: &Path, key: &Path| {
        format!("server: {{tls: {{certificate: '{}', key: '{}'}}}}", certificate.display(), key.display())
    };
    let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    for (yaml, expected) in [
        (yaml(&certificate, &key), None),
        (yaml(&certificate, &other.path().join("tls.key")), Some("is not the key of")),
        (yaml(&certificate, &certificate), Some("contains no private key")),
        (yaml(&key, &key), Some("contains no certificate")),
        (yaml(&directory.path().join("missing"), &key), Some("missing: it cannot be read")),
    ] {
        std::fs::write(&closed, &yaml).unwrap();
        let check = sekisho(&directory).args(["--config", "closed.yaml", "check"]).output().unwrap();
        assert_eq!(check.status.success(), expected.is_none(), "{yaml}: {}", text(&check));
        let Some(expected) = expected else { continue };
        assert!(text(&check).split_whitespace().collect::<Vec<_>>().join(" ").contains(expected), "{}", text(&check));
        let serve = ["--config", "closed.yaml", "serve", "--listen", "127.0.0.1:0"];
        let started = sekisho(&directory).args(serve).output().unwrap();
        assert!(started.status.code() == Some(4) && text(&started).contains(expected), "{}", text(&started));
    }
}
