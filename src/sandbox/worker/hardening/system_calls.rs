//! System calls of a worker that runs programs, and those that are refused instead of ending it.

use libc::{c_long, c_ulong};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::sandbox::worker::guest::PAGEMAP_SCAN;

/// Each call with the arguments that it may have; no rule is any arguments.
pub(super) struct Rules {
    pub(super) allowed: Vec<(i64, Vec<SeccompRule>)>,
    /// Tried in good faith by libraries, which go on without: answered with `EPERM`.
    pub(super) refused: Vec<(i64, Vec<SeccompRule>)>,
}

/// Whatever their arguments.
const ALLOWED: &[c_long] = &[
    // The socket to the gateway, and what a panic says.
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
    // Traps come as signals.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    // Clocks and random bytes.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Its own end.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_gettid,
];

/// Calls that newer processors have replaced.
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
    // Nothing may become code that was not code before.
    let not_executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC.unsigned_abs().into());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        allowed.push((call, vec![argument(2, not_executable.clone(), 0)?]));
    }
    // A panic ends the process by a signal to itself; nobody else may be sent one.
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, std::process::id().into())?;
    allowed.push((libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]));
    // To whom the socket leads already: no address.
    allowed.push((libc::SYS_sendto, vec![argument(4, SeccompCmpOp::Eq, 0)?]));
    // Which of the guests' pages were written.
    allowed.push((libc::SYS_ioctl, vec![argument(1, SeccompCmpOp::Eq, PAGEMAP_SCAN)?]));
    // Rust asks of a descriptor that it closes whether it is one, in debug builds.
    allowed.push((libc::SYS_fcntl, vec![argument(1, SeccompCmpOp::Eq, F_GETFD)?]));
    let mut refused: Vec<_> = bare(&[REFUSED, REFUSED_HERE]);
    // The allocator names its memory.
    refused.push((libc::SYS_prctl, vec![argument(0, SeccompCmpOp::Eq, c_ulong::from(PR_SET_VMA))?]));
    Ok(Rules { allowed, refused })
}

const F_GETFD: u64 = 1;
const PR_SET_VMA: u32 = 0x5356_4d41;

fn argument(index: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Qword, comparison, value)?])
}
