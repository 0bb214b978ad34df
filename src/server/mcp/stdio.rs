//! One MCP client at standard input and output: nothing else is written there.

use std::sync::Arc;
use std::time::Duration;

use rmcp::service::{ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::McpFace;
use super::face::Face;
use super::sessions::SessionState;
use super::visitor::Visitor;
use crate::call::Caller;
use crate::gateway::Gateway;

/// Serves until the input ends; calls still running then are cancelled.
///
/// # Errors
/// A sentence, where the client does not begin as the protocol says.
pub async fn serve_stdio(gateway: &Arc<Gateway>, caller: Arc<Caller>) -> Result<(), String> {
    let longest_line = gateway.config().server.max_body_bytes;
    let transport =
        AsyncRwTransport::new_server(tokio::io::stdin(), tokio::io::stdout()).with_max_line_length(longest_line);
    // It ends with its input.
    let state = Arc::new(SessionState::new(Duration::MAX));
    let face = Face::new(McpFace::new(gateway, gateway.draining().clone()), Arc::new(Visitor::new(caller)), state);
    let running = match Box::pin(serve_server(face, transport)).await {
        Ok(running) => running,
        // It left before it said anything: that is its right.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    running.waiting().await.map(|_reason| ()).map_err(|error| error.to_string())
}
