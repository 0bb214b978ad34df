//! `sekisho mcp`: the tools for an MCP client that starts its servers itself.

use std::sync::Arc;

use clap::Subcommand;

use super::call::Identity;
use super::mcp_login;
use super::mcp_servers::{self, ServersCommand};
use super::serve::told_to_go;
use super::{Common, Exit, present, with_config};
use crate::call::Caller;
use crate::gateway::Gateway;
use crate::server::mcp::serve_stdio;

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Speak MCP over standard input and output, until the input ends.
    Serve {
        #[command(flatten)]
        identity: Identity,
    },
    /// Begin a user's sign-in to an MCP server of the gateway at `--server`, and print the address to open.
    Login { name: String },
    #[command(flatten)]
    Servers(ServersCommand),
}

pub(super) fn run(common: &Common, command: McpCommand) -> Exit {
    match command {
        McpCommand::Serve { identity } => with_config(common, |config| {
            super::serve::with_gateway(config, async |gateway| Box::pin(serve(gateway, identity.caller())).await)
        }),
        McpCommand::Login { name } => mcp_login::run(common, &name),
        McpCommand::Servers(command) => mcp_servers::run(common, command),
    }
}

async fn serve(gateway: Arc<Gateway>, caller: Arc<Caller>) -> Exit {
    let left_out = gateway.pipeline.tools_for(&caller).left_out();
    let left_out = left_out.map(|left_out| format!("{left_out}. `--as USER --role ROLE` says who calls."));
    if let Some(left_out) = &left_out {
        present::problem(left_out);
    }
    let served = tokio::select! {
        served = serve_stdio(&gateway, caller, left_out) => served,
        () = told_to_go() => Ok(()),
    };
    match served {
        Ok(()) => Exit::Done,
        Err(problem) => {
            tracing::error!(problem, "the MCP client could not be served");
            Exit::Failed
        }
    }
}
