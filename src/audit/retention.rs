//! Which closed segments are old enough to be removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::segments::{self, Segment};

/// How often closed segments are looked at.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// The rule of the configuration.
#[derive(Debug)]
pub(super) struct Retention {
    period: SignedDuration,
    looked_at: Option<Instant>,
}

/// Segments to be removed.
#[derive(Debug)]
pub(super) struct OldSegments {
    segments: Vec<Segment>,
    /// The last line of them.
    pub(super) through_line: u64,
}

impl Retention {
    pub(super) fn of_days(days: u32) -> Self {
        Self { period: SignedDuration::from_hours(i64::from(days) * 24), looked_at: None }
    }

    /// The segments that were closed before the period, from the beginning of the trail up to line `removable`. `written` is
    /// the first line of the segment that is written.
    pub(super) fn due(&mut self, file: &Path, written: u64, removable: u64) -> Option<OldSegments> {
        if self.looked_at.is_some_and(|looked_at| looked_at.elapsed() < INTERVAL) {
            return None;
        }
        self.looked_at = Some(Instant::now());
        let until = Timestamp::now().checked_sub(self.period).ok()?;
        let closed = segments::closed(file)
            .inspect_err(|problem| tracing::warn!(%problem, "old segments of the audit trail cannot be found"))
            .ok()?;
        let next_line = |at: usize| closed.get(at).map_or(written, |segment: &Segment| segment.first_line);
        let is_due = |at: &usize| closed[*at].closed_at < until && next_line(at + 1) <= removable.saturating_add(1);
        let old = (0..closed.len()).take_while(is_due).count();
        let next = next_line(old);
        let segments: Vec<_> = closed.into_iter().take(old).collect();
        (!segments.is_empty()).then(|| OldSegments { segments, through_line: next.saturating_sub(1) })
    }
}

impl OldSegments {
    /// With the checkpoints of the segments of this trail.
    pub(super) fn remove(self, file: &Path) {
        for Segment { path, first_line, .. } in self.segments {
            // It may have none.
            let _ = fs::remove_file(segments::checkpoint_path(file, first_line));
            match fs::remove_file(&path) {
                Ok(()) => tracing::info!(file = %path.display(), "an old segment of the audit trail was removed"),
                Err(problem) => {
                    tracing::warn!(file = %path.display(), %problem, "an old segment of the audit trail cannot be removed");
                }
            }
        }
    }
}
