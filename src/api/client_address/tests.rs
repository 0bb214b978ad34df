use axum::http::HeaderName;

use super::*;

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn address(listen: &str, allowed: &[&str], trusted: &[&str]) -> PublicAddress {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    let config =
        ServerConfig { allowed_hosts: owned(allowed), trusted_proxies: owned(trusted), ..ServerConfig::default() };
    PublicAddress::new(&config, listen.parse().unwrap())
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let header =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    pairs.iter().map(header).collect()
}

fn is_accepted(server: &PublicAddress, host: &'static str) -> bool {
    server.client(HERE, &Uri::from_static("/"), &headers(&[("host", host)])).is_ok()
}

#[test]
fn the_names_of_loopback_and_of_the_configuration_are_answered() {
    let alone = address("127.0.0.1:8080", &[], &[]);
    let named = address("127.0.0.1:8080", &["gw.example", "other.example:8443"], &[]);
    let open = address("0.0.0.0:8080", &[], &[]);
    let closed = address("0.0.0.0:8080", &["gw.example"], &[]);
    for (host, expected) in [
        ("localhost:1", [true, true, true, false]),
        ("127.0.0.1", [true, true, true, true]),
        ("[::1]:8080", [true, true, true, true]),
        ("192.0.2.7:8080", [false, false, true, true]),
        ("gw.example", [false, true, true, true]),
        ("GW.example:443", [false, true, true, true]),
        ("other.example:8443", [false, true, true, false]),
        ("other.example", [false, false, true, false]),
        ("gw.example.evil.test", [false, false, true, false]),
        ("user@localhost", [false, false, true, false]),
        ("evil.example/x", [false, false, true, false]),
        ("", [false, false, true, false]),
    ] {
        let accepted = [&alone, &named, &open, &closed].map(|server| is_accepted(server, host));
        assert_eq!(accepted, expected, "{host}");
    }
    let without = |server: &PublicAddress| server.client(HERE, &Uri::from_static("/"), &HeaderMap::new()).is_ok();
    assert!(!without(&alone) && without(&open));
    let unnamed =
        alone.client(HERE, &Uri::from_static("/readyz"), &headers(&[])).expect("the check of a load balancer");
    assert!(!unnamed.is_local);
    let in_http2 = alone.client(HERE, &Uri::from_static("http://evil.example/"), &headers(&[("host", "localhost")]));
    assert!(in_http2.is_err(), "`:authority` counts");
}

#[test]
fn the_host_of_the_public_url_is_answered() {
    let mut config = ServerConfig::default();
    config.mcp.public_url = Some("https://gw.example/sekisho".parse().unwrap());
    let server = PublicAddress::new(&config, config.listen);
    assert!(is_accepted(&server, "gw.example") && is_accepted(&server, "localhost"));
    assert!(!is_accepted(&server, "evil.example"));
}

#[test]
fn only_a_direct_request_on_this_machine_is_local() {
    let is_local = |server: &PublicAddress, peer, pairs: &[(&'static str, &'static str)]| {
        server.client(peer, &Uri::from_static("/"), &headers(pairs)).unwrap().is_local
    };
    let server = address("127.0.0.1:8080", &["gw.example"], &[]);
    assert!(is_local(&server, HERE, &[("host", "localhost:8080")]));
    assert!(!is_local(&server, HERE, &[("host", "gw.example")]), "the name of a proxy");
    for name in ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port"] {
        assert!(!is_local(&server, HERE, &[("host", "localhost"), (name, "127.0.0.1")]), "{name}");
    }
    let behind = address("127.0.0.1:8080", &[], &["127.0.0.0/8"]);
    assert!(!is_local(&behind, HERE, &[("host", "localhost")]), "the proxy itself");
    assert!(!is_local(&behind, HERE, &[("host", "localhost"), ("x-forwarded-for", "127.0.0.1")]));
    let elsewhere = address("0.0.0.0:8080", &[], &[]);
    assert!(!is_local(&elsewhere, HERE, &[("host", "localhost")]), "others reach this listener");
}

#[test]
fn headers_count_from_a_trusted_proxy_alone() {
    let server = address("0.0.0.0:8080", &["gw.example"], &["10.0.0.0/8"]);
    let uri = Uri::from_static("/");
    let pairs = [("host", "10.0.0.9"), ("x-forwarded-for", "203.0.113.5"), ("x-forwarded-host", "gw.example")];
    let sent = headers(&[&pairs[..], &[("x-forwarded-proto", "https")]].concat());
    let stranger = IpAddr::from([192, 0, 2, 9]);
    assert_eq!(server.client(PROXY, &uri, &sent).unwrap().ip.to_string(), "203.0.113.5");
    assert_eq!(server.client(stranger, &uri, &sent).unwrap().ip, stranger);
    assert_eq!(server.url(PROXY, &uri, &sent), "https://gw.example");
    assert_eq!(server.url(stranger, &uri, &sent), "http://0.0.0.0:8080");
    let evil = headers(&[("host", "gw.example"), ("x-forwarded-host", "evil.example")]);
    assert!(server.client(PROXY, &uri, &evil).is_err() && server.client(stranger, &uri, &evil).is_ok());
    // As a mapped address on a socket for both versions.
    let mapped = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(server.client(mapped, &uri, &sent).unwrap().ip.to_string(), "203.0.113.5");
}

#[test]
fn only_a_name_of_the_server_is_repeated() {
    let loopback = address("127.0.0.1:8080", &[], &[]);
    let open = address("192.0.2.1:8080", &[], &[]);
    let named = address("192.0.2.1:8080", &["gw.example"], &[]);
    for (host, expected) in [
        ("localhost:9000", ["http://localhost:9000", "http://192.0.2.1:8080", "http://192.0.2.1:8080"]),
        ("192.0.2.1:8080", ["http://127.0.0.1:8080", "http://192.0.2.1:8080", "http://192.0.2.1:8080"]),
        ("gw.example", ["http://127.0.0.1:8080", "http://192.0.2.1:8080", "http://gw.example"]),
        ("evil.example", ["http://127.0.0.1:8080", "http://192.0.2.1:8080", "http://192.0.2.1:8080"]),
        ("gw.example/x", ["http://127.0.0.1:8080", "http://192.0.2.1:8080", "http://192.0.2.1:8080"]),
    ] {
        let urls = [&loopback, &open, &named]
            .map(|server| server.url(HERE, &Uri::from_static("/"), &headers(&[("host", host)])));
        assert_eq!(urls, expected, "{host}");
    }
}

#[test]
fn each_connection_of_a_trusted_proxy_has_an_owner() {
    let server = address("0.0.0.0:8080", &[], &["10.0.0.1"]);
    let owner = |peer: &str| server.owner_of_connection(peer.parse().unwrap());
    assert_ne!(owner("10.0.0.1:5000"), owner("10.0.0.1:5001"));
    assert_eq!(owner("192.0.2.1:5000"), owner("192.0.2.1:5001"));
}
