//! `/mcp`: sekisho as one MCP server over streamable HTTP, with sessions for the revisions that have them, without
//! sessions for 2026-07-28.
//!
//! This module checks, before any policy or limit: the caller, the page's origin and host name, that the body is JSON
//! without duplicate keys, and the owner of the session. Ordinary tool calls are answered by `fast_path`; rmcp serves
//! everything else, and refuses `Mcp-*` headers that differ from the body (-32020). Both run calls through the
//! pipeline like any other.

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

/// State that all MCP clients of a process share.
#[derive(Debug)]
pub(super) struct McpServer {
    gateway: Arc<Gateway>,
    catalogues: Catalogues,
    sessions: Arc<Sessions>,
    parked: ParkedCalls,
    /// Cancelled when the service stops accepting requests: streams that only wait for events end then.
    draining: CancellationToken,
}

impl McpServer {
    /// `draining` is cancelled when no more requests are accepted.
    fn new(gateway: &Arc<Gateway>, draining: CancellationToken) -> Arc<Self> {
        let config = gateway.config().server.mcp.clone();
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            catalogues: Catalogues::default(),
            sessions: Arc::new(Sessions::new(&config)),
            parked: ParkedCalls::new(),
            draining,
        })
    }

    /// Whether no argument of the tool must also be sent in a header (SEP-2243), among the tools that the caller may
    /// see.
    fn needs_no_param_headers(&self, name: &str, client_context: &McpClientContext) -> bool {
        !self.catalogues.present(&self.gateway).has_parameters_in_headers(name, &client_context.caller)
    }
}
