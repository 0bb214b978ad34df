//! Addresses as programs pass them to the kernel, and which are in the program's own namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;

/// Beside loopback, the addresses in a program's network namespace. From the ranges for documentation, which nobody has:
/// with them, `getaddrinfo` with `AI_ADDRCONFIG` sees both families.
pub(super) const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(super) const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The longest address (`sockaddr_storage`).
pub(super) const MAX_ADDRESS: usize = 128;

/// The address of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// `AF_UNSPEC`: ends an association.
    None,
    Internet(SocketAddr),
}

/// Reads a copy of a `sockaddr`, as the kernel does.
/// Errors: `INVAL` when it is too short, `AFNOSUPPORT` for another family.
pub(super) fn parse(bytes: &[u8]) -> Result<Address, Errno> {
    let family = i32::from(u16::from_ne_bytes(part(bytes, 0)?));
    match family {
        libc::AF_UNSPEC => Ok(Address::None),
        libc::AF_INET => parse_v4(bytes).map(Address::Internet),
        libc::AF_INET6 => parse_v6(bytes).map(Address::Internet),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

fn parse_v4(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    // With its padding, which the kernel demands.
    let bytes: [u8; 16] = part(bytes, 0)?;
    let port = u16::from_be_bytes(part(&bytes, 2)?);
    let address = Ipv4Addr::from(part::<4>(&bytes, 4)?);
    Ok(SocketAddrV4::new(address, port).into())
}

fn parse_v6(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let port = u16::from_be_bytes(part(bytes, 2)?);
    let address = Ipv6Addr::from(part::<16>(bytes, 8)?);
    // Not in the oldest form of the address.
    let scope = part(bytes, 24).map_or(0, u32::from_ne_bytes);
    Ok(SocketAddrV6::new(address, port, 0, scope).into())
}

fn part<const LENGTH: usize>(bytes: &[u8], at: usize) -> Result<[u8; LENGTH], Errno> {
    let part = bytes.get(at..at + LENGTH).ok_or(Errno::INVAL)?;
    part.try_into().map_err(|_| Errno::INVAL)
}

/// Whether the address is in the program's own network namespace. The kernel connects to loopback for the unspecified
/// address.
pub(super) fn is_own(address: SocketAddr) -> bool {
    let address = address.ip().to_canonical();
    address.is_loopback() || address.is_unspecified() || [IpAddr::from(OWN_V4), OWN_V6.into()].contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(port: u16, address: [u8; 4], length: usize) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes();
        let mut bytes = [&family[..], &port.to_be_bytes(), &address, &[0; 112]].concat();
        bytes.truncate(length);
        bytes
    }

    fn v6(address: &str, scope: u32, length: usize) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET6).unwrap().to_ne_bytes();
        let address: Ipv6Addr = address.parse().unwrap();
        let mut bytes =
            [&family[..], &443u16.to_be_bytes(), &[0; 4], &address.octets(), &scope.to_ne_bytes(), &[0; 100]].concat();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let internet = |text: &str| Ok(Address::Internet(text.parse().unwrap()));
        for (bytes, expected) in [
            (v4(443, [1, 2, 3, 4], 16), internet("1.2.3.4:443")),
            (v4(443, [1, 2, 3, 4], 128), internet("1.2.3.4:443")),
            (v4(443, [1, 2, 3, 4], 15), Err(Errno::INVAL)),
            (v6("2a00::1", 0, 28), internet("[2a00::1]:443")),
            (v6("2a00::1", 0, 24), internet("[2a00::1]:443")),
            (v6("fe80::1", 3, 28), internet("[fe80::1%3]:443")),
            (v6("2a00::1", 0, 23), Err(Errno::INVAL)),
            (vec![0, 0], Ok(Address::None)),
            (vec![0], Err(Errno::INVAL)),
            (vec![], Err(Errno::INVAL)),
            (vec![1, 0, b'/', 0], Err(Errno::AFNOSUPPORT)),
        ] {
            assert_eq!(parse(&bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn loopback_in_every_spelling_is_the_programs_own() {
        for own in ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "192.0.2.1"]
        {
            assert!(is_own(SocketAddr::new(own.parse().unwrap(), 1)), "{own}");
        }
        for other in ["10.0.0.1", "169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "192.0.2.2", "8.8.8.8"] {
            assert!(!is_own(SocketAddr::new(other.parse().unwrap(), 1)), "{other}");
        }
    }
}
