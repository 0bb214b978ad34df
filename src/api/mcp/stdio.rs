//! One MCP client on standard input and output: nothing else is written there.

use std::io;
use std::sync::Arc;

use rmcp::model::{ErrorData, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::McpServer;
use super::channel::Channel;
use super::client_context::McpClientContext;
use super::headers::{self, Era};
use super::message::{self, Message, Refusal, Request};
use super::methods::{self, Started};
use super::result;
use super::running_request::{Sent, StatelessRequest};
use super::session::McpSession;
use crate::core::call::Caller;
use crate::core::peer::ClientSession;
use crate::gateway::Gateway;

/// Messages that may wait to be written.
const MAX_QUEUED: usize = 64;

/// Serves until the input ends; then running calls are cancelled. `left_out` describes the tools that the caller may
/// not use, for the instructions to the client.
///
/// # Errors
/// Standard input cannot be read, or standard output not be written.
pub async fn serve_stdio(gateway: &Arc<Gateway>, caller: Arc<Caller>, left_out: Option<String>) -> Result<(), String> {
    let server = McpServer::new(gateway, left_out);
    let max_line = gateway.config().server.max_body_bytes;
    let served = serve(server, caller, BufReader::new(tokio::io::stdin()), tokio::io::stdout(), max_line).await;
    served.map_err(|error| format!("the connection to the client failed: {error}"))
}

async fn serve(
    server: Arc<McpServer>,
    caller: Arc<Caller>,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    max_line: usize,
) -> io::Result<()> {
    let (lines, queued) = mpsc::channel(MAX_QUEUED);
    let mut writing = tokio::spawn(write(output, queued));
    let session = McpSession::over_lines(&caller.owner, lines.clone());
    let client = McpClientContext { session: Some(Arc::clone(&session)), ..McpClientContext::new(caller) };
    let connection = Connection { server, client: Arc::new(client), session, channel: Channel::Lines(lines) };
    let mut requests = JoinSet::new();
    let mut line = Vec::new();
    let read = loop {
        tokio::select! {
            Some(_ended) = requests.join_next() => {}
            // Nobody reads the output any more.
            written = &mut writing => return written.unwrap_or_else(|error| Err(io::Error::other(error))),
            read = read_line(&mut input, &mut line, max_line) => match read {
                Ok(Line::Message) => {
                    connection.receive(&line, &mut requests).await;
                    line.clear();
                }
                Ok(Line::TooLong) => {
                    let message = format!("the line is longer than {max_line} bytes (`server.max_body_bytes`)");
                    connection.refuse(Refusal::new(ErrorData::invalid_request(message, None), None)).await;
                    line.clear();
                }
                Ok(Line::End) => break Ok(()),
                Err(error) => break Err(error),
            },
        }
    };
    connection.session.end();
    requests.shutdown().await;
    drop(connection);
    // What was answered is written; the session's other tasks end by themselves.
    let written = writing.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    read.and(written)
}

/// The connection to the client.
struct Connection {
    server: Arc<McpServer>,
    client: Arc<McpClientContext>,
    session: Arc<McpSession>,
    channel: Channel,
}

impl Connection {
    /// Handles one line. Requests run in tasks of their own.
    async fn receive(&self, line: &[u8], requests: &mut JoinSet<()>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match message::read(line) {
            Ok(Message::Request(request)) => self.start(request, requests).await,
            Ok(message) => self.session.receive(&self.server, &self.client.caller, message),
            Err(refusal) => self.refuse(refusal).await,
        }
    }

    async fn start(&self, request: Request, requests: &mut JoinSet<()>) {
        let id = request.id.clone();
        let era = match headers::has_metadata(&request) {
            true => Era::Stateless,
            false => Era::Sessions,
        };
        let needs_session = era == Era::Sessions && !matches!(request.method.as_str(), "initialize" | "ping");
        if needs_session && !self.session.is_initialized() {
            let error = headers::missing_metadata(&request);
            return self.refuse(Refusal::new(error, Some(id))).await;
        }
        if request.method == "initialize" {
            let outcome = methods::initialize(&self.server, &self.client.caller, request.params);
            let outcome = outcome.map(|(result, capabilities)| {
                self.session.initialize(capabilities);
                result.into()
            });
            self.channel.finish(&result::message(Era::Sessions, id, outcome)).await;
            return;
        }
        let Started { running, binding } = methods::start(&self.server, &self.client, request, era);
        let (session, channel) = (Arc::clone(&self.session), self.channel.clone());
        match era {
            Era::Sessions => {
                requests.spawn(async move { running.finish_in_session(id, None, &session, &channel).await });
            }
            Era::Stateless => {
                let mut request = StatelessRequest::new(running, &self.client.caller, binding);
                let server = Arc::clone(&self.server);
                requests.spawn(async move {
                    loop {
                        let sent = tokio::select! {
                            biased;
                            () = session.cancelled.until(&id) => return,
                            sent = request.next(&server.parked) => sent,
                        };
                        match sent {
                            Sent::Notification(notification) => {
                                channel.send(&ServerJsonRpcMessage::notification(notification)).await;
                            }
                            Sent::Outcome(outcome) => {
                                return channel.finish(&result::message(Era::Stateless, id, outcome)).await;
                            }
                        }
                    }
                });
            }
        }
    }

    async fn refuse(&self, refusal: Box<Refusal>) {
        self.channel.finish(&Value::from(refusal)).await;
    }
}

enum Line {
    Message,
    TooLong,
    End,
}

/// Appends to `line`, which is kept when this is cancelled.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>, max: usize) -> io::Result<Line> {
    loop {
        // The line feed, and one byte that shows that there is more.
        let left = (max + 2).saturating_sub(line.len());
        let read = (&mut *input).take(u64::try_from(left).unwrap_or(u64::MAX)).read_until(b'\n', line).await?;
        if line.ends_with(b"\n") {
            return Ok(if line.len() > max + 1 { Line::TooLong } else { Line::Message });
        }
        if line.len() > max + 1 {
            // The rest of the line is skipped.
            line.truncate(max + 1);
            let mut rest = Vec::new();
            loop {
                rest.clear();
                let read = (&mut *input).take(64 << 10).read_until(b'\n', &mut rest).await?;
                if read == 0 || rest.ends_with(b"\n") {
                    return Ok(Line::TooLong);
                }
            }
        }
        if read == 0 {
            return Ok(if line.is_empty() { Line::End } else { Line::Message });
        }
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Arc<str>>) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(line.as_bytes()).await?;
        output.write_all(b"\n").await?;
        if lines.is_empty() {
            output.flush().await?;
        }
    }
    Ok(())
}
