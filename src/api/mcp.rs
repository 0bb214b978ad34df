//! `/mcp`: sekisho as one MCP server over streamable HTTP, with sessions for the revisions that have them, without
//! sessions for 2026-07-28. Clients at standard input and output reach it through `sekisho mcp serve`.
//!
//! One way leads through this module. `http` reads a [`message::Message`]; `methods` starts the request, as a
//! [`running_request::RunningRequest`]: its work, and a queue of the work's messages to the client. The task that
//! serves the request takes its steps one after the other. A request that ends at once is answered in the task that
//! read it. A longer one of a session becomes a stream of events, which `event_log` keeps for a client that reconnects;
//! a longer one of 2026-07-28 becomes a response that ends with it, and waits in `parked_calls` for the answer to a
//! question.
//!
//! Where there are several replicas, each has its own sessions, tasks and parked calls: `forwarding` passes a request
//! on to the replica of the session, task or call that it names.
//!
//! The types of the protocol are rmcp's. Calls pass through the pipeline like any other.

#![expect(deprecated, reason = "rmcp marks what 2026-07-28 marks; clients of that revision and older ones use it")]

mod auto_list;
mod browser_guard;
mod cancelled;
mod catalogue;
mod client;
mod client_context;
mod event_log;
mod event_response;
mod event_stream;
mod extensions;
mod forwarding;
mod headers;
mod http;
mod http_refusal;
mod message;
mod methods;
mod parked_calls;
mod protected_resource;
mod replica_ids;
mod result;
mod running_request;
mod search;
mod session;
mod session_request;
mod sessions;
mod subscriptions;
mod tasks;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::auto_list::CallerLists;
use self::catalogue::Catalogues;
use self::forwarding::Forwarding;
use self::parked_calls::ParkedCalls;
use self::replica_ids::ReplicaIds;
use self::sessions::Sessions;
use self::tasks::Tasks;
use sekisho_gateway::Gateway;

pub(super) use self::http::routes;
pub(super) use self::protected_resource::base;

/// State that all MCP clients of a process share.
#[derive(Debug)]
pub(super) struct McpServer {
    gateway: Arc<Gateway>,
    catalogues: Catalogues,
    caller_lists: CallerLists,
    sessions: Arc<Sessions>,
    /// To the sessions, tasks and parked calls of other replicas.
    forwarding: Option<Forwarding>,
    parked: ParkedCalls,
    tasks: Tasks,
    /// Cancelled when the service stops accepting requests: streams that only wait for events end then.
    draining: CancellationToken,
}

impl McpServer {
    fn new(gateway: &Arc<Gateway>) -> Arc<Self> {
        let ids = ReplicaIds::new(gateway.cluster().replica());
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            catalogues: Catalogues::default(),
            caller_lists: CallerLists::new(),
            sessions: Arc::new(Sessions::new(&gateway.configuration().current().server.mcp, ids.clone())),
            forwarding: Forwarding::new(gateway, &ids),
            parked: ParkedCalls::new(ids.clone()),
            tasks: Tasks::new(ids),
            draining: gateway.draining().clone(),
        })
    }
}
