//! The proxy that requests go through, where the configuration names one: never where only the environment does.
//!
//! The proxy resolves names itself, so that the checks of this machine are made for each request instead of each
//! connection: addresses in URLs, and names that resolve here, must be permitted.

use ipnet::IpNet;
use thiserror::Error;
use url::{Host, Url};

use super::client::Client;
use super::domains::DomainList;
use sekisho_config::ProxyConfig;

/// The proxy, and the hosts that are reached without it.
pub(super) struct Proxy {
    /// Its URL may have a password.
    proxy: reqwest::Proxy,
    /// Its connections. They serve all sources, since none was opened to an address of a source.
    pub(super) client: Client,
    bypassed_hosts: DomainList,
    bypassed_networks: Vec<IpNet>,
}

/// A proxy that cannot be used. The URL is not shown: it may contain a password.
#[derive(Debug, Error)]
pub enum InvalidProxy {
    #[error("the `url` of the proxy is not one of a proxy; write it as http://HOST:PORT")]
    Url,
    #[error("`no_proxy` of the proxy: {0:?} is neither a host nor an address range; write example.com or 10.0.0.0/8")]
    Bypass(String),
}

sekisho_core::debug_fields!(Proxy { bypassed_hosts });

impl Proxy {
    /// `None` without a URL. `connect` makes the client.
    /// Errors: a URL that is none of a proxy, or an entry of `no_proxy` that is neither a host nor a network.
    pub(super) fn new(
        config: &ProxyConfig,
        connect: impl FnOnce(&reqwest::Proxy) -> Client,
    ) -> Result<Option<Self>, InvalidProxy> {
        if config.url.is_none() {
            return Ok(None);
        }
        let url = config.parsed_url().ok_or(InvalidProxy::Url)?;
        let proxy = reqwest::Proxy::all(url.as_str()).map_err(|_| InvalidProxy::Url)?;
        let (mut hosts, mut bypassed_networks) = (Vec::new(), Vec::new());
        for entry in &config.no_proxy {
            match ProxyConfig::network(entry) {
                Some(network) => bypassed_networks.push(network),
                None => hosts.push(entry.trim_start_matches('.').to_owned()),
            }
        }
        let bypassed_hosts = DomainList::parse(&hosts).map_err(|error| InvalidProxy::Bypass(error.0))?;
        Ok(Some(Self { client: connect(&proxy), proxy, bypassed_hosts, bypassed_networks }))
    }

    /// The same proxy with other connections.
    pub(super) fn reconnected(&self, connect: impl FnOnce(&reqwest::Proxy) -> Client) -> Self {
        let Self { proxy, bypassed_hosts, bypassed_networks, .. } = self;
        Self {
            client: connect(proxy),
            proxy: proxy.clone(),
            bypassed_hosts: bypassed_hosts.clone(),
            bypassed_networks: bypassed_networks.clone(),
        }
    }

    /// Whether requests to this URL go through the proxy. This machine is always reached directly.
    pub(super) fn serves(&self, url: &Url) -> bool {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(std::net::IpAddr::from(address).to_canonical()),
            Some(Host::Domain(name)) if name.trim_end_matches('.') == "localhost" => return false,
            _ => None,
        };
        let is_bypassed = address.is_some_and(|address| {
            address.is_loopback() || self.bypassed_networks.iter().any(|network| network.contains(&address))
        });
        !is_bypassed && !self.bypassed_hosts.allows(url)
    }
}
