//! Tools, resources and prompts of MCP servers: sekisho as a client of any number of servers.
//!
//! [`McpServers`] manages all servers and is the interface for the rest of the service. The module `server` manages one:
//! it keeps the server connected (`connect`, over a module of `transport`), lists it (`listing`, `catalogue`), and calls
//! it (`executor`, `operations`, `session`, `output`). If a server requires a user's sign-in, `auth` has its tokens. The
//! library rmcp implements framing, handshakes and correlation; transports and limits are implemented here.

mod auth;
mod bridge;
#[cfg(test)]
mod hostile;
mod names;
mod registration;
mod server;
mod servers;
mod transport;

use std::time::Duration;

use crate::core::call::Upstream;

pub use self::auth::{Callback, OwnAddresses, SignInError, Started};
pub use self::bridge::{BridgeError, bridge};
pub use self::registration::{McpRegistration, Registered, RegistrationError};
pub use self::servers::{McpServers, OperationRequest};

/// Timeout of requests to a token server.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The upstream that the circuit breaker of a server guards.
pub fn upstream(server: &str) -> Upstream {
    Upstream(server::catalogue::source(server).into())
}

/// A change of which clients may be notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools, or their descriptions.
    Tools,
    Resources,
    Prompts,
    /// The content of a resource, by its URI in this gateway.
    Resource {
        uri: String,
        /// The owner of the session that received the change; clients that subscribed over it are notified.
        owner: ResourceOwner,
    },
}

/// The owner of the session with a server that receives changes of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceOwner(Option<server::OwnerKey>);
