//! One MCP client on standard input and output: nothing else is written there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, ServerJsonRpcMessage};
use rmcp::service::{ServerInitializeError, serve_server};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::McpServer;
use super::client_context::McpClientContext;
use super::handler::McpHandler;
use super::message::{self, Refusal};
use super::sessions::SessionState;
use crate::core::call::Caller;
use crate::gateway::Gateway;

/// Bytes of input that are buffered ahead of rmcp.
const PASSED_ON_BYTES: usize = 64 << 10;

/// rmcp's transport, without the messages whose integers it would round.
struct ExactTransport<T> {
    library: T,
    refused: mpsc::UnboundedReceiver<ServerJsonRpcMessage>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for ExactTransport<T> {
    type Error = T::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.library.send(message)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            tokio::select! {
                message = self.library.receive() => return message,
                Some(refusal) = self.refused.recv() => {
                    tokio::spawn(self.library.send(refusal));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.library.close().await
    }
}

/// Forwards the lines of the input, and refuses those with an integer outside 64 bits. A line that is too long is
/// forwarded, for rmcp to refuse.
async fn pass_on(
    input: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    longest_line: usize,
    refuse: mpsc::UnboundedSender<ServerJsonRpcMessage>,
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let max = u64::try_from(longest_line).unwrap_or(u64::MAX).saturating_add(1);
    while (&mut input).take(max).read_until(b'\n', &mut line).await? > 0 {
        match message::refusal_of_large_integer(&line) {
            None => to.write_all(&line).await?,
            Some(Refusal { code, message, id }) => {
                let id = id.and_then(|id| serde_json::from_value(id).ok());
                let error = ErrorData::new(ErrorCode(code), message, None);
                // The receiver is closed once the client has disconnected.
                let _ = refuse.send(ServerJsonRpcMessage::error(error, id));
            }
        }
        line.clear();
    }
    Ok(())
}

/// Serves until the input ends; then running calls are cancelled. `left_out` describes the tools that the caller may
/// not use, for the instructions to the client.
///
/// # Errors
/// The client violates the protocol's handshake.
pub async fn serve_stdio(gateway: &Arc<Gateway>, caller: Arc<Caller>, left_out: Option<String>) -> Result<(), String> {
    let longest_line = gateway.config().server.max_body_bytes;
    let (passed_on, input) = tokio::io::duplex(PASSED_ON_BYTES);
    let (refuse, refused) = mpsc::unbounded_channel();
    tokio::spawn(pass_on(tokio::io::stdin(), passed_on, longest_line, refuse));
    let library = AsyncRwTransport::new_server(input, tokio::io::stdout()).with_max_line_length(longest_line);
    let transport = ExactTransport { library, refused };
    // Ends with its input.
    let state = Arc::new(SessionState::new(Duration::MAX));
    let client_context = McpClientContext { client_session: Some(Arc::clone(&state)), ..McpClientContext::new(caller) };
    let handler = McpHandler::new(McpServer::new(gateway, gateway.draining().clone()), Arc::new(client_context), state)
        .with_left_out(left_out);
    let running = match Box::pin(serve_server(handler, transport)).await {
        Ok(running) => running,
        // The client may disconnect before the handshake.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    running.waiting().await.map(|_reason| ()).map_err(|error| error.to_string())
}
