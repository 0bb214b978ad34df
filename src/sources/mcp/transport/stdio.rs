//! JSON-RPC over a process's standard input and output: one message per line, of limited size.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::child_process::Child;
use super::discover_probe::DiscoverProbe;
use super::http::sent_flag;
use crate::core::call::SentFlag;
use crate::core::error::{Blame, CallError, ErrorCode};
use crate::sources::mcp::server::large_numbers;

/// Timeout to write a message to the process's input.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a process may take to exit after its input was closed, and again after SIGTERM.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// The same for a process whose connection is broken: shorter, because calls wait for the error.
const HURRY: Duration = Duration::from_millis(200);

/// Maximum lines that are not messages, such as greetings, before the connection is closed.
const MAX_STRAY_LINES: u32 = 1_000;

/// Why a connection ended; the first reason is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<Option<String>>>);

impl Ending {
    pub(crate) fn set_reason(&self, reason: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason.into());
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The conversation with one program.
pub(crate) struct StdioTransport {
    child: Child,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    /// Of a batch (2025-03-26) what was not handed on yet.
    batch: VecDeque<ServerJsonRpcMessage>,
    most: usize,
    stray: u32,
    stuck: CancellationToken,
    probe: DiscoverProbe,
    /// How long it may take to end by itself.
    patience: Duration,
    ending: Ending,
}

impl fmt::Debug for StdioTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StdioTransport").field("child", &self.child).finish_non_exhaustive()
    }
}

impl StdioTransport {
    /// `most`: bytes of one message.
    pub(crate) fn new(
        (child, input, output): (Child, ChildStdin, ChildStdout),
        most: usize,
        probe: DiscoverProbe,
        ending: Ending,
    ) -> Self {
        Self {
            child,
            probe,
            input: Arc::new(tokio::sync::Mutex::new(Some(input))),
            output: BufReader::with_capacity(64 << 10, output),
            line: Vec::new(),
            batch: VecDeque::new(),
            most,
            stray: 0,
            stuck: CancellationToken::new(),
            patience: GOODBYE_TIMEOUT,
            ending,
        }
    }

    /// The next message; `None` at the end. Nothing is lost when it is dropped half-way: what was read is in `self`.
    async fn next(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.batch.pop_front() {
                if self.probe.passes(&message) {
                    return Some(message);
                }
                continue;
            }
            let piece = match self.output.fill_buf().await {
                Ok([]) => {
                    if let Some(status) = self.child.exited(HURRY).await {
                        self.ending.set_reason(format!("it ended: {status}"));
                    }
                    return self.end("it closed its output");
                }
                Ok(piece) => piece,
                Err(error) => return self.end(format!("its output cannot be read: {error}")),
            };
            let end = piece.iter().position(|byte| *byte == b'\n');
            let read = end.map_or(piece.len(), |end| end + 1);
            if self.line.len() + read > self.most {
                let most = self.most;
                return self.end(format!("it sent a line of more than {most} bytes (max_message_bytes)"));
            }
            self.line.extend_from_slice(&piece[..read]);
            self.output.consume(read);
            if end.is_some() {
                self.take_line();
                if self.stray > MAX_STRAY_LINES {
                    return self.end("it keeps sending lines that are not JSON-RPC messages");
                }
            }
        }
    }

    fn take_line(&mut self) {
        let line = self.line.trim_ascii();
        if line.first() == Some(&b'[') {
            self.batch = serde_json::from_slice(line).unwrap_or_default();
        } else if let Ok(message) = serde_json::from_slice(&large_numbers::exact(line)) {
            self.batch.push_back(message);
        }
        if self.batch.is_empty() && !line.is_empty() {
            self.stray += 1;
        }
        self.line.clear();
        // Releases the memory of a long message.
        self.line.shrink_to(64 << 10);
    }

    fn end(&mut self, reason: impl Into<String>) -> Option<ServerJsonRpcMessage> {
        self.ending.set_reason(reason);
        self.patience = HURRY;
        None
    }
}

/// Writes a line, and sets `sent` once the program has its first bytes.
async fn write(input: &mut ChildStdin, line: &[u8], sent: Option<SentFlag>) -> std::io::Result<()> {
    let written = input.write(line).await?;
    if let Some(sent) = sent {
        sent.set();
    }
    input.write_all(&line[written..]).await
}

impl Transport<RoleClient> for StdioTransport {
    type Error = CallError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.probe.sends(&message);
        let (input, stuck, ending) = (Arc::clone(&self.input), self.stuck.clone(), self.ending.clone());
        async move {
            let mut line = serde_json::to_vec(&message).map_err(CallError::internal)?;
            line.push(b'\n');
            let sent = sent_flag(&message);
            let writing = async {
                match &mut *input.lock().await {
                    Some(input) => write(input, &line, sent).await.map_err(|error| error.to_string()),
                    None => Err("it is being stopped".to_owned()),
                }
            };
            let problem = match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) => format!("its input cannot be written: {problem}"),
                Err(_) => "it does not read its input".to_owned(),
            };
            ending.set_reason(problem.as_str());
            stuck.cancel();
            Err(CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let stuck = self.stuck.clone();
        let silence = self.probe.silence();
        tokio::select! {
            message = self.next() => message,
            () = silence => self.probe.give_up(),
            () = stuck.cancelled() => None,
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // A blocked write may hold the input; the process is stopped anyway.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        self.child.end(self.patience).await;
        Ok(())
    }
}
