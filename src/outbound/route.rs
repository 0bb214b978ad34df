//! Where a request may go, and through which connections: directly, or through the proxy.

use std::net::IpAddr;
use std::sync::Arc;

use url::{Host, Url};

use super::client::Client;
use super::failure::{Failure, host_of};
use super::proxy::Proxy;
use super::resolver::LookUpError;
use super::{Dialing, Outbound, OutboundRequest, Trust};

impl Outbound {
    /// The checks before a request is sent. A host name's addresses are checked by the resolver; an address in the
    /// URL does not pass it, so it is checked here.
    pub(super) fn check(&self, request: &OutboundRequest<'_>) -> Result<(), Failure> {
        let url = &request.url;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Failure::Scheme { scheme: url.scheme().to_owned() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Failure::UserInfo);
        }
        if !request.allowed.allows(url) {
            return Err(Failure::NotAllowed { host: host_of(url) });
        }
        if !self.may_use_proxy && self.proxy_for(url).is_some() {
            return Err(Failure::ProxyWithoutList { host: host_of(url) });
        }
        if request.trust == Trust::Operator {
            return Ok(());
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            _ => None,
        };
        if let Some(address) = address.filter(|address| !self.guard.permits(*address)) {
            return Err(Failure::RefusedLiteral { address, key: Arc::clone(self.guard.key()) });
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.guard.permits_port(port) {
            return Err(Failure::RefusedPort { port });
        }
        Ok(())
    }

    /// Looks the name of the host up before the client does, whose timeouts would count the time spent waiting for
    /// the look-ups of others.
    pub(super) async fn look_up(&self, request: &mut OutboundRequest<'_>) -> Result<(), Failure> {
        let Some(Host::Domain(host)) = request.url.host() else { return Ok(()) };
        let is_proxied = self.proxy_for(&request.url).is_some();
        if is_proxied && request.trust == Trust::Operator {
            return Ok(());
        }
        let call = request.on_behalf.as_ref();
        let Dialing { names, connect_timeout, .. } = &*self.dialing;
        match names.prepare(call, host, &mut request.deadline, *connect_timeout).await {
            Ok(addresses) if is_proxied => self.check_all(host, &addresses),
            Ok(_) => Ok(()),
            Err(LookUpError::NotBegun) => Err(Failure::Overloaded { what: "the look-up of a name" }),
            // Only the proxy knows it. The next request does not wait for the look-up again.
            Err(LookUpError::Failed(_)) if is_proxied => {
                names.remember(host.to_owned(), Vec::new());
                Ok(())
            }
            Err(LookUpError::Failed(error)) => Err(Failure::unresolved(&error, host)),
        }
    }

    /// The proxy may connect to any address of the name.
    fn check_all(&self, host: &str, addresses: &[IpAddr]) -> Result<(), Failure> {
        match addresses.iter().find(|address| !self.guard.permits(**address)) {
            Some(&address) => {
                let key = Arc::clone(self.guard.key());
                Err(Failure::RefusedName { host: host.to_owned(), address, key })
            }
            None => Ok(()),
        }
    }

    /// The connections for a request.
    pub(super) fn client(&self, request: &OutboundRequest<'_>) -> &Client {
        match (self.proxy_for(&request.url), request.trust) {
            (Some(proxy), _) => &proxy.client,
            (None, Trust::Caller) => &self.for_callers,
            (None, Trust::Operator) => &self.for_operator,
        }
    }

    pub(super) fn proxy_for(&self, url: &Url) -> Option<&Proxy> {
        self.dialing.proxy.as_ref().filter(|proxy| proxy.serves(url))
    }
}
