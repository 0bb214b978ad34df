//! The second wall: a worker gives away whatever its work does not need, before it runs the first program.
//!
//! A program that broke out of WebAssembly would find a process that can open no file, make no socket, start
//! no program, map no new code, and whose system calls are those of the list below. What this kernel cannot
//! build is named and does without: the first wall stands by itself.

use std::collections::BTreeMap;
use std::io;

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

/// Address space that a worker may take beyond what it reserved for its instances: for files, output and
/// frames of its runs.
const ADDRESS_SPACE_LEFT: u64 = 8 << 30;

/// Closes whatever was left open by whoever started this process, all but the three standard streams. To be
/// called before anything is opened.
///
/// # Errors
/// When the kernel cannot (before Linux 5.9).
pub(super) fn close_inherited() -> io::Result<()> {
    #[expect(unsafe_code, reason = "there is no safe way to close what one did not open")]
    // SAFETY: nothing in this process has opened a descriptor yet, so nobody owns one of these.
    let answer = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives up every capability, so that the worker of a gateway that runs as root is root in name only. They belong to a
/// thread: to be called before there is a second.
///
/// # Errors
/// When the kernel says no.
pub(super) fn drop_capabilities() -> Result<(), String> {
    let held = capabilities(None).map_err(text)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        // Those that a program started later could get back; the kernel may not know all.
        let bound = CapabilitySet::all().iter().filter(|one| capability_is_in_bounding_set(*one).unwrap_or_default());
        for capability in bound {
            remove_capability_from_bounding_set(capability).map_err(text)?;
        }
    }
    clear_ambient_capability_set().map_err(text)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(text)
}

/// Puts up all walls but [`close_inherited`] and [`drop_capabilities`], for every thread of the process. To be called once everything
/// is loaded. Gives the names of those that are missing, with the reason.
pub(super) fn apply() -> Vec<String> {
    type Hardening = fn() -> Result<(), String>;
    let protections: [(&str, Hardening); 5] = [
        ("no_new_privs", || set_no_new_privs(true).map_err(text)),
        ("parent_death_signal", || set_parent_process_death_signal(Some(Signal::KILL)).map_err(text)),
        ("empty_environment", empty_environment),
        ("resource_limits", limit_resources),
        // The last, since it forbids what the others do.
        ("seccomp", filter_calls),
    ];
    let missing = protections.iter().filter_map(|(name, apply)| Some(format!("{name}: {}", apply().err()?)));
    missing.collect()
}

fn empty_environment() -> Result<(), String> {
    if std::env::vars_os().next().is_none() { Ok(()) } else { Err("the worker was started with variables".to_owned()) }
}

fn limit_resources() -> Result<(), String> {
    let limits = [
        // No descriptor can be had; those that are open stay.
        (Resource::Nofile, 0),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
        (Resource::As, address_space()?.saturating_add(ADDRESS_SPACE_LEFT)),
    ];
    for (resource, most) in limits {
        let most = getrlimit(resource).maximum.map_or(most, |allowed| allowed.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|fault| format!("{resource:?}: {fault}"))?;
    }
    Ok(())
}

/// Bytes of address space taken now.
fn address_space() -> Result<u64, String> {
    let sizes = std::fs::read_to_string("/proc/self/statm").map_err(text)?;
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).ok_or("statm has no size")?;
    Ok(pages.saturating_mul(page_size() as u64))
}

/// Two filters, of whose verdicts the kernel takes the harder one: an unknown call ends the process, one
/// that a library may try in good faith is refused.
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
fn text(fault: impl ToString) -> String {
    fault.to_string()
}

mod system_calls;
#[cfg(test)]
mod tests;
