//! The lines of the trail, for the index of calls and events: a bounded queue, from which one writer takes batches. The trail is the
//! proof: entries that find the queue full are dropped and counted, and the index is rebuilt from the trail.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::event::AuditEvent;
use sekisho_core::record::CallSummary;

/// Maximum entries that wait.
const MAX_WAITING: usize = 10_000;

/// So many are taken at once.
const MANY: usize = 512;

/// An entry for the index.
#[derive(Debug)]
pub enum Indexed {
    /// So many calls, which were refused alike; mostly one.
    Call {
        call: Arc<CallSummary>,
        calls: u64,
    },
    Event(Box<AuditEvent>),
}

/// The entries that wait for the index.
#[derive(Debug, Default)]
pub struct IndexQueue {
    waiting: Mutex<Waiting>,
    filled: Notify,
    many: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: Vec<Indexed>,
    dropped: u64,
    /// Whether there is an index.
    is_taken: bool,
}

impl IndexQueue {
    /// Takes entries from now on.
    pub fn open(&self) {
        self.waiting.lock().is_taken = true;
    }

    pub(super) fn put(&self, entry: impl FnOnce() -> Indexed) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_taken {
            return;
        }
        if waiting.entries.len() >= MAX_WAITING {
            waiting.dropped += 1;
            return;
        }
        waiting.entries.push(entry());
        let waiting_now = waiting.entries.len();
        drop(waiting);
        // Once for each batch.
        if waiting_now == 1 {
            self.filled.notify_one();
        } else if waiting_now == MANY {
            self.many.notify_one();
        }
    }

    /// Waits for the first entry after those that were taken.
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Waits until so many entries wait that they should be taken.
    pub async fn many(&self) {
        self.many.notified().await;
    }

    /// The entries that wait, and the number of entries that were dropped since the last time.
    pub fn take(&self) -> (Vec<Indexed>, u64) {
        // Whoever puts an entry allocates nothing until this many wait.
        let room = Vec::with_capacity(MANY);
        let mut waiting = self.waiting.lock();
        (mem::replace(&mut waiting.entries, room), mem::take(&mut waiting.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    fn event() -> Indexed {
        Indexed::Event(Box::new(AuditEvent::new(EventKind::KeyCreated)))
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts() {
        let queue = IndexQueue::default();
        queue.put(event);
        assert_eq!(queue.take().0.len(), 0, "nobody takes them");
        queue.open();
        (0..MAX_WAITING + 3).for_each(|_| queue.put(event));
        queue.filled().await;
        let (entries, dropped) = queue.take();
        assert_eq!((entries.len(), dropped), (MAX_WAITING, 3));
        queue.put(event);
        queue.filled().await;
        assert_eq!((queue.take().0.len(), queue.take().1), (1, 0));
    }
}
