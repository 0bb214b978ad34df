//! Requests through a proxy.

use std::io;

use rustls::ClientConfig;
use tokio::net::TcpStream;

use super::kept::{encryption_for, impatient_server};
use super::*;
use sekisho_config::{ProxyConfig, Secret};

/// The first head of each connection to a proxy.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that connects to `target` whatever the request names, or gives this `refusal`.
async fn proxy(target: SocketAddr, refusal: Option<&'static str>) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Heads::default();
    let kept = Arc::clone(&heads);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(pass_on(socket, target, refusal, Arc::clone(&kept)));
        }
    });
    (address, heads)
}

async fn pass_on(
    mut client: TcpStream,
    target: SocketAddr,
    refusal: Option<&'static str>,
    heads: Heads,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let text = String::from_utf8(head).unwrap();
    heads.lock().push(text.clone());
    if let Some(status) = refusal {
        return client.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
    }
    let mut server = TcpStream::connect(target).await?;
    match text.starts_with("CONNECT ") {
        true => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
        // As a proxy sends it on: only the path.
        false => server.write_all(text.replacen("http://api.test", "", 1).as_bytes()).await?,
    }
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// A client that uses the proxy. Names have these addresses here; without any they cannot be resolved.
fn through(proxy: SocketAddr, names: &'static [&'static str], tls: &ClientConfig) -> Outbound {
    let url = format!("http://user:pass%20word@{proxy}");
    let bypassed = vec![".inside.test".to_owned(), "192.0.2.0/24".to_owned()];
    let config = OutboundConfig {
        proxy: ProxyConfig { url: Some(Secret::new(url)), no_proxy: bypassed },
        connect_timeout_seconds: 5.0,
        ..OutboundConfig::default()
    };
    let lookup: Lookup = Box::new(move |_| {
        Box::pin(async move {
            let addresses: Vec<IpAddr> = names.iter().map(|name| name.parse().unwrap()).collect();
            if addresses.is_empty() { Err(io::Error::from(io::ErrorKind::NotFound)) } else { Ok(addresses) }
        })
    });
    Outbound::with(&config, lookup, tls).unwrap()
}

fn to(url: &str) -> OutboundRequest<'static> {
    request(Url::parse(url).unwrap())
}

async fn answering(acceptor: Option<tokio_rustls::TlsAcceptor>) -> SocketAddr {
    impatient_server(acceptor, Duration::from_secs(60), Arc::default()).await
}

#[tokio::test]
async fn requests_go_through_the_proxy_by_name_with_its_credentials() {
    let (acceptor, tls) = encryption_for("api.test");
    for (scheme, target, line) in [
        ("https", answering(Some(acceptor)).await, "CONNECT api.test:443 HTTP/1.1\r\n"),
        ("http", answering(None).await, "GET http://api.test/path HTTP/1.1\r\n"),
    ] {
        for names in [&[][..], &["8.8.8.8"]] {
            let (proxy, heads) = proxy(target, None).await;
            let outbound = through(proxy, names, &tls);
            let source = outbound.for_source(&[], "mcp.servers.a.allow_networks").unwrap();
            for (client, trust) in [(&outbound, Trust::Caller), (&outbound, Trust::Operator), (&source, Trust::Caller)]
            {
                let asked = OutboundRequest { trust, ..to(&format!("{scheme}://api.test/path")) };
                assert_eq!(client.send(asked.clone()).await.unwrap().body, "done", "{scheme} {trust:?}");
                assert_eq!(client.open(asked).await.unwrap().whole().await.unwrap(), "done");
            }
            let heads = heads.lock();
            assert!(!heads.is_empty());
            for head in &*heads {
                assert!(head.starts_with(line), "{head}");
                let credentials = "proxy-authorization: basic dxnlcjpwyxnzihdvcmq=\r\n";
                assert!(head.to_lowercase().contains(credentials), "{head}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_private_here_is_refused_before_the_proxy_sees_it() {
    let (proxy, heads) = proxy(answering(None).await, None).await;
    let tls = client::tls(&[]).unwrap();
    for (names, target) in [
        (&[][..], "http://10.0.0.1/"),
        (&[], "http://[fd00::1]/"),
        (&["10.0.0.1"], "http://api.test/"),
        // The proxy could choose the second one.
        (&["8.8.8.8", "10.0.0.1"], "http://api.test/"),
    ] {
        let error = through(proxy, names, &tls).send(to(target)).await.unwrap_err();
        assert!(error.message().contains("public address"), "{target}: {error}");
        assert_eq!(error.code(), ErrorCode::Denied);
    }
    assert_eq!(heads.lock().len(), 0);
}

#[tokio::test]
async fn this_machine_and_listed_hosts_are_reached_directly() {
    let target = answering(None).await;
    let (proxy, heads) = proxy(target, None).await;
    let outbound = through(proxy, &["127.0.0.1"], &client::tls(&[]).unwrap());
    for host in ["127.0.0.1", "localhost", "inside.test", "api.inside.test"] {
        let url = format!("http://{host}:{}/", target.port());
        let asked = OutboundRequest { trust: Trust::Operator, ..to(&url) };
        assert_eq!(outbound.send(asked).await.unwrap().body, "done", "{host}");
    }
    let direct = |url: &str| outbound.proxy_for(&Url::parse(url).unwrap()).is_none();
    assert!(direct("http://192.0.2.7/") && direct("http://[::1]/") && direct("http://[::ffff:192.0.2.7]/"));
    assert!(!direct("http://192.0.3.7/") && !direct("http://inside.test.example/") && !direct("http://api.test/"));
    assert_eq!(heads.lock().len(), 0);
}

#[tokio::test]
async fn a_proxy_of_its_own_takes_the_place_of_the_first_and_keeps_its_connections() {
    let target = answering(None).await;
    let (first, of_first) = proxy(target, None).await;
    let (second, of_second) = proxy(target, None).await;
    let outbound = through(first, &[], &client::tls(&[]).unwrap());
    let config = ProxyConfig { url: Some(Secret::new(format!("http://{second}"))), no_proxy: Vec::new() };
    let (other, again) = (outbound.through(&config).unwrap(), outbound.through(&config).unwrap());
    assert_eq!(other.send(to("http://api.test/")).await.unwrap().body, "done");
    assert_eq!((of_first.lock().len(), of_second.lock().len()), (0, 1));
    assert!(Arc::ptr_eq(&other.dialing, &again.dialing) && !Arc::ptr_eq(&other.dialing, &outbound.dialing));
    assert_eq!(outbound.send(to("http://api.test/")).await.unwrap().body, "done");
    assert_eq!((of_first.lock().len(), of_second.lock().len()), (1, 1));
    let same = outbound.through(&ProxyConfig::default()).unwrap();
    assert!(Arc::ptr_eq(&same.dialing, &outbound.dialing));
    let wrong = ProxyConfig { url: Some(Secret::new("x")), no_proxy: Vec::new() };
    assert!(outbound.through(&wrong).is_err());
}

#[tokio::test]
async fn web_fetch_uses_the_proxy_only_with_a_list_of_hosts() {
    let (proxy, heads) = proxy(answering(None).await, None).await;
    let outbound = through(proxy, &[], &client::tls(&[]).unwrap());
    let any = outbound.for_web_fetch(&WebFetchConfig::default()).unwrap();
    let error = any.send(to("http://api.test/")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Denied);
    assert!(error.message().contains("tools.web_fetch.allowed_domains"), "{error}");
    assert_eq!(heads.lock().len(), 0);
    let listed = WebFetchConfig { allowed_domains: vec!["api.test".into()], ..WebFetchConfig::default() };
    let listed = outbound.for_web_fetch(&listed).unwrap();
    assert_eq!(listed.send(to("http://api.test/")).await.unwrap().body, "done");
    assert_eq!(heads.lock().len(), 1);
}

#[tokio::test]
async fn a_proxy_that_does_not_connect_is_named_and_its_password_is_not() {
    let unused = { TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap() };
    let target = answering(None).await;
    let tls = client::tls(&[]).unwrap();
    let (credentials, _) = proxy(target, Some("407 Proxy Authentication Required")).await;
    let (closed, _) = proxy(target, Some("403 Forbidden")).await;
    for (proxy, url, expected) in [
        (
            credentials,
            "https://api.test/",
            "the proxy requires other credentials; correct its `url` at `outbound.proxy`, or at the profile of the model",
        ),
        (closed, "https://api.test/", "the proxy of `outbound.proxy`, or of the profile, does not connect to it"),
        (unused, "https://api.test/", "the proxy of `outbound.proxy`, or of the profile, cannot be reached"),
        (unused, "http://api.test/", "the proxy of `outbound.proxy`, or of the profile, cannot be reached"),
    ] {
        let outbound = through(proxy, &[], &tls);
        let error = outbound.send(to(url)).await.unwrap_err();
        assert_eq!(error.message(), format!("no connection to api.test: {expected}"));
        assert_eq!((error.code(), error.blame()), (ErrorCode::UpstreamError, Blame::Network));
        let shown = format!("{error:?} {outbound:?}");
        assert!(
            !shown.contains("pass%20word") && !shown.contains("pass word") && !shown.contains("dXNlcjpwYXNz"),
            "{shown}"
        );
    }
}
