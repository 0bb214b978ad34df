//! The process of a worker: its start, its standard error, and the reason of its end.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use sekisho_guest_protocol::EngineFingerprints;

/// The command line of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

/// Why a worker did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerStartError {
    pub(crate) reason: String,
    /// By the system, as when a machine runs out of memory: the next start may succeed.
    pub(crate) was_killed: bool,
}

/// Time for a process to exit after it has closed its socket.
const GONE_TIMEOUT: Duration = Duration::from_secs(1);

/// For the program to start and make its engines, which takes a twentieth of a second.
const TIME_FOR_FINGERPRINTS: Duration = Duration::from_secs(20);

/// Bytes of a worker's standard error that are logged: enough for a panic's message.
const MAX_LOGGED_BYTES: u64 = 16 << 10;

/// Maximum bytes of its standard output and of its standard error, where it reports fingerprints.
const MAX_ANSWER_BYTES: u64 = 16 << 10;

impl WorkerStartError {
    pub(super) fn broken(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), was_killed: false }
    }

    /// The error of a worker that closed its socket before it was ready.
    pub(super) async fn ended(child: &mut Child, error: &std::io::Error) -> Self {
        let was_killed = was_killed(child).await;
        let status = child.try_wait().ok().flatten();
        let how = status.map_or_else(|| error.to_string(), |status| status.to_string());
        Self { reason: format!("the worker ended before it was ready: {how}"), was_killed }
    }
}

/// No environment, no descriptor but its end of the socket, and a process group of its own: a signal from the
/// terminal is the gateway's to handle.
pub(crate) fn spawn(program: &Program) -> std::io::Result<(UnixStream, Child)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut child = Command::new(&program.file)
        .args(&program.arguments)
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(log(stderr));
    }
    Ok((UnixStream::from_std(ours)?, child))
}

/// The fingerprints that the program of workers reports about its engines. Like a worker, it gets no environment and a
/// process group of its own.
/// Errors: it cannot be started, or its reason on standard error.
pub(crate) async fn fingerprints(program: &Program) -> Result<EngineFingerprints, String> {
    let failed = |error: &dyn fmt::Display| format!("{} --fingerprints: {error}", program.file.display());
    let mut command = Command::new(&program.file);
    command.args(&program.arguments).arg("--fingerprints").env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let answer = timeout(TIME_FOR_FINGERPRINTS, answer(command)).await;
    let (status, stdout, stderr) = answer.map_err(|elapsed| failed(&elapsed))?.map_err(|error| failed(&error))?;
    if !status.success() {
        let reason = String::from_utf8_lossy(&stderr);
        return Err(failed(&reason.trim().lines().next_back().unwrap_or("it failed, and says no reason")));
    }
    serde_json::from_slice(&stdout).map_err(|error| failed(&error))
}

/// Runs a command to its end: its status, and the start of its standard output and standard error. A program that
/// writes more gets a broken pipe.
async fn answer(mut command: Command) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(beginning(stdout), beginning(stderr))?;
    Ok((child.wait().await?, stdout, stderr))
}

async fn beginning(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Whether a process that has closed its socket was ended by SIGKILL.
pub(super) async fn was_killed(child: &mut Child) -> bool {
    let status = timeout(GONE_TIMEOUT, child.wait()).await.ok().and_then(Result::ok);
    status.is_some_and(|status| status.signal() == Some(Signal::KILL.as_raw()))
}

/// How many processes the kernel has ended because memory was short, on the whole machine (`/proc/vmstat`).
pub(super) fn out_of_memory_kills() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let kills = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
    kills.and_then(|kills| kills.trim().parse().ok()).unwrap_or_default()
}

/// Logs the start of a worker's standard error, and reads the rest, so that the worker never blocks.
async fn log(mut stderr: ChildStderr) {
    let mut beginning = Vec::new();
    let read = (&mut stderr).take(MAX_LOGGED_BYTES).read_to_end(&mut beginning).await;
    if read.is_ok() && !beginning.is_empty() {
        tracing::warn!(text = %String::from_utf8_lossy(&beginning), "a sandbox worker wrote to its standard error");
    }
    // Ends with the worker.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program { file: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[tokio::test]
    async fn the_fingerprints_are_those_that_the_program_prints() {
        let printed = shell(r#"echo '{"interpreter": "one", "components": "two"}'"#);
        let expected = EngineFingerprints { interpreter: "one".to_owned(), components: "two".to_owned() };
        assert_eq!(fingerprints(&printed).await, Ok(expected));
    }

    #[tokio::test]
    async fn a_program_that_fails_or_never_stops_writing_is_an_error_with_its_reason() {
        let failed = fingerprints(&shell("echo first >&2; echo 'no engine' >&2; exit 1")).await.unwrap_err();
        assert!(failed.ends_with("--fingerprints: no engine"), "{failed}");
        let endless = fingerprints(&shell("yes")).await.unwrap_err();
        assert!(endless.len() < 1_000, "{endless}");
    }
}
