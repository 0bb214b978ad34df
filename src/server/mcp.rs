//! `/mcp`: sekisho as one MCP server, over streamable HTTP: with sessions for the revisions that have them,
//! without for 2026-07-28.
//!
//! What is checked here comes before any policy or limit: who asks, from which page and under which name,
//! that the body is JSON without a key twice, and whose session it names. rmcp checks that the `Mcp-*`
//! headers say what the body says (-32020). A tool call then walks through the pipeline as any other.

#![expect(deprecated, reason = "rmcp marks what 2026-07-28 marks; clients of that revision and older ones use it")]

mod calling;
mod cancelled;
mod catalogue;
mod client;
mod face;
mod http;
mod message;
mod protected_resource;
mod replay;
mod result;
mod search;
mod sessions;
mod stdio;
mod visitor;
mod waiting;
mod watching;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::catalogue::Catalogues;
use self::sessions::Sessions;
use self::waiting::WaitingCalls;
use crate::gateway::Gateway;

pub(super) use self::http::routes;
pub(super) use self::protected_resource::base;

pub use self::stdio::serve_stdio;

/// What all MCP clients of a process share.
#[derive(Debug)]
pub(super) struct McpFace {
    gateway: Arc<Gateway>,
    catalogues: Catalogues,
    sessions: Arc<Sessions>,
    waiting: WaitingCalls,
    /// Cancelled when the service stops taking requests: streams that only wait for news end then.
    draining: CancellationToken,
}

impl McpFace {
    /// `draining` is cancelled when no more requests are taken.
    fn new(gateway: &Arc<Gateway>, draining: CancellationToken) -> Arc<Self> {
        let config = gateway.config().server.mcp.clone();
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            catalogues: Catalogues::default(),
            sessions: Arc::new(Sessions::new(&config)),
            waiting: WaitingCalls::new(),
            draining,
        })
    }
}
