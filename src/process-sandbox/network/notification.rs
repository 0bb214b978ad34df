//! The descriptor of a filter's notifications: the calls that wait for an answer, and the answers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{seccomp_data, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp};
use rustix::ioctl::{Setter, Updater, ioctl, opcode};

/// A call of the program, which waits until it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) id: u64,
    /// The thread, as this process numbers it.
    pub(super) thread: i32,
    pub(super) number: i64,
    pub(super) args: [u64; 6],
}

impl Call {
    /// An argument of type `int`, of which the kernel reads the lower half.
    #[expect(clippy::cast_possible_truncation, reason = "as the kernel does")]
    pub(super) const fn int(&self, index: usize) -> i32 {
        self.args[index] as i32
    }
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Failed(rustix::io::Errno),
    /// The program executes the call itself.
    Continue,
}

const MAGIC: u8 = b'!';
const RECEIVE: u32 = opcode::read_write::<seccomp_notif>(MAGIC, 0);
const SEND: u32 = opcode::read_write::<seccomp_notif_resp>(MAGIC, 1);
const ID_VALID: u32 = opcode::write::<u64>(MAGIC, 2);
const ADD_FD: u32 = opcode::write::<seccomp_notif_addfd>(MAGIC, 3);

/// Where the gateway is asked.
#[derive(Debug)]
pub(super) struct Listener(pub(super) OwnedFd);

impl Listener {
    /// The next call. Waits where there is none: poll the descriptor before.
    /// Errors: `NOENT` when its thread was ended in between.
    pub(super) fn receive(&self) -> io::Result<Call> {
        let data = seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
        let mut call = seccomp_notif { id: 0, pid: 0, flags: 0, data };
        self.update::<RECEIVE, _>(&mut call)?;
        let thread = call.pid.try_into().map_err(io::Error::other)?;
        Ok(Call { id: call.id, thread, number: call.data.nr.into(), args: call.data.args })
    }

    /// Whether the call still waits: until then its thread's number and memory are its own.
    pub(super) fn waits(&self, id: u64) -> bool {
        #[expect(unsafe_code, reason = "there is no safe wrapper for this call")]
        // SAFETY: the kernel reads a u64 for this operation.
        let answer = unsafe { ioctl(&self.0, Setter::<ID_VALID, u64>::new(id)) };
        answer.is_ok()
    }

    /// Answers a call. A thread that has ended needs no answer.
    pub(super) fn answer(&self, id: u64, answer: Answer) {
        let mut response = seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
        match answer {
            Answer::Done => (),
            Answer::Failed(errno) => response.error = -errno.raw_os_error(),
            Answer::Continue => response.flags = 1,
        }
        if let Err(error) = self.update::<SEND, _>(&mut response) {
            tracing::trace!(%error, "a program's call could not be answered");
        }
    }

    /// Opens a descriptor in the program for what `from` refers to, and answers the call with its number.
    /// Errors: the program's own limits, such as too many open files; the call still waits.
    pub(super) fn answer_with(&self, id: u64, from: BorrowedFd<'_>, close_on_exec: bool) -> io::Result<()> {
        self.add(id, from, None, libc::SECCOMP_ADDFD_FLAG_SEND, close_on_exec)
    }

    /// Has the program's descriptor `at` refer to what `from` does.
    /// Errors: when its thread has ended.
    pub(super) fn replace(&self, id: u64, from: BorrowedFd<'_>, at: RawFd, close_on_exec: bool) -> io::Result<()> {
        self.add(id, from, Some(at), libc::SECCOMP_ADDFD_FLAG_SETFD, close_on_exec)
    }

    fn add(&self, id: u64, from: BorrowedFd<'_>, at: Option<RawFd>, flags: u64, cloexec: bool) -> io::Result<()> {
        let mut addition = seccomp_notif_addfd {
            id,
            flags: flags.try_into().map_err(io::Error::other)?,
            srcfd: from.as_raw_fd().try_into().map_err(io::Error::other)?,
            newfd: at.unwrap_or(0).try_into().map_err(io::Error::other)?,
            newfd_flags: if cloexec { libc::O_CLOEXEC.unsigned_abs() } else { 0 },
        };
        self.update::<ADD_FD, _>(&mut addition)
    }

    fn update<const OPERATION: u32, T>(&self, value: &mut T) -> io::Result<()> {
        #[expect(unsafe_code, reason = "there is no safe wrapper for these calls")]
        // SAFETY: each operation above has the type that the kernel reads and writes.
        let answer = unsafe { ioctl(&self.0, Updater::<OPERATION, T>::new(value)) };
        Ok(answer?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
