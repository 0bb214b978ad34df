//! A server that runs as a child process, in its own process group and, unless its configuration says otherwise, in a sandbox. Its
//! stderr is logged, and the group is always killed.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::program_sandbox::{ProgramSandbox, Sandboxed};
use crate::text::bounded;
use sekisho_config::McpServerSettings;
use sekisho_core::redaction::SentSecrets;
use sekisho_process_sandbox::network::Supervisor;
use sekisho_process_sandbox::{Guard, StartError};

/// The variables that a process inherits from the gateway's environment. Credentials must be configured in `env`.
pub(super) const PASSED_ON: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ", "TMPDIR"];

/// Bytes of one line of a program's stderr that go into the log.
const MAX_LOG_LINE: usize = 2 << 10;

/// Lines of a program's stderr that go into the log each second.
const LOG_LINES_A_SECOND: u32 = 20;

/// A running program. Killed with all its children when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: tokio::process::Child,
    group: Option<Pid>,
    log: JoinHandle<()>,
    last_line: Arc<Mutex<String>>,
    /// Makes the connections of a program in a sandbox.
    _supervisor: Option<Supervisor>,
    /// Measures the home of a program in a sandbox, and holds its cgroup.
    _guard: Option<Guard>,
}

/// Starts the program; gives it and the two ends of the conversation.
/// Errors: why it does not start, without its arguments or environment.
pub(crate) async fn start(
    name: &Arc<str>,
    program: &str,
    settings: &McpServerSettings,
    sandbox: &ProgramSandbox,
) -> Result<(Child, ChildStdin, ChildStdout), String> {
    let (mut process, supervisor, guard) = match sandbox.start(name, program, settings).await {
        Ok(Some(Sandboxed { process, supervisor, guard })) => (process, supervisor, Some(guard)),
        Ok(None) => (start_without_sandbox(program, settings)?, None, None),
        Err(StartError::Program(error)) => return Err(why_not(program, settings.cwd.as_deref(), &error)),
        Err(error) => return Err(format!("{program} cannot be started: {error}")),
    };
    let group = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let (Some(input), Some(output), Some(log)) = (process.stdin.take(), process.stdout.take(), process.stderr.take())
    else {
        return Err("it started without its three streams".to_owned());
    };
    let last_line = Arc::<Mutex<String>>::default();
    let log = tokio::spawn(pass_on_log(Arc::clone(name), log, settings.env_secrets(), Arc::clone(&last_line)));
    Ok((Child { process, group, log, last_line, _supervisor: supervisor, _guard: guard }, input, output))
}

fn start_without_sandbox(program: &str, settings: &McpServerSettings) -> Result<tokio::process::Child, String> {
    let mut command = Command::new(program);
    command.args(&settings.args).env_clear();
    command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(settings.env.iter().map(|(name, value)| (name, value.expose())));
    if let Some(folder) = &settings.cwd {
        command.current_dir(folder);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    die_with_us(&mut command);
    command.spawn().map_err(|error| why_not(program, settings.cwd.as_deref(), &error))
}

impl Child {
    /// Waits until the program has ended.
    pub(crate) async fn ended(&mut self) {
        if let Err(error) = self.process.wait().await {
            tracing::warn!(%error, "cannot read the exit status of a process");
        }
    }

    /// How the program ended, if it does so in time.
    pub(crate) async fn exited(&mut self, within: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(within, self.process.wait()).await.ok()?.ok()
    }

    /// The last line of a program that has ended on its standard error, if it wrote any. Waits for the rest of it.
    pub(crate) async fn last_words(&mut self, within: Duration) -> Option<String> {
        if !self.log.is_finished() {
            let _still_open = tokio::time::timeout(within, &mut self.log).await;
        }
        let line = self.last_line.lock().clone();
        (!line.is_empty()).then_some(line)
    }

    /// Stops the process after its input was closed: waits, sends SIGTERM, waits again, then kills the process group.
    pub(crate) async fn end(&mut self, grace: Duration) {
        if self.exited(grace).await.is_none() {
            self.signal(Signal::TERM);
            self.exited(grace).await;
        }
        // Its own children may still run, even if the process has exited.
        self.signal(Signal::KILL);
        self.ended().await;
        // Another process may have its number by now.
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Fails where the whole group is gone already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// If the gateway is killed without cleanup, the kernel kills the process.
#[expect(unsafe_code, reason = "only code between fork and exec can ask the kernel for this")]
fn die_with_us(command: &mut Command) {
    let ask = || rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    // SAFETY: the closure makes one system call and touches no memory of ours.
    unsafe { command.pre_exec(ask) };
}

fn why_not(program: &str, folder: Option<&Path>, error: &std::io::Error) -> String {
    let reason = match (error.kind(), folder) {
        (std::io::ErrorKind::NotFound, Some(folder)) if !folder.is_dir() => {
            return format!("its folder {} does not exist", folder.display());
        }
        (std::io::ErrorKind::NotFound, _) if program.contains(char::is_whitespace) => {
            "no program has this name; put the arguments into `args`, one item each".to_owned()
        }
        (std::io::ErrorKind::NotFound, _) => "it does not exist; install it, or configure its full path".to_owned(),
        _ => error.to_string(),
    };
    format!("{program} cannot be started: {reason}")
}

/// Limited, so that a process cannot flood the log.
async fn pass_on_log(
    server: Arc<str>,
    log: impl AsyncRead + Unpin,
    secrets: SentSecrets,
    last_line: Arc<Mutex<String>>,
) {
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    let (mut second, mut lines, mut left_out) = (Instant::now(), 0, 0_u64);
    loop {
        line.clear();
        match read_line(&mut log, &mut line).await {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
        let text = String::from_utf8_lossy(&line);
        let text = &*secrets.strike(text.trim_end());
        if text.is_empty() {
            continue;
        }
        *last_line.lock() = bounded(text);
        if second.elapsed() >= Duration::from_secs(1) {
            if left_out > 0 {
                tracing::info!(%server, left_out, "omitted lines of an MCP server's stderr");
            }
            (second, lines, left_out) = (Instant::now(), 0, 0);
        }
        if lines >= LOG_LINES_A_SECOND {
            left_out += 1;
            continue;
        }
        lines += 1;
        tracing::info!(%server, line = text, "an MCP server wrote to its stderr");
    }
}

/// Reads to the end of the line, and keeps its beginning. `false` at the end.
async fn read_line(log: &mut BufReader<impl AsyncRead + Unpin>, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        let piece = log.fill_buf().await?;
        if piece.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let read = end.map_or(piece.len(), |end| end + 1);
        let room = MAX_LOG_LINE.saturating_sub(line.len());
        line.extend_from_slice(&piece[..read.min(room)]);
        log.consume(read);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use futures_util::stream::{self, StreamExt};
    use rustix::process::kill_process;

    use super::*;
    use sekisho_config::Secret;
    use sekisho_core::slack::slack;

    /// Processes that run with this in their environment.
    fn running(mark: &str) -> usize {
        let has_mark = |environment: Vec<u8>| environment.windows(mark.len()).any(|found| found == mark.as_bytes());
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes.filter(|process| fs::read(process.path().join("environ")).is_ok_and(has_mark)).count()
    }

    #[tokio::test]
    async fn programs_that_crash_or_are_ended_leave_nothing() {
        let mark = format!("program-{}", std::process::id());
        let settings = McpServerSettings {
            // With a child of its own, which outlives it.
            args: vec!["-c".into(), "sleep 600 & exec sleep 600".into()],
            env: BTreeMap::from([("MARK".to_owned(), Secret::new(mark.as_str()))]),
            ..McpServerSettings::default()
        };
        let one = async |n: usize| {
            let (mut child, input, _output) =
                start(&"test".into(), "sh", &settings, &ProgramSandbox::default()).await.unwrap();
            match n % 4 {
                0 => drop(child),
                1 => child.end(Duration::from_millis(1)).await,
                2 => {
                    let pid = child.group.unwrap();
                    kill_process(pid, Signal::KILL).unwrap();
                    assert!(child.exited(Duration::from_secs(60)).await.is_some());
                    child.end(Duration::ZERO).await;
                }
                _ => {
                    drop(input);
                    child.end(Duration::from_millis(1)).await;
                }
            }
        };
        stream::iter(0..80).map(one).buffer_unordered(8).for_each(async |()| {}).await;
        let gone = async {
            while running(&mark) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(slack(Duration::from_secs(20)), gone).await.expect("all of them are gone");
    }
}
