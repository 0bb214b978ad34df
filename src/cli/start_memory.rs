//! The memory that only a start needs: the code that it executes, and allocations that it freed. Both are most of what an idle gateway
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

/// Unmaps the pages of the program's code. What runs again is mapped again from the page cache.
fn release_code() {
    let mappings = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Some(code) = code_with(&mappings, code_with as *const () as usize) else { return };
    #[expect(unsafe_code, reason = "there is no safe way to advise the kernel about a mapping")]
    // SAFETY: the mapping is of a file and not writable, so that its pages are read from the file again.
    let released = unsafe { madvise(code.start as *mut c_void, code.len(), Advice::LinuxDontNeed) };
    if let Err(error) = released {
        tracing::debug!(%error, "the code that only the start executed stays resident");
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

/// The addresses of the executable mapping of a file with this address, among lines of `/proc/self/maps` (proc(5)).
fn code_with(mappings: &str, address: usize) -> Option<Range<usize>> {
    mappings.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        (rest.starts_with("r-xp ") && rest.contains('/') && range.contains(&address)).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_mappings_of_files_are_released() {
        let mappings = "1000-2000 r--p 00000000 fe:00 1 /usr/bin/sekisho\n2000-3000 r-xp 00001000 fe:00 1 /usr/bin/sekisho\n\
                        3000-4000 rw-p 00002000 fe:00 1 /usr/bin/sekisho\n4000-5000 r-xp 00000000 00:00 0 \n";
        assert_eq!(code_with(mappings, 0x2fff), Some(0x2000..0x3000));
        for address in [0x1000, 0x3000, 0x4000, 0x5000] {
            assert_eq!(code_with(mappings, address), None, "{address:x}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_code_of_this_program_runs_on() {
        let mappings = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(code_with(&mappings, code_with as *const () as usize).is_some());
        release().await;
    }
}
