//! Servers that have not listed their tools yet: calls of these tools, and lists that a client may ask for only once.

use std::time::Duration;

use super::{FIRST_WAIT, Server, State};
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};

/// How long after the start of a server a list waits for its tools. Most servers connect within it, and many clients ask for
/// the list once.
const LIST_GRACE: Duration = Duration::from_secs(5);

impl Server {
    /// The refusal of a call of a tool that is not offered, where its name is one of this server's; `None` where the server has listed
    /// its tools, and this is none of them.
    pub(crate) fn refusal(&self, tool: &str, caller: &Caller) -> Option<CallError> {
        if !self.names().is_prefix_of(tool) || !self.admits(caller) || !caller.tools.admits(tool) {
            return None;
        }
        let catalogue = self.catalogue.load();
        let is_listed = || catalogue.tools.iter().any(|listed| listed.metadata.name == tool);
        match &*self.state.borrow() {
            State::Down(reason, until) if catalogue.tools.is_empty() => Some(self.left_alone(reason, *until)),
            State::Connecting if catalogue.tools.is_empty() => {
                let seconds = self.started.elapsed().as_secs();
                let doing =
                    if self.connector.sandbox.is_preparing() { "installing its packages" } else { "connecting" };
                Some(self.warming_up(&format!(
                    "is still {doing}, for {seconds} s now; its tools are offered once it has connected"
                )))
            }
            State::Connected(_) if is_listed() => {
                Some(self.warming_up("has just connected; its tools are being offered"))
            }
            _ => None,
        }
    }

    pub(super) fn warming_up(&self, state: &str) -> CallError {
        let problem = format!("the MCP server {} {state}", self.name());
        CallError::new(ErrorCode::WarmingUp, problem).retry_after(FIRST_WAIT)
    }

    /// The rest of the time for which a list waits for this server; `None` once it has connected or failed, or was started long ago.
    pub(crate) fn list_grace(&self) -> Option<Duration> {
        if *self.settled.borrow() {
            return None;
        }
        LIST_GRACE.checked_sub(self.started.elapsed())
    }
}
