//! Services that a server's entry names in its arguments and its environment, such as `postgres://localhost/db`.

use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use sekisho_config::{McpServerSettings, Secret};

/// A host with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedService {
    host: Host,
    port: u16,
}

/// Ports of schemes that the URL standard does not know.
const PORTS: [(&str, u16); 11] = [
    ("amqp", 5_672),
    ("amqps", 5_671),
    ("bolt", 7_687),
    ("mariadb", 3_306),
    ("mongodb", 27_017),
    ("mysql", 3_306),
    ("neo4j", 7_687),
    ("postgres", 5_432),
    ("postgresql", 5_432),
    ("redis", 6_379),
    ("rediss", 6_379),
];

impl NamedService {
    /// Whether it is at the address, which was looked up for `host`.
    pub(super) fn is_at(&self, address: SocketAddr, host: Option<&str>) -> bool {
        let ip = address.ip().to_canonical();
        let is_host = match &self.host {
            Host::Domain(name) if name == "localhost" => ip.is_loopback(),
            Host::Domain(name) => host == Some(name.as_str()),
            Host::Ipv4(named) => ip == IpAddr::V4(*named),
            Host::Ipv6(named) => ip == IpAddr::V6(*named),
        };
        is_host && address.port() == self.port
    }

    pub(super) fn has_name(&self, host: &str) -> bool {
        matches!(&self.host, Host::Domain(name) if name == host)
    }
}

/// The services in the arguments and in the environment.
pub(super) fn services(settings: &McpServerSettings) -> Vec<NamedService> {
    let values = settings.env.values().map(Secret::expose);
    settings.args.iter().map(String::as_str).chain(values).filter_map(service).collect()
}

/// The service that the text names: a URL, or a host and its port, also after `--option=`.
fn service(text: &str) -> Option<NamedService> {
    let text = match text.strip_prefix('-').and_then(|option| option.split_once('=')) {
        Some((_, value)) => value,
        None => text,
    };
    let text = text.trim();
    if text.contains("://") { of_url(&Url::parse(text).ok()?) } else { of_pair(text) }
}

fn of_url(url: &Url) -> Option<NamedService> {
    // Such as `postgresql+asyncpg`.
    let scheme = url.scheme().split_once('+').map_or(url.scheme(), |(scheme, _)| scheme);
    let port_of_scheme = || PORTS.iter().find(|(known, _)| *known == scheme).map(|(_, port)| *port);
    let port = url.port_or_known_default().or_else(port_of_scheme)?;
    // The host of a scheme that the standard does not know is any text.
    let host = Host::parse(url.host_str()?).ok()?;
    Some(NamedService { host: without_root(host), port })
}

/// `localhost:5432`, but not `image:8080`.
fn of_pair(text: &str) -> Option<NamedService> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
    if host != "localhost" && !host.contains('.') && !host.starts_with('[') {
        return None;
    }
    Some(NamedService { host: without_root(Host::parse(host).ok()?), port })
}

/// As a resolver is asked for it.
fn without_root(host: Host) -> Host {
    match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_ascii_lowercase()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_from_urls_and_pairs() {
        for (text, expected) in [
            ("postgres://user:pass@localhost/db?sslmode=disable", Some(("localhost", 5432))),
            ("postgresql+asyncpg://localhost/db", Some(("localhost", 5432))),
            ("--url=http://192.168.1.5:8123/", Some(("192.168.1.5", 8123))),
            ("https://NAS.local", Some(("nas.local", 443))),
            ("redis://[::1]", Some(("[::1]", 6379))),
            ("localhost:5432", Some(("localhost", 5432))),
            ("--host=127.0.0.1:5432", Some(("127.0.0.1", 5432))),
            ("[fd00::1]:80", Some(("[fd00::1]", 80))),
            ("file:///etc/passwd", None),
            ("unknown://localhost/x", None),
            ("image:8080", None),
            ("localhost", None),
            ("localhost:0", None),
            ("localhost:99999", None),
            ("-y", None),
            ("", None),
        ] {
            let found = service(text).map(|service| (service.host.to_string(), service.port));
            assert_eq!(found, expected.map(|(host, port)| (host.to_owned(), port)), "{text}");
        }
    }
}
