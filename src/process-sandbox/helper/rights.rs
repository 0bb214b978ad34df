//! Rights that the program does not get: descriptors, capabilities, resources.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, set_parent_process_death_signal,
    setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::profile::Limits;

/// Closes all descriptors but the three streams and these two, which an exec closes.
pub(super) fn close_others(one: RawFd, other: RawFd) -> io::Result<()> {
    let (low, high) = (one.min(other), one.max(other));
    for (from, to) in [(3, low - 1), (low + 1, high - 1), (high + 1, RawFd::MAX)] {
        if from <= to {
            #[expect(unsafe_code, reason = "there is no safe way to close inherited descriptors")]
            // SAFETY: this process has opened no descriptor yet, so nothing owns one of these.
            let answer = unsafe { libc::syscall(libc::SYS_close_range, from.unsigned_abs(), to.unsigned_abs(), 0) };
            if answer != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    for number in [one, other] {
        #[expect(unsafe_code, reason = "inherited descriptors have only their numbers")]
        // SAFETY: the descriptor is open for the length of the call.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    Ok(())
}

/// Ends this process's part of the connection to the gateway, although its owner lives on.
pub(super) fn close_control(control: &OwnedFd, null: &File) {
    #[expect(unsafe_code, reason = "the descriptor keeps its owner")]
    // SAFETY: the number stays open, as a duplicate of another file.
    unsafe {
        libc::dup3(null.as_raw_fd(), control.as_raw_fd(), libc::O_CLOEXEC);
    }
}

pub(super) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The program has the same user: by `/proc/1` it could read the profile in this process's memory, write code there, which no filter holds,
/// and open the gateway's own file.
pub(super) fn hide_from_program() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Drops every capability, also those that a later exec could regain.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let held = capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        let bound = CapabilitySet::all().iter().filter(|one| capability_is_in_bounding_set(*one).unwrap_or_default());
        for capability in bound {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

pub(super) fn limit_resources(limits: &Limits) -> Result<(), String> {
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, limits.file_bytes)?;
    limit(Resource::Nofile, limits.open_files)?;
    // Of this user in this user namespace. It does not hold root, whose processes the PID namespace limits.
    limit(Resource::Nproc, limits.processes)
}

pub(super) fn limit_memory(limits: &Limits) -> Result<(), String> {
    limit(Resource::Data, limits.memory_bytes)
}

fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let most = getrlimit(resource).maximum.map_or(most, |allowed| allowed.min(most));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).map_err(|error| format!("{resource:?}: {error}"))
}
