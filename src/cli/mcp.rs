//! `sekisho mcp`: the tools for an MCP client that starts its servers itself.

use std::sync::Arc;

use clap::Subcommand;
use url::Url;

use super::call::Identity;
use super::client::{self, Unanswered};
use super::mcp_login;
use super::mcp_servers::{self, ServersCommand};
use super::serve::shutdown_signal;
use super::{Common, Exit, present, with_config};
use crate::api::mcp::serve_stdio;
use crate::core::call::Caller;
use crate::gateway::Gateway;
use crate::sources::mcp::{self, BridgeError};

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Serve MCP on standard input and output until the input ends; with `--server` for the gateway there.
    Serve {
        #[command(flatten)]
        identity: Identity,
    },
    /// Start a user's sign-in to an MCP server of the gateway at `--server`, and print the address to open.
    Login { name: String },
    #[command(flatten)]
    Servers(ServersCommand),
}

pub(super) fn run(common: &Common, command: McpCommand) -> Exit {
    match command {
        McpCommand::Serve { .. } if let Some(server) = &common.server => bridge(server),
        McpCommand::Serve { identity } => with_config(common, |config| {
            super::serve::with_gateway(config, async |gateway| Box::pin(serve(gateway, identity.caller())).await)
        }),
        McpCommand::Login { name } => mcp_login::run(common, &name),
        McpCommand::Servers(command) => mcp_servers::run(common, command),
    }
}

/// Forwards between standard input and output and the gateway's own `/mcp`: the gateway's policies, limits and
/// budgets apply.
fn bridge(server: &Url) -> Exit {
    let (outbound, headers) = match client::connection(server) {
        Ok(connection) => connection,
        Err(unanswered) => return unanswered.report(),
    };
    let mut address = server.clone();
    if let Ok(mut path) = address.path_segments_mut() {
        path.pop_if_empty().push("mcp");
    }
    let Some(runtime) = super::serve::runtime() else { return Exit::Misconfigured };
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = mcp::bridge(outbound, address, headers) => ended,
            _ = shutdown_signal() => Ok(()),
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

async fn serve(gateway: Arc<Gateway>, caller: Arc<Caller>) -> Exit {
    let left_out = gateway.pipeline.tools_for(&caller).left_out();
    let left_out = left_out.map(|left_out| format!("{left_out}. Set the caller with `--as USER --role ROLE`."));
    if let Some(left_out) = &left_out {
        present::problem(left_out);
    }
    super::serve::log_notes(&gateway).await;
    let served = tokio::select! {
        served = serve_stdio(&gateway, caller, left_out) => served,
        _ = shutdown_signal() => Ok(()),
    };
    match served {
        Ok(()) => Exit::Done,
        Err(problem) => {
            tracing::error!(problem, "the MCP client could not be served");
            Exit::Failed
        }
    }
}
