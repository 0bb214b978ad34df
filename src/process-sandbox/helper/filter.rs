//! System calls that a program of a sandbox cannot make.
//!
//! Refused are calls that no server needs and in which the kernel had its worst errors, and all that make or enter namespaces.

mod calls;

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter};

/// Installs the filters for this thread and all that it becomes. A call of another architecture ends the process.
/// Errors: when the kernel has no filters.
pub(super) fn apply() -> Result<(), String> {
    let target: TargetArch = std::env::consts::ARCH.try_into().map_err(text)?;
    let groups = [
        (calls::unknown(), libc::ENOSYS),
        (calls::other_protocols().map_err(text)?, libc::EPROTONOSUPPORT),
        (calls::other_sockets().map_err(text)?, libc::EAFNOSUPPORT),
        // Last: this filter holds for those that come after it.
        (calls::forbidden().map_err(text)?, libc::EPERM),
    ];
    apply_filter(&unknown_numbers()).map_err(text)?;
    for (rules, error) in groups {
        let rules: BTreeMap<i64, Vec<SeccompRule>> = rules;
        let refused = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target).map_err(text)?;
        let program: BpfProgram = filter.try_into().map_err(text)?;
        apply_filter(&program).map_err(text)?;
    }
    Ok(())
}

const LOAD: u16 = 0x20;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Refuses calls of kernels that are newer than the tables, and the numbers of x32 (512 to 547, and from `0x4000_0000` on), by which a program
/// could make any call past the other filters.
fn unknown_numbers() -> Vec<sock_filter> {
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // The number is the first field.
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 0, 1, calls::LAST_KNOWN + 1),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Whether the kernel has filters. Where it has, one that cannot be installed is no missing layer: a program with filters without end can use up
/// the kernel's memory for them, and must not bring about that another one starts without.
#[expect(unsafe_code, reason = "there is no safe wrapper for this question")]
pub(super) fn is_available() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads the number, which outlives the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, std::ptr::from_ref(&action)) };
    answer == 0
}

#[expect(clippy::needless_pass_by_value, reason = "an error's mapping takes it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes a filter as the kernel does.
    fn answer(program: &[sock_filter], number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match code {
                LOAD => loaded = number,
                JUMP_IF_AT_LEAST => at += usize::from(if loaded >= k { jt } else { jf }),
                RETURN => return k,
                _ => panic!("{code:#x}"),
            }
        }
    }

    #[test]
    fn calls_that_are_not_known_are_refused() {
        let (program, refused) = (unknown_numbers(), libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs());
        for (number, expected) in [
            (0, libc::SECCOMP_RET_ALLOW),
            (59, libc::SECCOMP_RET_ALLOW),
            (calls::LAST_KNOWN, libc::SECCOMP_RET_ALLOW),
            (calls::LAST_KNOWN + 1, refused),
            (521, refused),
            (0x4000_0000 + 39, refused),
            (u32::MAX, refused),
        ] {
            assert_eq!(answer(&program, number), expected, "{number}");
        }
    }

    #[test]
    fn this_kernel_has_filters() {
        assert!(is_available());
    }

    #[test]
    fn the_rules_of_all_groups_are_accepted() {
        let target: TargetArch = std::env::consts::ARCH.try_into().unwrap();
        for rules in [
            calls::unknown(),
            calls::other_protocols().unwrap(),
            calls::other_sockets().unwrap(),
            calls::forbidden().unwrap(),
        ] {
            let refused = SeccompAction::Errno(1);
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target).unwrap();
            assert!(!BpfProgram::try_from(filter).unwrap().is_empty());
        }
    }
}
