//! Connections that the HTTP client does not make, such as a sandboxed program makes: the same names, and the same
//! guard.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::own::{is_of_this_machine, local_address};
use super::resolver::LookUpError;
use super::{Dialing, Outbound};
use sekisho_core::call::{Deadline, OnBehalf, SentFlag};
use sekisho_core::caller::Owner;

/// Maximum wait for a look-up, with the wait for other look-ups.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Why a connection is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RefusedConnection {
    #[error("{address} is not public; `{key}: [\"{address}\"]` allows it")]
    NotPublic { address: IpAddr, key: Arc<str> },
    #[error("{address} is an address of this machine; `{key}: [\"{address}\"]` allows it")]
    Machine { address: IpAddr, key: Arc<str> },
    #[error("{0} is an address of this gateway")]
    Own(SocketAddr),
}

impl Outbound {
    /// The addresses of a host that this machine has a route to. Who connects to one asks [`Self::may_connect`].
    /// Errors: when the name has none, or they cannot be looked up in time.
    pub async fn addresses_of(&self, owner: Owner, host: &str) -> io::Result<Vec<IpAddr>> {
        let call = OnBehalf { owner, sent: SentFlag::default(), queueing: Arc::default() };
        let Dialing { names, connect_timeout, .. } = &*self.dialing;
        let mut deadline = Deadline::after(MAX_WAIT);
        let looked_up = names.prepare(Some(&call), host, &mut deadline, *connect_timeout).await;
        let mut addresses = looked_up.map_err(|error| match error {
            LookUpError::NotBegun => io::ErrorKind::TimedOut.into(),
            LookUpError::Failed(error) => error,
        })?;
        // Many programs try the first address only, which is one of IPv6 where there are both.
        addresses.retain(|address| address.is_ipv4() || local_address(SocketAddr::new(*address, 443)).is_ok());
        Ok(addresses)
    }

    /// Whether this source may connect to the address. Services of this machine are often open to it and to nobody else,
    /// also at an address of the machine that is public.
    /// Errors: why not.
    pub fn may_connect(&self, address: SocketAddr) -> Result<(), RefusedConnection> {
        let (ip, key) = (address.ip(), || Arc::clone(self.guard.key()));
        if !self.guard.permits(ip) {
            return Err(RefusedConnection::NotPublic { address: ip, key: key() });
        }
        self.is_elsewhere(address)?;
        if !self.guard.lists(ip) && is_of_this_machine(address) {
            return Err(RefusedConnection::Machine { address: ip, key: key() });
        }
        Ok(())
    }

    /// Whether the address is not the gateway's, wherever else it is.
    /// Errors: when it is.
    pub fn is_elsewhere(&self, address: SocketAddr) -> Result<(), RefusedConnection> {
        if self.dialing.own.are_at(address) { Err(RefusedConnection::Own(address)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::OutboundConfig;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn connections_go_to_public_and_allowed_addresses_and_never_to_the_gateway() {
        let allow_networks = vec!["127.0.0.1".to_owned(), "10.1.0.0/16".to_owned()];
        let outbound = Outbound::new(&OutboundConfig { allow_networks, ..OutboundConfig::default() }).unwrap();
        outbound.set_own_listeners(vec![address("0.0.0.0:8080"), address("[::]:8081")]);
        let refused = |text: &str| outbound.may_connect(address(text)).err().map(|error| error.to_string());
        for allowed in ["8.8.8.8:443", "8.8.8.8:8080", "10.1.2.3:5432", "127.0.0.1:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(refused(allowed), None, "{allowed}");
        }
        for (own, text) in
            [("127.0.0.1:8080", "127.0.0.1:8080"), ("[::ffff:127.0.0.1]:8080", "[::ffff:127.0.0.1]:8080")]
        {
            assert_eq!(refused(own), Some(format!("{text} is an address of this gateway")));
        }
        for private in ["10.2.0.1", "169.254.169.254", "127.0.0.2"] {
            let expected = format!("{private} is not public; `outbound.allow_networks: [\"{private}\"]` allows it");
            assert_eq!(refused(&format!("{private}:80")), Some(expected));
        }
    }
}
