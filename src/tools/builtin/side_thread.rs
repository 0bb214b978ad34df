//! Threads for third-party evaluators: they recurse, they compute without a time limit, and some of their
//! inner loops cannot be interrupted.
//!
//! Each run gets its own thread with a large stack, a time limit that the evaluator polls, and one of a few
//! slots: hostile input can hold those slots, never the threads that serve calls.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use sekisho_core::call::Deadline;
use sekisho_core::error::{CallError, ErrorCode};

/// Enough for the deepest syntax tree of 4 KiB of text. Only touched pages take memory.
const STACK_BYTES: usize = 64 << 20;

/// How long past its limit a run may take to stop. After that the caller gets an error.
const GRACE: Duration = Duration::from_secs(1);

/// A bounded set of threads for one evaluator.
#[derive(Debug)]
pub(super) struct SideThreads {
    places: Arc<Semaphore>,
    limit: Duration,
}

/// Signals a run to stop: its time is up, or its caller is gone.
#[derive(Debug)]
pub(super) struct Stop {
    at: Instant,
    caller: Weak<()>,
}

impl SideThreads {
    /// One slot for each core; `limit` is the time limit of one run.
    pub(super) fn new(limit: Duration) -> Self {
        let places = thread::available_parallelism().map_or(2, usize::from);
        Self { places: Arc::new(Semaphore::new(places)), limit }
    }

    /// Runs `work` and waits for it. Dropping the future signals the run to stop.
    /// Errors of `work`; `overloaded` when no slot becomes free in time; `tool_error` when the run does not end
    /// or panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&Stop) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let wait_until = deadline.at_most(self.limit + GRACE).0;
        let place = tokio::time::timeout_at(wait_until, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(overloaded()) };
        let waiting = Arc::new(());
        let stop = Stop { at: Instant::now() + self.limit, caller: Arc::downgrade(&waiting) };
        let (reply, answer) = oneshot::channel();
        let run = move || {
            let _place = place;
            // The caller may be gone.
            let _ = reply.send(work(&stop));
        };
        thread::Builder::new()
            .name("evaluator".into())
            .stack_size(STACK_BYTES)
            .spawn(run)
            .map_err(|error| overloaded().caused_by(error))?;
        let wait_until = deadline.at_most(self.limit + GRACE).0;
        match tokio::time::timeout_at(wait_until, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(CallError::tool("the evaluator failed on this input; rewrite it")),
            Err(_) => Err(CallError::tool("the evaluation did not end in time; simplify it")),
        }
    }
}

impl Stop {
    pub(super) fn requested(&self) -> bool {
        self.caller.strong_count() == 0 || self.time_is_up()
    }

    pub(super) fn time_is_up(&self) -> bool {
        Instant::now() >= self.at
    }
}

fn overloaded() -> CallError {
    CallError::new(ErrorCode::Overloaded, "too many long evaluations are running; try again shortly")
        .retry_after(Duration::from_secs(1))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A stop signal that is not set while the caller waits.
    pub(in super::super) fn never() -> (Arc<()>, Stop) {
        let caller = Arc::new(());
        let stop = Stop { at: Instant::now() + Duration::from_secs(3600), caller: Arc::downgrade(&caller) };
        (caller, stop)
    }

    fn threads(places: usize) -> SideThreads {
        SideThreads { places: Arc::new(Semaphore::new(places)), limit: Duration::from_millis(20) }
    }

    #[tokio::test]
    async fn a_run_that_ends_in_time_answers() {
        let answer = threads(1).run(Deadline::after(Duration::from_secs(5)), |_| Ok(7)).await;
        assert_eq!(answer.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_run_is_signalled_when_its_time_is_up() {
        let work = |stop: &Stop| {
            while !stop.requested() {
                thread::yield_now();
            }
            Ok(stop.time_is_up())
        };
        assert!(threads(1).run(Deadline::after(Duration::from_secs(5)), work).await.unwrap());
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_gives_the_place_back() {
        let threads = threads(1);
        for _ in 0..3 {
            // A panic in a test prints its stack, which takes seconds on a loaded machine.
            let deadline = Deadline::after(Duration::from_secs(60));
            let broken = threads.run::<()>(deadline, |_| panic!("as a library might")).await.unwrap_err();
            assert_eq!(broken.code(), ErrorCode::ToolError);
        }
    }

    #[tokio::test]
    async fn an_abandoned_run_is_stopped_and_holds_its_slot_until_then() {
        let threads = SideThreads { limit: Duration::from_secs(3600), ..threads(1) };
        let (ended, end) = oneshot::channel();
        let work = move |stop: &Stop| {
            while !stop.requested() {
                thread::yield_now();
            }
            let _ = ended.send(stop.time_is_up());
            Ok(())
        };
        let hung_up = tokio::time::timeout(
            Duration::from_millis(10),
            threads.run(Deadline::after(Duration::from_secs(60)), work),
        );
        assert!(hung_up.await.is_err());
        assert!(!end.await.unwrap(), "stopped because the caller left, not by the clock");
    }

    #[tokio::test]
    async fn a_stuck_run_is_answered_for_and_the_next_call_is_refused() {
        let threads = SideThreads { limit: Duration::ZERO, ..threads(1) };
        let (release, held) = std::sync::mpsc::channel::<()>();
        let soon = || Deadline::after(Duration::from_millis(20));
        let stuck = threads.run(soon(), move |_| {
            let _ = held.recv();
            Ok(())
        });
        assert_eq!(stuck.await.unwrap_err().message(), "the evaluation did not end in time; simplify it");
        let refused = threads.run(soon(), |_| Ok(())).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Overloaded);
        drop(release);
        threads.run(Deadline::after(Duration::from_secs(5)), |_| Ok(())).await.unwrap();
    }
}
