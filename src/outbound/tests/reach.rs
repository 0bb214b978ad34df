//! Which addresses are reached, and by which way.

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect};
use axum::routing::any;
use http::HeaderValue;
use rustls::HandshakeKind;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::kept::encryption;
use super::*;

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_in_every_spelling() {
    let outbound = outbound_resolving(&OutboundConfig::default(), &["127.0.0.1"]);
    for spelling in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://0x7f000001/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://①②⑦.0.0.1/",
        "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://0/",
        "http://[::]/",
        "http://localhost/",
        "http://LOCALHOST/",
        "http://localhost./",
        "http://127.0.0.1:22/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "https://10.0.0.1/",
        "http://192.168.0.1/",
        "http://100.100.100.200/",
    ] {
        let error = outbound.send(request(Url::parse(spelling).unwrap())).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (ErrorCode::Denied, Blame::Call), "{spelling}: {error}");
        assert!(error.message().contains("public address; tools may not reach it"), "{spelling}: {error}");
    }
}

#[tokio::test]
async fn only_plain_web_addresses_are_requested() {
    for (address, reason) in [
        ("ftp://example.com/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://127.0.0.1:70/x", "only http and https"),
        ("http://user:pw@127.0.0.1/", "user name or password"),
        ("http://user@127.0.0.1/", "user name or password"),
    ] {
        let error = outbound().send(request(Url::parse(address).unwrap())).await.unwrap_err();
        assert!(error.message().contains(reason), "{address}: {error}");
    }
    let list = DomainList::parse(&["example.com".into()]).unwrap();
    let elsewhere = OutboundRequest { allowed: &list, ..request(Url::parse("http://127.0.0.1/").unwrap()) };
    assert!(outbound().send(elsewhere).await.unwrap_err().message().contains("not on the list"));
}

#[tokio::test]
async fn a_name_that_changes_its_address_after_the_check_is_refused() {
    let address = serve(Router::new().route("/", get(|| async { ([("connection", "close")], "first") }))).await;
    let config = OutboundConfig { dns_cache_seconds: 0, ..loopback() };
    let outbound = outbound_resolving(&config, &["127.0.0.1", "127.0.0.2"]);
    let first = outbound.send(request(named("rebind.test", address, "/"))).await.unwrap();
    assert_eq!(first.remote_addr.unwrap().ip(), address.ip());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    let error = outbound.send(request(named("rebind.test", address, "/"))).await.unwrap_err();
    assert_eq!(
        error.message(),
        "rebind.test is not at a public address; tools may not reach it unless outbound.allow_networks names it"
    );
    assert_eq!(error.cause(), Some("rebind.test is at 127.0.0.2"));
}

#[tokio::test]
async fn a_connection_opened_for_the_operator_serves_no_caller() {
    let address = serve(Router::new().route("/", get(|| async { "inside" }))).await;
    let outbound = outbound_resolving(&OutboundConfig::default(), &["127.0.0.1"]);
    let inside = named("inside.test", address, "/");
    let of_operator = OutboundRequest { trust: Trust::Operator, ..request(inside.clone()) };
    assert_eq!(outbound.send(of_operator).await.unwrap().body, Bytes::from_static(b"inside"));
    let error = outbound.send(request(inside)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Denied);
}

async fn redirect_to(State(target): State<String>) -> Redirect {
    Redirect::temporary(&target)
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_address() {
    let list = DomainList::parse(&["127.0.0.1".into(), "first.test".into()]).unwrap();
    for target in ["http://169.254.169.254/latest", "http://[::1]/", "file:///etc/passwd", "http://u:p@127.0.0.1/"] {
        let address = serve(Router::new().route("/", get(redirect_to)).with_state(target.to_owned())).await;
        let error = outbound().send(request(url(address, "/"))).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Denied, "{target}");
        let trusted = OutboundRequest { trust: Trust::Operator, ..request(url(address, "/")) };
        let error = outbound().send(trusted).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Denied, "{target}, although the first address is the operator's");
    }
    // The connector resolves a name: its addresses are checked there too.
    let address = serve(Router::new().route("/", get(redirect_to)).with_state("http://inside.test/".into())).await;
    for trust in [Trust::Caller, Trust::Operator] {
        let through_a_name = OutboundRequest { trust, ..request(url(address, "/")) };
        let error = outbound_resolving(&loopback(), &["127.0.0.2"]).send(through_a_name).await.unwrap_err();
        assert!(error.message().contains("public address; tools may not reach it"), "{trust:?}: {error}");
    }
    let address = serve(Router::new().route("/", get(redirect_to)).with_state("http://off.test/".into())).await;
    let off_the_list = OutboundRequest { allowed: &list, ..request(url(address, "/")) };
    assert!(outbound().send(off_the_list).await.unwrap_err().message().contains("off.test is not on the list"));
}

#[tokio::test]
async fn redirects_are_followed_to_their_end_or_their_limit() {
    let router = Router::new().route(
        "/{left}",
        get(|Path(left): Path<usize>| async move {
            match left {
                0 => "arrived".into_response(),
                left => Redirect::to(&format!("{}?q", left - 1)).into_response(),
            }
        }),
    );
    let address = serve(router).await;
    let response = outbound().send(request(url(address, "/5"))).await.unwrap();
    assert_eq!((&response.body[..], response.url.as_str()), (&b"arrived"[..], url(address, "/0?q").as_str()));
    let error = outbound().send(request(url(address, "/6"))).await.unwrap_err();
    assert_eq!(error.message(), "more than 5 redirects; fetch the final address itself");
    let unfollowed = OutboundRequest { max_redirects: 0, ..request(url(address, "/1")) };
    assert_eq!(outbound().send(unfollowed).await.unwrap().status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_origin() {
    let target = serve(Router::new().route(
        "/",
        any(|headers: HeaderMap, body: Bytes| async move {
            let secret = headers.values().any(|value| value.as_bytes().ends_with(b"secret"));
            format!("{secret} {} {}", headers["accept"].to_str().unwrap(), body.len())
        }),
    ))
    .await;
    let address = serve(Router::new().route("/", any(redirect_to)).with_state(url(target, "/").into())).await;
    let mut asked = OutboundRequest { body: Some("four".into()), method: Method::POST, ..request(url(address, "/")) };
    for name in ["authorization", "cookie", "x-api-key", "x-custom", "proxy-authorization"] {
        asked.headers.insert(name, HeaderValue::from_static("secret"));
    }
    asked.headers.insert("accept", HeaderValue::from_static("text/plain"));
    let response = outbound().send(asked.clone()).await.unwrap();
    assert_eq!(response.body, "false text/plain 4");
    let direct = outbound().send(OutboundRequest { url: url(target, "/"), ..asked }).await.unwrap();
    assert_eq!(direct.body, "true text/plain 4");
}

#[tokio::test]
async fn a_connection_or_a_looked_up_name_of_one_source_opens_nothing_for_another() {
    let address = serve(Router::new().route("/", get(|| async { "inside" }))).await;
    let shared = outbound_resolving(&OutboundConfig::default(), &["127.0.0.1"]);
    let server = shared.for_source(&["127.0.0.0/8".into()], "mcp.servers.a.allow_networks").unwrap();
    let other = shared.for_source(&[], "mcp.servers.b.allow_networks").unwrap();
    let web = WebFetchConfig { allow_ports: vec![address.port()], ..WebFetchConfig::default() };
    let web = shared.for_web_fetch(&web).unwrap();
    for target in [named("inside.test", address, "/"), url(address, "/")] {
        assert_eq!(server.send(request(target.clone())).await.unwrap().body, "inside");
        for (source, key) in [
            (&shared, "outbound.allow_networks"),
            (&other, "mcp.servers.b.allow_networks or outbound.allow_networks"),
            (&web, "tools.web_fetch.allow_networks"),
        ] {
            let error = source.send(request(target.clone())).await.unwrap_err();
            let ends = format!("public address; tools may not reach it unless {key} names it");
            assert!(error.message().ends_with(&ends), "{error}");
        }
    }
}

#[tokio::test]
async fn web_fetch_reaches_the_ports_of_the_web_and_those_named_for_it() {
    let address = serve(Router::new().route("/", get(|| async { "inside" }))).await;
    let networks = WebFetchConfig { allow_networks: vec!["127.0.0.1".into()], ..WebFetchConfig::default() };
    // Networks of other sources count nothing here.
    let closed = outbound().for_web_fetch(&networks).unwrap();
    let error = closed.send(request(url(address, "/"))).await.unwrap_err();
    assert!(error.message().contains("unless tools.web_fetch.allow_ports lists it"), "{error}");
    let ports = WebFetchConfig { allow_ports: vec![address.port()], ..networks };
    let open = outbound().for_web_fetch(&ports).unwrap();
    assert_eq!(open.send(request(url(address, "/"))).await.unwrap().body, "inside");
    // A redirect is checked in the same way.
    for (target, says) in [("http://127.0.0.1:9/", "port 9 "), ("http://127.0.0.2/", "127.0.0.2 is not a public")] {
        let first = serve(Router::new().route("/", get(redirect_to)).with_state(target.to_owned())).await;
        let ports = WebFetchConfig { allow_ports: vec![first.port()], ..ports.clone() };
        let error = outbound().for_web_fetch(&ports).unwrap().send(request(url(first, "/"))).await.unwrap_err();
        assert!(error.message().starts_with(says), "{error}");
    }
}

#[tokio::test]
async fn neither_web_fetch_nor_a_registered_source_reaches_the_gateway_itself() {
    let address = serve(Router::new().route("/", get(|| async { "the gateway" }))).await;
    let config = WebFetchConfig {
        allow_networks: vec!["0.0.0.0/0".into(), "::/0".into()],
        allow_ports: vec![address.port()],
        ..WebFetchConfig::default()
    };
    let outbound = outbound_resolving(&loopback(), &["127.0.0.1"]);
    let web = outbound.for_web_fetch(&config).unwrap();
    assert!(web.send(request(url(address, "/"))).await.is_ok(), "nobody listens yet");
    outbound.set_own_listeners(vec![address]);
    // Open connections are not checked again, so the listeners are set first.
    let web = outbound.for_web_fetch(&config).unwrap();
    let configured = outbound.for_source(&[], "mcp.servers.own.allow_networks").unwrap();
    for target in [url(address, "/"), named("gateway.test", address, "/")] {
        for client in [&web, &outbound] {
            let error = client.send(request(target.clone())).await.unwrap_err();
            assert_eq!((error.code(), error.blame()), (ErrorCode::Denied, Blame::Call), "{error}");
            assert!(error.message().ends_with("is this gateway itself, which its tools may not reach"), "{error}");
        }
        assert!(configured.send(request(target)).await.is_ok(), "an MCP server of its own the operator may name");
    }
}

/// Encrypts, reports how each encryption began, and answers one request on each connection.
async fn encrypted_server(acceptor: TlsAcceptor, begun: mpsc::UnboundedSender<Option<HandshakeKind>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let mut socket = acceptor.accept(socket).await.unwrap();
            begun.send(socket.get_ref().1.handshake_kind()).unwrap();
            if socket.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\ndone";
                socket.write_all(answer).await.unwrap();
                _ = socket.shutdown().await;
            }
        }
    });
    address
}

/// Encryption begins before the address of a connection is checked. So its first message has no session ticket, whose
/// bytes another server would have chosen, and no request follows it.
#[tokio::test]
async fn web_fetch_sends_the_gateway_itself_nothing_that_others_chose() {
    let (acceptor, trusting) = encryption();
    #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
    let (begun, mut kinds) = mpsc::unbounded_channel();
    let address = encrypted_server(acceptor, begun).await;
    let target = Url::parse(&format!("https://{address}/")).unwrap();
    let outbound = Outbound::with(&loopback(), system_lookup(), &trusting).unwrap();
    let config = WebFetchConfig {
        allow_networks: vec!["127.0.0.1".into()],
        allow_ports: vec![address.port()],
        ..WebFetchConfig::default()
    };
    let web = outbound.for_web_fetch(&config).unwrap();
    for (client, second) in [(&outbound, HandshakeKind::Resumed), (&web, HandshakeKind::Full)] {
        for expected in [HandshakeKind::Full, second] {
            assert_eq!(client.send(request(target.clone())).await.unwrap().body, "done");
            assert_eq!(kinds.recv().await.unwrap(), Some(expected));
        }
    }
    outbound.set_own_listeners(vec![address]);
    let (marked, sent) = for_call(request(target));
    let error = web.send(marked).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::Denied, Blame::Call), "{error}");
    assert!(!sent.is_set());
}
