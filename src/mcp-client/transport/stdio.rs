//! JSON-RPC over a process's standard input and output: one message per line, of limited size.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::child_process::Child;
use super::ending::Ending;
use super::inbound::Source;
use super::lines::{Line, LineError, Lines};
use super::message::{Answer, Failure, Message, endless_line, too_large};
use sekisho_core::call::SentFlag;
use sekisho_core::error::{Blame, CallError, ErrorCode};

/// Timeout to write a message to the process's input.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a process may take to exit after its input was closed, and again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The same for a process whose connection is broken: shorter, because calls wait for the error.
const BROKEN_EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a process that no longer reads its input has to end, so that the reason is its exit status.
const CLOSED_INPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum lines in a second that are not messages, such as greetings, before the connection is closed.
const MAX_STRAY_LINES: u32 = 1_000;

/// A started process with the two ends of the connection.
pub(crate) type Started = (Child, ChildStdin, ChildStdout);

/// The input of the process.
pub(super) struct StdioInput {
    pipe: Mutex<Option<Pipe>>,
    ending: Ending,
    close: CancellationToken,
}

struct Pipe {
    stdin: ChildStdin,
    /// The rest of a line whose writer was dropped. Without it the next line could not be read.
    rest: Bytes,
}

/// The output of the process.
pub(super) struct StdioOutput {
    child: Child,
    lines: Lines<ChildStdout>,
    /// The remaining messages of a batch (2025-03-26).
    batch: VecDeque<Message>,
    max: usize,
    stray: StrayLines,
    /// The rest of the output is one line that is not read.
    has_endless_line: bool,
    exit_timeout: Duration,
    ending: Ending,
}

/// The lines of the current second that are not messages.
struct StrayLines {
    since: Instant,
    count: u32,
}

/// `max`: bytes of one message. `close` is cancelled if the process does not read its input.
pub(super) fn split(
    (child, stdin, stdout): Started,
    max: usize,
    ending: &Ending,
    close: &CancellationToken,
) -> (StdioInput, StdioOutput) {
    let pipe = Mutex::new(Some(Pipe { stdin, rest: Bytes::new() }));
    let input = StdioInput { pipe, ending: ending.clone(), close: close.clone() };
    let output = StdioOutput {
        child,
        lines: Lines::new(stdout, max),
        batch: VecDeque::new(),
        max,
        stray: StrayLines { since: Instant::now(), count: 0 },
        has_endless_line: false,
        exit_timeout: EXIT_TIMEOUT,
        ending: ending.clone(),
    };
    (input, output)
}

impl StdioInput {
    /// Writes a message, and sets `sent` when the process has its first bytes.
    /// Errors: `upstream_error`: the input is closed, or not read in time. The connection is closed then.
    pub(super) async fn write(&self, mut line: Vec<u8>, sent: Option<SentFlag>) -> Result<(), CallError> {
        line.push(b'\n');
        let writing = async {
            match &mut *self.pipe.lock().await {
                Some(pipe) => pipe.write(line.into(), sent).await.map_err(|error| error.to_string()),
                None => Err("it is being stopped".to_owned()),
            }
        };
        let problem = match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(problem)) => {
                // Usually the process has just ended, and its exit status says more.
                let _still_runs = tokio::time::timeout(CLOSED_INPUT_TIMEOUT, self.close.cancelled()).await;
                format!("its input cannot be written: {problem}")
            }
            Err(_) => "it does not read its input".to_owned(),
        };
        self.ending.set_reason(problem.as_str());
        self.close.cancel();
        let problem = self.ending.reason().unwrap_or(problem);
        Err(CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network))
    }

    pub(super) fn close(&self) {
        // A blocked write may hold the input; the process is stopped anyway.
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }
}

impl Pipe {
    /// If this is dropped, the next call writes the rest.
    async fn write(&mut self, mut line: Bytes, sent: Option<SentFlag>) -> std::io::Result<()> {
        self.flush().await?;
        self.stdin.write_buf(&mut line).await?;
        if let Some(sent) = sent {
            sent.set();
        }
        self.rest = line;
        self.flush().await
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        while !self.rest.is_empty() {
            self.stdin.write_buf(&mut self.rest).await?;
        }
        Ok(())
    }
}

impl StdioOutput {
    /// Ends the process after its input was closed.
    pub(super) async fn end(&mut self) {
        self.child.end(self.exit_timeout).await;
    }

    /// The next line. When the process has ended, those that it left: a child of it may keep its output open.
    async fn line(&mut self) -> Result<Result<Option<Line>, LineError>, Failure> {
        tokio::select! {
            biased;
            line = self.lines.next() => return Ok(line),
            () = self.child.ended() => {}
        }
        match tokio::time::timeout(BROKEN_EXIT_TIMEOUT, self.lines.next()).await {
            Ok(line) => Ok(line),
            Err(_) => Err(self.ended().await),
        }
    }

    async fn ended(&mut self) -> Failure {
        if let Some(status) = self.child.exited(BROKEN_EXIT_TIMEOUT).await {
            let said = self.child.last_words(BROKEN_EXIT_TIMEOUT).await;
            let said = said.map_or_else(
                || "it wrote nothing to standard error".to_owned(),
                |line| format!("its last line on standard error: {line}"),
            );
            self.ending.set_reason(format!("it ended: {status}; {said}"));
        }
        self.broken("it closed its output")
    }

    /// Counts a line that is not a message.
    fn pass_over(&mut self) -> Result<(), Failure> {
        if self.stray.since.elapsed() >= Duration::from_secs(1) {
            self.stray = StrayLines { since: Instant::now(), count: 0 };
        }
        self.stray.count += 1;
        match self.stray.count > MAX_STRAY_LINES {
            true => Err(self.broken("it sends too many lines that are not JSON-RPC messages")),
            false => Ok(()),
        }
    }

    /// Fails the request that a line answers that is not read to its end; all that run, if nothing tells which.
    fn endless_line(&mut self, bytes: usize) -> Result<Message, Failure> {
        let error = endless_line(bytes);
        let Some(id) = self.lines.skipped_answer() else {
            self.ending.set_endless_line(bytes);
            return Err(self.broken(error.message()));
        };
        self.has_endless_line = true;
        self.broken(error.message());
        Ok(Message::Answer(Answer::failed(id, Failure::Call(error))))
    }

    fn broken(&mut self, reason: impl Into<String>) -> Failure {
        self.ending.set_reason(reason);
        self.exit_timeout = BROKEN_EXIT_TIMEOUT;
        Failure::Lost
    }
}

impl Source for StdioOutput {
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.batch.pop_front() {
                return Ok(message);
            }
            if self.has_endless_line {
                return Err(Failure::Lost);
            }
            let line = match self.line().await? {
                Ok(Some(Line::Text(line))) => line,
                Ok(Some(Line::TooLong(message))) => match message.answered() {
                    Some(id) => return Ok(Message::Answer(Answer::failed(id, Failure::Call(too_large(self.max))))),
                    None => {
                        tracing::warn!(max = self.max, "skipped a line of an MCP server that is longer than allowed");
                        self.pass_over()?;
                        continue;
                    }
                },
                Ok(None) => return Err(self.ended().await),
                Err(LineError::Unreadable(error)) => {
                    return Err(self.broken(format!("its output cannot be read: {error}")));
                }
                Err(LineError::Endless(bytes)) => return self.endless_line(bytes),
            };
            let line = line.trim_ascii();
            self.batch = Message::all(line).into();
            if self.batch.is_empty() && !line.is_empty() {
                self.pass_over()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::io::AsyncReadExt;
    use tokio::process::Command;

    use super::super::child_process;
    use super::super::program_sandbox::ProgramSandbox;
    use super::*;
    use sekisho_config::McpServerSettings;
    use sekisho_core::until::until;

    /// Without a sandbox: the program of the tests is no helper.
    async fn output_of(script: &str, max: usize) -> (StdioInput, StdioOutput, Ending) {
        let settings = McpServerSettings { args: vec!["-c".to_owned(), script.to_owned()], ..Default::default() };
        let started =
            child_process::start(&"script".into(), "sh", &settings, &ProgramSandbox::default()).await.unwrap();
        let (ending, close) = (Ending::default(), CancellationToken::new());
        let (input, output) = split(started, max, &ending, &close);
        (input, output, ending)
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_fails_its_request_and_the_next_one_is_read() {
        let long =
            r#"printf '{"jsonrpc":"2.0","result":"%02000d","id":4}\n{"jsonrpc":"2.0","id":5,"result":{}}\n' 7; cat"#;
        let (_input, mut output, _) = output_of(long, 1_000).await;
        let Ok(Message::Answer(first)) = output.next().await else { panic!("an answer") };
        assert!(first.is_to(4));
        assert!(matches!(first.outcome, Err(Failure::Call(error)) if error.code() == ErrorCode::OutputTooLarge));
        let Ok(Message::Answer(second)) = output.next().await else { panic!("an answer") };
        assert!(second.is_to(5) && second.outcome.is_ok());
    }

    #[tokio::test]
    async fn a_line_that_is_not_read_to_its_end_fails_its_request_or_all() {
        let endless = |begin: &str| format!("printf '{begin}'; head -c 20000 /dev/zero | tr '\\0' x; cat");
        let is_too_large = |failure: &Failure| match failure {
            Failure::Call(error) => error.code() == ErrorCode::OutputTooLarge,
            _ => false,
        };
        let (_input, mut output, ending) =
            output_of(&endless(r#"{"jsonrpc":"2.0","id":4,"result":{"text":""#), 1_000).await;
        let Ok(Message::Answer(answer)) = output.next().await else { panic!("an answer") };
        assert!(answer.is_to(4) && is_too_large(&answer.outcome.unwrap_err()));
        assert!(matches!(output.next().await, Err(Failure::Lost)) && matches!(ending.failure(), Failure::Lost));
        assert!(ending.reason().unwrap().contains("more than 16000 bytes"));

        let (_input, mut output, ending) = output_of(&endless(r#"{"result":{"text":""#), 1_000).await;
        assert!(matches!(output.next().await, Err(Failure::Lost)) && is_too_large(&ending.failure()));
        assert!(ending.reason().unwrap().contains("more than 16000 bytes"));
    }

    #[tokio::test]
    async fn stray_lines_are_bounded_by_their_rate() {
        // With a pause longer than a second in between, so that neither second has too many.
        let message = r#"echo '{"jsonrpc":"2.0","method":"last"}'"#;
        let lines = "i=0; while [ $i -lt 800 ]; do echo stray; i=$((i+1)); done";
        let (_input, mut output, _) = output_of(&format!("{lines}; sleep 1.1; {lines}; {message}; cat"), 1_000).await;
        assert!(output.next().await.is_ok());
        let (_input, mut output, ending) = output_of(&format!("{lines}; {lines}; {message}; cat"), 1_000).await;
        output.stray.since = Instant::now() + Duration::from_secs(3_600);
        assert!(output.next().await.is_err());
        assert!(ending.reason().unwrap().contains("too many lines"));
    }

    #[tokio::test]
    async fn the_reason_of_a_process_that_ends_at_once_is_its_last_line_and_status() {
        let (input, mut output, ending) =
            output_of("echo starting >&2; echo 'cannot find DATABASE_URL' >&2; exit 3", 1_000).await;
        let read = output.next().await;
        input.close.cancel();
        // A process that another test starts may hold the input for a moment, between fork and exec.
        let written = async || input.write(b"{}".to_vec(), None).await.map_err(|error| error.message().to_owned());
        until("the input is closed", async || written().await.is_err()).await;
        let expected = "it ended: exit status: 3; its last line on standard error: cannot find DATABASE_URL";
        assert_eq!(ending.reason().as_deref(), Some(expected));
        assert!(read.is_err());
        assert_eq!(written().await, Err(expected.to_owned()));
    }

    /// Its child has inherited the output, and keeps it open.
    #[tokio::test]
    async fn a_process_that_ended_is_noticed_although_its_child_lives() {
        let settings = McpServerSettings {
            args: vec![
                "-c".to_owned(),
                "echo '{\"jsonrpc\":\"2.0\",\"method\":\"last\"}'; sleep 600 & exit 3".to_owned(),
            ],
            ..McpServerSettings::default()
        };
        let started = child_process::start(&"forks".into(), "sh", &settings, &ProgramSandbox::default()).await.unwrap();
        let (ending, close) = (Ending::default(), CancellationToken::new());
        let (_input, mut output) = split(started, 1 << 10, &ending, &close);
        let reading = async {
            assert!(output.next().await.is_ok(), "what it wrote before is read");
            output.next().await
        };
        let read = tokio::time::timeout(Duration::from_secs(10), reading).await.expect("it is noticed");
        assert!(matches!(read, Err(Failure::Lost)));
        assert_eq!(ending.reason().as_deref(), Some("it ended: exit status: 3; it wrote nothing to standard error"));
    }

    /// A process that passes on its input only after a while, so that a long line is written in parts.
    #[tokio::test]
    async fn a_line_whose_writer_is_dropped_is_completed_before_the_next() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.3; cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut pipe = Pipe { stdin: process.stdin.take().unwrap(), rest: Bytes::new() };
        let long = [vec![b'a'; 1 << 20], vec![b'\n']].concat();
        let sent = SentFlag::default();
        let dropped =
            tokio::time::timeout(Duration::from_millis(50), pipe.write(long.clone().into(), Some(sent.clone()))).await;
        assert!(dropped.is_err() && sent.is_set() && !pipe.rest.is_empty());
        let waiting = SentFlag::default();
        let second = pipe.write(Bytes::from_static(b"never\n"), Some(waiting.clone()));
        let dropped = tokio::time::timeout(Duration::from_millis(50), second).await;
        assert!(dropped.is_err() && !waiting.is_set(), "a line that was not begun is not written");
        let mut stdout = process.stdout.take().unwrap();
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            stdout.read_to_end(&mut read).await.map(|_| read)
        });
        pipe.write(Bytes::from_static(b"next\n"), None).await.unwrap();
        drop(pipe);
        let read = reading.await.unwrap().unwrap();
        assert!(read == [&long[..], b"next\n"].concat(), "{} bytes", read.len());
    }
}
