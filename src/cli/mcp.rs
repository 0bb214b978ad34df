//! `sekisho mcp`: the tools for an MCP client that starts its servers itself.

use clap::Subcommand;

use super::call::Identity;
use super::client::{Endpoint, Unanswered};
use super::mcp_servers::{self, ServersCommand};
use super::serve::StopSignals;
use super::{Common, Exit, local_gateway, mcp_inspect, mcp_login, present};
use sekisho_api::NamedCaller;
use sekisho_mcp_client::BridgeError;

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Serve MCP on standard input and output until the input ends: the tools of the gateway of this state directory,
    /// which is started in the background if it does not run, or of the gateway at `--server`.
    Serve {
        #[command(flatten)]
        identity: Identity,
    },
    /// Start a user's sign-in to an MCP server of the gateway at `--server`, and print the address to open.
    Login {
        /// The name of the server.
        name: String,
    },
    /// Show a server of the running gateway: its state, and for a program in a sandbox the hosts of its connections, with
    /// the refused ones and the setting that allows each.
    Inspect {
        /// The name of the server.
        name: String,
    },
    #[command(flatten)]
    Servers(ServersCommand),
}

pub(super) fn run(common: &Common, command: McpCommand) -> Exit {
    match command {
        McpCommand::Serve { .. } if let Some(server) = &common.server => Endpoint::at(server)
            .map_or_else(Unanswered::report, |gateway| bridge(&gateway, sekisho_mcp_client::MAX_MESSAGE_BYTES)),
        McpCommand::Serve { identity } => serve(common, &identity.caller()).unwrap_or_else(|exit| exit),
        McpCommand::Login { name } => mcp_login::run(common, &name),
        McpCommand::Inspect { name } => mcp_inspect::run(common, &name),
        McpCommand::Servers(command) => mcp_servers::run(common, command),
    }
}

/// Serves the tools of the gateway of the state directory, and starts it if none runs.
fn serve(common: &Common, caller: &NamedCaller) -> Result<Exit, Exit> {
    let config = local_gateway::configuration(common)?;
    let gateway = local_gateway::find_or_start(common, &config, caller)?;
    if let Some(left_out) = local_gateway::left_out(&gateway).map_err(Unanswered::report)? {
        present::problem(&left_out);
    }
    let (common, caller) = (common.clone(), caller.clone());
    // The gateway would close the connection while the rest of a longer message is being sent.
    let max_bytes = config.server.max_body_bytes;
    std::thread::spawn(move || local_gateway::keep_running(&common, &config, &caller));
    Ok(bridge(&gateway, max_bytes))
}

/// Forwards between standard input and output and the gateway's own `/mcp`: the gateway's policies, limits and budgets
/// apply. `max_bytes`: the maximum of one message of the client.
fn bridge(gateway: &Endpoint, max_bytes: usize) -> Exit {
    let (outbound, headers) = match gateway.connection() {
        Ok(connection) => connection,
        Err(unanswered) => return unanswered.report(),
    };
    let server = &gateway.address;
    let mut address = server.clone();
    if let Ok(mut path) = address.path_segments_mut() {
        path.pop_if_empty().push("mcp");
    }
    let Some(runtime) = super::serve::runtime() else { return Exit::Misconfigured };
    let ended = runtime.block_on(async {
        let mut signals = StopSignals::listen();
        tokio::select! {
            ended = sekisho_mcp_client::bridge(outbound, address, headers, max_bytes) => ended,
            _ = signals.next() => Ok(()),
        }
    });
    // A read of standard input may still be running, and would never end.
    runtime.shutdown_background();
    let unanswered = match ended {
        Ok(()) => return Exit::Done,
        Err(BridgeError::Output(problem)) => {
            present::problem(&problem);
            return Exit::Failed;
        }
        Err(BridgeError::Refused(problem)) => Unanswered::Refused(format!("{server}: {problem}")),
        Err(BridgeError::Unreachable(problem)) => Unanswered::Unreachable(format!("{server}: {problem}")),
    };
    unanswered.report()
}
