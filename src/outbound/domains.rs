//! Permitted hosts: the lists of E74–E76 and `web_fetch.allowed_domains`.

use thiserror::Error;
use url::{Host, Url};

/// A list of hosts. A name includes its subdomains, an address only itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainList {
    /// `*` is on the list.
    everything: bool,
    hosts: Vec<Host>,
}

/// An invalid entry of a domain list.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a host name; write example.com (which includes its subdomains), an address, or * for every host")]
pub struct InvalidDomain(pub String);

impl DomainList {
    /// Every host.
    pub fn any() -> &'static Self {
        static ANY: DomainList = DomainList { everything: true, hosts: Vec::new() };
        &ANY
    }

    /// The listed hosts; `*` means every host, an empty list none.
    /// Errors: the first invalid entry.
    pub fn parse(entries: &[String]) -> Result<Self, InvalidDomain> {
        let mut list = Self { everything: false, hosts: Vec::new() };
        for entry in entries {
            match entry.trim() {
                "*" => list.everything = true,
                name => list.hosts.push(parse_host(name).ok_or_else(|| InvalidDomain(entry.clone()))?),
            }
        }
        Ok(list)
    }

    /// Whether the URL's host is on the list.
    pub fn allows(&self, url: &Url) -> bool {
        self.everything || url.host().is_some_and(|host| self.allows_host(&host))
    }

    /// Whether the host is on the list.
    pub fn allows_host(&self, host: &Host<&str>) -> bool {
        self.everything || self.hosts.iter().any(|listed| covers(listed, host))
    }
}

/// As the URL parser writes hosts: lower case, IDN as punycode, any notation of an address as that address.
fn parse_host(name: &str) -> Option<Host> {
    match Host::parse(name).ok()? {
        Host::Domain(domain) if domain.starts_with('.') || domain.contains('*') => None,
        Host::Domain(domain) => Some(Host::Domain(without_root(&domain).to_owned())),
        address => Some(address),
    }
}

fn covers(listed: &Host, host: &Host<&str>) -> bool {
    match (listed, host) {
        (Host::Domain(listed), Host::Domain(host)) => without_root(host)
            .strip_suffix(listed.as_str())
            .is_some_and(|below| below.is_empty() || below.ends_with('.')),
        (Host::Ipv4(listed), Host::Ipv4(host)) => listed == host,
        (Host::Ipv6(listed), Host::Ipv6(host)) => listed == host,
        _ => false,
    }
}

/// `example.com.` is the fully qualified form of `example.com`.
fn without_root(domain: &str) -> &str {
    domain.strip_suffix('.').unwrap_or(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> DomainList {
        DomainList::parse(&entries.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_name_covers_itself_and_its_subdomains_and_nothing_that_looks_like_it() {
        let list = list(&["Example.com", "bücher.example", "10.0.0.5", "[2001:db8::1]"]);
        for (url, expected) in [
            ("https://example.com/", true),
            ("https://EXAMPLE.COM:8443/", true),
            ("https://example.com./", true),
            ("https://api.example.com/", true),
            ("https://a.b.example.com./", true),
            ("https://evil-example.com/", false),
            ("https://example.com.evil.com/", false),
            ("https://example.co/", false),
            ("https://com/", false),
            ("https://evil.com/example.com", false),
            ("https://evil.com/?example.com", false),
            ("https://evil.com#example.com", false),
            ("https://example.com@evil.com/", false),
            ("https://evil.com\\@example.com/", false),
            ("https://bücher.example/", true),
            ("https://xn--bcher-kva.example/", true),
            ("https://bucher.example/", false),
            ("http://10.0.0.5/", true),
            ("http://0xa000005/", true),
            ("http://10.0.0.50/", false),
            ("http://1.10.0.0.5/", false),
            ("http://[2001:db8::1]/", true),
            ("http://[2001:db8::2]/", false),
        ] {
            let allowed = Url::parse(url).is_ok_and(|url| list.allows(&url));
            assert_eq!(allowed, expected, "{url}");
        }
    }

    #[test]
    fn a_star_allows_everything_and_an_empty_list_nothing() {
        let url = Url::parse("https://anything.example/").unwrap();
        assert!(list(&["*"]).allows(&url));
        assert!(DomainList::any().allows(&url));
        assert!(!list(&[]).allows(&url));
    }

    #[test]
    fn an_entry_that_is_no_host_is_named() {
        for wrong in ["https://example.com", "example.com/path", "*.example.com", ".example.com", "a b", "x:80", ""] {
            assert_eq!(DomainList::parse(&[wrong.into()]).unwrap_err(), InvalidDomain(wrong.into()), "{wrong}");
        }
    }
}
