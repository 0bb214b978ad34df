//! The gateway's side: starts the helper process, and waits until the program begins.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use crate::applied::{Applied, Layer};
use crate::cgroup::{self, Group};
use crate::helper::{ARGUMENT, BEGIN, Report, is_called};
use crate::home::{HomeError, HomeWatch, require_room};
use crate::network::Handover;
use crate::profile::Profile;

/// Time that the helper process may take.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// A program that has begun. Its streams are pipes of the child.
#[derive(Debug)]
pub struct Started {
    /// The helper: killed, it ends all processes of the sandbox; signals are passed on; it ends as the program does. It is the leader of
    /// its process group.
    pub child: Child,
    pub applied: Applied,
    /// The descriptors by which the gateway makes the program's connections.
    pub handover: Option<Handover>,
    /// Kept as long as the child.
    pub guard: Guard,
}

/// Bounds of a program from outside. Dropped, it ends a program that has a cgroup, and its kept home is not measured any more.
#[derive(Debug)]
pub struct Guard {
    _home: Option<HomeWatch>,
    _group: Option<Group>,
}

impl Guard {
    /// Of the program that this child runs.
    fn new(profile: &Profile, child: &Child, group: Option<Group>) -> Self {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        // Before Linux 5.3 the home is measured only before a program begins.
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let home = profile.home.kept.clone().zip(process).map(|(home, process)| HomeWatch::start(home, process));
        Self { _home: home, _group: group }
    }
}

/// Why a program does not begin.
#[derive(Debug, Error)]
pub enum StartError {
    /// The program itself cannot be executed.
    #[error(transparent)]
    Program(io::Error),
    #[error("its sandbox cannot be set up: {0}")]
    Sandbox(String),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("a layer of its sandbox is missing, and `mcp.sandbox` is `required`: {}", .0.missing_text())]
    Missing(Applied),
}

/// Whether a copy of this program is a helper process: whether its `main` called `run_if_helper`.
pub fn is_available() -> bool {
    is_called()
}

/// Starts the program of the profile. With `is_required`, only with all layers of the sandbox.
/// Errors: when the program cannot be executed, its sandbox cannot be set up, or its kept home is too large.
pub async fn start(profile: &Profile, is_required: bool) -> Result<Started, StartError> {
    if !is_called() {
        let reason = "the program that embeds the gateway does not call `run_if_helper` first in its `main`";
        return Err(StartError::Sandbox(reason.to_owned()));
    }
    if let Some(home) = &profile.home.kept {
        require_room(home.clone()).await?;
    }
    match attempt(profile, is_required).await? {
        Attempt::Started(started) => Ok(*started),
        Attempt::NoNamespaces(reason) => {
            match attempt(&profile.clone().in_namespaces_of_machine(reason.clone()), is_required).await? {
                Attempt::Started(started) => Ok(*started),
                Attempt::NoNamespaces(_) => Err(StartError::Sandbox(reason)),
            }
        }
    }
}

enum Attempt {
    Started(Box<Started>),
    NoNamespaces(String),
}

async fn attempt(profile: &Profile, is_required: bool) -> Result<Attempt, StartError> {
    let failed = |error: io::Error| StartError::Sandbox(error.to_string());
    let text = serde_json::to_vec(profile).map_err(|error| StartError::Sandbox(error.to_string()))?;
    let (group, limited) = match cgroup::make(&profile.limits) {
        Ok(group) => {
            let limited = group.is_some().then_some(Ok(()));
            (group, limited)
        }
        Err(reason) => (None, Some(Err(reason))),
    };
    let (child, control) = spawn(&text, group.as_ref()).map_err(failed)?;
    #[expect(unsafe_code, reason = "the type asks for it")]
    // SAFETY: the socket stays open, with the same number, for as long as its owner.
    let control = unsafe { AsyncFd::register(control) };
    let control = Control(control.map_err(|error| StartError::Sandbox(error.to_string()))?);
    let set_up = tokio::time::timeout(SET_UP_TIMEOUT, control.set_up(is_required, limited)).await;
    let set_up = set_up.map_err(|_| {
        StartError::Sandbox(format!("the helper process does not answer within {} s", SET_UP_TIMEOUT.as_secs()))
    })?;
    // An error drops the child, which kills it.
    Ok(match set_up? {
        SetUp::Begun(applied, handover) => {
            let guard = Guard::new(profile, &child, group);
            Attempt::Started(Box::new(Started { child, applied, handover, guard }))
        }
        SetUp::NoNamespaces(reason) => Attempt::NoNamespaces(reason),
    })
}

/// The helper enters the cgroup before it is executed.
fn spawn(profile: &[u8], group: Option<&Group>) -> io::Result<(Child, OwnedFd)> {
    let entrance = group.map(Group::entrance).transpose()?;
    let memory = rustix::fs::memfd_create(c"profile", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    io::Write::write_all(&mut file, profile)?;
    let (ours, of_helper) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // The helper's end waits.
    rustix::io::ioctl_fionbio(&ours, true)?;
    // The file that runs, also where another version has its path by now.
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0("sekisho").arg(ARGUMENT);
    command.args([file.as_raw_fd().to_string(), of_helper.as_raw_fd().to_string()]).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let passed_on = [file.as_raw_fd(), of_helper.as_raw_fd()];
    let prepare = move || {
        for number in passed_on {
            #[expect(unsafe_code, reason = "the descriptors are owned by the process that was forked")]
            // SAFETY: they are open until the exec.
            let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if let Some(entrance) = &entrance {
            // This process.
            rustix::io::write(entrance, b"0")?;
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "only code between fork and exec can pass descriptors on")]
    // SAFETY: the closure makes system calls and touches no memory that others change.
    unsafe {
        command.pre_exec(prepare);
    }
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    Ok((command.spawn()?, ours))
}

enum SetUp {
    Begun(Applied, Option<Handover>),
    NoNamespaces(String),
}

/// The connection to a helper process.
struct Control(AsyncFd<OwnedFd>);

impl Control {
    /// `limited` says whether the program has a limit of the memory of all its processes, where a cgroup is delegated.
    async fn set_up(&self, is_required: bool, limited: Option<Result<(), String>>) -> Result<SetUp, StartError> {
        let ended = || StartError::Sandbox("the helper process ended".to_owned());
        let (report, descriptors) = self.receive().await?;
        let (mut applied, tcp_forbidden) = match report.ok_or_else(ended)? {
            Report::Ready { applied, tcp_forbidden } => (applied, tcp_forbidden),
            Report::NoNamespaces(reason) => return Ok(SetUp::NoNamespaces(reason)),
            other => return Err(error_of(other)),
        };
        if let Some(outcome) = limited {
            applied.record(Layer::MemoryOfAll, outcome);
        }
        if is_required && !applied.missing.is_empty() {
            return Err(StartError::Missing(applied));
        }
        rustix::io::write(self.0.get_ref(), BEGIN).map_err(|error| StartError::Sandbox(error.to_string()))?;
        // The connection ends with the exec.
        match self.receive().await? {
            (None, _) => Ok(SetUp::Begun(applied, handover(descriptors, tcp_forbidden))),
            (Some(report), _) => Err(error_of(report)),
        }
    }

    /// `None` at the end.
    async fn receive(&self) -> Result<(Option<Report>, Vec<OwnedFd>), StartError> {
        let failed = |error: io::Error| StartError::Sandbox(error.to_string());
        loop {
            let mut ready = self.0.readable().await.map_err(failed)?;
            if let Ok(received) = ready.try_io(|socket| receive(socket.get_ref())) {
                let (text, descriptors) = received.map_err(failed)?;
                if text.is_empty() {
                    return Ok((None, descriptors));
                }
                let report = serde_json::from_slice(&text).map_err(|error| StartError::Sandbox(error.to_string()))?;
                return Ok((Some(report), descriptors));
            }
        }
    }
}

fn error_of(report: Report) -> StartError {
    match report {
        Report::NotExecuted(number) => StartError::Program(io::Error::from_raw_os_error(number)),
        Report::Failed(reason) | Report::NoNamespaces(reason) => StartError::Sandbox(reason),
        Report::Ready { .. } => StartError::Sandbox("the helper process reported twice".to_owned()),
    }
}

/// One packet, and the descriptors that came with it.
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; 1 << 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut text)];
    let received = recvmsg(socket.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    text.truncate(received.bytes);
    Ok((text, descriptors))
}

/// In the order in which the helper sends them.
fn handover(descriptors: Vec<OwnedFd>, tcp_forbidden: bool) -> Option<Handover> {
    let mut descriptors = descriptors.into_iter();
    let (listener, resolver, sockets) = (descriptors.next()?, descriptors.next()?, descriptors.next()?);
    Some(Handover { listener, resolver, sockets, tcp_forbidden })
}
