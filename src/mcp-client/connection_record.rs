//! What became of the connections of a server that is a program in a sandbox, by host.

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use sekisho_core::bounded::BoundedMap;

/// Hosts of a server that are told apart, here and in the metrics.
const MAX_HOSTS: usize = 20;

/// Stands for all hosts beyond them.
pub(crate) const OTHER: &str = "other";

/// The connections of a program to one host since the server was set up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct HostConnections {
    /// The name that was looked up, or the address; `other`: all hosts beyond the first 20.
    pub host: String,
    pub allowed: u64,
    /// Connections and look-ups of the name that were refused.
    pub refused: u64,
    /// Datagrams (UDP, QUIC) for the host, which never reach it, where no connection followed them: programs look for a route so before
    /// they connect.
    pub datagrams: u64,
    /// Why the last one was refused, with the setting that allows it where there is one.
    pub reason: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ConnectionRecord(Mutex<BoundedMap<String, HostConnections>>);

impl Default for ConnectionRecord {
    fn default() -> Self {
        // One more than the hosts: the others together.
        Self(Mutex::new(BoundedMap::new(MAX_HOSTS + 1)))
    }
}

impl ConnectionRecord {
    /// Counts a connection that the program may make; gives the host's name in the metrics.
    pub(crate) fn allow<'a>(&self, host: &'a str) -> &'a str {
        self.change(host, |connections| {
            connections.allowed = connections.allowed.saturating_add(1);
            connections.datagrams = 0;
        })
    }

    /// Counts one that it may not make; gives the host's name in the metrics.
    pub(crate) fn refuse<'a>(&self, host: &'a str, reason: &str) -> &'a str {
        self.change(host, |connections| {
            connections.refused = connections.refused.saturating_add(1);
            connections.datagrams = 0;
            connections.reason = Some(reason.to_owned());
        })
    }

    pub(crate) fn refuse_datagram(&self, host: &str) {
        self.change(host, |connections| connections.datagrams = connections.datagrams.saturating_add(1));
    }

    /// In the order of the hosts.
    pub(crate) fn by_host(&self) -> Vec<HostConnections> {
        let mut hosts: Vec<_> = self.0.lock().iter().map(|(_, connections)| connections.clone()).collect();
        hosts.sort_by(|one, other| one.host.cmp(&other.host));
        hosts
    }

    fn change<'a>(&self, host: &'a str, change: impl FnOnce(&mut HostConnections)) -> &'a str {
        let mut hosts = self.0.lock();
        let is_told_apart = hosts.contains(host) || hosts.len() < MAX_HOSTS;
        let host = if is_told_apart { host } else { OTHER };
        let new = || HostConnections { host: host.to_owned(), ..HostConnections::default() };
        if let Some(connections) = hosts.get_or_try_insert_with(host.to_owned(), new) {
            change(connections);
        }
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_host_with_the_last_reason() {
        let record = ConnectionRecord::default();
        for reason in ["first", "last"] {
            record.refuse("10.0.0.1", reason);
        }
        record.allow("example.com");
        let reason = Some("last".to_owned());
        let refused = HostConnections { host: "10.0.0.1".into(), refused: 2, reason, ..HostConnections::default() };
        let allowed = HostConnections { host: "example.com".into(), allowed: 1, ..HostConnections::default() };
        assert_eq!(record.by_host(), [refused, allowed]);
    }

    #[test]
    fn datagrams_before_a_connection_are_looks_for_a_route() {
        let record = ConnectionRecord::default();
        for host in ["example.com", "8.8.8.8"] {
            record.refuse_datagram(host);
        }
        record.allow("example.com");
        let datagrams: Vec<_> = record.by_host().into_iter().map(|host| (host.host, host.datagrams)).collect();
        assert_eq!(datagrams, [("8.8.8.8".to_owned(), 1), ("example.com".to_owned(), 0)]);
    }

    #[test]
    fn hosts_beyond_the_bound_are_counted_together() {
        let record = ConnectionRecord::default();
        for number in 0..10 * MAX_HOSTS {
            record.allow(&format!("{number:03}.example"));
        }
        assert_eq!(record.allow("000.example"), "000.example");
        assert_eq!(record.allow("new.example"), OTHER);
        let hosts = record.by_host();
        assert_eq!(hosts.len(), MAX_HOSTS + 1);
        assert_eq!(hosts.iter().map(|host| host.allowed).sum::<u64>(), 202);
    }
}
