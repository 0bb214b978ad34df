//! Points at which tests kill this process, to see the remains of its work.

use std::fmt;

/// Kills this process with SIGKILL if `SEKISHO_FAILPOINT` names the point: `run.locked`, or `run.locked:3` for the third time
/// that it is reached. Only a program that is built for tests reads the variable; in others a point is nothing.
#[cfg(feature = "test-programs")]
pub fn reach(point: impl fmt::Display) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static FATAL: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let point = std::env::var("SEKISHO_FAILPOINT").ok()?;
        let (name, times) = point.split_once(':').unwrap_or((&point, "1"));
        Some((name.to_owned(), AtomicU32::new(times.parse().ok()?)))
    });
    if let Some((name, times)) = &*FATAL
        && *name == point.to_string()
        && times.fetch_sub(1, Ordering::SeqCst) == 1
    {
        let _dead = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[cfg(not(feature = "test-programs"))]
#[inline(always)]
pub fn reach(_point: impl fmt::Display) {}
