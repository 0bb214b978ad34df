//! Resets the memory of a run, so that the pool can keep its pages for the next one.
//!
//! Figure: `pass` over HTTP with two callers, 1 165 → 830 µs of a worker's processor time, 194 → 18 page faults, 1 353 →
//! 1 640 runs a second. Bench: `scripts/bench` (Python). Remove when wasmtime's own scan finds pages that the kernel is
//! swapping out or moving (bytecodealliance/wasmtime#14357) and keeps more than 32 runs of pages.

use std::iter;
use std::ops::Range;
use std::process::abort;
use std::sync::Arc;

use rustix::mm::{Advice, madvise};
use wasmtime::{InstancePre, Memory, Store};

use super::written_pages::WrittenPages;
use super::{State, memory_of};
use sekisho_guest_system::engine::can_scan_pages;

/// Maximum runs of pages that the pool handles; it returns everything behind the last one to the kernel
/// (`MAX_REGIONS` of wasmtime 48).
const POOL_RUNS: usize = 32;
/// Maximum gap between two runs that are merged: 64 KiB cost as much to copy as four pages to fault in.
const MAX_BETWEEN: usize = 64 << 10;

/// A memory that is reset to its initial state on drop.
pub(super) struct PooledMemory {
    pub(super) store: Store<State>,
    pub(super) memory: Memory,
    pub(super) pristine: Arc<Pristine>,
}

impl PooledMemory {
    /// Its memory beside the pages that it shares with others of its module.
    pub(super) fn own_bytes(&self) -> u64 {
        let memory = self.memory.data(&self.store);
        self.pristine.written.as_ref().map_or(memory.len() as u64, |written| written.bytes_of(memory))
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        self.pristine.restore(self.memory.data_mut(&mut self.store));
    }
}

/// The initial state of a memory, to reset used ones to.
///
/// The pool resets the memory of a dropped store, page by page where it may keep pages, which saves the next instance
/// their page faults. But it searches for written pages only among those present: a page that the kernel is swapping
/// out or moving at that moment is missed, and the next call would find this call's data in it
/// (bytecodealliance/wasmtime#14357). So every page is reset here first. Only the heap of exceptions is left to the
/// pool; a guest can read nothing of it that it has not written itself.
pub(super) struct Pristine {
    store: Store<State>,
    memory: Memory,
    /// `None` where written pages cannot be found: the pool keeps no pages then, and resets memories itself.
    written: Option<WrittenPages>,
}

impl Pristine {
    /// Errors: when the pool is used up, or the module exports no memory.
    pub(super) async fn of(linked: &InstancePre<State>) -> wasmtime::Result<Self> {
        let mut store = Store::new(linked.module().engine(), State::default());
        let instance = linked.instantiate_async(&mut store).await?;
        let memory = memory_of(&instance, &mut store)?;
        let written = if can_scan_pages() { Some(WrittenPages::open()?) } else { None };
        Ok(Self { store, memory, written })
    }

    /// The memory of an instance before its first program.
    pub(super) fn data(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    /// Where a part of a memory of the same module may differ from the initial one.
    pub(super) fn written_parts(&self, part: &[u8]) -> Vec<Range<usize>> {
        let found = self.written.as_ref().and_then(|written| written.of(part));
        found.map_or_else(|| iter::once(0..part.len()).collect(), |runs| runs.iter().collect())
    }

    /// Resets a memory of an instance of the same module.
    pub(super) fn restore(&self, used: &mut [u8]) {
        let Some(written) = &self.written else { return };
        let Some(written) = written.of(used) else { return give_back(used) };
        let new = self.memory.data(&self.store);
        for run in joined(written.iter().collect()) {
            let Some(written) = used.get_mut(run.clone()) else { return give_back(used) };
            // Beyond its initial size a memory is zeros.
            let given = new.len().clamp(run.start, run.end) - run.start;
            let (known, grown) = written.split_at_mut(given);
            known.copy_from_slice(new.get(run.start..run.start + given).unwrap_or_default());
            grown.fill(0);
        }
    }
}

/// The same runs, merged across the smallest gaps until the pool can handle their number.
fn joined(mut runs: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let between = |(left, right): (&Range<usize>, &Range<usize>)| right.start - left.end;
    let mut gaps: Vec<usize> = runs.iter().zip(runs.iter().skip(1)).map(between).collect();
    // One less: the pool stops at the last run, and returns the pages behind that run.
    let Some(too_many) = runs.len().checked_sub(POOL_RUNS) else { return runs };
    let (_, largest, _) = gaps.select_nth_unstable(too_many);
    let largest = MAX_BETWEEN.min(*largest);
    runs.dedup_by(|right, left| {
        let joins = between((left, right)) <= largest;
        if joins {
            left.end = right.end;
        }
        joins
    });
    runs
}

/// Makes the kernel discard all writes.
fn give_back(used: &mut [u8]) {
    #[expect(unsafe_code, reason = "there is no safe way to discard the writes to a mapping")]
    // SAFETY: the pages then contain the original bytes, and nothing else reads them meanwhile.
    let given = unsafe { madvise(used.as_mut_ptr().cast(), used.len(), Advice::LinuxDontNeed) };
    if given.is_err() {
        // Any remaining data would leak to the next caller.
        abort();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(of: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
        of.into_iter().map(|start| start << 12..(start + 1) << 12).collect()
    }

    #[test]
    fn runs_that_the_pool_can_handle_are_unchanged() {
        let few = runs((0..POOL_RUNS - 1).map(|run| run * 2));
        assert_eq!(joined(few.clone()), few);
        assert!(joined(Vec::new()).is_empty());
    }

    #[test]
    fn the_nearest_are_merged_and_no_more_of_them_than_needed() {
        // Gaps of 1, 2, 3, … pages: the first three are closed.
        let many = runs((0..POOL_RUNS + 2).map(|run| run * (run + 3) / 2));
        let joined = joined(many.clone());
        assert_eq!(joined.len(), POOL_RUNS - 1);
        assert_eq!(joined[0], 0..many[3].end);
        assert_eq!(joined[1..], many[4..]);
    }

    #[test]
    fn runs_far_apart_are_never_merged() {
        let far = runs((0..100).map(|run| run * 100));
        assert_eq!(joined(far.clone()), far);
    }

    proptest! {
        #[test]
        fn every_run_is_in_one_of_the_merged(gaps in proptest::collection::vec(1_usize..40, 0..200)) {
            let starts = gaps.iter().scan(0, |at, gap| { *at += gap + 1; Some(*at) });
            let given = runs(starts);
            let joined = joined(given.clone());
            for run in given {
                prop_assert_eq!(joined.iter().filter(|one| one.start <= run.start && run.end <= one.end).count(), 1);
            }
            prop_assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
