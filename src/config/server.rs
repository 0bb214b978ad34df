use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;

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
