//! `/mcp`: sekisho as one MCP server, over streamable HTTP: with sessions for the revisions that have them,
//! without for 2026-07-28.
//!
//! What is checked here comes before any policy or limit: who asks, from which page and under which name,
//! that the body is JSON without a key twice, and whose session it names. A tool call that is plainly in order is
//! answered by `plain`; rmcp serves everything else, and refuses `Mcp-*` headers that do not say what the body says
//! (-32020). Either way a call walks through the pipeline as any other.

#![expect(deprecated, reason = "rmcp marks what 2026-07-28 marks; clients of that revision and older ones use it")]

mod cancelled;
mod catalogue;
mod client;
mod client_context;
mod event_log;
mod fast_path;
mod handler;
mod http;
mod message;
mod parked_calls;
mod protected_resource;
mod result;
mod running_request;
mod search;
mod session_client;
mod sessions;
mod stdio;
mod subscriptions;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::catalogue::Catalogues;
use self::client_context::McpClientContext;
use self::parked_calls::ParkedCalls;
use self::sessions::Sessions;
use crate::gateway::Gateway;

pub(super) use self::http::routes;
pub(super) use self::protected_resource::base;

pub use self::stdio::serve_stdio;

/// What all MCP clients of a process share.
#[derive(Debug)]
pub(super) struct McpServer {
    gateway: Arc<Gateway>,
    catalogues: Catalogues,
    sessions: Arc<Sessions>,
    waiting: ParkedCalls,
    /// Cancelled when the service stops taking requests: streams that only wait for news end then.
    draining: CancellationToken,
}

impl McpServer {
    /// `draining` is cancelled when no more requests are taken.
    fn new(gateway: &Arc<Gateway>, draining: CancellationToken) -> Arc<Self> {
        let config = gateway.config().server.mcp.clone();
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            catalogues: Catalogues::default(),
            sessions: Arc::new(Sessions::new(&config)),
            waiting: ParkedCalls::new(),
            draining,
        })
    }

    /// Whether no argument of the tool has to stand in a header too (SEP-2243), as far as the visitor may know.
    fn needs_no_param_headers(&self, name: &str, visitor: &McpClientContext) -> bool {
        !self.catalogues.present(&self.gateway).has_parameters_in_headers(name, &visitor.caller)
    }
}
