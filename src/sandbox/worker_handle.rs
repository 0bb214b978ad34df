//! One worker process, as the gateway sees it: a socket, the jobs under way on it, and its exit.
//!
//! A worker that exits fails only its own jobs; the pool replaces it. A job's capacity is freed when the worker
//! reports its end, or exits itself: a cancelled job holds its memory until it has really stopped.

mod questions;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::ChildStderr;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, interval, timeout};

use self::questions::Questions;
use super::admission::Ticket;
use super::code_mode::{RunIsToEnd, ToolHost, answer_all};
use super::protocol::{
    End, Frames, FromWorker, Job, JobId, MAX_OPEN_REQUESTS, Outcome, SessionId, SessionReply, SessionRequest, ToWorker,
    ToolRequest, encode,
};
use crate::core::call::SentFlag;
use crate::core::error::{CallError, ErrorCode};
use crate::core::share::Lease;

/// The command line of a worker.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) file: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

/// A worker that is ready for jobs. [`stop`](Self::stop), or dropping the last handle, ends its process.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    jobs: Arc<Jobs>,
    outgoing: mpsc::UnboundedSender<ToWorker>,
    next_id: AtomicU64,
    /// Sessions that it has.
    sessions: AtomicUsize,
    /// What it is asked about them.
    questions: Arc<Questions>,
    /// Number of the last job it was chosen for, counted over all workers.
    pub(super) last_chosen: AtomicU64,
    /// Protections that this kernel does not support.
    pub(super) missing_protections: Vec<String>,
    stop: Arc<Notify>,
    /// Closed once the process has exited.
    gone: watch::Receiver<()>,
}

/// Why a worker did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerStartError {
    pub(super) reason: String,
    /// By the system, as when a machine runs out of memory: the next start may succeed.
    pub(super) was_killed: bool,
}

/// The jobs under way; `None` once the worker has exited.
#[derive(Debug)]
struct Jobs {
    under_way: Mutex<Option<HashMap<JobId, JobUnderWay>>>,
    /// Whether the kernel ended the worker because memory was short.
    out_of_memory: AtomicBool,
}

/// The gateway's record of a job until the worker reports its end.
#[derive(Debug)]
struct JobUnderWay {
    answer: oneshot::Sender<Outcome>,
    cancelled: Option<Instant>,
    ticket: Ticket,
    /// Of its linear memory.
    max_memory_bytes: u64,
    /// It has slept, and waits for its memory.
    waking: mpsc::UnboundedSender<()>,
    /// What its program asks of tools.
    asking: mpsc::Sender<ToolRequest>,
}

/// Cancels the job unless it has been answered.
struct UnderWay<'a> {
    worker: &'a WorkerHandle,
    id: JobId,
}

/// A worker maps its interpreter in a fraction of a second, or a few seconds on a loaded machine; one that takes this
/// long is stuck.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for a process to exit after it has closed its socket.
const GONE_TIMEOUT: Duration = Duration::from_secs(1);

/// A cancelled job stops within milliseconds. A worker that does not confirm within this time is stuck, and only
/// ending it frees the job's capacity.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a worker's standard error that are logged: enough for a panic's message.
const MAX_LOGGED_BYTES: u64 = 16 << 10;

impl WorkerHandle {
    /// Starts a worker, sends it what to load, and waits until it is ready. `load` is the frame of a
    /// [`ToWorker::Load`], encoded once for all workers.
    ///
    /// # Errors
    /// Why it could not be started, for the log.
    pub(super) async fn start(program: &Program, load: &[u8]) -> Result<Arc<Self>, WorkerStartError> {
        let (stream, mut child) =
            spawn(program).map_err(|error| WorkerStartError::broken(format!("{}: {error}", program.file.display())))?;
        let (incoming, mut sending) = stream.into_split();
        let mut incoming = Frames::new(incoming);
        let greeting = timeout(READY_TIMEOUT, async {
            sending.write_all(load).await?;
            next(&mut incoming).await
        });
        let missing_protections = match greeting.await {
            Ok(Ok(FromWorker::Ready { missing_protections })) => missing_protections,
            Ok(Ok(_)) => {
                return Err(WorkerStartError::broken("the worker sent a message before it was ready"));
            }
            Ok(Err(error)) => return Err(WorkerStartError::ended(&mut child, &error).await),
            Err(_) => {
                let limit = READY_TIMEOUT.as_secs();
                return Err(WorkerStartError::broken(format!("the worker was not ready within {limit} s")));
            }
        };
        let (jobs, questions) = (Arc::new(Jobs::new()), Arc::new(Questions::default()));
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (alive, gone) = watch::channel(());
        let stop = Arc::new(Notify::new());
        let worker = Self {
            jobs: Arc::clone(&jobs),
            outgoing,
            next_id: AtomicU64::new(1),
            sessions: AtomicUsize::new(0),
            questions: Arc::clone(&questions),
            last_chosen: AtomicU64::new(0),
            missing_protections,
            stop: Arc::clone(&stop),
            gone,
        };
        let kills = out_of_memory_kills();
        tokio::spawn(async move {
            let end = tokio::select! {
                end = converse(incoming, sending, queue, (&jobs, &questions)) => end,
                () = stop.notified() => Ok(()),
            };
            if end.is_err() && out_of_memory_kills() > kills && was_killed(&mut child).await {
                jobs.out_of_memory.store(true, Ordering::Release);
            }
            // Before its jobs fail, so that no run of it is left when their capacity is reused.
            if let Err(error) = child.kill().await {
                tracing::error!(%error, "a sandbox worker could not be ended");
            }
            questions.close();
            let unanswered = jobs.under_way.lock().take().map_or(0, |jobs| jobs.len());
            if let Err(error) = end {
                tracing::warn!(%error, unanswered, "a sandbox worker exited; its calls fail");
            }
            drop(alive);
        });
        Ok(Arc::new(worker))
    }

    /// Runs one job with its reserved capacity, and sets `sent` when the job is handed over. `tools` answers its program. Dropping
    /// the future cancels the job, and the calls that its program has made.
    ///
    /// # Errors
    /// `cancelled` when an answer ends the run, `sandbox_memory` when the system runs out of memory and ends the worker
    /// during the job, `sandbox_trap` when it exits otherwise.
    pub(super) async fn run(
        &self,
        mut job: Job,
        ticket: Ticket,
        sent: &SentFlag,
        tools: Option<&dyn ToolHost>,
    ) -> Result<Outcome, CallError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        job.id = id;
        let (answer, answered) = oneshot::channel();
        let (waking, awake) = mpsc::unbounded_channel();
        let (asking, asked) = mpsc::channel(MAX_OPEN_REQUESTS);
        let max_memory_bytes = job.limits.memory_bytes;
        let begun = JobUnderWay { answer, cancelled: None, ticket, max_memory_bytes, waking, asking };
        match self.jobs.under_way.lock().as_mut() {
            Some(jobs) => drop(jobs.insert(id, begun)),
            None => return Err(self.jobs.failure()),
        }
        let under_way = UnderWay { worker: self, id };
        if self.outgoing.send(ToWorker::Run(Box::new(job))).is_err() {
            return Err(self.jobs.failure());
        }
        sent.set();
        let outcome = tokio::select! {
            outcome = answered => outcome.map_err(|_| self.jobs.failure()),
            never = self.wake_when_asked(id, awake) => never,
            RunIsToEnd = self.answer_questions(id, asked, tools) => {
                Err(CallError::new(ErrorCode::Cancelled, "the run of the program was ended"))
            }
        };
        drop(under_way);
        outcome
    }

    /// Lets a job go on after each sleep, when there is memory for it. Without memory it sleeps until its time is over.
    async fn wake_when_asked(&self, id: JobId, mut awake: mpsc::UnboundedReceiver<()>) -> ! {
        while let Some(()) = awake.recv().await {
            if let Some(missing) = self.jobs.missing_memory(id) {
                let Some(memory) = missing.await else { continue };
                self.jobs.wake(id, memory);
            }
            // Fails only when the worker has exited, and the job with it.
            let _ = self.outgoing.send(ToWorker::Continue(id));
        }
        std::future::pending().await
    }

    /// Has the questions of a program answered, if it has tools, until an answer ends its run.
    async fn answer_questions(
        &self,
        id: JobId,
        asked: mpsc::Receiver<ToolRequest>,
        tools: Option<&dyn ToolHost>,
    ) -> RunIsToEnd {
        if let Some(tools) = tools {
            // Fails only when the worker has exited, and the job with it.
            let send = |reply| {
                let _ = self.outgoing.send(ToWorker::Answer(id, Box::new(reply)));
            };
            if let Err(RunIsToEnd) = answer_all(asked, tools, send).await {
                return RunIsToEnd;
            }
        }
        std::future::pending().await
    }

    /// Counts a session that it will have.
    pub(super) fn begin_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a session that was counted, if it has it.
    pub(super) fn end_session(&self, id: SessionId) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        // Fails only when the worker has exited, and the session with it.
        let _ = self.outgoing.send(ToWorker::EndSession(id));
    }

    /// Asks the worker about a session between its calls. Fails with `None` when it exits before it has answered.
    pub(super) async fn ask(&self, request: SessionRequest) -> Option<SessionReply> {
        let (id, answer) = self.questions.add()?;
        self.outgoing.send(ToWorker::Session(id, Box::new(request))).ok()?;
        answer.await.ok()
    }

    /// Whether it has neither jobs nor sessions.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight().unwrap_or_default() == 0 && self.sessions.load(Ordering::Relaxed) == 0
    }

    /// Ends the process. Its jobs fail.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until the process has exited and its jobs have failed.
    pub(super) async fn gone(&self) {
        // No value is ever sent: the closed channel is the event.
        while self.gone.clone().changed().await.is_ok() {}
    }

    /// Jobs under way, including cancelled ones that have not stopped; `None` once it has exited.
    pub(super) fn in_flight(&self) -> Option<usize> {
        self.jobs.under_way.lock().as_ref().map(HashMap::len)
    }
}

impl WorkerStartError {
    fn broken(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), was_killed: false }
    }

    /// Of a worker that closed its socket before it was ready.
    async fn ended(child: &mut Child, error: &std::io::Error) -> Self {
        let was_killed = was_killed(child).await;
        let status = child.try_wait().ok().flatten();
        let how = status.map_or_else(|| error.to_string(), |status| status.to_string());
        Self { reason: format!("the worker ended before it was ready: {how}"), was_killed }
    }
}

impl Jobs {
    fn new() -> Self {
        Self { under_way: Mutex::new(Some(HashMap::new())), out_of_memory: AtomicBool::new(false) }
    }

    /// Of the jobs of a worker that has exited.
    fn failure(&self) -> CallError {
        match self.out_of_memory.load(Ordering::Acquire) {
            true => CallError::new(
                ErrorCode::SandboxMemory,
                "the system ran out of memory while the code ran, and ended its worker; the run's output is lost",
            ),
            false => {
                CallError::new(ErrorCode::SandboxTrap, "the worker that ran the code exited; the run's output is lost")
            }
        }
    }

    fn answer(&self, id: JobId, outcome: Outcome) {
        let over = self.under_way.lock().as_mut().and_then(|jobs| jobs.remove(&id));
        if let Some(over) = over {
            // A disconnected client needs no answer.
            let _ = over.answer.send(outcome);
        }
    }

    /// Of the job's memory, what it does not use is given back while it sleeps.
    fn sleep(&self, id: JobId, memory_bytes: u64) {
        if let Some(job) = self.under_way.lock().as_mut().and_then(|jobs| jobs.get_mut(&id)) {
            job.ticket.sleep(job.max_memory_bytes.saturating_sub(memory_bytes));
        }
    }

    fn wants_to_wake(&self, id: JobId) {
        if let Some(job) = self.under_way.lock().as_ref().and_then(|jobs| jobs.get(&id)) {
            // Nobody waits for a job whose client has disconnected.
            let _ = job.waking.send(());
        }
    }

    /// # Errors
    /// More is asked than a program may have open.
    fn ask(&self, id: JobId, request: ToolRequest) -> std::io::Result<()> {
        let asking = self.under_way.lock().as_ref().and_then(|jobs| Some(jobs.get(&id)?.asking.clone()));
        match asking.map(|asking| asking.try_send(request)) {
            Some(Err(TrySendError::Full(_))) => {
                Err(std::io::Error::other("the worker passes on more requests than a program may have open"))
            }
            // Nobody answers a job whose client has disconnected, or which has no tools.
            _ => Ok(()),
        }
    }

    fn missing_memory(&self, id: JobId) -> Option<impl Future<Output = Option<Lease>> + use<>> {
        self.under_way.lock().as_ref().and_then(|jobs| jobs.get(&id)).and_then(|job| job.ticket.missing_memory())
    }

    fn wake(&self, id: JobId, memory: Lease) {
        if let Some(job) = self.under_way.lock().as_mut().and_then(|jobs| jobs.get_mut(&id)) {
            job.ticket.wake(memory);
        }
    }

    /// Marks the job as cancelled; false when it has ended already.
    fn cancel(&self, id: JobId) -> bool {
        let mut jobs = self.under_way.lock();
        let job = jobs.as_mut().and_then(|jobs| jobs.get_mut(&id));
        job.map(|job| job.cancelled = Some(Instant::now())).is_some()
    }

    /// Whether a job was cancelled long ago and has not stopped.
    fn stuck(&self) -> bool {
        let is_stuck = |job: &JobUnderWay| job.cancelled.is_some_and(|at| at.elapsed() > STOPPED_TIMEOUT);
        self.under_way.lock().as_ref().is_some_and(|jobs| jobs.values().any(is_stuck))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.worker.jobs.cancel(self.id) {
            // Fails only when the worker has exited, and the job with it.
            let _ = self.worker.outgoing.send(ToWorker::Cancel(self.id));
        }
    }
}

/// No environment, no descriptor but its end of the socket, and a process group of its own: a signal from the
/// terminal is the gateway's to handle.
fn spawn(program: &Program) -> std::io::Result<(UnixStream, Child)> {
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

/// Carries frames in both directions until either side closes, or the worker is stuck.
async fn converse(
    mut incoming: Frames<OwnedReadHalf>,
    mut sending: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<ToWorker>,
    (jobs, questions): (&Jobs, &Questions),
) -> std::io::Result<()> {
    let listening = async {
        loop {
            match next(&mut incoming).await? {
                FromWorker::Done(id, outcome) => jobs.answer(id, *outcome),
                FromWorker::Sleeping(id, memory_bytes) => jobs.sleep(id, memory_bytes),
                FromWorker::Waking(id) => jobs.wants_to_wake(id),
                FromWorker::Ask(id, request) => jobs.ask(id, *request)?,
                FromWorker::Session(id, reply) => questions.answer(id, *reply),
                FromWorker::Ready { .. } => return Err(std::io::Error::other("the worker was ready twice")),
            }
        }
    };
    let telling = async {
        while let Some(message) = queue.recv().await {
            match (encode(&message), message) {
                (Ok(frame), _) => sending.write_all(&frame).await?,
                // A job that is too long does not fail the others.
                (Err(_), ToWorker::Run(job)) => {
                    jobs.answer(job.id, Outcome::without_output(End::Output("frame_bytes".to_owned())));
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    };
    let watching = async {
        let mut moments = interval(STOPPED_TIMEOUT / 4);
        while !jobs.stuck() {
            moments.tick().await;
        }
        Err(std::io::Error::other("the worker does not stop a cancelled job"))
    };
    tokio::select! {
        end = listening => end,
        end = telling => end,
        end = watching => end,
    }
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

/// The next message; end of stream is an error, since it means that the worker has exited.
async fn next(incoming: &mut Frames<OwnedReadHalf>) -> std::io::Result<FromWorker> {
    incoming.next().await?.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// Whether a process that has closed its socket was ended by SIGKILL.
async fn was_killed(child: &mut Child) -> bool {
    let status = timeout(GONE_TIMEOUT, child.wait()).await.ok().and_then(Result::ok);
    status.is_some_and(|status| status.signal() == Some(Signal::KILL.as_raw()))
}

/// How many processes the kernel has ended because memory was short, on the whole machine (`/proc/vmstat`).
fn out_of_memory_kills() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let kills = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
    kills.and_then(|kills| kills.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests;
