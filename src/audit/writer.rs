//! The only writer of a trail, on its own thread: takes waiting lines, writes and syncs them as one group, then the
//! head. While the disk fails, calls are refused and the group is retried, each time from the end of the last
//! complete line, so that no line is lost and no partial line remains. Also starts segments, and a new chain where the
//! file was moved or changed by others.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::chain::Chain;
use super::disk::{Disk, Found};
use super::entry::Item;
use super::mark::{Mark, SegmentsRemoved};
use super::open::{OpenSegment, Opened, start_chain, start_file};
use super::receipts::Signer;
use super::retention::Retention;
use super::segments::closed_path;
use super::{Durability, Trail};
use sekisho_config::{AuditConfig, OnDamage};
use sekisho_observe::readiness::Readiness;

/// How long lines are collected into one group: including the write they are on the disk 50 ms after their call.
const GATHER: Duration = Duration::from_millis(40);

/// How often the files are checked while there are no lines.
const CHECK: Duration = Duration::from_secs(1);

/// Interval of retries while the disk fails.
const RETRY: Duration = Duration::from_millis(200);

/// How long a closing trail waits for running calls, and for a disk that fails.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Memory for lines that is kept from one group to the next.
const KEPT_TEXT: usize = 1 << 20;

/// A segment is closed when it has this length or age.
const MAX_SEGMENT_BYTES: u64 = 64 << 20;
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(86_400);

/// The names in `/readyz`: of a trail that cannot be written, of one that continues in a new chain, and of one that cannot be
/// signed.
const COMPONENT: &str = "audit";
const DAMAGED: &str = "audit_chain";
const UNSIGNED: &str = "audit_receipts";

/// The owner of the chain.
pub(super) struct Writer<D> {
    disk: D,
    /// The end of the file on the disk.
    chain: Chain,
    /// `None` while the file has no line.
    segment: Option<OpenSegment>,
    on_damage: OnDamage,
    retention: Option<Retention>,
    /// Bytes may follow that end: a part of a group that failed.
    torn: bool,
    /// As it is on the disk; `None` while it is not known.
    head: Option<Chain>,
    /// Memory for the lines of a group.
    text: Vec<u8>,
    signer: Option<Signer>,
    trail: Arc<Trail>,
    readiness: Arc<Readiness>,
}

impl<D: Disk> Writer<D> {
    pub(super) fn new(opened: Opened<D>, config: &AuditConfig, trail: Arc<Trail>, readiness: Arc<Readiness>) -> Self {
        let Opened { disk, chain, segment, damage, signer } = opened;
        let writer = Self {
            disk,
            chain,
            segment,
            on_damage: config.on_damage,
            retention: config.retention_days.map(Retention::of_days),
            torn: false,
            head: Some(chain),
            text: Vec::new(),
            signer,
            trail,
            readiness,
        };
        if let Some(damage) = damage {
            writer.state_damage(&damage);
        }
        writer
    }

    /// Writes until the trail is closed and every reserved line was written or released.
    pub(super) fn run(mut self) {
        if let Err(problem) = self.write_what_comes() {
            let lines = self.trail.lines.load(Ordering::Acquire);
            tracing::error!(lines, %problem, "the audit trail is closed without its last lines");
        }
        self.write_head();
        self.sign(|signer, first_line, end| Some(signer.sign(first_line, end)));
    }

    fn write_what_comes(&mut self) -> io::Result<()> {
        let gather = match self.trail.durability {
            Durability::Relaxed => GATHER,
            Durability::Strict => Duration::ZERO,
        };
        let mut entries = Vec::new();
        let mut closing = DrainTimer::default();
        loop {
            if self.trail.queue.take_within(CHECK, gather, &mut entries) {
                self.commit(&mut entries)?;
            } else if self.trail.lines.load(Ordering::Acquire) == 0 || closing.is_over() {
                return Ok(());
            } else {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Writes the entries to the disk, for as long as it takes; returns an error only while closing. Without entries
    /// it checks the files.
    fn commit(&mut self, entries: &mut Vec<Item>) -> io::Result<()> {
        if let Err(problem) = self.write(entries) {
            self.refuse(&problem, entries);
            self.write_in_the_end(entries)?;
            self.readiness.restore(COMPONENT);
            self.trail.accept();
        }
        self.trail.give_back(entries.len());
        for acknowledge in entries.drain(..).filter_map(|mut entry| entry.take_waiter()) {
            // A disconnected caller no longer waits.
            let _ = acknowledge.send(());
        }
        self.write_head();
        self.sign(Signer::sign_when_due);
        Ok(())
    }

    fn write(&mut self, entries: &[Item]) -> io::Result<()> {
        loop {
            let length = if self.torn { self.chain.bytes..=u64::MAX } else { self.chain.bytes..=self.chain.bytes };
            if let Some(damage) = self.damage(&length)? {
                self.leave_damaged(&damage)?;
            }
            self.truncate_partial()?;
            self.start_segment_when_due();
            self.remove_old_segments()?;
            if entries.is_empty() {
                return Ok(());
            }
            let end = self.append(entries)?;
            self.torn = false;
            if let Some(damage) = self.damage(&(end.bytes..=end.bytes))? {
                // Moved or cut while it was written: the lines go to the new chain.
                self.leave_damaged(&damage)?;
                continue;
            }
            let first = OpenSegment { first_line: self.chain.lines + 1, began: SystemTime::now(), has_header: false };
            self.segment.get_or_insert(first);
            self.chain = end;
            return Ok(());
        }
    }

    /// Returns the end of the chain with these entries.
    fn append(&mut self, entries: &[Item]) -> io::Result<Chain> {
        let mut end = self.chain;
        self.text.clear();
        self.text.shrink_to(KEPT_TEXT);
        for entry in entries {
            end.append(entry, &mut self.text)?;
        }
        self.torn = true;
        if let Err(problem) = self.disk.append(&self.text).and_then(|()| self.disk.sync()) {
            // At once, since there may be no further attempt; unless others cut it off meanwhile, which would be hidden.
            if matches!(self.damage(&(self.chain.bytes..=u64::MAX)), Ok(None)) {
                let _ = self.truncate_partial();
            }
            return Err(problem);
        }
        Ok(end)
    }

    /// Removes a partially written group.
    fn truncate_partial(&mut self) -> io::Result<()> {
        if self.torn {
            self.disk.cut(self.chain.bytes)?;
            self.torn = false;
        }
        Ok(())
    }

    /// The damage that others did to the file, which should have one of these lengths.
    fn damage(&self, length: &RangeInclusive<u64>) -> io::Result<Option<String>> {
        let path = self.disk.path().display();
        Ok(match self.disk.found()? {
            Found::Own { bytes } if length.contains(&bytes) => None,
            Found::Own { bytes } => Some(format!("{path} has {bytes} bytes instead of {}", length.start())),
            Found::Nothing => Some(format!("{path} was moved away or removed")),
            Found::Other { .. } => Some(format!("{path} was replaced by another file")),
        })
    }

    /// Starts a new chain, if the configuration allows it.
    fn leave_damaged(&mut self, damage: &str) -> io::Result<()> {
        if self.on_damage == OnDamage::Refuse {
            let advice = "put the file back, or restart to see what is missing (`audit.on_damage: refuse`)";
            return Err(io::Error::other(format!("{damage}; {advice}")));
        }
        let (chain, segment) = start_chain(&mut self.disk, self.chain, damage)?;
        (self.chain, self.segment, self.torn) = (chain, Some(segment), false);
        self.state_damage(damage);
        Ok(())
    }

    fn state_damage(&self, damage: &str) {
        let line = self.segment.map_or(self.chain.lines, |segment| segment.first_line);
        self.readiness.degrade(
            DAMAGED,
            format!("the audit trail is damaged, and goes on in a new chain from line {line}: {damage}"),
        );
    }

    /// A problem is tried again with the next group: the present segment can be written.
    fn start_segment_when_due(&mut self) {
        let asked = self.trail.new_segment.swap(false, Ordering::AcqRel);
        let has_lines = |segment: &OpenSegment| !segment.has_header || segment.first_line < self.chain.lines;
        let Some(segment) = self.segment.filter(has_lines) else { return };
        if (asked || is_full(self.chain.bytes, segment.began, SystemTime::now()))
            && let Err(problem) = self.start_segment(segment)
        {
            tracing::warn!(%problem, "a new segment of the audit trail cannot be started; tried again");
            self.trail.new_segment.store(true, Ordering::Release);
        }
    }

    fn start_segment(&mut self, segment: OpenSegment) -> io::Result<()> {
        self.sign(|signer, first_line, end| Some(signer.sign(first_line, end)));
        // A crash in between leaves a head that names the last line of the closed segment.
        if self.head != Some(self.chain) {
            self.disk.write_head(&self.chain)?;
            self.head = Some(self.chain);
        }
        let began = SystemTime::now();
        let closed = closed_path(self.disk.path(), segment.first_line, began);
        let (chain, segment) = start_file(&mut self.disk, self.chain, &Mark::Segment, &closed, began)?;
        tracing::info!(closed = %closed.display(), lines = self.chain.lines, "a segment of the audit trail was closed");
        (self.chain, self.segment) = (chain, Some(segment));
        Ok(())
    }

    /// The line first: without it the removed lines would be missing.
    fn remove_old_segments(&mut self) -> io::Result<()> {
        let (Some(retention), Some(segment)) = (&mut self.retention, self.segment) else { return Ok(()) };
        let removable = self.trail.removable_through.load(Ordering::Acquire);
        let Some(old) = retention.due(self.disk.path(), segment.first_line, removable) else { return Ok(()) };
        let mut end = self.chain;
        let mut text = Vec::new();
        end.append_mark(&Mark::SegmentsRemoved(SegmentsRemoved { through_line: old.through_line }), &mut text)?;
        self.torn = true;
        self.disk.append(&text).and_then(|()| self.disk.sync())?;
        (self.chain, self.torn) = (end, false);
        old.remove(self.disk.path());
        Ok(())
    }

    fn write_in_the_end(&mut self, entries: &[Item]) -> io::Result<()> {
        let mut closing = DrainTimer::default();
        loop {
            thread::sleep(RETRY);
            match self.write(entries) {
                Err(problem) if self.trail.queue.is_closing() && closing.is_over() => return Err(problem),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Readiness first: a refused caller finds the reason there.
    fn refuse(&self, problem: &io::Error, entries: &mut [Item]) {
        let reason = format!("the audit trail cannot be written, calls are refused: {problem}");
        self.readiness.refuse_calls(COMPONENT, reason);
        self.trail.refusing.store(true, Ordering::Release);
        for entry in entries {
            drop(entry.take_waiter());
        }
    }

    /// A trail that cannot be signed is written all the same. A segment is signed as a whole as long as it is written.
    fn sign(&mut self, sign: impl FnOnce(&mut Signer, u64, &Chain) -> Option<io::Result<()>>) {
        let (Some(signer), Some(segment)) = (&mut self.signer, self.segment) else { return };
        match sign(signer, segment.first_line, &self.chain) {
            Some(Ok(())) => self.readiness.restore(UNSIGNED),
            Some(Err(problem)) => {
                self.readiness.degrade(UNSIGNED, format!("the audit trail cannot be signed: {problem}"));
            }
            None => {}
        }
    }

    fn write_head(&mut self) {
        if self.head == Some(self.chain) {
            return;
        }
        match self.disk.write_head(&self.chain) {
            Ok(()) => self.head = Some(self.chain),
            Err(problem) if self.head.take().is_some() => {
                tracing::warn!(%problem, "the head of the audit trail cannot be written; tried again with the next lines");
            }
            Err(_) => {}
        }
    }
}

/// Whether a segment with these bytes, begun then, is closed now. A segment that begins in the future is not: the clock
/// was set back.
pub(super) fn is_full(bytes: u64, began: SystemTime, now: SystemTime) -> bool {
    bytes >= MAX_SEGMENT_BYTES || now.duration_since(began).is_ok_and(|age| age >= MAX_SEGMENT_AGE)
}

/// Starts with the first check.
#[derive(Default)]
struct DrainTimer(Option<Instant>);

impl DrainTimer {
    fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > CLOSE_TIMEOUT
    }
}
