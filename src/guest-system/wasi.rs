//! The guest's system calls: our own WASI preview 1, over files in memory, output streams that store only their
//! start, coarse clocks and a limited source of random bytes. Nothing here opens a resource of the host.
//!
//! Every address, length and number comes from the guest. A failed call returns an error number ([`Errno`]); only the
//! program's exit and an exceeded limit end the guest ([`Stop`]).

use std::sync::Arc;

use bytes::Bytes;
use rand::TryRngCore;
use rand::rngs::OsRng;
use wasmtime::{AsContextMut, Caller, Extern, Linker};

use crate::files::{FileError, Files, NodeId, Quota};
use clocks::Clocks;
use errno::code;
use handles::Handles;
use poll::Poll;
use sekisho_guest_protocol::Captured;
use sekisho_guest_protocol::read_recorder::ReadRecorder;
use streams::{Input, Output};

pub use errno::Errno;
pub use image::{RestoringSystem, SystemImage};
pub use memory::GuestMemory;
pub use sleep::Sleeper;

mod clocks;
mod descriptors;
mod errno;
mod handles;
mod image;
mod memory;
mod paths;
mod poll;
mod records;
mod sleep;
mod streams;
mod strings;

/// Name of the module that the guest imports these calls from.
const MODULE: &str = "wasi_snapshot_preview1";
/// Maximum bytes that one call reads or writes: a host call cannot be interrupted, and reading a hole of 1 TiB into a
/// thousand buffers would exceed any deadline.
const MAX_TRANSFER_BYTES: u32 = 4 << 20;

/// Maximum random bytes for a guest that waits for its program.
const WAITING_RANDOM_BYTES: u64 = 4 << 10;

type Answer = Result<(), Errno>;

/// Why a call ended the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error("the program ended with exit code {0}")]
    Exit(i32),
    #[error("the program read more random bytes than its limit")]
    RandomBytes,
}

/// The environment of a program at its start.
#[derive(Debug, Default)]
pub struct Start {
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub stdin: Bytes,
    /// The folders it starts with, each with the path that it sees.
    pub folders: Vec<(Arc<str>, NodeId)>,
}

/// The limits of one program, except files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes stored of each of stdout and stderr.
    pub stream_bytes: u64,
    /// Descriptors in addition to the streams and the start folders.
    pub max_open_files: u32,
    pub random_bytes: u64,
}

/// The system of one guest.
#[derive(Debug)]
pub struct Wasi {
    /// NUL-terminated, as the guest receives them.
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    files: Files,
    handles: Handles,
    input: Input,
    stdout: Output,
    stderr: Output,
    clocks: Clocks,
    random_left: u64,
    /// Whether the program has read random bytes, or the time of day.
    has_read_time_or_random: bool,
    recorder: Arc<ReadRecorder>,
    /// `None` outside of a worker.
    pub sleeper: Option<Sleeper>,
}

impl Wasi {
    /// Errors: when a start folder does not exist.
    pub fn new(mut files: Files, start: Start, limits: Limits) -> Result<Self, FileError> {
        for (_, folder) in &start.folders {
            files.opened(*folder)?;
        }
        Ok(Self::with(files, start, limits))
    }

    fn with(files: Files, start: Start, limits: Limits) -> Self {
        let terminated = |text: String| [text.into_bytes(), vec![0]].concat();
        Self {
            arguments: start.arguments.into_iter().map(terminated).collect(),
            environment: start.environment.iter().map(|(name, value)| terminated(format!("{name}={value}"))).collect(),
            handles: Handles::new(start.folders, limits.max_open_files),
            files,
            input: Input(start.stdin),
            stdout: Output::new(limits.stream_bytes),
            stderr: Output::new(limits.stream_bytes),
            clocks: Clocks::new(),
            random_left: limits.random_bytes,
            has_read_time_or_random: false,
            recorder: Arc::default(),
            sleeper: None,
        }
    }

    /// The same, with clocks and random bytes as this recorder has them.
    #[must_use]
    pub fn reading(mut self, recorder: &Arc<ReadRecorder>) -> Self {
        self.clocks.start_nanoseconds = recorder.real(self.clocks.start_nanoseconds);
        Self { recorder: Arc::clone(recorder), ..self }
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    /// For the host, which places the call's files.
    pub fn files_mut(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Whether the program has read the time of day, or random bytes, in this call.
    pub fn has_read_time_or_random(&self) -> bool {
        self.has_read_time_or_random
    }

    /// The output of the program on stdout and stderr so far.
    pub fn take_output(&mut self) -> (Captured, Captured) {
        (self.stdout.take(), self.stderr.take())
    }

    /// The same system for another program of its session: files, descriptors and clocks go on.
    #[must_use]
    pub fn continued(self, stdin: Bytes, limits: Limits) -> Self {
        let output = || Output::new(limits.stream_bytes);
        let (stdout, stderr) = (output(), output());
        let (random_left, has_read_time_or_random) = (limits.random_bytes, false);
        Self { input: Input(stdin), stdout, stderr, random_left, has_read_time_or_random, ..self }
    }

    fn clock_res_get(&mut self, memory: &mut GuestMemory<'_>, clock: u32, out: u32) -> Answer {
        self.clocks.now(clock)?;
        memory.store(out, &u64::from(clocks::TICK.subsec_nanos()).to_le_bytes())
    }

    fn clock_time_get(&mut self, memory: &mut GuestMemory<'_>, clock: u32, _precision: u64, out: u32) -> Answer {
        self.has_read_time_or_random |= clocks::is_real(clock);
        memory.store(out, &self.now(clock)?.to_le_bytes())
    }

    /// The time of a clock, as the program reads it.
    fn now(&self, clock: u32) -> Result<u64, Errno> {
        let now = self.clocks.now(clock)?;
        Ok(if clocks::is_real(clock) { self.recorder.real(now) } else { self.recorder.elapsed(now) })
    }

    fn proc_raise(&mut self, _: &mut GuestMemory<'_>, _signal: u32) -> Answer {
        Err(Errno::NotImplemented)
    }

    fn random_get(&mut self, memory: &mut GuestMemory<'_>, at: u32, length: u32) -> Result<Answer, Stop> {
        self.random_left = self.random_left.checked_sub(length.into()).ok_or(Stop::RandomBytes)?;
        self.has_read_time_or_random = true;
        let recorder = &self.recorder;
        let fill = |room: &mut [u8]| OsRng.try_fill_bytes(room).map_err(|_| Errno::Io);
        Ok(memory.bytes_mut(at, length).and_then(|room| recorder.random(room, fill)))
    }
}

/// An empty system, for a guest that waits for its program; it may seed its random numbers.
impl Default for Wasi {
    fn default() -> Self {
        let nothing = Limits { stream_bytes: 0, max_open_files: 0, random_bytes: WAITING_RANDOM_BYTES };
        Self::with(Files::new(Quota { bytes: 0, nodes: 0 }), Start::default(), nothing)
    }
}

/// Defines calls that complete at once and return an error number.
macro_rules! define {
    ($linker:ident, $view:ident, $($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        $linker.func_wrap(MODULE, stringify!($name), move |mut caller: Caller<'_, T>, $($argument: $kind),*| {
            code(with_memory(&mut caller, $view, |wasi, memory| wasi.$name(memory, $($argument),*)))
        })?;
    )*};
}

/// Adds all calls of preview 1 to a linker. `view` gets the guest's system out of the store's data; the memory is the
/// guest's export of that name. Calls that wait need a runtime with time, and the guest's functions must be called
/// asynchronously.
/// Errors: when the linker has one of the calls already.
pub fn add_to_linker<T: Send + 'static>(linker: &mut Linker<T>, view: fn(&mut T) -> &mut Wasi) -> wasmtime::Result<()> {
    define! { linker, view,
        args_get(pointers: u32, bytes: u32);
        args_sizes_get(count: u32, bytes: u32);
        environ_get(pointers: u32, bytes: u32);
        environ_sizes_get(count: u32, bytes: u32);
        clock_res_get(clock: u32, out: u32);
        clock_time_get(clock: u32, precision: u64, out: u32);
        fd_advise(fd: u32, offset: u64, length: u64, advice: u32);
        fd_allocate(fd: u32, offset: u64, length: u64);
        fd_close(fd: u32);
        fd_datasync(fd: u32);
        fd_fdstat_get(fd: u32, out: u32);
        fd_fdstat_set_flags(fd: u32, flags: u32);
        fd_fdstat_set_rights(fd: u32, rights: u64, inherited: u64);
        fd_filestat_get(fd: u32, out: u32);
        fd_filestat_set_size(fd: u32, length: u64);
        fd_filestat_set_times(fd: u32, accessed: u64, modified: u64, which: u32);
        fd_pread(fd: u32, buffers: u32, count: u32, offset: u64, out: u32);
        fd_prestat_get(fd: u32, out: u32);
        fd_prestat_dir_name(fd: u32, at: u32, length: u32);
        fd_pwrite(fd: u32, buffers: u32, count: u32, offset: u64, out: u32);
        fd_read(fd: u32, buffers: u32, count: u32, out: u32);
        fd_readdir(fd: u32, at: u32, length: u32, cookie: u64, out: u32);
        fd_renumber(from: u32, to: u32);
        fd_seek(fd: u32, offset: i64, whence: u32, out: u32);
        fd_sync(fd: u32);
        fd_tell(fd: u32, out: u32);
        fd_write(fd: u32, buffers: u32, count: u32, out: u32);
        path_create_directory(fd: u32, path: u32, length: u32);
        path_filestat_get(fd: u32, lookup: u32, path: u32, length: u32, out: u32);
        path_filestat_set_times(fd: u32, lookup: u32, path: u32, length: u32, accessed: u64, modified: u64, which: u32);
        path_link(fd: u32, lookup: u32, path: u32, length: u32, new_fd: u32, new_path: u32, new_length: u32);
        path_open(fd: u32, lookup: u32, path: u32, length: u32, how: u32, rights: u64, inherited: u64, flags: u32, out: u32);
        path_readlink(fd: u32, path: u32, length: u32, at: u32, room: u32, out: u32);
        path_remove_directory(fd: u32, path: u32, length: u32);
        path_rename(fd: u32, path: u32, length: u32, new_fd: u32, new_path: u32, new_length: u32);
        path_symlink(target: u32, target_length: u32, fd: u32, path: u32, length: u32);
        path_unlink_file(fd: u32, path: u32, length: u32);
        proc_raise(signal: u32);
        sock_accept(fd: u32, flags: u32, out: u32);
        sock_recv(fd: u32, buffers: u32, count: u32, flags: u32, length_out: u32, flags_out: u32);
        sock_send(fd: u32, buffers: u32, count: u32, flags: u32, out: u32);
        sock_shutdown(fd: u32, how: u32);
    }
    add_stopping(linker, view)?;
    add_waiting(linker, view)
}

fn add_stopping<T: 'static>(linker: &mut Linker<T>, view: fn(&mut T) -> &mut Wasi) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "proc_exit", |exit_code: i32| -> wasmtime::Result<()> {
        Err(Stop::Exit(exit_code).into())
    })?;
    linker.func_wrap(MODULE, "random_get", move |mut caller: Caller<'_, T>, at: u32, length: u32| {
        let mut stop = None;
        let answer = with_memory(&mut caller, view, |wasi, memory| {
            wasi.random_get(memory, at, length).unwrap_or_else(|spent| {
                stop = Some(spent);
                Ok(())
            })
        });
        stop.map_or(wasmtime::Result::Ok(code(answer)), |stop| Err(stop.into()))
    })?;
    Ok(())
}

fn add_waiting<T: Send + 'static>(linker: &mut Linker<T>, view: fn(&mut T) -> &mut Wasi) -> wasmtime::Result<()> {
    linker.func_wrap_async(MODULE, "sched_yield", |_: Caller<'_, T>, (): ()| {
        Box::new(async {
            tokio::task::yield_now().await;
            0_u32
        })
    })?;
    linker.func_wrap_async(
        MODULE,
        "poll_oneoff",
        move |mut caller: Caller<'_, T>, (at, events, count, out): (u32, u32, u32, u32)| {
            Box::new(async move {
                let read = with_memory(&mut caller, view, |wasi, memory| {
                    let poll = Poll::read(wasi, memory, at, count)?;
                    Ok((poll, wasi.sleeper.clone(), memory.0.len() as u64, wasi.recorder.is_replaying()))
                });
                let (poll, sleeper, memory_bytes, is_replaying) = match read {
                    Ok(read) => read,
                    Err(errno) => return code(Err(errno)),
                };
                match sleeper {
                    // The awaited event is long past.
                    _ if poll.wait.is_zero() || is_replaying => tokio::task::yield_now().await,
                    Some(sleeper) => sleeper.sleep(poll.wait, memory_bytes).await,
                    None => tokio::time::sleep(poll.wait).await,
                }
                code(with_memory(&mut caller, view, |_, memory| poll.write(memory, events, out)))
            })
        },
    )?;
    Ok(())
}

fn with_memory<T: 'static, R>(
    caller: &mut Caller<'_, T>,
    view: fn(&mut T) -> &mut Wasi,
    call: impl FnOnce(&mut Wasi, &mut GuestMemory<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Err(Errno::Fault) };
    let (bytes, data) = memory.data_and_store_mut(caller.as_context_mut());
    call(view(data), &mut GuestMemory(bytes))
}

#[cfg(test)]
mod tests;
