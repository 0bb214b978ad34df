//! Tools, resources and prompts of MCP servers: sekisho as a client of any number of them.
//!
//! [`McpServers`] is all of them, the only thing the rest of the service sees. One is a `server`: kept
//! connected (`connect`, over `pipes`, `http` or `sse`), listed (`listing`, `catalogue`), and called
//! (`executor`, `operations`, `session`, `output`). Where a server wants a user's sign-in, `sign_in` has its tokens. The protocol's
//! library, rmcp, does the framing, the handshakes and the correlation; transports, bounds and whatever must not go
//! wrong are ours.

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
pub use self::servers::{McpServers, OperationRequest, Retired};

/// How long a token server may take.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the breaker of a server guards.
pub fn upstream(server: &str) -> Upstream {
    Upstream(server::catalogue::source(server).into())
}

/// Something that clients may want to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Which tools there are, or what they say of themselves.
    Tools,
    Resources,
    Prompts,
    /// What a resource holds, by the URI it is read with here.
    Resource {
        uri: String,
        /// Whose session with the server told it: for those who subscribed over that one.
        owner: ResourceOwner,
    },
}

/// Whose session with a server tells of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceOwner(Option<server::OwnerKey>);
