//! The audit trail: one line of JSON for each call, each line containing the hash of the previous one.
//!
//! Space for a call's line is reserved before the call runs ([`Audit::reserve`]), so that no line is ever dropped:
//! with a full queue, or a disk that fails, the call is refused. A separate thread owns the chain and does the
//! formatting, hashing and blocking I/O ([`writer`]); the caller only hands over the summary of the call. The trail contains only a
//! digest of the arguments.
//!
//! The trail is a row of segments, each of which begins with the hash of the last line of the previous one.
//!
//! The chain has no key: it detects changes as long as the author of a change could not also write the head
//! (`<file>.head`). Ship the head or the lines to another machine to exclude that. Beside the chain, the writer signs each segment
//! as a Merkle tree ([`receipts`]), so that one line can be shown to somebody who has only the public key.

pub mod backup;
mod chain;
mod copy;
mod disk;
mod entry;
mod error;
mod event;
#[cfg(any(test, feature = "test-support"))]
pub mod faulty_disk;
mod index_lines;
mod index_queue;
mod lines;
mod mark;
mod newest;
mod open;
mod receipts;
mod retention;
mod search;
mod segments;
mod stored;
mod upload;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};

use self::disk::Disk;
use self::entry::{Entry, Item, Repeated};
use self::open::Opened;
use self::writer::Writer;
use sekisho_config::{AuditConfig, Durability};
use sekisho_core::call::CallId;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, KeptArguments};
use sekisho_observe::batch_queue::BatchQueue;
use sekisho_observe::readiness::Readiness;

pub use self::copy::{CopiedFile, copy, exists};
pub use self::error::AuditError;
pub use self::event::{AuditEvent, EventKind};
pub use self::index_lines::{LineRecord, record_of_line};
pub use self::index_queue::{IndexQueue, Indexed};
pub use self::newest::{HistoryFilter, HistoryPage, LineArguments, PastCall, newest};
pub use self::receipts::{
    InvalidReceipt, NoReceipt, ReceiptVerifier, VerifiedReceipt, VerifierKey, public_keys, receipt_of_call,
    receipt_of_line, receipts_in, rotate_key,
};
pub use self::search::{FoundLine, LineFilter, search};
pub use self::stored::{StoredTrail, verify_stored};
pub use self::upload::SegmentUploads;
pub use self::verify::{Verified, verify};

/// The open trail. Clones share it; the writer stops when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Audit {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle(Arc<Trail>);

/// State shared by callers and the writer.
#[derive(Debug)]
struct Trail {
    queue: BatchQueue<Item>,
    durability: Durability,
    /// Lines that may be reserved, waiting or being written at once.
    max_lines: usize,
    lines: AtomicUsize,
    /// The disk fails, or the trail is closed.
    refusing: AtomicBool,
    /// The writer is to close the segment.
    new_segment: AtomicBool,
    /// Closed segments up to this line may be removed: the storage has them, or none is to have them.
    removable_through: AtomicU64,
    /// Its lines, for the index.
    index: Arc<IndexQueue>,
    stopped: watch::Sender<bool>,
}

/// Space for one line, reserved before the call runs and freed on drop.
#[derive(Debug)]
#[must_use]
pub struct AuditSlot {
    trail: Arc<Trail>,
    written: bool,
    /// The input of the policies about the call, where the lines have it.
    policy_input: Option<Box<RawValue>>,
}

/// One line for calls that are refused alike.
#[derive(Debug)]
#[must_use]
pub struct RepeatedLine {
    slot: AuditSlot,
    /// The first.
    call: Arc<CallSummary>,
    arguments: Option<KeptArguments>,
    repeated: Repeated,
}

/// Awaited before the reply under `durability: strict`; ready at once otherwise.
#[derive(Debug)]
#[must_use]
pub struct Durable(Option<oneshot::Receiver<()>>);

/// Seconds after which a caller should retry when the trail accepts no lines.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Audit {
    /// Creates the trail or continues an existing one, once its end matches its head. `readiness` is degraded while the
    /// disk fails, and when the trail is damaged.
    /// Errors: the file cannot be used, another process writes it, or it was tampered with and the configuration says
    /// `refuse`.
    pub fn open(file: PathBuf, config: &AuditConfig, readiness: Arc<Readiness>) -> Result<Self, AuditError> {
        Self::start(open::open(file, config.on_damage)?, config, readiness, u64::MAX)
    }

    /// As [`open`](Self::open), for a trail whose segments are copied to object storage: none is removed before
    /// [`segments_stored_through`](Self::segments_stored_through).
    /// Errors: as [`open`](Self::open).
    pub fn open_stored(file: PathBuf, config: &AuditConfig, readiness: Arc<Readiness>) -> Result<Self, AuditError> {
        Self::start(open::open(file, config.on_damage)?, config, readiness, 0)
    }

    fn start(
        opened: Opened<impl Disk>,
        config: &AuditConfig,
        readiness: Arc<Readiness>,
        removable_through: u64,
    ) -> Result<Self, AuditError> {
        let trail = Arc::new(Trail {
            queue: BatchQueue::new(config.max_queued / 2),
            durability: config.durability,
            max_lines: config.max_queued,
            lines: AtomicUsize::new(0),
            refusing: AtomicBool::new(false),
            new_segment: AtomicBool::new(false),
            removable_through: AtomicU64::new(removable_through),
            index: Arc::default(),
            stopped: watch::Sender::new(false),
        });
        let ending = Ending(Arc::clone(&trail));
        let writer = Writer::new(opened, config, Arc::clone(&trail), readiness);
        let write = move || {
            // Kept until the file is closed, also after a panic.
            let _ending = ending;
            writer.run();
        };
        thread::Builder::new().name("audit".into()).spawn(write).map_err(AuditError::Thread)?;
        Ok(Self { handle: Arc::new(Handle(trail)) })
    }

    /// Reserves space for one line.
    /// Errors: `overloaded` when the queue is full, the disk fails, or the trail is closed.
    pub fn reserve(&self) -> Result<AuditSlot, CallError> {
        let trail = &self.handle.0;
        if trail.refusing.load(Ordering::Acquire) {
            return Err(overloaded("the audit trail cannot be written, and no tool runs without it"));
        }
        if trail.lines.fetch_add(1, Ordering::AcqRel) >= trail.max_lines {
            trail.lines.fetch_sub(1, Ordering::AcqRel);
            return Err(overloaded("the queue of the audit trail is full, and no tool runs without a line"));
        }
        Ok(AuditSlot { trail: Arc::clone(trail), written: false, policy_input: None })
    }

    /// Sends a line about something that is not a call, and that callers cannot cause: it needs no reserved space, and
    /// waits while the disk fails.
    pub fn event(&self, event: AuditEvent) {
        let trail = Arc::clone(&self.handle.0);
        trail.lines.fetch_add(1, Ordering::AcqRel);
        // Nobody waits for it.
        let _ = AuditSlot { trail, written: false, policy_input: None }.write_event(event);
    }

    /// The lines that the trail takes from now on, for the index.
    pub fn index_queue(&self) -> &Arc<IndexQueue> {
        &self.handle.0.index
    }

    /// Closes the segment and starts the next one, within a second. A segment without calls is not closed.
    pub fn start_segment(&self) {
        self.handle.0.new_segment.store(true, Ordering::Release);
    }

    /// Object storage has all closed segments up to this line.
    pub fn segments_stored_through(&self, line: u64) {
        self.handle.0.removable_through.fetch_max(line, Ordering::AcqRel);
    }

    /// Refuses further calls, writes and syncs waiting lines, and stops the writer. Running calls have a second to
    /// send their lines.
    pub async fn close(&self) {
        self.handle.0.close();
        let mut stopped = self.handle.0.stopped.subscribe();
        // Fails only when the sender is gone, and `self` holds it.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

impl AuditSlot {
    /// The line has this input of the policies.
    pub fn set_policy_input(&mut self, input: Box<RawValue>) {
        self.policy_input = Some(input);
    }

    /// Sends the line to the writer. Never blocks and never fails; also called from Drop. `arguments`: of a tool whose arguments
    /// the trail has.
    pub fn write(mut self, call: Arc<CallSummary>, arguments: Option<KeptArguments>) -> Durable {
        self.written = true;
        let (acknowledge, durable) = self.acknowledgement();
        let policy_input = self.policy_input.take();
        self.put(Entry { call, arguments, policy_input, repeated: None, acknowledge });
        durable
    }

    /// Sends a line about something that is not a call.
    pub fn write_event(mut self, event: AuditEvent) -> Durable {
        self.written = true;
        let (acknowledge, durable) = self.acknowledgement();
        self.trail.index.put(|| Indexed::Event(Box::new(event.clone())));
        if !self.trail.queue.put(|items| items.push(Item::Event(Box::new(event), acknowledge))) {
            tracing::error!("something happened after the audit trail was closed: it has no line");
        }
        durable
    }

    fn acknowledgement(&self) -> (Option<oneshot::Sender<()>>, Durable) {
        match self.trail.durability {
            Durability::Relaxed => (None, Durable(None)),
            Durability::Strict => {
                let (acknowledge, durable) = oneshot::channel();
                (Some(acknowledge), Durable(Some(durable)))
            }
        }
    }

    fn put(&self, entry: Entry) {
        let call_id = entry.call.id;
        let calls = entry.repeated.map_or(1, |repeated| repeated.calls);
        self.trail.index.put(|| Indexed::Call { call: Arc::clone(&entry.call), calls });
        if !self.trail.queue.put(|items| items.push(Item::Call(entry))) {
            tracing::error!(%call_id, "a call ended after the audit trail was closed: it has no line");
        }
    }
}

impl Drop for AuditSlot {
    fn drop(&mut self) {
        if !self.written {
            self.trail.give_back(1);
        }
    }
}

impl RepeatedLine {
    /// The first of them.
    pub fn new(slot: AuditSlot, call: Arc<CallSummary>, arguments: Option<KeptArguments>) -> Self {
        let repeated = Repeated { calls: 1, last_call_id: call.id };
        Self { slot, call, arguments, repeated }
    }

    /// Counts a further one.
    pub fn add(&mut self, id: CallId) {
        self.repeated = Repeated { calls: self.repeated.calls + 1, last_call_id: id };
    }

    /// Writes the log line.
    pub fn log(&self) {
        let Self { call, repeated, .. } = self;
        tracing::info!(
            target: "sekisho::call",
            call_id = %call.id,
            last_call_id = %repeated.last_call_id,
            calls = repeated.calls,
            tool_name = &*call.tool,
            status = call.status.as_str(),
            error = call.code.map(ErrorCode::as_str),
            caller = &*call.caller,
            tenant = &*call.tenant,
            "tool calls were refused"
        );
    }

    /// Sends the line to the writer. Nobody waits for it: no call ran.
    pub fn write(self) {
        let Self { mut slot, call, arguments, repeated } = self;
        slot.written = true;
        slot.put(Entry { call, arguments, policy_input: None, repeated: Some(repeated), acknowledge: None });
    }
}

impl Durable {
    /// Waits until the line is on the disk, if the trail is strict.
    /// Errors: `internal` when the disk fails: the action of the line was done, but the line may be lost.
    pub async fn wait(self) -> Result<(), CallError> {
        match self.0 {
            None => Ok(()),
            Some(durable) => durable.await.map_err(|_| {
                CallError::internal(
                    "it was done, but its audit line did not reach the disk in time (durability: strict)",
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

/// Reports that nothing is written any more.
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
