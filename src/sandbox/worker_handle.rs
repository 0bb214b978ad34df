//! One worker process, as the gateway sees it: a socket, the jobs under way on it, and its exit.
//!
//! A worker that exits fails only its own jobs; the pool replaces it. A job's capacity is freed when the worker
//! reports its end, or exits itself: a cancelled job holds its memory until it has really stopped.

mod jobs;
mod module_images;
mod process;
mod questions;
mod start;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::interval;

pub(crate) use self::module_images::MAX_IMAGE_BYTES;
pub(crate) use self::process::{Program, WorkerStartError, fingerprints, spawn};
pub(crate) use self::start::StartedWorker;

use self::jobs::{JobEvents, Jobs, STOPPED_TIMEOUT};
use self::module_images::GivenImages;
use self::process::{out_of_memory_kills, was_killed};
use self::questions::Questions;
use crate::admission::Ticket;
use crate::code_mode::{RunIsToEnd, ToolHost, answer_all};
use sekisho_core::call::SentFlag;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{
    End, Frames, FromWorker, JobId, ModuleImageId, Outcome, SessionId, SessionReply, SessionRequest, ToWorker,
    ToolRequest, Work, encode,
};

/// A worker that is ready for jobs. [`stop`](Self::stop), or dropping the last handle, ends its process.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    jobs: Arc<Jobs>,
    outgoing: mpsc::UnboundedSender<ToWorker>,
    next_id: AtomicU64,
    /// Sessions that it has.
    sessions: AtomicUsize,
    /// The requests to it about them.
    questions: Arc<Questions>,
    /// Images of modules that it has.
    given_images: Mutex<GivenImages>,
    /// Held by the call that reads an image for it.
    giving_image: tokio::sync::Mutex<()>,
    /// Number of the last job it was chosen for, counted over all workers.
    pub(crate) last_chosen: AtomicU64,
    /// Protections that this kernel does not support.
    pub(crate) missing_protections: Vec<String>,
    stop: Arc<Notify>,
    /// Closed once the process has exited.
    gone: watch::Receiver<()>,
}

/// Cancels the job unless it has been answered.
struct UnderWay<'a> {
    worker: &'a WorkerHandle,
    id: JobId,
}

impl WorkerHandle {
    /// Starts a worker, sends it its load, and waits until it is ready. `load` is the frame of a [`ToWorker::Load`],
    /// encoded once for all workers.
    /// Errors: why it could not be started, for the log.
    pub(crate) async fn start(program: &Program, load: &[u8]) -> Result<Arc<Self>, WorkerStartError> {
        let StartedWorker { mut child, incoming, sending, greeting } = StartedWorker::new(program, load).await?;
        for (component, reason) in &greeting.unloadable {
            tracing::warn!(component, reason, "a worker cannot load a component");
        }
        let (jobs, questions) = (Arc::new(Jobs::new()), Arc::new(Questions::default()));
        #[expect(clippy::disallowed_methods, reason = "jobs and their open calls send, which are bounded")]
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (alive, gone) = watch::channel(());
        let stop = Arc::new(Notify::new());
        let worker = Self {
            jobs: Arc::clone(&jobs),
            outgoing,
            next_id: AtomicU64::new(1),
            sessions: AtomicUsize::new(0),
            questions: Arc::clone(&questions),
            given_images: Mutex::default(),
            giving_image: tokio::sync::Mutex::default(),
            last_chosen: AtomicU64::new(0),
            missing_protections: greeting.missing_protections,
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
                jobs.ran_out_of_memory();
            }
            // Before its jobs fail, so that no run of it is left when their capacity is reused.
            if let Err(error) = child.kill().await {
                tracing::error!(%error, "a sandbox worker could not be ended");
            }
            questions.close();
            let unanswered = jobs.close();
            if let Err(error) = end {
                tracing::warn!(%error, unanswered, "a sandbox worker exited; its calls fail");
            }
            drop(alive);
        });
        Ok(Arc::new(worker))
    }

    /// Runs one job with its reserved capacity, and sets `sent` when the job is handed over. `tools` answers its program. Dropping
    /// the future cancels the job, and the calls that its program has made.
    /// Errors: `cancelled` when an answer ends the run, `sandbox_memory` when the system runs out of memory and ends
    /// the worker during the job, `sandbox_trap` when it exits otherwise.
    pub(crate) async fn run(
        &self,
        work: impl Into<Work>,
        ticket: Ticket,
        sent: &SentFlag,
        tools: Option<&dyn ToolHost>,
    ) -> Result<Outcome, CallError> {
        let work = work.into();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let memory_bytes = work.limits().memory_bytes;
        let JobEvents { answered, awake, asked } = self.jobs.begin(id, ticket, memory_bytes)?;
        let under_way = UnderWay { worker: self, id };
        if self.outgoing.send(work.numbered(id)).is_err() {
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
    async fn wake_when_asked(&self, id: JobId, mut awake: mpsc::Receiver<()>) -> ! {
        while let Some(()) = awake.recv().await {
            if let Some(missing) = self.jobs.missing_memory(id) {
                let Some(memory) = missing.await else { continue };
                self.jobs.wake(id, memory);
            }
            if self.jobs.is_to_continue(id) {
                // Fails only when the worker has exited, and the job with it.
                let _ = self.outgoing.send(ToWorker::Continue(id));
            }
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
    pub(crate) fn begin_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a session that was counted, if it has it.
    pub(crate) fn end_session(&self, id: SessionId) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        // Fails only when the worker has exited, and the session with it.
        let _ = self.outgoing.send(ToWorker::EndSession(id));
    }

    /// Asks the worker about a session between its calls. Fails with `None` when it exits before it has answered.
    pub(crate) async fn ask(&self, request: SessionRequest) -> Option<SessionReply> {
        let (id, answer) = self.questions.add()?;
        self.outgoing.send(ToWorker::Session(id, Box::new(request))).ok()?;
        answer.await.ok()
    }

    /// Whether it has the image of a module, which one more job uses.
    pub(crate) fn has_image(&self, id: ModuleImageId) -> bool {
        self.given_images.lock().use_again(id)
    }

    /// Waits until no other call reads an image for it.
    pub(crate) async fn giving_image(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.giving_image.lock().await
    }

    /// Gives it the parts of an image, in place of those that were used longest ago.
    pub(crate) fn give_image(&self, id: ModuleImageId, profile: &str, parts: Vec<Vec<u8>>) {
        // Held meanwhile: a job that finds the image there comes after its last part.
        let mut given = self.given_images.lock();
        for message in given.add(id, profile, parts) {
            // Fails only when the worker has exited, and its images with it.
            let _ = self.outgoing.send(ToWorker::ModuleImage(Box::new(message)));
        }
    }

    /// Whether it has neither jobs nor sessions.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight().unwrap_or_default() == 0 && self.sessions.load(Ordering::Relaxed) == 0
    }

    /// Ends the process. Its jobs fail.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until the process has exited and its jobs have failed.
    pub(crate) async fn gone(&self) {
        // No value is ever sent: the closed channel is the event.
        while self.gone.clone().changed().await.is_ok() {}
    }

    /// Jobs under way, including cancelled ones that have not stopped; `None` once it has exited.
    pub(crate) fn in_flight(&self) -> Option<usize> {
        self.jobs.in_flight()
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
                FromWorker::Ready(_) | FromWorker::Examined(_) => {
                    return Err(std::io::Error::other("the worker was ready twice, or examined a file"));
                }
            }
        }
    };
    let telling = async {
        while let Some(message) = queue.recv().await {
            if let ToWorker::Continue(id) = message {
                jobs.continues(id);
            }
            match (encode(&message), message) {
                (Ok(frame), _) => sending.write_all(&frame).await?,
                // A job that is too long does not fail the others.
                (Err(_), ToWorker::Run(job)) => jobs.answer(job.id, too_long()),
                (Err(_), ToWorker::Call(call)) => jobs.answer(call.id, too_long()),
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

/// The outcome of a job that does not fit into a frame.
fn too_long() -> Outcome {
    Outcome::without_output(End::Output("frame_bytes".to_owned()))
}

/// The next message; end of stream is an error, since it means that the worker has exited.
async fn next(incoming: &mut Frames<OwnedReadHalf>) -> std::io::Result<FromWorker> {
    incoming.next().await?.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
pub(crate) mod tests;
