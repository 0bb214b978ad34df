//! The audit trail: one line of JSON for each call, each line holding the hash of the one before it.
//!
//! Room for a call's line is taken before the call runs ([`Audit::reserve`]), so that no line is ever
//! dropped: without room, or with a disk that refuses, the call is refused. A thread of its own owns the
//! chain and does the formatting, hashing and blocking I/O ([`writer`]); handing a line over costs the
//! caller a copy of its fields. Arguments stand in the trail as a digest only.
//!
//! The chain has no key: it shows that a trail was changed, as long as whoever changed it could not write
//! the head (`<file>.head`) as well. Ship head or lines to another machine where that must be excluded.

mod chain;
mod verify;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use self::chain::{Chain, Entry};
use self::writer::{Disk, Writer};
use crate::config::Durability;
use crate::core::error::{CallError, ErrorCode};
use crate::core::record::CallRecord;
use crate::infra::batch_queue::BatchQueue;
use crate::infra::readiness::Readiness;

pub(crate) use self::chain::shortened;
pub use self::verify::{AuditError, Verified, verify};

/// The open trail. Clones share it; the writer stops when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Audit {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle(Arc<Trail>);

/// What callers and the writer share.
#[derive(Debug)]
struct Trail {
    queue: BatchQueue<Entry>,
    durability: Durability,
    /// Lines that may be reserved, waiting or being written at once.
    max_lines: usize,
    lines: AtomicUsize,
    /// The disk refuses, or the trail is closed.
    refusing: AtomicBool,
    stopped: watch::Sender<bool>,
}

/// Room for one line, taken before the call runs. Dropped unwritten, it gives the room back.
#[derive(Debug)]
#[must_use]
pub struct AuditSlot {
    trail: Arc<Trail>,
    written: bool,
}

/// Awaited before answering under `durability: strict`; ready at once otherwise.
#[derive(Debug)]
#[must_use]
pub struct Durable(Option<oneshot::Receiver<()>>);

/// How long a caller is told to stay away when the trail takes no more lines.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Audit {
    /// Makes the trail or goes on with the one there is, once its end fits its head.
    /// At most `max_lines` lines may wait; `readiness` is told while the disk refuses.
    ///
    /// # Errors
    /// The file cannot be used, another process writes it, or it was tampered with.
    pub fn open(
        file: PathBuf,
        durability: Durability,
        max_lines: usize,
        readiness: Arc<Readiness>,
    ) -> Result<Self, AuditError> {
        let (disk, chain) = writer::open(file)?;
        Self::start(disk, chain, durability, max_lines, readiness)
    }

    fn start(
        disk: impl Disk,
        chain: Chain,
        durability: Durability,
        max_lines: usize,
        readiness: Arc<Readiness>,
    ) -> Result<Self, AuditError> {
        let trail = Arc::new(Trail {
            queue: BatchQueue::new(max_lines / 2),
            durability,
            max_lines,
            lines: AtomicUsize::new(0),
            refusing: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
        });
        let ending = Ending(Arc::clone(&trail));
        let writer = Writer::new(disk, chain, Arc::clone(&trail), readiness);
        let write = move || {
            // Kept until the file is closed, also by a panic.
            let _ending = ending;
            writer.run();
        };
        thread::Builder::new().name("audit".into()).spawn(write).map_err(AuditError::Thread)?;
        Ok(Self { handle: Arc::new(Handle(trail)) })
    }

    /// Takes room for one line.
    ///
    /// # Errors
    /// `overloaded` when the queue is full, the disk refuses, or the trail is closed.
    pub fn reserve(&self) -> Result<AuditSlot, CallError> {
        let trail = &self.handle.0;
        if trail.refusing.load(Ordering::Acquire) {
            return Err(overloaded("the audit trail cannot be written, and no tool runs without it"));
        }
        if trail.lines.fetch_add(1, Ordering::AcqRel) >= trail.max_lines {
            trail.lines.fetch_sub(1, Ordering::AcqRel);
            return Err(overloaded("too many lines wait for the audit trail, and no tool runs without one"));
        }
        Ok(AuditSlot { trail: Arc::clone(trail), written: false })
    }

    /// Refuses further calls, writes and syncs what waits, and stops the writer. Calls still under way
    /// have a second to hand in their lines.
    pub async fn close(&self) {
        self.handle.0.close();
        let mut stopped = self.handle.0.stopped.subscribe();
        // Fails only when the sender is gone, and `self` holds it.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

impl AuditSlot {
    /// Hands the line over. Never blocks and never fails; also called from Drop.
    pub fn write(mut self, record: &CallRecord<'_>) -> Durable {
        self.written = true;
        let (acknowledge, durable) = match self.trail.durability {
            Durability::Relaxed => (None, None),
            Durability::Strict => {
                let (acknowledge, durable) = oneshot::channel();
                (Some(acknowledge), Some(durable))
            }
        };
        let entry = Entry::new(record, acknowledge);
        if !self.trail.queue.put(|entries| entries.push(entry)) {
            tracing::error!(call_id = %record.call.id, "a call ended after the audit trail was closed: it has no line");
        }
        Durable(durable)
    }
}

impl Drop for AuditSlot {
    fn drop(&mut self) {
        if !self.written {
            self.trail.give_back(1);
        }
    }
}

impl Durable {
    /// Waits until the line is on the disk, if the trail is strict.
    ///
    /// # Errors
    /// `internal` when the disk refuses: the tool ran, but its line may never be kept.
    pub async fn wait(self) -> Result<(), CallError> {
        match self.0 {
            None => Ok(()),
            Some(durable) => durable.await.map_err(|_| {
                CallError::internal(
                    "the call ran, but its audit line did not reach the disk in time (durability: strict)",
                )
            }),
        }
    }
}

impl Trail {
    fn close(&self) {
        self.queue.close();
        self.refusing.store(true, Ordering::Release);
    }

    /// The disk works again.
    fn accept(&self) {
        self.refusing.store(false, Ordering::Release);
        if self.queue.is_closing() {
            self.refusing.store(true, Ordering::Release);
        }
    }

    fn give_back(&self, lines: usize) {
        self.lines.fetch_sub(lines, Ordering::AcqRel);
    }
}

/// Says that nothing is written any more.
#[derive(Debug)]
struct Ending(Arc<Trail>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.refusing.store(true, Ordering::Release);
        let lines = self.0.queue.end().len();
        if lines > 0 {
            tracing::error!(lines, "calls ended after the audit trail was closed: they have no lines");
        }
        self.0.stopped.send_replace(true);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn overloaded(message: &str) -> CallError {
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}
