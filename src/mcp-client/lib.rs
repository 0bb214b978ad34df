//! Tools, resources and prompts of MCP servers: sekisho as a client of any number of servers.
//!
//! [`McpServers`] manages all servers and is the interface for the rest of the service. The module `server` manages one:
//! it keeps the server connected (`connect`, over a module of `transport`), lists it (`listing`, `catalogue`), and calls
//! it (`executor`, `operations`, `session`, `output`). If a server requires a user's sign-in, `auth` has its tokens.
//!
//! A module uses only those that are named before it: `text` and `names`, `auth`, `connection_record`, `transport`, `server`,
//! `server_network` (connections of programs in a sandbox), `servers`. The library rmcp has the types of messages and the steps of a sign-in;
//! everything else is implemented here.

mod auth;
mod bridge;
mod changes;
mod connection_record;
#[cfg(test)]
mod hostile;
mod names;
mod registration;
mod server;
mod server_network;
mod servers;
mod text;
mod transport;

pub use self::auth::{Callback, OwnAddresses, SignInError, Started};
pub use self::bridge::{BridgeError, MAX_MESSAGE_BYTES, bridge};
pub use self::changes::{Change, ResourceOwner};
pub use self::connection_record::HostConnections;
pub use self::registration::{McpRegistration, Registered, RegistrationError};
pub use self::server::catalogue::upstream;
pub use self::servers::{
    ExaminedTool, McpServers, ObservedCall, ObservedRun, OperationRequest, ServerNames, ServerState, ServerStatus,
    UnusableServer,
};
pub use self::transport::program_sandbox::{SandboxProfile, granted, granted_profile, named_packages};
