//! The memory that only a start needs: the code and constants that it uses, and allocations that it freed. They are most of what an idle gateway
//! would keep resident.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::ptr::null_mut;
use std::time::Duration;

use rustix::mm::{Advice, madvise};

/// How long a start may take that loads documents and asks servers.
const START: Duration = Duration::from_secs(5);

/// Returns the memory to the system once the gateway has started.
pub(super) async fn release() {
    tokio::time::sleep(START).await;
    release_code();
    release_freed();
}

/// Unmaps the pages of the program's code and constants. What is used again is mapped again from the page cache.
fn release_code() {
    let mappings = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for pages in unchanged_with(&mappings, unchanged_with as *const () as usize) {
        #[expect(unsafe_code, reason = "there is no safe way to advise the kernel about a mapping")]
        // SAFETY: the pages are of a file, not writable, and equal to the file, from which they are read again.
        let released = unsafe { madvise(pages.start as *mut c_void, pages.len(), Advice::LinuxDontNeed) };
        if let Err(error) = released {
            tracing::debug!(%error, "code and constants of the start stay resident");
        }
    }
}

/// Returns freed memory of all arenas, also of threads that have nothing to do: jemalloc returns it only while they allocate.
fn release_freed() {
    #[expect(unsafe_code, reason = "the allocator has no safe interface for it")]
    // SAFETY: the name ends with a zero byte, and this command neither takes nor gives a value. 4096 is `MALLCTL_ARENAS_ALL`.
    let failed =
        unsafe { tikv_jemalloc_sys::mallctl(c"arena.4096.purge".as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    if failed != 0 {
        tracing::debug!(failed, "the memory that the start freed stays resident");
    }
}

/// One mapping of a file.
struct Mapping<'a> {
    addresses: Range<usize>,
    file: &'a str,
    is_writable: bool,
    /// No page was changed in memory, as the loader does with constants that have addresses.
    is_unchanged: bool,
}

/// The addresses of all mappings of the file that is mapped at `address` that cannot and did not change, by the lines of
/// `/proc/self/smaps` (proc(5)).
fn unchanged_with(smaps: &str, address: usize) -> Vec<Range<usize>> {
    let mut mappings = Vec::<Mapping<'_>>::new();
    for line in smaps.lines() {
        if let Some(mapping) = mapping(line) {
            mappings.push(mapping);
        } else if let (Some(last), Some(size)) = (mappings.last_mut(), line.strip_prefix("Anonymous:")) {
            last.is_unchanged = size.trim() == "0 kB";
        }
    }
    let file = mappings.iter().find(|mapping| mapping.addresses.contains(&address)).map(|mapping| mapping.file);
    let file = file.filter(|file| !file.is_empty());
    let released = |mapping: &Mapping<'_>| Some(mapping.file) == file && !mapping.is_writable && mapping.is_unchanged;
    mappings.into_iter().filter(released).map(|mapping| mapping.addresses).collect()
}

/// The mapping whose first line this is. Its file is empty for memory without one.
fn mapping(line: &str) -> Option<Mapping<'_>> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let addresses = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    let file = rest.find('/').map_or("", |file| &rest[file..]);
    Some(Mapping { addresses, file, is_writable: rest.as_bytes().get(1) != Some(&b'-'), is_unchanged: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_mappings_of_the_program_are_released() {
        let unchanged = "Rss:  4 kB\nAnonymous:             0 kB\nVmFlags: rd\n";
        let changed = "Rss:  4 kB\nAnonymous:             4 kB\nVmFlags: rd\n";
        let of = "00000000 fe:00 1 ";
        let smaps = format!(
            "1000-2000 r--p {of}/usr/bin/sekisho\n{unchanged}2000-3000 r-xp {of}/usr/bin/sekisho\n{unchanged}\
             3000-4000 r--p {of}/usr/bin/sekisho\n{changed}4000-5000 rw-p {of}/usr/bin/sekisho\n{unchanged}\
             5000-6000 r--p {of}/usr/bin/sekisho\n6000-7000 r-xp {of}/usr/lib/libc.so.6\n{unchanged}\
             7000-8000 r-xp 00000000 00:00 0 \n{unchanged}"
        );
        assert_eq!(unchanged_with(&smaps, 0x2fff), [0x1000..0x2000, 0x2000..0x3000]);
        assert_eq!(unchanged_with(&smaps, 0x6000).first(), Some(&(0x6000..0x7000)));
        assert!(unchanged_with(&smaps, 0x7000).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn this_program_runs_on() {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let released = unchanged_with(&smaps, unchanged_with as *const () as usize);
        assert!(released.iter().any(|pages| pages.contains(&(unchanged_with as *const () as usize))));
        release().await;
    }
}
