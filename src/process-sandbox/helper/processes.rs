//! Processes of the helper: forking, waiting, ending.

use std::ffi::{CStr, CString};
use std::io::{self, PipeWriter};
use std::process::exit;
use std::ptr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, setpgid, setsid};

/// Passed on to the program.
const PASSED_ON: [i32; 6] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

pub(super) enum Forked {
    Parent(Pid),
    Child,
}

#[expect(unsafe_code, reason = "there is no safe fork")]
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: this process has one thread, so that the child has all locks free.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child).map_or(Forked::Child, Forked::Parent)),
    }
}

/// Whether this process has a terminal, as one that was started in a shell.
pub(super) fn has_terminal() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/self/stat") else { return true };
    names_terminal(&text)
}

/// The number of the terminal is the fifth field after the name, which stands in brackets and may have any character.
fn names_terminal(stat: &str) -> bool {
    let terminal = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(4));
    terminal != Some("0")
}

/// Makes this process the leader of a group of its own. A terminal is left with its session. Without one the session stays: where the
/// kernel shares a processor among sessions (`sched_autogroup`), a program with its own would wait for its turn after the gateway's.
pub(super) fn leave_group(has_terminal: bool) -> io::Result<()> {
    match has_terminal {
        true => setsid().map(drop)?,
        false => setpgid(None, None)?,
    }
    Ok(())
}

#[expect(unsafe_code, reason = "sets of signals are structs of C")]
fn awaited() -> libc::sigset_t {
    // SAFETY: a set of signals is valid when all its bytes are zero, and the calls below only write to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// They wait until [`wait_for`] takes them.
#[expect(unsafe_code, reason = "there is no safe way to block signals")]
pub(super) fn block_signals() {
    let set = awaited();
    // SAFETY: the set is initialized and outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
}

/// As a program expects them: none blocked, and SIGPIPE not ignored, as Rust does.
#[expect(unsafe_code, reason = "there is no safe way to reset signals")]
pub(super) fn reset_signals() {
    // SAFETY: the set is initialized and outlives the call; SIG_DFL is no function.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Waits until this child has ended, and for all others meanwhile; gives its status.
pub(super) fn wait_for(child: Pid, passed_on: impl Fn(Signal)) -> i32 {
    let set = awaited();
    loop {
        #[expect(unsafe_code, reason = "there is no safe way to wait for a signal")]
        // SAFETY: the set is initialized, and nothing is written.
        let number = unsafe { libc::sigwaitinfo(&raw const set, ptr::null_mut()) };
        match super::signal(number) {
            Some(Signal::CHILD) => {
                if let Some(status) = reap(child) {
                    return status;
                }
            }
            Some(signal) => passed_on(signal),
            None => {}
        }
    }
}

/// Removes all children that have ended; gives the status of this one.
fn reap(child: Pid) -> Option<i32> {
    let mut found = None;
    loop {
        let mut status = 0;
        #[expect(unsafe_code, reason = "the raw status is passed on")]
        // SAFETY: the status is written to a variable of this function.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        match ended {
            ..=0 => return found,
            ended if Some(child) == Pid::from_raw(ended) => found = Some(status),
            _ => {}
        }
    }
}

#[expect(unsafe_code, reason = "there is no safe way to signal all processes")]
pub(super) fn signal_all(signal: Signal) {
    // SAFETY: the call takes numbers. The sender, process 1 of its namespace, is not among those that get it.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Whether the helper at the other end of the pipe is gone.
pub(super) fn reader_is_gone(pipe: &PipeWriter) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled.iter().any(|one| one.revents().contains(PollFlags::ERR))
}

/// Ends this process as the program ended, so that the gateway sees the program's own status.
pub(super) fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let number = libc::WTERMSIG(status);
        #[expect(unsafe_code, reason = "only a signal ends a process as by a signal")]
        // SAFETY: the calls take numbers; SIG_DFL is no function. Limits were not set for this process: no core file is written.
        unsafe {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(number, libc::SIG_DFL);
        }
        reset_signals();
        #[expect(unsafe_code, reason = "only a signal ends a process as by a signal")]
        // SAFETY: the call takes a number.
        unsafe {
            libc::raise(number);
        }
        exit(128 + number);
    }
    exit(libc::WEXITSTATUS(status))
}

/// Executes the program in place of this process; returns only with an error.
#[expect(unsafe_code, reason = "there is no safe exec with all arguments")]
pub(super) fn replace_by(program: &CStr, arguments: &[CString], variables: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| {
        let pointers = texts.iter().map(|text| text.as_ptr());
        pointers.chain([ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    // SAFETY: both lists end with a null pointer, and point to texts that outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_terminal_says_so_behind_any_name() {
        for (stat, expected) in [
            ("1 (sekisho) S 0 1 1 0 -1 4194560", false),
            ("1 (sekisho) S 0 1 1 34816 1 4194560", true),
            ("1 (a) S 1 1 1 0 (b) S 0 1 1 34816 1", true),
            ("1 (a) b) S 0 1 1 0 -1", false),
            ("", true),
        ] {
            assert_eq!(names_terminal(stat), expected, "{stat}");
        }
        assert_eq!(has_terminal(), names_terminal(&std::fs::read_to_string("/proc/self/stat").unwrap()));
    }
}
