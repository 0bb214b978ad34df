//! The connections of a server that is a program in a sandbox: which it may make, and where they are counted and logged.

mod named;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;
use url::Host;

use self::named::NamedService;
use crate::connection_record::ConnectionRecord;
use sekisho_config::{McpSandbox, McpSandboxNetwork, McpSandboxSettings, McpServerSettings};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::caller::Owner;
use sekisho_observe::metrics::Metrics;
use sekisho_outbound::{DomainList, InvalidDomain, Outbound};
use sekisho_process_sandbox::network::{Connections, Refused, Resolved};

/// Addresses of which the name is known. The one looked up longest ago is forgotten first.
const MAX_ADDRESSES: usize = 1_024;

/// Names that are known for an address, the last ones.
const MAX_NAMES: usize = 8;

/// A program may connect to an address of a listed host for this time after it looked the host up.
const KNOWN_FOR: Duration = Duration::from_secs(3_600);

/// Refusals of a server that are logged, each once.
const MAX_LOGGED: usize = 100;

/// The policy for the connections of one server.
#[derive(Debug)]
pub(crate) struct ServerNetwork {
    server: Arc<str>,
    outbound: Outbound,
    metrics: Arc<Metrics>,
    /// Without a list, all hosts.
    hosts: Option<DomainList>,
    /// What its entry names is allowed, as files are that it names.
    named: Vec<NamedService>,
    record: Arc<ConnectionRecord>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The last name first.
    names: BoundedMap<IpAddr, Vec<Name>>,
    logged: BoundedMap<String, ()>,
}

/// The host of an address.
#[derive(Debug)]
struct Name {
    host: Arc<str>,
    looked_up: Instant,
}

impl ServerNetwork {
    /// Errors: a host of the list that is none.
    pub(crate) fn new(
        name: &str,
        settings: &McpServerSettings,
        outbound: &Outbound,
        metrics: &Arc<Metrics>,
        record: &Arc<ConnectionRecord>,
    ) -> Result<Arc<Self>, InvalidDomain> {
        let hosts = match &settings.sandbox {
            McpSandbox::On(McpSandboxSettings { network: McpSandboxNetwork::Hosts(hosts), .. }) => {
                Some(DomainList::parse(hosts)?)
            }
            McpSandbox::On(McpSandboxSettings { network: McpSandboxNetwork::None, .. }) => {
                Some(DomainList::parse(&[])?)
            }
            _ => None,
        };
        let seen = Seen { names: BoundedMap::new(MAX_ADDRESSES), logged: BoundedMap::new(MAX_LOGGED) };
        Ok(Arc::new(Self {
            server: name.into(),
            outbound: outbound.clone(),
            metrics: Arc::clone(metrics),
            hosts,
            named: named::services(settings),
            record: Arc::clone(record),
            seen: Mutex::new(seen),
        }))
    }

    /// Whether the list has the host; a program with a list looks up no other, since a name carries data.
    fn lists(&self, host: &Host<&str>) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.allows_host(host))
    }

    /// The hosts that were looked up and have the address, the last one first.
    fn hosts_of(&self, address: IpAddr) -> Vec<Arc<str>> {
        let seen = self.seen.lock();
        let names = seen.names.get(&address.to_canonical()).into_iter().flatten();
        names.filter(|name| name.looked_up.elapsed() < KNOWN_FOR).map(|name| Arc::clone(&name.host)).collect()
    }

    fn remember(&self, host: &str, addresses: &[IpAddr]) {
        let (host, looked_up) = (Arc::<str>::from(host), Instant::now());
        let mut seen = self.seen.lock();
        for address in addresses.iter().map(IpAddr::to_canonical) {
            seen.names.evict_for(&address, |_, names| names.first().map(|name| name.looked_up));
            // There is room now.
            let Some(names) = seen.names.get_or_try_insert_with(address, Vec::new) else { continue };
            names.retain(|name| name.host != host);
            names.insert(0, Name { host: Arc::clone(&host), looked_up });
            names.truncate(MAX_NAMES);
        }
    }

    /// Whether the entry names this service by its address, or as `localhost`: nobody else chooses where that is.
    fn names_address(&self, address: SocketAddr) -> bool {
        self.named.iter().any(|service| service.is_at(address, None))
    }

    /// Whether the entry names this service by one of the names.
    fn names_host(&self, address: SocketAddr, hosts: &[Arc<str>]) -> bool {
        hosts.iter().any(|host| self.named.iter().any(|service| service.is_at(address, Some(&**host))))
    }

    /// Why the program may not connect, with the line of the configuration that allows it.
    fn refusal(&self, address: SocketAddr, hosts: &[Arc<str>]) -> Option<String> {
        if self.names_address(address) {
            return self.outbound.is_elsewhere(address).err().map(|reason| reason.to_string());
        }
        let is_listed = |host: &Arc<str>| self.lists(&Host::Domain(&**host));
        let is_listed = self.lists(&literal(address.ip())) || hosts.iter().any(is_listed);
        if !is_listed && !self.names_host(address, hosts) {
            return Some(self.not_listed(&label(address, hosts)));
        }
        // Who has a name chooses its address: a private one is reached where the operator allowed the network.
        self.outbound.may_connect(address).err().map(|reason| reason.to_string())
    }

    fn not_listed(&self, host: &str) -> String {
        format!("the host is not listed; `mcp.servers.{}.sandbox.network: [\"{host}\"]` allows it", self.server)
    }

    fn refuse(&self, address: &str, host: &str, reason: &str) {
        self.metrics.mcp_program_connection(&self.server, self.record.refuse(host, reason), false);
        let is_new = matches!(self.seen.lock().logged.try_insert(address.to_owned(), ()), Ok(None));
        if is_new {
            tracing::warn!(server = &*self.server, address, reason, "the program of an MCP server may not connect");
        }
    }

    /// The addresses that the program may learn: no private ones that the operator did not allow.
    fn answer(&self, host: &str, mut addresses: Vec<IpAddr>) -> Resolved {
        let refusal = |address: &IpAddr| self.outbound.may_connect(SocketAddr::new(*address, 0)).err();
        let refused = addresses.iter().find_map(refusal);
        addresses.retain(|address| refusal(address).is_none());
        if let (true, Some(reason)) = (addresses.is_empty(), refused) {
            self.refuse(host, host, &reason.to_string());
            return Resolved::NoSuchName;
        }
        self.remember(host, &addresses);
        Resolved::Addresses(addresses)
    }

    fn has_name(&self, host: &str) -> bool {
        self.named.iter().any(|service| service.has_name(host))
    }

    async fn look_up(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let owner = Owner { tenant: "".into(), caller: format!("mcp server {}", self.server).into() };
        self.outbound.addresses_of(owner, host).await
    }
}

#[async_trait]
impl Connections for ServerNetwork {
    async fn resolve(&self, host: &str) -> Resolved {
        if !self.lists(&Host::Domain(host)) && !self.has_name(host) {
            self.refuse(host, host, &self.not_listed(host));
            return Resolved::NoSuchName;
        }
        match self.look_up(host).await {
            Ok(addresses) => self.answer(host, addresses),
            Err(error) if is_temporary(&error) => Resolved::Failed,
            Err(_) => Resolved::NoSuchName,
        }
    }

    fn may_connect(&self, address: SocketAddr) -> Result<(), Refused> {
        let hosts = self.hosts_of(address.ip());
        let Some(reason) = self.refusal(address, &hosts) else { return Ok(()) };
        self.refuse(&address.to_string(), &label(address, &hosts), &reason);
        Err(Refused)
    }

    fn is_of_machine(&self, loopback: SocketAddr) -> bool {
        self.names_address(loopback) && self.outbound.is_elsewhere(loopback).is_ok()
    }

    fn opened(&self, address: SocketAddr) {
        let host = label(address, &self.hosts_of(address.ip()));
        self.metrics.mcp_program_connection(&self.server, self.record.allow(&host), true);
    }

    fn datagram_refused(&self, address: SocketAddr) {
        self.record.refuse_datagram(&label(address, &self.hosts_of(address.ip())));
    }
}

/// The host in metrics and logs: the last name that was looked up, or the address as the configuration has it.
fn label(address: SocketAddr, hosts: &[Arc<str>]) -> String {
    hosts.first().map_or_else(|| literal(address.ip()).to_string(), ToString::to_string)
}

fn literal(address: IpAddr) -> Host<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => Host::Ipv4(address),
        IpAddr::V6(address) => Host::Ipv6(address),
    }
}

/// Whether the name may be there the next time. The standard library gives the resolver's texts only.
fn is_temporary(error: &io::Error) -> bool {
    error.kind() == ErrorKind::TimedOut || error.to_string().contains("Temporary failure")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{OutboundConfig, Secret};

    fn network(network: McpSandboxNetwork, args: &[&str], env: &[(&str, &str)]) -> Arc<ServerNetwork> {
        network_with(network, args, env, &[])
    }

    /// With private networks that the operator allowed.
    fn network_with(
        network: McpSandboxNetwork,
        args: &[&str],
        env: &[(&str, &str)],
        allowed: &[&str],
    ) -> Arc<ServerNetwork> {
        let sandbox = McpSandboxSettings { network, ..McpSandboxSettings::default() };
        let settings = McpServerSettings {
            args: args.iter().map(ToString::to_string).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
            sandbox: McpSandbox::On(sandbox),
            ..McpServerSettings::default()
        };
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let outbound = outbound.for_source(&allowed, "mcp.servers.a.allow_networks").unwrap();
        outbound.set_own_listeners(vec!["127.0.0.1:8080".parse().unwrap()]);
        let metrics = Arc::new(Metrics::new("test").unwrap());
        ServerNetwork::new("a", &settings, &outbound, &metrics, &Arc::default()).unwrap()
    }

    fn reached(network: &ServerNetwork, addresses: &[&str]) -> Vec<bool> {
        addresses.iter().map(|address| network.may_connect(address.parse().unwrap()).is_ok()).collect()
    }

    #[tokio::test]
    async fn public_addresses_are_reached_and_no_others() {
        let network = network(McpSandboxNetwork::Public, &[], &[]);
        let addresses = ["8.8.8.8:443", "10.0.0.1:80", "169.254.169.254:80", "[::ffff:10.0.0.1]:80", "127.0.0.1:8080"];
        assert_eq!(reached(&network, &addresses), [true, false, false, false, false]);
        assert!(!network.is_of_machine("127.0.0.1:5432".parse().unwrap()));
    }

    #[tokio::test]
    async fn with_a_list_only_addresses_of_its_hosts_are_reached() {
        let network = network(McpSandboxNetwork::Hosts(vec!["example.com".into(), "9.9.9.9".into()]), &[], &[]);
        let addresses = ["8.8.8.8:443", "9.9.9.9:443", "[::ffff:8.8.8.8]:443"];
        assert_eq!(reached(&network, &addresses), [false, true, false]);
        network.remember("api.example.com", &["8.8.8.8".parse().unwrap(), "10.0.0.1".parse().unwrap()]);
        assert_eq!(reached(&network, &addresses), [true, true, true]);
        assert_eq!(reached(&network, &["10.0.0.1:443"]), [false], "a listed name with a private address");
        network.remember("dns.example.com", &["9.9.9.9".parse().unwrap()]);
        network.remember("elsewhere.example", &["9.9.9.9".parse().unwrap()]);
        assert_eq!(reached(&network, &["9.9.9.9:443"]), [true], "a listed address with another name");
        let reason = network.refusal("[2a00::1]:443".parse().unwrap(), &[]).unwrap();
        assert!(reason.contains("network: [\"[2a00::1]\"]"), "{reason}");
        // It is not looked up: the test has no name server.
        assert_eq!(network.resolve("secret.evil.example").await, Resolved::NoSuchName);
    }

    #[tokio::test]
    async fn private_addresses_are_not_learned_from_a_name() {
        let network = network(McpSandboxNetwork::Public, &[], &[]);
        let [public, private] = ["8.8.8.8", "10.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(network.answer("a.test", vec![public, private]), Resolved::Addresses(vec![public]));
        assert_eq!(network.answer("b.test", vec![private]), Resolved::NoSuchName);
    }

    /// Whoever owns the name chooses the address.
    #[tokio::test]
    async fn a_named_host_is_at_a_private_address_only_in_an_allowed_network() {
        let addresses =
            ["10.0.0.1", "10.0.1.1", "127.0.0.1", "169.254.169.254"].map(|text| text.parse::<IpAddr>().unwrap());
        let of_network = ["10.0.0.1:80", "10.0.1.1:80", "127.0.0.1:80", "169.254.169.254:80"];
        for hosts in [McpSandboxNetwork::Public, McpSandboxNetwork::Hosts(vec!["nas.test".into()])] {
            let closed = network(hosts.clone(), &["http://nas.test/"], &[]);
            assert_eq!(closed.answer("nas.test", addresses.to_vec()), Resolved::NoSuchName);
            // Also where it was known before.
            closed.remember("nas.test", &addresses);
            assert_eq!(reached(&closed, &of_network), [false; 4]);
            assert!(!closed.is_of_machine("127.0.0.1:80".parse().unwrap()));
            let refusal = closed.refusal("10.0.0.1:80".parse().unwrap(), &["nas.test".into()]).unwrap();
            assert!(
                refusal.contains("`mcp.servers.a.allow_networks or outbound.allow_networks: [\"10.0.0.1\"]`"),
                "{refusal}"
            );
            let open = network_with(hosts, &["http://nas.test/"], &[], &["10.0.0.0/24"]);
            assert_eq!(open.answer("nas.test", addresses.to_vec()), Resolved::Addresses(vec![addresses[0]]));
            assert_eq!(reached(&open, &of_network), [true, false, false, false]);
        }
    }

    #[tokio::test]
    async fn without_other_connections_a_named_host_is_reached_at_its_port() {
        let network = network(McpSandboxNetwork::None, &["https://api.test"], &[]);
        let public: IpAddr = "8.8.8.8".parse().unwrap();
        assert_eq!(network.answer("api.test", vec![public]), Resolved::Addresses(vec![public]));
        assert_eq!(reached(&network, &["8.8.8.8:443", "8.8.8.8:80", "9.9.9.9:443"]), [true, false, false]);
    }

    #[tokio::test]
    async fn hosts_at_one_address_are_all_known_in_any_order() {
        let network = network(McpSandboxNetwork::None, &["postgres://db.test/", "redis://cache.test"], &[]);
        let address: IpAddr = "8.8.8.8".parse().unwrap();
        for _ in 0..2 {
            for host in ["db.test", "cache.test"] {
                assert_eq!(network.answer(host, vec![address]), Resolved::Addresses(vec![address]));
            }
        }
        assert_eq!(reached(&network, &["8.8.8.8:5432", "8.8.8.8:6379", "8.8.8.8:22"]), [true, true, false]);
        assert_eq!(network.hosts_of(address), ["cache.test", "db.test"].map(Arc::<str>::from));
        for number in 0..2 * MAX_NAMES {
            network.remember(&format!("{number}.test"), &[address]);
        }
        assert_eq!(network.hosts_of(address).len(), MAX_NAMES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_forgotten_after_its_time() {
        let network = network(McpSandboxNetwork::Hosts(vec!["example.com".into()]), &[], &[]);
        network.remember("example.com", &["8.8.8.8".parse().unwrap()]);
        tokio::time::advance(KNOWN_FOR).await;
        assert_eq!(reached(&network, &["8.8.8.8:443"]), [false]);
    }

    #[tokio::test]
    async fn services_that_the_entry_names_are_reached_at_their_port_except_the_gateway() {
        let env = [("DATABASE_URL", "postgres://u:p@localhost/db"), ("GATEWAY", "http://127.0.0.1:8080/")];
        let network = network(McpSandboxNetwork::Public, &["--host", "http://192.168.1.5:8123/api"], &env);
        let of_machine = |address: &str| network.is_of_machine(address.parse().unwrap());
        assert!(of_machine("127.0.0.1:5432") && of_machine("[::1]:5432"));
        assert!(!of_machine("127.0.0.1:5433") && !of_machine("127.0.0.1:8080"));
        let addresses = ["192.168.1.5:8123", "192.168.1.5:22", "192.168.1.6:8123"];
        assert_eq!(reached(&network, &addresses), [true, false, false]);
    }

    #[tokio::test]
    async fn each_refusal_is_logged_once_and_recorded_with_its_reason() {
        let network = network(McpSandboxNetwork::Public, &[], &[]);
        for last in 0..=255 {
            for _ in 0..2 {
                assert!(network.may_connect(SocketAddr::from(([10, 0, 0, last], 80))).is_err());
            }
        }
        assert_eq!(network.seen.lock().logged.len(), MAX_LOGGED);
        let hosts = network.record.by_host();
        assert_eq!(hosts.iter().map(|host| host.refused).sum::<u64>(), 512);
        let settings = "mcp.servers.a.allow_networks or outbound.allow_networks";
        let reason = format!("10.0.0.0 is not public; `{settings}: [\"10.0.0.0\"]` allows it");
        assert_eq!((&*hosts[0].host, hosts[0].reason.as_deref()), ("10.0.0.0", Some(&*reason)));
    }

    #[tokio::test]
    async fn what_is_recorded_has_the_name_that_was_looked_up() {
        let network = network(McpSandboxNetwork::Hosts(vec!["example.com".into()]), &[], &[]);
        network.remember("example.com", &["8.8.8.8".parse().unwrap()]);
        network.opened("8.8.8.8:443".parse().unwrap());
        assert_eq!(network.resolve("elsewhere.example").await, Resolved::NoSuchName);
        network.datagram_refused("9.9.9.9:53".parse().unwrap());
        let hosts = network.record.by_host();
        let counts: Vec<_> =
            hosts.iter().map(|host| (&*host.host, host.allowed, host.refused, host.datagrams)).collect();
        assert_eq!(counts, [("9.9.9.9", 0, 0, 1), ("elsewhere.example", 0, 1, 0), ("example.com", 1, 0, 0)]);
        let allows = "`mcp.servers.a.sandbox.network: [\"elsewhere.example\"]` allows it";
        assert!(hosts[1].reason.as_deref().unwrap().ends_with(allows), "{hosts:?}");
    }
}
