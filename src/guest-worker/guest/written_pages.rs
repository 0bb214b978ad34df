//! Finds the written pages of a memory with the kernel's `PAGEMAP_SCAN` (Linux 6.7,
//! Documentation/admin-guide/mm/pagemap.rst).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::param::page_size;

use sekisho_guest_system::engine::MEMORY_KEPT_BYTES;

/// `_IOWR('f', 16, struct pm_scan_arg)` (linux/fs.h).
pub(crate) const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// Categories of a page: backed by a file; present in memory; swapped out or being moved; the shared page of zeros.
/// An untouched page is in none of them.
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;

/// Maximum runs of adjacent pages that one scan reports. A small program of CPython writes to some fifty.
const MAX_RUNS: usize = 256;

/// Scans this process's memory.
#[derive(Debug)]
pub(super) struct WrittenPages {
    pagemap: File,
    most_pages: u64,
}

/// The written pages, as offsets in the scanned memory.
#[derive(Debug)]
pub(super) struct Runs {
    found: [Run; MAX_RUNS],
    length: usize,
    base: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

impl WrittenPages {
    /// Errors: when `/proc` is not available.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { pagemap: File::open("/proc/self/pagemap")?, most_pages: (MEMORY_KEPT_BYTES / page_size()) as u64 })
    }

    /// Every page of `memory`, a private mapping, whose content may differ from the mapped one; whether it is
    /// present, swapped out or being moved. `None` when there are too many, or the kernel cannot scan.
    pub(super) fn of(&self, memory: &[u8]) -> Option<Runs> {
        let base = memory.as_ptr().addr() as u64;
        let mut runs = Runs { found: [Run::default(); MAX_RUNS], length: 0, base };
        let end = base.checked_add(memory.len() as u64)?;
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: base,
            end,
            vec: runs.found.as_mut_ptr().expose_provenance() as u64,
            vec_len: MAX_RUNS as u64,
            max_pages: self.most_pages,
            category_inverted: FILE | ZERO,
            category_mask: FILE | ZERO,
            category_anyof_mask: PRESENT | SWAPPED,
            ..Scan::default()
        };
        #[expect(unsafe_code, reason = "there is no safe wrapper for this call")]
        // SAFETY: `scan` has the layout that the kernel expects, and the kernel writes no more than `vec_len` runs to
        // `found`; both are valid until the call returns.
        let answer = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        runs.length = usize::try_from(answer).ok()?;
        (scan.walk_end == end).then_some(runs)
    }

    /// The size of these pages; where they cannot be found, of all of the memory.
    pub(super) fn bytes_of(&self, memory: &[u8]) -> u64 {
        let size = |runs: Runs| runs.iter().map(|run| run.len() as u64).sum::<u64>();
        let of_part = |part: &[u8]| self.of(part).map_or(part.len() as u64, size);
        let in_parts = || memory.chunks(MEMORY_KEPT_BYTES).map(of_part).sum::<u64>();
        self.of(memory).map_or_else(in_parts, size)
    }
}

impl Runs {
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        let offset = |address: u64| usize::try_from(address - self.base).unwrap_or(usize::MAX);
        self.found.iter().take(self.length).map(move |run| offset(run.start)..offset(run.end))
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use memmap2::{MmapMut, MmapOptions};
    use tempfile::tempfile;

    use super::*;

    /// Like a guest's memory: a file's pages, and zeros.
    fn mappings(pages: usize) -> [MmapMut; 2] {
        let file = tempfile().unwrap();
        file.set_len((pages * page_size()) as u64).unwrap();
        #[expect(unsafe_code, reason = "the scan is of a private mapping of a file")]
        // SAFETY: nothing else uses the file.
        let private = unsafe { MmapOptions::new().map_copy(&file) }.unwrap();
        [private, MmapMut::map_anon(pages * page_size()).unwrap()]
    }

    fn write(memory: &mut MmapMut, pages: Range<usize>) {
        for page in pages {
            memory[page * page_size() + 7] = 1;
        }
    }

    fn found(memory: &MmapMut) -> Option<Vec<Range<usize>>> {
        let runs = WrittenPages::open().unwrap().of(memory)?;
        Some(runs.iter().map(|run| run.start / page_size()..run.end / page_size()).collect())
    }

    #[test]
    fn written_pages_are_found_and_read_pages_are_not() {
        for mut memory in mappings(64) {
            assert_eq!(found(&memory), Some(vec![]));
            black_box(memory[9 * page_size()]);
            write(&mut memory, 0..1);
            write(&mut memory, 5..8);
            // A page that is written after it was read is included; so is one that contains zeros again.
            black_box(memory[20 * page_size()]);
            write(&mut memory, 20..21);
            memory[20 * page_size() + 7] = 0;
            write(&mut memory, 63..64);
            assert_eq!(found(&memory), Some(vec![0..1, 5..8, 20..21, 63..64]));
        }
    }

    #[test]
    fn however_many_pages_are_written_their_size_is_found() {
        let kept = MEMORY_KEPT_BYTES / page_size();
        let [mut memory, _] = mappings(kept * 4);
        let bytes = |memory: &MmapMut| WrittenPages::open().unwrap().bytes_of(memory);
        let of_pages = |pages: usize| (pages * page_size()) as u64;
        assert_eq!(bytes(&memory), 0);
        write(&mut memory, 3..5);
        assert_eq!(bytes(&memory), of_pages(2));
        write(&mut memory, kept..kept * 3);
        assert_eq!(bytes(&memory), of_pages(2 + kept * 2));
    }

    #[test]
    fn too_many_pages_are_not_reported_in_part() {
        let most_pages = MEMORY_KEPT_BYTES / page_size();
        for mut memory in mappings(MAX_RUNS * 3 + 1) {
            for run in 0..MAX_RUNS {
                write(&mut memory, run * 3..run * 3 + 1);
            }
            assert_eq!(found(&memory).unwrap().len(), MAX_RUNS);
            write(&mut memory, MAX_RUNS * 3..MAX_RUNS * 3 + 1);
            assert_eq!(found(&memory), None);
        }
        for mut memory in mappings(most_pages + 8) {
            write(&mut memory, 0..most_pages - 1);
            assert_eq!(found(&memory).map(|runs| runs.len()), Some(1));
            write(&mut memory, 0..most_pages + 1);
            assert_eq!(found(&memory), None);
        }
    }
}
