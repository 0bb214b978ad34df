//! The needs of an observed server's program.

use super::McpServers;
use crate::transport::program_sandbox::SandboxProfile;

impl McpServers {
    /// The smallest profile with all that the program of an observed server has used until now; `None` where no such server runs, or
    /// it has no sandbox.
    pub fn needed_profile(&self, server: &str) -> Option<SandboxProfile> {
        let running = self.running.load();
        let found = running.get(server)?;
        found.connector.sandbox.needed(server, found.settings())
    }
}
