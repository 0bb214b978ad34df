//! Many threads add items, one takes them in batches: one wake-up per batch, not per item, and a lock held only for a
//! push.

use std::mem;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Longer than any process runs, and within the range of a clock.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Items that wait for the one consuming thread.
#[derive(Debug)]
pub struct BatchQueue<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
    /// A batch of this size does not wait for more.
    plenty: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The consumer no longer waits for more; late items are still taken.
    Closing,
    /// Items are no longer taken.
    Ended,
}

impl<T> BatchQueue<T> {
    pub fn new(plenty: usize) -> Self {
        let waiting = Waiting { items: Vec::new(), state: State::Open };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new(), plenty: plenty.max(1) }
    }

    /// Calls `add` with the waiting items; returns `false`, without calling it, once items are no longer taken. `add`
    /// runs under a lock: it must not log.
    #[must_use]
    pub fn put(&self, add: impl FnOnce(&mut Vec<T>)) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.state == State::Ended {
            return false;
        }
        let before = waiting.items.len();
        add(&mut waiting.items);
        let after = waiting.items.len();
        drop(waiting);
        let first = before == 0 && after > 0;
        let enough = before < self.plenty && after >= self.plenty;
        if first || enough {
            self.changed.notify_one();
        }
        true
    }

    /// Waits for the first item, then up to `gather` for more, and moves all into `taken` (empty, and kept by the
    /// caller to reuse its memory). `false` once closed and empty.
    pub fn take(&self, gather: Duration, taken: &mut Vec<T>) -> bool {
        self.take_within(FOREVER, gather, taken)
    }

    /// As [`take`](Self::take), but waits at most this long for the first item; then `taken` may be empty.
    pub fn take_within(&self, wait: Duration, gather: Duration, taken: &mut Vec<T>) -> bool {
        let mut waiting = self.waiting.lock();
        let empty = |waiting: &mut Waiting<T>| waiting.items.is_empty() && waiting.state == State::Open;
        self.changed.wait_while_for(&mut waiting, empty, wait);
        if !gather.is_zero() && !waiting.items.is_empty() {
            let fewer = |waiting: &mut Waiting<T>| waiting.items.len() < self.plenty && waiting.state == State::Open;
            self.changed.wait_while_for(&mut waiting, fewer, gather);
        }
        mem::swap(&mut waiting.items, taken);
        !taken.is_empty() || waiting.state == State::Open
    }

    /// Further takes do not wait. Late items can still be taken.
    pub fn close(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.state == State::Open {
            waiting.state = State::Closing;
        }
        drop(waiting);
        self.changed.notify_all();
    }

    pub fn is_closing(&self) -> bool {
        self.waiting.lock().state != State::Open
    }

    /// Items are no longer taken. Returns those added since the last take.
    pub fn end(&self) -> Vec<T> {
        let mut waiting = self.waiting.lock();
        waiting.state = State::Ended;
        mem::take(&mut waiting.items)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_many_put_in_comes_out_once_and_in_each_ones_order() {
        let batch = Arc::new(BatchQueue::new(64));
        let givers: Vec<_> = (0..4_u32)
            .map(|giver| {
                let batch = Arc::clone(&batch);
                thread::spawn(move || (0..1_000).for_each(|n| assert!(batch.put(|items| items.push((giver, n))))))
            })
            .collect();
        let taker = {
            let batch = Arc::clone(&batch);
            thread::spawn(move || {
                let (mut all, mut taken) = (Vec::new(), Vec::new());
                while batch.take(Duration::from_millis(1), &mut taken) {
                    all.append(&mut taken);
                }
                all
            })
        };
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        batch.close();
        let all = taker.join().unwrap();
        for giver in 0..4 {
            let of_one: Vec<_> = all.iter().filter(|(by, _)| *by == giver).map(|(_, n)| *n).collect();
            assert_eq!(of_one, (0..1_000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn plenty_does_not_wait_for_more() {
        let batch = BatchQueue::new(2);
        assert!(batch.put(|items| items.extend([1, 2])));
        let mut taken = Vec::new();
        assert!(batch.take(LONG, &mut taken));
        assert_eq!(taken, [1, 2]);
    }

    #[test]
    fn a_limited_wait_ends_without_items() {
        let batch = BatchQueue::new(100);
        let mut taken = Vec::new();
        assert!(batch.take_within(Duration::from_millis(1), LONG, &mut taken));
        assert!(taken.is_empty());
        assert!(batch.put(|items| items.push(1)));
        assert!(batch.take_within(LONG, Duration::ZERO, &mut taken));
        assert_eq!(taken, [1]);
    }

    #[test]
    fn closing_ends_the_wait_and_loses_nothing() {
        let batch = BatchQueue::new(100);
        assert!(batch.put(|items| items.push(1)));
        batch.close();
        let mut taken = Vec::new();
        assert!(batch.take(LONG, &mut taken));
        assert_eq!(taken, [1]);
        taken.clear();
        assert!(!batch.take(LONG, &mut taken));
        assert!(batch.put(|items| items.push(2)), "closing still takes what comes late");
        assert_eq!(batch.end(), [2]);
        batch.close();
        assert!(!batch.put(|items| items.push(3)), "an end is an end");
    }
}
