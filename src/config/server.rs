use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::overrides::Overrides;

/// The HTTP face.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Where to listen. Anything but loopback needs authentication (`auth`), or the server refuses to start.
    pub listen: SocketAddr,
    /// A listener of its own for `/metrics`, which then needs no key there.
    pub metrics_listen: Option<SocketAddr>,
    /// Largest request body, in bytes.
    pub max_body_bytes: usize,
    /// Connections served at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// A request's head, and then its body, must be in within this many seconds each.
    pub read_timeout_seconds: u64,
    /// How long calls in flight may go on after a shutdown signal, in seconds.
    pub shutdown_grace_seconds: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            metrics_listen: None,
            max_body_bytes: 4 << 20,
            max_connections: 10_000,
            read_timeout_seconds: 15,
            shutdown_grace_seconds: 30,
        }
    }
}

impl ServerConfig {
    /// Can only this machine reach the server?
    pub fn is_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("SEKISHO_LISTEN", "server.listen", &mut self.listen);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if self.metrics_listen.is_some_and(|metrics| metrics == self.listen && metrics.port() != 0) {
            findings.add(
                "server.metrics_listen",
                "is the address of `listen`",
                "give it a port of its own, or leave it out: `/metrics` is on `listen` then",
            );
        }
        findings.above_zero("server.max_body_bytes", self.max_body_bytes);
        findings.above_zero("server.max_connections", self.max_connections);
        findings.seconds("server.read_timeout_seconds", self.read_timeout_seconds);
        findings.at_most_a_year("server.shutdown_grace_seconds", self.shutdown_grace_seconds);
    }
}
