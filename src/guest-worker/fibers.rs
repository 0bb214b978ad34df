use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::guest::Ended;
use crate::host_call::ToolLink;
use sekisho_guest_protocol::{JobId, ToolReply};

pub(super) type Run = Pin<Box<dyn Future<Output = Ended>>>;

/// The programs under way. They take turns: the one that has waited longest runs for a slice.
#[derive(Default)]
pub(super) struct Fibers {
    waiting: FuturesUnordered<Fiber>,
    under_way: HashMap<JobId, Rc<RefCell<Slot>>>,
}

/// Shared by the queue and by the canceller.
struct Slot {
    /// `None` once it was cancelled.
    run: Option<Run>,
    waker: Option<Waker>,
    link: ToolLink,
}

/// Completes with the run's end, or with `None` when it was cancelled.
struct Fiber {
    id: JobId,
    slot: Rc<RefCell<Slot>>,
}

impl Fibers {
    pub(super) fn add(&mut self, id: JobId, run: Run, link: ToolLink) {
        let slot = Rc::new(RefCell::new(Slot { run: Some(run), waker: None, link }));
        self.under_way.insert(id, Rc::clone(&slot));
        self.waiting.push(Fiber { id, slot });
    }

    /// Ends a run at once: it is dropped when this returns. False when it has ended already.
    pub(super) fn cancel(&mut self, id: JobId) -> bool {
        let Some(slot) = self.under_way.remove(&id) else { return false };
        let (run, waker) = {
            let mut slot = slot.borrow_mut();
            (slot.run.take(), slot.waker.take())
        };
        drop(run);
        // Frees its place in the queue.
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Lets a run go on that has slept.
    pub(super) fn wake(&self, id: JobId) {
        if let Some(slot) = self.under_way.get(&id) {
            slot.borrow().link.sleeper.may_continue.notify_one();
        }
    }

    /// Gives a run the answer to its request.
    pub(super) fn deliver(&self, id: JobId, reply: ToolReply) {
        if let Some(slot) = self.under_way.get(&id) {
            slot.borrow().link.inbox.deliver(reply);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Runs programs until one ends. `None` when there are none.
    pub(super) async fn next(&mut self) -> Option<(JobId, Ended)> {
        while let Some((id, ended)) = self.waiting.next().await {
            if let Some(ended) = ended {
                self.under_way.remove(&id);
                return Some((id, ended));
            }
        }
        None
    }
}

impl Future for Fiber {
    type Output = (JobId, Option<Ended>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.slot.borrow_mut();
        let Some(run) = &mut slot.run else { return Poll::Ready((self.id, None)) };
        match run.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready((self.id, Some(ended))),
            Poll::Pending => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
