//! The helper process: it gives itself the sandbox, and becomes the program.
//!
//! It has one thread, so that it may fork and change its namespaces.

mod filter;
mod landlock;
mod mounts;
mod namespaces;
mod processes;
mod rights;
mod tree;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

use self::processes::{Forked, end_as, fork, reset_signals, wait_for};
pub(crate) use self::tree::SYSTEM;
pub use self::tree::is_in_every_sandbox;
use crate::applied::{Applied, Layer};
use crate::network::{self, Installed};
use crate::profile::{Network, Profile};

/// The first argument of the helper process; two descriptors follow: of the profile, and of the connection to the gateway.
pub(crate) const ARGUMENT: &str = "__sandboxed-program";

/// The gateway sends it when the program may begin.
pub(crate) const BEGIN: &[u8] = b"begin";

/// Sent to the gateway, each in one packet. After that the connection ends when the program has begun.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// All is set up. The descriptors of a [`network::Handover`] come with it where the gateway makes the connections.
    Ready {
        applied: Applied,
        tcp_forbidden: bool,
    },
    /// The gateway may try again without them.
    NoNamespaces(String),
    /// The program cannot be executed, with the error's number.
    NotExecuted(i32),
    Failed(String),
}

/// A message of the program's process to process 1 before it begins.
#[derive(Debug, Serialize, Deserialize)]
struct Prepared {
    applied: Applied,
    listener: Option<Listener>,
}

/// The listener for the connections of a program, in the program's process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Listener {
    descriptor: RawFd,
    tcp_forbidden: bool,
}

static IS_CALLED: AtomicBool = AtomicBool::new(false);

/// Whether [`run_if_helper`] was called, so that a copy of this program would be a helper process.
pub(crate) fn is_called() -> bool {
    IS_CALLED.load(Ordering::Relaxed)
}

/// Makes this process a helper if it was started as one, and then does not return. Call it first in `main`: before a thread is started
/// or a file opened.
pub fn run_if_helper() {
    IS_CALLED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        return;
    }
    let mut descriptor = || arguments.next()?.to_str()?.parse::<RawFd>().ok().filter(|number| *number > 2);
    let (Some(profile), Some(control)) = (descriptor(), descriptor()) else { exit(2) };
    if rights::close_others(profile, control).is_err() {
        exit(2);
    }
    #[expect(unsafe_code, reason = "inherited descriptors have only their numbers")]
    // SAFETY: the gateway gave these two to this process, and nothing else owns them.
    let (profile, control) = unsafe { (OwnedFd::from_raw_fd(profile), OwnedFd::from_raw_fd(control)) };
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { exit(2) };
    let gateway = GatewayConnection { control, null };
    let Err(report) = run(profile, &gateway);
    gateway.report(&report, &[]);
    exit(1);
}

/// The connection to the gateway.
struct GatewayConnection {
    control: OwnedFd,
    /// Takes its place in a process that only waits. Opened while there is one root: process 1 changes it for the helper, too.
    null: File,
}

impl GatewayConnection {
    /// Where this fails, the gateway reads the end of the connection.
    fn report(&self, report: &Report, descriptors: &[OwnedFd]) {
        let Ok(text) = serde_json::to_vec(report) else { return };
        if descriptors.is_empty() {
            // Not `sendmsg`, which a filter may refer to the gateway.
            _ = rustix::io::write(&self.control, &text);
            return;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        _ = sendmsg(&self.control, &[io::IoSlice::new(&text)], &mut ancillary, SendFlags::empty());
    }

    /// A process that only waits must not hold the connection or the program's streams open.
    fn forget(&self) {
        for dup in [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr] {
            _ = dup(&self.null);
        }
        rights::close_control(&self.control, &self.null);
    }

    fn wait_until_begin(&self) -> Result<(), Report> {
        let mut text = [0; 16];
        match rustix::io::read(&self.control, &mut text) {
            Ok(length) if text.get(..length) == Some(BEGIN) => Ok(()),
            // The gateway does not want it, or is gone.
            _ => exit(1),
        }
    }
}

enum Never {}

fn run(profile: OwnedFd, gateway: &GatewayConnection) -> Result<Never, Report> {
    rights::die_with_parent().map_err(failed("parent-death signal"))?;
    let mut text = Vec::new();
    let mut file = File::from(profile);
    file.rewind().and_then(|()| file.read_to_end(&mut text)).map_err(failed("profile"))?;
    let profile: Profile = serde_json::from_slice(&text).map_err(failed("profile"))?;
    drop((file, text));
    processes::block_signals();
    let Some(reason) = &profile.without_namespaces else { return in_namespaces(&profile, gateway) };
    let mut applied = Applied::default();
    let layers = [Layer::Namespaces, Layer::Processes, Layer::Network, Layer::Connections, Layer::ProcessLimit];
    for layer in layers {
        applied.record(layer, Err(reason.clone()));
    }
    restrict(&profile, &mut applied)?;
    gateway.report(&Report::Ready { applied, tcp_forbidden: false }, &[]);
    execute(&profile, gateway)
}

fn in_namespaces(profile: &Profile, gateway: &GatewayConnection) -> Result<Never, Report> {
    // While there is the machine's `/proc`.
    let has_terminal = processes::has_terminal();
    namespaces::enter(profile).map_err(Report::NoNamespaces)?;
    let (status, status_of_program) = io::pipe().map_err(failed("pipe"))?;
    match fork().map_err(|error| Report::NoNamespaces(format!("fork: {error}")))? {
        Forked::Child => {
            drop(status);
            first_process(profile, gateway, status_of_program, has_terminal)
        }
        Forked::Parent(first) => {
            drop(status_of_program);
            gateway.forget();
            let ended = wait_for(first, |signal| _ = kill_process(first, signal));
            end_as(program_status(status).unwrap_or(ended))
        }
    }
}

/// Process 1 of the namespace: all other processes end with it.
fn first_process(
    profile: &Profile,
    gateway: &GatewayConnection,
    status: PipeWriter,
    has_terminal: bool,
) -> Result<Never, Report> {
    rights::die_with_parent().map_err(failed("parent-death signal"))?;
    if processes::reader_is_gone(&status) {
        // The helper ended before the signal was asked for.
        exit(1);
    }
    // A signal to the helper's group arrives once: the helper passes it on.
    processes::leave_group(has_terminal).map_err(failed("process group"))?;
    let mut applied = Applied::default();
    applied.record(Layer::Namespaces, Ok(()));
    mounts::build(profile, &mut applied)?;
    let network = OwnNetwork::of(profile, &mut applied)?;
    let (ours, of_program) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed("socketpair"))?;
    match fork().map_err(failed("fork"))? {
        Forked::Child => {
            drop((ours, status));
            program(profile, gateway, &of_program, applied, has_terminal)
        }
        Forked::Parent(program) => {
            drop(of_program);
            supervise(program, gateway, &ours, status, network)
        }
    }
}

/// The network of the namespace, as its first process has it.
enum OwnNetwork {
    /// The machine's, or one without connections to others.
    Unsupervised,
    Supervised(network::Inside, network::Outside),
}

impl OwnNetwork {
    fn of(profile: &Profile, applied: &mut Applied) -> Result<Self, Report> {
        if !namespaces::has_own_network(profile) {
            let reason = "the gateway does not make the connections of programs yet; it uses those of the machine";
            applied.record(Layer::Network, Err(reason.to_owned()));
            return Ok(Self::Unsupervised);
        }
        let failed = failed("network");
        let network = match profile.network {
            Network::None => network::loopback_up().map(|()| Self::Unsupervised),
            Network::Public | Network::Hosts(_) => {
                network::prepare().map(|(inside, outside)| Self::Supervised(inside, outside))
            }
        };
        applied.record(Layer::Network, Ok(()));
        network.map_err(failed)
    }
}

/// Passes the program's listener on, and waits for the program. This process has no filter: its own calls are not referred to the
/// gateway.
fn supervise(
    program: Pid,
    gateway: &GatewayConnection,
    prepared: &OwnedFd,
    mut status: PipeWriter,
    network: OwnNetwork,
) -> Result<Never, Report> {
    let mut text = vec![0; 1 << 16];
    let length = rustix::io::read(prepared, &mut text).unwrap_or(0);
    // Nothing was sent where the preparation failed; the program's process reported why.
    let prepared = serde_json::from_slice::<Prepared>(text.get(..length).unwrap_or_default()).ok();
    let mut inside = None;
    if let Some(Prepared { applied, listener }) = prepared {
        let descriptors = match (network, listener) {
            (OwnNetwork::Supervised(ours, outside), Some(listener)) => {
                let listener = take_descriptor(program, listener.descriptor).map_err(failed("pidfd_getfd"))?;
                inside = Some(ours);
                vec![listener, outside.resolver, outside.sockets]
            }
            _ => Vec::new(),
        };
        let tcp_forbidden = listener.is_some_and(|listener| listener.tcp_forbidden);
        // The program does not begin before the report.
        rights::hide_from_program().map_err(failed("dumpable"))?;
        gateway.report(&Report::Ready { applied, tcp_forbidden }, &descriptors);
    }
    gateway.forget();
    _ = rights::drop_capabilities();
    if let Some(inside) = inside {
        std::thread::spawn(move || network::serve_sockets(inside));
    }
    // To all processes of the namespace but this one.
    let ended = wait_for(program, processes::signal_all);
    _ = status.write_all(&ended.to_ne_bytes());
    exit(0);
}

fn take_descriptor(program: Pid, number: RawFd) -> io::Result<OwnedFd> {
    let process = pidfd_open(program, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// The process that becomes the program.
fn program(
    profile: &Profile,
    gateway: &GatewayConnection,
    first: &OwnedFd,
    mut applied: Applied,
    has_terminal: bool,
) -> Result<Never, Report> {
    rights::die_with_parent().map_err(failed("parent-death signal"))?;
    processes::leave_group(has_terminal).map_err(failed("process group"))?;
    restrict(profile, &mut applied)?;
    let listener = match (namespaces::has_own_network(profile), &profile.network) {
        (false, _) => None,
        (true, Network::None) => {
            record_filter(
                Layer::Connections,
                network::install_none().map_err(|error| error.to_string()),
                &mut applied,
            )?;
            None
        }
        (true, Network::Public | Network::Hosts(_)) => {
            // Without it the program would wait for connections that nobody makes.
            let listener = network::install_listener(profile.observed).map_err(failed("supervised connections"))?;
            applied.record(Layer::Connections, Ok(()));
            Some(listener)
        }
    };
    let of_process = |installed: &Installed| Listener {
        descriptor: installed.listener.as_raw_fd(),
        tcp_forbidden: installed.tcp_forbidden,
    };
    // The exec closes its descriptor, which process 1 has duplicated by then.
    let prepared = Prepared { applied, listener: listener.as_ref().map(of_process) };
    let text = serde_json::to_vec(&prepared).map_err(failed("report"))?;
    rustix::io::write(first, &text).map_err(failed("report"))?;
    execute(profile, gateway)
}

/// Gives up all rights. Nothing can be opened for the sandbox after it.
fn restrict(profile: &Profile, applied: &mut Applied) -> Result<(), Report> {
    applied.record(Layer::MemoryLimit, rights::limit_memory(&profile.limits));
    rights::limit_resources(&profile.limits).map_err(failed("resource limits"))?;
    rights::drop_capabilities().map_err(failed("capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    applied.record(Layer::Landlock, landlock::restrict(profile));
    record_filter(Layer::Seccomp, filter::apply(), applied)
}

/// A filter is missing only where the kernel has none.
fn record_filter(layer: Layer, outcome: Result<(), String>, applied: &mut Applied) -> Result<(), Report> {
    if let Err(reason) = &outcome
        && filter::is_available()
    {
        return Err(Report::Failed(format!("{}: {reason}", layer.name())));
    }
    applied.record(layer, outcome);
    Ok(())
}

fn execute(profile: &Profile, gateway: &GatewayConnection) -> Result<Never, Report> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(failed("an argument or variable has a zero byte"));
    let program = text(profile.program.as_os_str().as_bytes())?;
    let mut arguments = vec![program.clone()];
    for argument in &profile.args {
        arguments.push(text(argument.as_bytes())?);
    }
    let mut variables = Vec::new();
    for (name, value) in &profile.env {
        variables.push(text(format!("{name}={value}").as_bytes())?);
    }
    rustix::process::chdir(&profile.cwd)
        .map_err(|error| Report::Failed(format!("its folder {}: {error}", profile.cwd.display())))?;
    gateway.wait_until_begin()?;
    reset_signals();
    let error = processes::replace_by(&program, &arguments, &variables);
    Err(Report::NotExecuted(error.raw_os_error().unwrap_or(libc::EIO)))
}

fn program_status(mut status: PipeReader) -> Option<i32> {
    let mut bytes = [0; 4];
    status.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

fn failed<E: ToString>(what: &'static str) -> impl Fn(E) -> Report {
    move |error| Report::Failed(format!("{what}: {}", error.to_string()))
}

/// For a signal's number.
fn signal(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}
