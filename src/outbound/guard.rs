//! The addresses that tools may reach: public ones, and those the operator permits. All others (loopback, private
//! networks, cloud metadata, …) are refused, so that a tool cannot reach services that only this machine can reach
//! (server-side request forgery).
//!
//! The ranges are from the IANA special-purpose address registries:
//! <https://www.iana.org/assignments/iana-ipv4-special-registry> and `iana-ipv6-special-registry`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use thiserror::Error;

/// Permits or refuses the addresses and ports of one source's requests. Public addresses are always permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressGuard {
    /// Permitted although they are not public.
    allowed: Vec<IpNet>,
    ports: AllowedPorts,
    /// The configuration key for further addresses, for errors.
    key: Arc<str>,
}

/// Ports that a source may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowedPorts {
    /// The operator who configured the address chose its port too.
    Any,
    Only(Vec<u16>),
}

/// The configuration key for addresses of every MCP server and OpenAPI collection.
const SHARED_KEY: &str = "outbound.allow_networks";

/// Ports 80 and 443, for requests whose address a caller chooses.
const WEB_PORTS: [u16; 2] = [80, 443];

/// An entry of an `allow_networks` list that is not an address range.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{key}: {entry:?} is not an address range; write it like 10.1.0.0/16 or fd00:12::/32")]
pub struct InvalidNetwork {
    pub key: String,
    pub entry: String,
}

impl AddressGuard {
    /// For all that the operator or an administrator configured. `networks` are address ranges in CIDR notation,
    /// or single addresses.
    /// Errors: the first entry that is neither.
    pub fn shared(networks: &[String]) -> Result<Self, InvalidNetwork> {
        let allowed = parse_networks(networks, SHARED_KEY)?;
        Ok(Self { allowed, ports: AllowedPorts::Any, key: SHARED_KEY.into() })
    }

    /// For one source, which may reach `networks` in addition.
    /// Errors: as [`AddressGuard::shared`].
    pub fn with_networks(&self, networks: &[String], key: &str) -> Result<Self, InvalidNetwork> {
        let mut guard = self.clone();
        guard.allowed.extend(parse_networks(networks, key)?);
        guard.key = format!("{key} or {}", self.key).into();
        Ok(guard)
    }

    /// For `web_fetch`, whose addresses callers choose: nothing that other sources may reach is open to it.
    /// Errors: as [`AddressGuard::shared`].
    pub fn web_fetch(networks: &[String], ports: &[u16]) -> Result<Self, InvalidNetwork> {
        let key = "tools.web_fetch.allow_networks";
        let allowed = parse_networks(networks, key)?;
        let ports = AllowedPorts::Only(WEB_PORTS.iter().chain(ports).copied().collect());
        Ok(Self { allowed, ports, key: key.into() })
    }

    /// The configuration key that lets further addresses through.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub fn permits_port(&self, port: u16) -> bool {
        match &self.ports {
            AllowedPorts::Any => true,
            AllowedPorts::Only(ports) => ports.contains(&port),
        }
    }

    /// Whether a tool may connect to `address`.
    pub fn permits(&self, address: IpAddr) -> bool {
        is_public(real_target(address)) || self.lists(address)
    }

    /// Whether the operator allowed `address`, be it public or not.
    pub fn lists(&self, address: IpAddr) -> bool {
        let address = real_target(address);
        self.allowed.iter().any(|network| network.contains(&address))
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: u16, second: u16, third: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0), prefix)
}

const NOT_PUBLIC_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 0, 8),        // this network
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // shared by carriers (CGNAT); Alibaba's metadata
    v4(127, 0, 0, 0, 8),      // loopback
    v4(168, 63, 129, 16, 32), // Azure's host agent, the same from inside every machine there
    v4(169, 254, 0, 0, 16),   // link-local; the metadata of most clouds
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments; Oracle's metadata
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 88, 99, 0, 24),   // 6to4 relays, deprecated
    v4(192, 168, 0, 0, 16),   // private
    v4(198, 18, 0, 0, 15),    // benchmarking
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 4),      // multicast
    v4(240, 0, 0, 0, 4),      // reserved, broadcast
];

/// The addresses that IANA has given out as global unicast so far. All others are loopback, unique local, link-local,
/// multicast, discard-only, translation for local use, or nothing yet.
const GLOBAL_UNICAST_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

const NOT_PUBLIC_V6: [Ipv6Net; 3] = [
    v6(0x2001, 0, 0, 23),     // protocol assignments: Teredo, benchmarking, ORCHID
    v6(0x2001, 0xdb8, 0, 32), // documentation
    v6(0x3fff, 0, 0, 20),     // documentation
];

const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
const TRANSLATED: Ipv6Net = v6(0x64, 0xff9b, 0, 96);
const SIX_TO_FOUR: Ipv6Net = v6(0x2002, 0, 0, 16);

/// The IPv4 address inside an IPv6 one, which is the real destination.
fn real_target(address: IpAddr) -> IpAddr {
    let IpAddr::V6(address) = address else { return address };
    let [_, _, a, b, c, d, ..] = address.octets();
    let [.., e, f, g, h] = address.octets();
    if MAPPED.contains(&address) || TRANSLATED.contains(&address) {
        Ipv4Addr::new(e, f, g, h).into()
    } else if SIX_TO_FOUR.contains(&address) {
        Ipv4Addr::new(a, b, c, d).into()
    } else {
        address.into()
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            GLOBAL_UNICAST_V6.contains(&address) && !NOT_PUBLIC_V6.iter().any(|network| network.contains(&address))
        }
    }
}

fn parse_networks(entries: &[String], key: &str) -> Result<Vec<IpNet>, InvalidNetwork> {
    let parse = |entry: &String| {
        let network = entry.trim();
        network
            .parse::<IpNet>()
            .or_else(|_| network.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| InvalidNetwork { key: key.to_owned(), entry: network.to_owned() })
    };
    entries.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn public_only() -> AddressGuard {
        AddressGuard::shared(&[]).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// First and last address of each block that is not globally reachable.
    const REFUSED: &[(&str, &str)] = &[
        // IPv4 special-purpose registry
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "239.255.255.255"),
        ("240.0.0.0", "255.255.255.255"),
        // Metadata services
        ("169.254.169.254", "169.254.170.2"),
        ("100.100.100.200", "100.100.100.200"),
        ("192.0.0.192", "192.0.0.192"),
        ("168.63.129.16", "168.63.129.16"),
        ("fd00:ec2::254", "fd00:ec2::254"),
        ("fd20:ce::254", "fd20:ce::254"),
        // IPv6 special-purpose registry
        ("::", "::1"),
        ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
        ("100::", "100::ffff:ffff:ffff:ffff"),
        ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        // IPv4 inside IPv6: compatible, mapped, translated (NAT64), 6to4, Teredo
        ("::127.0.0.1", "::8.8.8.8"),
        ("::ffff:127.0.0.1", "::ffff:169.254.169.254"),
        ("::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"),
        ("64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254"),
        ("2002:7f00:1::", "2002:a9fe:a9fe::1"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:4136:e378:8000:63bf:f7f7:f7f7"),
    ];

    /// The nearest addresses on both sides of the blocks, and well-known public ones.
    const PERMITTED: &[&str] = &[
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "192.175.48.1",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2001:db7::1",
        "2001:db9::1",
        "2606:4700:4700::1111",
        "2620:4f:8000::1",
        "2a00:1450::1",
        "3ffe::1",
        "3fff:1000::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ];

    #[test]
    fn only_public_addresses_are_permitted() {
        let guard = public_only();
        for (first, last) in REFUSED {
            assert!(!guard.permits(address(first)), "{first} must be refused");
            assert!(!guard.permits(address(last)), "{last} must be refused");
        }
        for permitted in PERMITTED {
            assert!(guard.permits(address(permitted)), "{permitted} must be permitted");
        }
    }

    #[test]
    fn an_allowed_network_is_permitted_in_every_spelling_and_no_further() {
        let guard = AddressGuard::shared(&["10.1.0.0/16".into(), "::1".into(), "192.168.7.7".into()]).unwrap();
        for permitted in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "::1", "192.168.7.7", "8.8.8.8"] {
            assert!(guard.permits(address(permitted)), "{permitted}");
        }
        for refused in ["10.2.0.1", "::ffff:10.2.0.1", "::2", "192.168.7.8", "127.0.0.1"] {
            assert!(!guard.permits(address(refused)), "{refused}");
        }
    }

    #[test]
    fn an_entry_that_is_no_network_is_named() {
        for wrong in ["10.0.0.0/33", "intranet", "10.0.0/8", ""] {
            let expected = InvalidNetwork { key: SHARED_KEY.into(), entry: wrong.into() };
            assert_eq!(AddressGuard::shared(&[wrong.into()]).unwrap_err(), expected);
        }
    }

    #[test]
    fn what_one_source_may_reach_no_other_may() {
        let inside = address("10.1.2.3");
        let shared = AddressGuard::shared(&["192.168.0.0/16".into()]).unwrap();
        let server = shared.with_networks(&["10.1.0.0/16".into()], "mcp.servers.a.allow_networks").unwrap();
        let other = shared.with_networks(&[], "mcp.servers.b.allow_networks").unwrap();
        let web = AddressGuard::web_fetch(&["172.16.0.0/12".into()], &[8080]).unwrap();
        assert!(server.permits(inside) && server.permits(address("192.168.1.1")));
        assert!(!shared.permits(inside) && !other.permits(inside) && !web.permits(inside));
        assert!(other.permits(address("192.168.1.1")) && !web.permits(address("192.168.1.1")));
        assert!(web.permits(address("172.16.0.1")) && !server.permits(address("172.16.0.1")));
        for (port, expected) in [(80, true), (443, true), (8080, true), (22, false), (8081, false), (0, false)] {
            assert_eq!(web.permits_port(port), expected, "{port}");
            assert!(server.permits_port(port), "{port}");
        }
        assert_eq!(&**server.key(), "mcp.servers.a.allow_networks or outbound.allow_networks");
    }

    proptest! {
        /// The standard library's predicates confirm most of the table.
        #[test]
        fn what_the_standard_library_calls_local_is_refused(bits: u32) {
            let ip = Ipv4Addr::from(bits);
            if ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_multicast()
                || ip.is_broadcast() || ip.is_documentation() || ip.is_unspecified() {
                prop_assert!(!public_only().permits(ip.into()));
            }
        }

        #[test]
        fn an_embedded_address_fares_like_itself(bits: u32) {
            let guard = public_only();
            let ip = Ipv4Addr::from(bits);
            let [a, b, c, d] = ip.octets();
            let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
            let plain = guard.permits(ip.into());
            prop_assert_eq!(guard.permits(ip.to_ipv6_mapped().into()), plain);
            prop_assert_eq!(guard.permits(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into()), plain);
            prop_assert_eq!(guard.permits(Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1).into()), plain);
        }
    }
}
