//! `sekisho mcp`: the tools for an MCP client that starts its servers itself.

use std::sync::Arc;

use clap::Subcommand;

use super::call::Identity;
use super::{Common, Exit, with_config};
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
}

pub(super) fn run(common: &Common, command: McpCommand) -> Exit {
    match command {
        McpCommand::Serve { identity } => with_config(common, |config| {
            super::serve::with_gateway(config, async |gateway| serve(gateway, identity.caller()).await)
        }),
    }
}

async fn serve(gateway: Arc<Gateway>, caller: Arc<Caller>) -> Exit {
    match serve_stdio(&gateway, caller).await {
        Ok(()) => Exit::Done,
        Err(problem) => {
            tracing::error!(problem, "the MCP client could not be served");
            Exit::Failed
        }
    }
}
