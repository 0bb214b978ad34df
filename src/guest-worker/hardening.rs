//! Hardening, the second layer of isolation: a worker gives up all rights that its work does not need, before it runs
//! the first program.
//!
//! A program that escaped WebAssembly would be in a process that cannot open files, create sockets, start programs or
//! map new code, and whose system calls are limited to a list. Protections that this kernel does not support are
//! reported and skipped; WebAssembly isolates on its own.

use std::collections::BTreeMap;
use std::io;

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

/// Address space that a worker may use beyond the reservation for its instances: for files, output and frames of its
/// runs.
const ADDRESS_SPACE_LEFT: u64 = 8 << 30;

/// Closes all inherited descriptors except the three standard streams. Call it before anything is opened.
/// Errors: when the kernel does not support it (before Linux 5.9).
pub(super) fn close_inherited() -> io::Result<()> {
    #[expect(unsafe_code, reason = "there is no safe way to close inherited descriptors")]
    // SAFETY: this process has opened no descriptor yet, so nothing owns one of these.
    // The system call: its function is in glibc since 2.34, and a release runs on 2.28.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Drops every capability, so that the worker of a gateway that runs as root has none of root's rights. Capabilities
/// belong to a thread: call it while there is only one.
/// Errors: when the kernel refuses.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let held = capabilities(None).map_err(text)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        // A later exec could regain the capabilities in the bounding set; the kernel may not support all.
        let bound = CapabilitySet::all().iter().filter(|one| capability_is_in_bounding_set(*one).unwrap_or_default());
        for capability in bound {
            remove_capability_from_bounding_set(capability).map_err(text)?;
        }
    }
    clear_ambient_capability_set().map_err(text)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(text)
}

/// Applies all protections except [`close_inherited`] and [`drop_capabilities`], for every thread of the process.
/// Call it once everything is loaded. Returns the names of the missing protections, with the reason.
pub(super) fn apply() -> Vec<String> {
    type Hardening = fn() -> Result<(), String>;
    let protections: [(&str, Hardening); 5] = [
        ("no_new_privs", || set_no_new_privs(true).map_err(text)),
        ("parent_death_signal", || set_parent_process_death_signal(Some(Signal::KILL)).map_err(text)),
        ("empty_environment", empty_environment),
        ("resource_limits", limit_resources),
        // Last, since it forbids the system calls of the others.
        ("seccomp", filter_calls),
    ];
    let missing = protections.iter().filter_map(|(name, apply)| Some(format!("{name}: {}", apply().err()?)));
    missing.collect()
}

fn empty_environment() -> Result<(), String> {
    if std::env::vars_os().next().is_none() {
        Ok(())
    } else {
        Err("the worker was started with environment variables".to_owned())
    }
}

fn limit_resources() -> Result<(), String> {
    let limits = [
        // No new descriptors; the open ones stay.
        (Resource::Nofile, 0),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
        (Resource::As, address_space()?.saturating_add(ADDRESS_SPACE_LEFT)),
    ];
    for (resource, most) in limits {
        let most = getrlimit(resource).maximum.map_or(most, |allowed| allowed.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|error| format!("{resource:?}: {error}"))?;
    }
    Ok(())
}

/// Bytes of address space in use now.
fn address_space() -> Result<u64, String> {
    let sizes = std::fs::read_to_string("/proc/self/statm").map_err(text)?;
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).ok_or("statm has no size")?;
    Ok(pages.saturating_mul(page_size() as u64))
}

/// Two filters, of which the kernel applies the stricter result: an unknown call ends the process; a call that
/// libraries may try legitimately is refused.
fn filter_calls() -> Result<(), String> {
    let target: TargetArch = std::env::consts::ARCH.try_into().map_err(text)?;
    let rules = system_calls::rules().map_err(text)?;
    let known = rules.allowed.into_iter().chain(rules.refused.iter().cloned()).collect();
    for (rules, others, matching) in [
        (rules.refused.into_iter().collect(), SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.unsigned_abs())),
        (known, SeccompAction::KillProcess, SeccompAction::Allow),
    ] {
        let rules: BTreeMap<i64, Vec<SeccompRule>> = rules;
        let filter = SeccompFilter::new(rules, others, matching, target).map_err(text)?;
        let program: BpfProgram = filter.try_into().map_err(text)?;
        seccompiler::apply_filter_all_threads(&program).map_err(text)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "an error's mapping takes it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

mod system_calls;
#[cfg(test)]
mod tests;
