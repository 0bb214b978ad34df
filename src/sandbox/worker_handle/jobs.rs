//! The jobs under way at one worker, until it reports their ends or exits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::admission::Ticket;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::Lease;
use sekisho_guest_protocol::{JobId, MAX_OPEN_REQUESTS, Outcome, ToolRequest};

/// The jobs under way; `None` once the worker has exited.
#[derive(Debug)]
pub(super) struct Jobs {
    under_way: Mutex<Option<HashMap<JobId, JobUnderWay>>>,
    /// Whether the kernel ended the worker because memory was short.
    out_of_memory: AtomicBool,
}

/// The worker's messages about a job.
#[derive(Debug)]
pub(super) struct JobEvents {
    pub(super) answered: oneshot::Receiver<Outcome>,
    /// It has slept, and waits for its memory. At most one: a worker says it again only after it was let go on.
    pub(super) awake: mpsc::Receiver<()>,
    /// The requests of its program to tools.
    pub(super) asked: mpsc::Receiver<ToolRequest>,
}

/// The gateway's record of a job until the worker reports its end.
#[derive(Debug)]
struct JobUnderWay {
    answer: oneshot::Sender<Outcome>,
    cancelled: Option<Instant>,
    ticket: Ticket,
    /// Maximum bytes of its linear memory.
    max_memory_bytes: u64,
    /// It has slept, and waits for its memory.
    waking: mpsc::Sender<()>,
    /// Whether the message that lets it go on is in the worker's queue.
    continues: bool,
    /// The requests of its program to tools.
    asking: mpsc::Sender<ToolRequest>,
}

/// A cancelled job stops within milliseconds. A worker that does not confirm within this time is stuck, and only
/// ending it frees the job's capacity.
pub(super) const STOPPED_TIMEOUT: Duration = Duration::from_secs(2);

impl Jobs {
    pub(super) fn new() -> Self {
        Self { under_way: Mutex::new(Some(HashMap::new())), out_of_memory: AtomicBool::new(false) }
    }

    /// A job begins, with its reserved capacity.
    /// Errors: the worker has exited.
    pub(super) fn begin(&self, id: JobId, ticket: Ticket, max_memory_bytes: u64) -> Result<JobEvents, CallError> {
        let (answer, answered) = oneshot::channel();
        let (waking, awake) = mpsc::channel(1);
        let (asking, asked) = mpsc::channel(MAX_OPEN_REQUESTS);
        let begun = JobUnderWay { answer, cancelled: None, ticket, max_memory_bytes, waking, continues: false, asking };
        match self.under_way.lock().as_mut() {
            Some(jobs) => drop(jobs.insert(id, begun)),
            None => return Err(self.failure()),
        }
        Ok(JobEvents { answered, awake, asked })
    }

    /// The number of jobs; `None` once the worker has exited.
    pub(super) fn in_flight(&self) -> Option<usize> {
        self.under_way.lock().as_ref().map(HashMap::len)
    }

    /// The kernel has ended the worker because memory was short.
    pub(super) fn ran_out_of_memory(&self) {
        self.out_of_memory.store(true, Ordering::Release);
    }

    /// The worker has exited: its jobs fail, and so do later ones. The number of those that had no answer.
    pub(super) fn close(&self) -> usize {
        self.under_way.lock().take().map_or(0, |jobs| jobs.len())
    }

    /// The error of the jobs of a worker that has exited.
    pub(super) fn failure(&self) -> CallError {
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

    pub(super) fn answer(&self, id: JobId, outcome: Outcome) {
        let over = self.under_way.lock().as_mut().and_then(|jobs| jobs.remove(&id));
        if let Some(over) = over {
            // A disconnected client needs no answer.
            let _ = over.answer.send(outcome);
        }
    }

    /// The part of the job's memory that it does not use is given back while it sleeps.
    pub(super) fn sleep(&self, id: JobId, memory_bytes: u64) {
        if let Some(job) = self.under_way.lock().as_mut().and_then(|jobs| jobs.get_mut(&id)) {
            job.ticket.sleep(job.max_memory_bytes.saturating_sub(memory_bytes));
        }
    }

    pub(super) fn wants_to_wake(&self, id: JobId) {
        if let Some(job) = self.under_way.lock().as_ref().and_then(|jobs| jobs.get(&id)) {
            // Fails when the worker has said so already, and when the job's client has disconnected: nobody waits for it then.
            let _ = job.waking.try_send(());
        }
    }

    /// Whether the worker is to be sent that a job goes on: not while the message before it is in its queue. So a worker that
    /// does not read, and says again and again that a job wants to wake, has one message for each job at most.
    pub(super) fn is_to_continue(&self, id: JobId) -> bool {
        let mut jobs = self.under_way.lock();
        let job = jobs.as_mut().and_then(|jobs| jobs.get_mut(&id));
        job.is_some_and(|job| !std::mem::replace(&mut job.continues, true))
    }

    /// The message that lets a job go on has left the queue.
    pub(super) fn continues(&self, id: JobId) {
        if let Some(job) = self.under_way.lock().as_mut().and_then(|jobs| jobs.get_mut(&id)) {
            job.continues = false;
        }
    }

    /// Errors: more is asked than a program may have open.
    pub(super) fn ask(&self, id: JobId, request: ToolRequest) -> std::io::Result<()> {
        let asking = self.under_way.lock().as_ref().and_then(|jobs| Some(jobs.get(&id)?.asking.clone()));
        match asking.map(|asking| asking.try_send(request)) {
            Some(Err(TrySendError::Full(_))) => {
                Err(std::io::Error::other("the worker passes on more requests than a program may have open"))
            }
            // Nobody answers a job whose client has disconnected, or which has no tools.
            _ => Ok(()),
        }
    }

    pub(super) fn missing_memory(&self, id: JobId) -> Option<impl Future<Output = Option<Lease>> + use<>> {
        self.under_way.lock().as_ref().and_then(|jobs| jobs.get(&id)).and_then(|job| job.ticket.missing_memory())
    }

    pub(super) fn wake(&self, id: JobId, memory: Lease) {
        if let Some(job) = self.under_way.lock().as_mut().and_then(|jobs| jobs.get_mut(&id)) {
            job.ticket.wake(memory);
        }
    }

    /// Marks the job as cancelled; false when it has ended already.
    pub(super) fn cancel(&self, id: JobId) -> bool {
        let mut jobs = self.under_way.lock();
        let job = jobs.as_mut().and_then(|jobs| jobs.get_mut(&id));
        job.map(|job| job.cancelled = Some(Instant::now())).is_some()
    }

    /// Whether a job was cancelled long ago and has not stopped.
    pub(super) fn stuck(&self) -> bool {
        let is_stuck = |job: &JobUnderWay| job.cancelled.is_some_and(|at| at.elapsed() > STOPPED_TIMEOUT);
        self.under_way.lock().as_ref().is_some_and(|jobs| jobs.values().any(is_stuck))
    }
}
