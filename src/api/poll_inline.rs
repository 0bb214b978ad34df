//! Polls a future again at once if it wakes itself while it is polled.
//!
//! hyper does so with every request that has a body: reading the body wakes the connection's task, in which the
//! handler runs. tokio would put the task at the end of its queue and wake another thread, which takes longer than
//! all the checks of a call.
//!
//! Figure: context switches of a call 3.2 → 2.2, the gateway's processor time 215 → 177 µs with eight callers (one MCP
//! tool over REST); no difference under full load of cheap calls. Bench: `scripts/bench-mcp`. Remove when it shows no
//! difference, as when hyper no longer wakes the task that it runs in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Consecutive polls; then other tasks run first.
const MAX_INLINE_POLLS: usize = 4;

/// A poll is running.
const POLLED: u8 = 1;
/// Woken since the poll began.
const WOKEN: u8 = 2;

#[derive(Debug)]
pub(super) struct PollInline<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Wakes {
    state: AtomicU8,
    task: AtomicWaker,
}

impl<F: Future> PollInline<F> {
    pub(super) fn new(future: F) -> Self {
        let wakes = Arc::<Wakes>::default();
        Self { future: Box::pin(future), waker: Waker::from(Arc::clone(&wakes)), wakes }
    }
}

impl<F: Future> Future for PollInline<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, wakes, waker } = &mut *self;
        wakes.task.register(context.waker());
        for _ in 0..MAX_INLINE_POLLS {
            // Each state change sees the writes that preceded a wake.
            wakes.state.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if wakes.state.compare_exchange(POLLED, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        wakes.state.swap(0, Ordering::AcqRel);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & POLLED == 0 {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The result of the first poll of a future that wakes itself that often, how often it was polled until then, and
    /// whether its task was woken.
    fn polled(wakes_itself: usize) -> (bool, usize, usize) {
        let mut polls = 0;
        let counter = Arc::<Counter>::default();
        let waker = Waker::from(Arc::clone(&counter));
        let mut future = PollInline::new(poll_fn(|context| {
            polls += 1;
            if polls > wakes_itself {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        let is_ready = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready();
        drop(future);
        (is_ready, polls, counter.0.load(Ordering::SeqCst))
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_at_once_up_to_a_limit() {
        assert_eq!(polled(0), (true, 1, 0));
        assert_eq!(polled(MAX_INLINE_POLLS - 1), (true, MAX_INLINE_POLLS, 0));
        assert_eq!(polled(MAX_INLINE_POLLS), (false, MAX_INLINE_POLLS, 1), "it is polled again later");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_from_another_task_is_lost() {
        for _ in 0..2_000 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let waiting = tokio::spawn(PollInline::new(async move {
                tokio::task::yield_now().await;
                receiver.await
            }));
            tokio::spawn(async move { sender.send(()) });
            let received = tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await;
            received.expect("it is woken").unwrap().unwrap();
        }
    }
}
