//! System calls that a program of a sandbox cannot make.
//!
//! Refused are calls that no server needs and in which the kernel had its worst errors, and all that make or enter namespaces.

mod calls;

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter};

/// Installs the filters for this thread and all that it becomes. A call of another architecture ends the process.
///
/// # Errors
/// When the kernel has no filters.
pub(super) fn apply() -> Result<(), String> {
    let target: TargetArch = std::env::consts::ARCH.try_into().map_err(text)?;
    let groups = [
        (calls::unknown(), libc::ENOSYS),
        (calls::other_sockets().map_err(text)?, libc::EAFNOSUPPORT),
        // Last: this filter holds for those that come after it.
        (calls::forbidden().map_err(text)?, libc::EPERM),
    ];
    if cfg!(target_arch = "x86_64") {
        apply_filter(&other_numbers()).map_err(text)?;
    }
    for (rules, error) in groups {
        let rules: BTreeMap<i64, Vec<SeccompRule>> = rules;
        let refused = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target).map_err(text)?;
        let program: BpfProgram = filter.try_into().map_err(text)?;
        apply_filter(&program).map_err(text)?;
    }
    Ok(())
}

/// Refuses the numbers of x32, by which a program could make any call past the other filters.
fn other_numbers() -> Vec<sock_filter> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // The number is the first field.
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 0, 1, X32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[expect(clippy::needless_pass_by_value, reason = "an error's mapping takes it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}
