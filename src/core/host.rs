//! A host and its port, as `Host` headers and lists of host names have them.

use std::net::IpAddr;

/// `name`, `name:port`, `192.0.2.1:port` or `[2001:db8::1]:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAndPort<'a> {
    name: &'a str,
    pub port: Option<u16>,
}

impl<'a> HostAndPort<'a> {
    /// `None` for a text with anything else in it, such as a scheme, a user name or a path.
    pub fn parse(text: &'a str) -> Option<Self> {
        let end_of_address = text.find(']').unwrap_or(0);
        let (name, port) = match text[end_of_address..].find(':') {
            Some(colon) => {
                let (name, port) = (&text[..end_of_address + colon], &text[end_of_address + colon + 1..]);
                let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                (name, Some(port.parse().ok().filter(|_| is_number)?))
            }
            None => (text, None),
        };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        let host = Self { name, port };
        (is_name || name.starts_with('[') && host.address().is_some()).then_some(host)
    }

    /// The address, if the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        let inside = self.name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inside.unwrap_or(self.name).parse().ok()
    }

    /// `localhost`, or an address of loopback.
    pub fn is_loopback(&self) -> bool {
        self.name.eq_ignore_ascii_case("localhost")
            || self.address().is_some_and(|address| address.to_canonical().is_loopback())
    }

    /// Whether this entry of a list is the host. An entry without a port means any.
    pub fn covers(&self, host: &HostAndPort<'_>) -> bool {
        self.name.eq_ignore_ascii_case(host.name) && self.port.is_none_or(|port| host.port == Some(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for (text, name, port) in [
            ("gw.example", "gw.example", None),
            ("gw.example:8443", "gw.example", Some(8443)),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("[2001:db8::1]:80", "[2001:db8::1]", Some(80)),
            ("[::1]", "[::1]", None),
        ] {
            assert_eq!(HostAndPort::parse(text), Some(HostAndPort { name, port }), "{text}");
        }
        let wrong = ["", ":80", "a:", "a:x", "a:+1", "a:65536", "a:80:80", "::1", "https://a", "a/b", "u@a", "a b"];
        for text in wrong.into_iter().chain(["a\"", "[a]", "[::1", "[::1]x", "[::1]x:80", "*.a", "a,b", "ä"]) {
            assert_eq!(HostAndPort::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_entry_covers_its_name_and_its_port_or_any() {
        let covers = |entry, host| HostAndPort::parse(entry).unwrap().covers(&HostAndPort::parse(host).unwrap());
        assert!(covers("gw.example", "GW.example:8443") && covers("gw.example:80", "gw.example:80"));
        assert!(!covers("gw.example:80", "gw.example") && !covers("example", "gw.example"));
    }

    #[test]
    fn loopback_has_a_name_and_addresses() {
        for (text, expected) in [
            ("LocalHost:1", true),
            ("127.0.0.9", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.example", false),
            ("127.0.0.1.example", false),
            ("192.0.2.1", false),
        ] {
            assert_eq!(HostAndPort::parse(text).unwrap().is_loopback(), expected, "{text}");
        }
    }
}
