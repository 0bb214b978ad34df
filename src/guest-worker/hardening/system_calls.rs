//! System calls that a worker may make, and those that are refused without ending it.

use libc::{c_long, c_ulong};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::guest::PAGEMAP_SCAN;

/// Each call with its permitted arguments; no rule means any arguments.
pub(super) struct Rules {
    pub(super) allowed: Vec<(i64, Vec<SeccompRule>)>,
    /// Tried by libraries, which continue without: refused with `EPERM`.
    pub(super) refused: Vec<(i64, Vec<SeccompRule>)>,
}

/// Permitted with any arguments.
const ALLOWED: &[c_long] = &[
    // The socket to the gateway, and the message of a panic.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_close,
    // Waiting.
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_futex,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Memory; mmap and mprotect have rules of their own.
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_getcpu,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Traps arrive as signals.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    // Clocks and random bytes.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Exit of the process.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_gettid,
];

/// Calls that newer architectures have replaced.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[libc::SYS_epoll_wait, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

const REFUSED: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_getrusage,
    libc::SYS_getcwd,
    libc::SYS_sched_getaffinity,
    libc::SYS_prlimit64,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[libc::SYS_open, libc::SYS_stat, libc::SYS_readlink, libc::SYS_access];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];

pub(super) fn rules() -> Result<Rules, seccompiler::BackendError> {
    let bare = |calls: &[&[c_long]]| calls.iter().copied().flatten().map(|call| (*call, Vec::new())).collect();
    let mut allowed: Vec<_> = bare(&[ALLOWED, ALLOWED_HERE]);
    // No memory may become executable.
    let not_executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC.unsigned_abs().into());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        allowed.push((call, vec![argument(2, not_executable.clone(), 0)?]));
    }
    // A panic ends the process with a signal to itself; signals to other processes are refused.
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, std::process::id().into())?;
    allowed.push((libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]));
    // Only to the connected peer: no address.
    allowed.push((libc::SYS_sendto, vec![argument(4, SeccompCmpOp::Eq, 0)?]));
    // The scan for a guest's written pages.
    allowed.push((libc::SYS_ioctl, vec![argument(1, SeccompCmpOp::Eq, PAGEMAP_SCAN)?]));
    // In debug builds, Rust checks that a descriptor it closes is open.
    allowed.push((libc::SYS_fcntl, vec![argument(1, SeccompCmpOp::Eq, F_GETFD)?]));
    let mut refused: Vec<_> = bare(&[REFUSED, REFUSED_HERE]);
    // The allocator names its mappings.
    refused.push((libc::SYS_prctl, vec![argument(0, SeccompCmpOp::Eq, c_ulong::from(PR_SET_VMA))?]));
    Ok(Rules { allowed, refused })
}

const F_GETFD: u64 = 1;
const PR_SET_VMA: u32 = 0x5356_4d41;

fn argument(index: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Qword, comparison, value)?])
}
