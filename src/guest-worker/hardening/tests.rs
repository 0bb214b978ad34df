//! The hardened process is the test binary itself, running [`hardened_process`]: hardening cannot be undone.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio, exit};
use std::time::{Duration, Instant};

use super::*;
use sekisho_core::slack::slack;

/// The attempt succeeded, was refused, or a protection was missing.
const WENT_ON: i32 = 10;
const REFUSED: i32 = 11;
const MISSING: i32 = 12;

/// Not a test: the process that the tests below start. Its standard input names the attempt.
#[test]
#[ignore = "the process of the tests beside it"]
fn hardened_process() {
    let attempt = io::read_to_string(io::stdin()).unwrap();
    close_inherited().unwrap();
    drop_capabilities().unwrap();
    if attempt == "capabilities" {
        exit(if kept_capabilities().is_empty() { REFUSED } else { WENT_ON });
    }
    // Read now: the call is refused once the process is hardened.
    let parent = rustix::process::getppid().unwrap();
    let missing = apply();
    if !missing.is_empty() {
        eprintln!("missing: {missing:?}");
        exit(MISSING);
    }
    let went_on = match attempt.as_str() {
        "nothing" => exit(0),
        "open" => File::open("/etc/passwd").is_ok(),
        "create" => File::create("/tmp/sekisho-behind-walls").is_ok(),
        "listen" => TcpListener::bind("127.0.0.1:0").is_ok(),
        "datagram" => UdpSocket::bind("127.0.0.1:0").is_ok(),
        "run" => Command::new("/bin/true").status().is_ok(),
        "thread" => std::thread::Builder::new().spawn(|| ()).is_ok(),
        "signal the parent" => rustix::process::test_kill_process(parent).is_ok(),
        "new code" => new_code(),
        "signal itself by thread" => signal_thread(rustix::process::getpid()),
        "signal the parent by thread" => signal_thread(parent),
        "other ioctl" => rustix::io::ioctl_fionbio(io::stdin(), true).is_ok(),
        other => panic!("{other}"),
    };
    exit(if went_on { WENT_ON } else { REFUSED });
}

/// Lines of this thread's status with a capability that it has or may get. A process not started as root cannot
/// change the bounding set, and need not: it starts no process that could use it.
fn kept_capabilities() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let is_root = rustix::process::getuid().is_root();
    let sets = status.lines().filter(|line| line.starts_with("Cap") && (is_root || !line.starts_with("CapBnd")));
    let (sets, kept): (Vec<_>, Vec<_>) = sets.map(str::to_owned).partition(|line| line.ends_with("0000000000000000"));
    assert!(sets.len() + kept.len() >= 4, "{status}");
    kept
}

#[expect(unsafe_code, reason = "there is no safe way to send a signal to a thread of another process")]
fn signal_thread(process: rustix::process::Pid) -> bool {
    let process = process.as_raw_nonzero().get();
    // SAFETY: signal 0 only checks whether the thread exists.
    unsafe { libc::syscall(libc::SYS_tgkill, process, process, 0) == 0 }
}

#[expect(unsafe_code, reason = "there is no safe way to map executable memory")]
fn new_code() -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a fresh mapping without references to it.
    let mapped =
        unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE) };
    mapped.is_ok()
}

fn attempt(what: &str) -> ExitStatus {
    let name = concat!(module_path!(), "::hardened_process").split_once("::").unwrap().1;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(what.as_bytes()).unwrap();
    let end = Instant::now() + slack(Duration::from_secs(20));
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= end {
            child.kill().unwrap();
            panic!("the process does not end: {what}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_hardened_process_continues_its_work() {
    assert_eq!(attempt("nothing").code(), Some(0));
}

#[test]
fn a_hardened_process_has_no_capabilities() {
    assert_eq!(attempt("capabilities").code(), Some(REFUSED));
}

#[test]
fn a_hardened_process_may_signal_only_itself() {
    assert_eq!(attempt("signal itself by thread").code(), Some(WENT_ON));
    assert_eq!(attempt("signal the parent by thread").signal(), Some(libc::SIGSYS));
}

#[test]
fn a_hardened_process_can_open_nothing() {
    for what in ["open", "create"] {
        assert_eq!(attempt(what).code(), Some(REFUSED), "{what}");
    }
}

#[test]
fn a_hardened_process_that_makes_a_forbidden_call_is_ended() {
    for what in ["listen", "datagram", "run", "thread", "signal the parent", "new code", "other ioctl"] {
        assert_eq!(attempt(what).signal(), Some(libc::SIGSYS), "{what}");
    }
}
