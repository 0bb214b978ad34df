//! Tools, resources and prompts of MCP servers: sekisho as a client of any number of them.
//!
//! [`McpServers`] is all of them, the only thing the rest of the service sees.

mod servers;

pub use self::servers::{Change, McpServers, ServerFault};
