//! The sender of a request, and the host name: decided once for each request, before any other check.
//!
//! Behind a proxy the peer of a connection is the proxy. The headers of a request about its client count only if the
//! peer is in `server.trusted_proxies`. A request that came through a proxy, trusted or not, is never local: anyone who
//! reaches the proxy could send it.

mod forwarded;

use std::net::{IpAddr, SocketAddr};

use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri};
use ipnet::IpNet;

use self::forwarded::Forwarded;
use sekisho_config::ServerConfig;
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::host::HostAndPort;

/// The client of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientAddress {
    /// The peer of the connection, or who trusted proxies say it is.
    pub ip: IpAddr,
    /// Sent on this machine, to loopback by a name of loopback, and not through a proxy.
    pub is_local: bool,
}

/// How a listener is reached: the part of `server` that decides about clients and host names.
#[derive(Debug)]
pub(super) struct PublicAddress {
    listen: SocketAddr,
    /// `https` if the listener itself encrypts.
    scheme: &'static str,
    /// Host names of clients for the server.
    hosts: Vec<String>,
    /// Requests for other names are refused.
    is_restricted: bool,
    trusted_proxies: Vec<IpNet>,
}

impl PublicAddress {
    /// `listen` is the address that the listener really has.
    pub(super) fn new(config: &ServerConfig, listen: SocketAddr) -> Self {
        let listed: Vec<_> = config.allowed_hosts().map(str::to_owned).collect();
        let public = config.mcp.public_url.as_ref().and_then(|url| url.host_str()).map(str::to_owned);
        // The configuration has been checked: nobody trusts a text that is no network.
        let network = |text: &String| text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        Self {
            listen,
            scheme: if config.tls.is_some() { "https" } else { "http" },
            is_restricted: !listed.is_empty() || listen.ip().to_canonical().is_loopback(),
            hosts: listed.into_iter().chain(public).collect(),
            trusted_proxies: config.trusted_proxies.iter().filter_map(network).collect(),
        }
    }

    /// For a listener that answers under any name, such as the listener of the metrics.
    pub(super) fn any() -> Self {
        let listen = SocketAddr::from(([0, 0, 0, 0], 0));
        Self { listen, scheme: "http", hosts: Vec::new(), is_restricted: false, trusted_proxies: Vec::new() }
    }

    /// The client of a request, if the server answers to its host name.
    /// Errors: `denied`: another host name. A web page that reaches the server under its own name (DNS rebinding) must
    /// find nothing there.
    pub(super) fn client(&self, peer: IpAddr, uri: &Uri, headers: &HeaderMap) -> Result<ClientAddress, CallError> {
        let host = self.host(peer, uri, headers).and_then(HostAndPort::parse);
        // Health checks of load balancers are in HTTP/1.0, while browsers always name a host.
        let is_unnamed = uri.authority().is_none() && !headers.contains_key(HOST);
        let is_probe = is_unnamed && PROBES.contains(&uri.path());
        if self.is_restricted && !is_probe && !host.is_some_and(|host| self.answers_to(&host)) {
            return Err(CallError::new(ErrorCode::Denied, OTHER_HOST));
        }
        let is_trusted = self.trusts(peer);
        let is_local = self.is_loopback()
            && peer.to_canonical().is_loopback()
            && !is_trusted
            && host.is_some_and(|host| host.is_loopback())
            && !forwarded::came_through_proxy(headers);
        let ip = if is_trusted { Forwarded::client(headers, peer, |address| self.trusts(address)) } else { peer };
        Ok(ClientAddress { ip, is_local })
    }

    /// The owner of a connection. Each connection of a trusted proxy has one of its own: its requests belong to many
    /// clients, so that no fair share can be told.
    pub(super) fn owner_of_connection(&self, peer: SocketAddr) -> Owner {
        match self.trusts(peer.ip()) {
            true => Owner::of_connection(peer),
            false => Owner::of_address(peer.ip()),
        }
    }

    /// The server's URL for the client, without a path. A name of the request is only repeated if it is known to be
    /// the server's.
    pub(super) fn url(&self, peer: IpAddr, uri: &Uri, headers: &HeaderMap) -> String {
        let host = self.host(peer, uri, headers);
        let known = host.filter(|host| HostAndPort::parse(host).is_some_and(|host| self.is_named(&host)));
        let scheme = match self.trusts(peer).then(|| Forwarded::scheme(headers)).flatten() {
            Some(scheme) if known.is_some() => scheme,
            _ => self.scheme,
        };
        match known {
            Some(host) => format!("{scheme}://{host}"),
            None => format!("{scheme}://{}", self.listen),
        }
    }

    /// The host and port that the client asked for.
    pub(super) fn host<'a>(&self, peer: IpAddr, uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
        let forwarded = if self.trusts(peer) { Forwarded::host(headers) } else { None };
        let named = || headers.get(HOST).map(HeaderValue::to_str).and_then(Result::ok);
        forwarded.or_else(|| uri.authority().map(Authority::as_str)).or_else(named)
    }

    fn is_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// Elsewhere than on loopback an address is answered, too: health checks use it, and no page has it as its name.
    fn answers_to(&self, host: &HostAndPort<'_>) -> bool {
        self.is_named(host) || !self.is_loopback() && host.address().is_some()
    }

    fn is_named(&self, host: &HostAndPort<'_>) -> bool {
        let is_listen_address = host.port == Some(self.listen.port()) && host.address() == Some(self.listen.ip());
        let mut listed = self.hosts.iter().filter_map(|entry| HostAndPort::parse(entry));
        is_listen_address || self.is_loopback() && host.is_loopback() || listed.any(|entry| entry.covers(host))
    }
}

/// The paths that are answered with any number of connections, and to requests that name no host.
pub(super) const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

const OTHER_HOST: &str = "this server does not accept this host name: on loopback it accepts localhost only; add the name that clients use to `server.allowed_hosts`";

#[cfg(test)]
mod tests;
