//! The headers of proxies about the client of a request: `Forwarded` (RFC 7239), or `X-Forwarded-For`, `-Host` and
//! `-Proto`. Each proxy adds to the end of a list, so that only the end is known to be the work of the nearest one.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{FORWARDED, VIA};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Whether a request has a header that a proxy adds.
pub(super) fn came_through_proxy(headers: &HeaderMap) -> bool {
    let is_of_proxy = |name: &HeaderName| name.as_str().starts_with("x-forwarded-");
    [FORWARDED, VIA, REAL_IP].iter().any(|name| headers.contains_key(name)) || headers.keys().any(is_of_proxy)
}

/// The headers of a request from a trusted proxy.
pub(super) struct Forwarded;

impl Forwarded {
    /// The first address, from the nearest, that is not a trusted proxy's; without one the last that is known. Where
    /// both headers exist and differ, one of them came from the client, and nobody knows which: the address is `peer`.
    pub(super) fn client(headers: &HeaderMap, peer: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
        let walk = |hops: Vec<&str>| {
            let mut client = peer;
            for hop in hops.into_iter().rev() {
                match node(hop) {
                    Some(address) if is_trusted(client) => client = address,
                    _ => break,
                }
            }
            client
        };
        let listed = headers.contains_key(FORWARDED_FOR).then(|| walk(texts(headers, &FORWARDED_FOR).collect()));
        let hops = || texts(headers, &FORWARDED).map(|element| parameter(element, "for").unwrap_or_default());
        let standard = headers.contains_key(FORWARDED).then(|| walk(hops().collect()));
        match (standard, listed) {
            (Some(one), Some(other)) if one != other => peer,
            (one, other) => one.or(other).unwrap_or(peer),
        }
    }

    /// The host that the client asked for.
    pub(super) fn host(headers: &HeaderMap) -> Option<&str> {
        Self::nearest(headers, &FORWARDED_HOST, "host")
    }

    /// `https` or `http`, by which the client reached the proxy.
    pub(super) fn scheme(headers: &HeaderMap) -> Option<&'static str> {
        let scheme = Self::nearest(headers, &FORWARDED_PROTO, "proto")?;
        ["https", "http"].into_iter().find(|known| scheme.eq_ignore_ascii_case(known))
    }

    fn nearest<'a>(headers: &'a HeaderMap, name: &HeaderName, key: &str) -> Option<&'a str> {
        let listed = texts(headers, name).last();
        listed.or_else(|| texts(headers, &FORWARDED).last().and_then(|element| parameter(element, key)))
    }
}

/// The parts of all values of a header, in order.
fn texts<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    headers.get_all(name).iter().flat_map(|value| split(text(value), ','))
}

/// A value that is no text is nobody's address.
fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

/// Divides a text at the separators outside of quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(|character| {
        let divides = character == separator && !quoted;
        quoted ^= character == '"' && !escaped;
        escaped = quoted && character == '\\' && !escaped;
        divides
    });
    parts.map(str::trim).collect()
}

/// A parameter of an element of `Forwarded`. A quoted value with escapes is none that we need.
fn parameter<'a>(element: &'a str, key: &str) -> Option<&'a str> {
    let value = split(element, ';').into_iter().find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case(key).then_some(value.trim())
    })?;
    Some(value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
}

/// The address of a proxy or client, with or without a port. `unknown` and names that hide one are none.
fn node(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(with_port).or_else(bracketed).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    /// Trusts 10.0.0.0/8.
    fn client(pairs: &[(&'static str, &'static str)]) -> String {
        let is_trusted = |address| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
        Forwarded::client(&headers(pairs), IpAddr::from([10, 0, 0, 1]), is_trusted).to_string()
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        for (value, expected) in [
            ("203.0.113.5", "203.0.113.5"),
            ("203.0.113.5, 10.0.0.2", "203.0.113.5"),
            // The client itself wrote the first one.
            ("127.0.0.1, 203.0.113.5, 10.0.0.2", "203.0.113.5"),
            ("10.9.9.9, 203.0.113.5", "203.0.113.5"),
            ("203.0.113.5:4711", "203.0.113.5"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]:80", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("::ffff:203.0.113.5", "203.0.113.5"),
            ("203.0.113.5, unknown, 10.0.0.2", "10.0.0.2"),
            ("203.0.113.5, ", "10.0.0.1"),
            ("", "10.0.0.1"),
            ("gw.example", "10.0.0.1"),
            ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ] {
            assert_eq!(client(&[("x-forwarded-for", value)]), expected, "{value}");
        }
        assert_eq!(client(&[]), "10.0.0.1");
        let lines = [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-for", "203.0.113.6, 10.0.0.2")];
        assert_eq!(client(&lines), "203.0.113.6");
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_defines_it() {
        for (value, expected) in [
            ("for=203.0.113.5", "203.0.113.5"),
            ("For=203.0.113.5;proto=https;by=10.0.0.2", "203.0.113.5"),
            ("proto=https ; for = \"203.0.113.5:47\"", "203.0.113.5"),
            ("for=\"[2001:db8::7]:4711\"", "2001:db8::7"),
            ("for=192.0.2.9, for=203.0.113.5, for=10.0.0.2", "203.0.113.5"),
            ("for=\"192.0.2.9, for=192.0.2.8\", for=203.0.113.5", "203.0.113.5"),
            // A quote that the client left open swallows the proxy's addition.
            ("for=\"192.0.2.9, for=203.0.113.5", "10.0.0.1"),
            ("for=_hidden, for=10.0.0.2", "10.0.0.2"),
            ("for=\"203.0.113\\.5\"", "10.0.0.1"),
            ("proto=https", "10.0.0.1"),
        ] {
            assert_eq!(client(&[("forwarded", value)]), expected, "{value}");
        }
    }

    #[test]
    fn two_headers_that_differ_name_nobody() {
        let both = |one, other| client(&[("forwarded", one), ("x-forwarded-for", other)]);
        assert_eq!(both("for=203.0.113.5", "203.0.113.5"), "203.0.113.5");
        assert_eq!(both("for=203.0.113.5", "192.0.2.9"), "10.0.0.1");
    }

    #[test]
    fn host_and_scheme_are_those_of_the_nearest_proxy() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let headers = headers(pairs);
            (Forwarded::host(&headers).map(str::to_owned), Forwarded::scheme(&headers))
        };
        let expected = (Some("gw.example:8443".to_owned()), Some("https"));
        let listed = [("x-forwarded-host", "evil.example, gw.example:8443"), ("x-forwarded-proto", "http,HTTPS")];
        assert_eq!(of(&listed), expected);
        let standard = "host=evil.example;proto=http, for=192.0.2.1;host=\"gw.example:8443\";proto=https";
        assert_eq!(of(&[("forwarded", standard)]), expected);
        assert_eq!(of(&[("x-forwarded-proto", "ftp")]), (None, None));
    }

    #[test]
    fn hostile_bytes_in_the_headers() {
        let seeds: [&[u8]; 2] =
            [b"for=\"[2001:db8::1]:80\";host=a, for=_b;proto=https", b"192.0.2.1, [::1]:80, unknown"];
        sekisho_core::fuzz::feed(&seeds, |bytes| {
            let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
            for name in [FORWARDED, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO] {
                let headers = HeaderMap::from_iter([(name, value.clone())]);
                let _ = Forwarded::client(&headers, IpAddr::from([10, 0, 0, 1]), |_| true);
                let _ = (Forwarded::host(&headers), Forwarded::scheme(&headers));
            }
        });
    }
}
