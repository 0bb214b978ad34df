//! Real programs in a network namespace, against servers at an address that the policy calls public.
//!
//! A test is executed again within namespaces of its own (`unshare`): there, loopback has further addresses, such as one
//! that programs may reach, and nothing else is reached. The test's part of the sandbox is this binary, too.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{env, thread};

use async_trait::async_trait;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::namespace::add_address;
use super::{
    Connections, Handover, Installed, Outside, RESOLVER, Refused, Resolved, Supervisor, install_listener, prepare,
    serve_sockets,
};

mod clients;
mod hostile;
mod local;

/// The address that programs may reach.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// One that they may not, though there is a server, too.
const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 7);

/// Set in the execution of a test within namespaces.
const WITHIN: &str = "SEKISHO_TEST_WITHIN_NAMESPACES";
/// The socket and the program of the process that is the sandbox.
const CHANNEL: &str = "SEKISHO_TEST_CHANNEL";

/// Executes `test` within namespaces, where servers listen at [`PUBLIC`] and [`PRIVATE`].
fn within_namespaces(name: &str, test: impl AsyncFnOnce(Arc<Policy>)) {
    if env::var_os(WITHIN).is_some() {
        loopback_with(&[PUBLIC, PRIVATE]);
        // As a gateway of an ordinary user.
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(test(Arc::default()));
    }
    let name = format!("network::tests::{name}");
    let mut again = Command::new("unshare");
    again.args(["--user", "--map-root-user", "--net"]).arg(env::current_exe().unwrap());
    let output = again.args([&*name, "--exact", "--nocapture"]).env(WITHIN, "1").output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "no test has the name {name}: {}", text(&output.stdout));
}

fn loopback_with(addresses: &[Ipv4Addr]) {
    super::loopback_up().unwrap();
    for (number, address) in addresses.iter().enumerate() {
        add_address(format!("lo:{}", number + 2).as_bytes(), *address).unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Allows one address, and records the requests.
#[derive(Debug, Default)]
struct Policy {
    asked: Mutex<Vec<String>>,
    refused: Mutex<Vec<SocketAddr>>,
    opened: Mutex<Vec<SocketAddr>>,
    datagrams: Mutex<Vec<SocketAddr>>,
    /// Look-ups of `rebind.test`, whose address changes.
    rebound: Mutex<usize>,
    /// A port of the machine's loopback.
    of_machine: Mutex<Option<u16>>,
}

#[async_trait]
impl Connections for Policy {
    async fn resolve(&self, host: &str) -> Resolved {
        self.asked.lock().unwrap().push(host.to_owned());
        let mut rebound = self.rebound.lock().unwrap();
        let addresses: &[IpAddr] = match host {
            "public.test" => &[IpAddr::V4(PUBLIC)],
            "private.test" => &[IpAddr::V4(PRIVATE)],
            "loopback.test" => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            "rebind.test" => {
                *rebound += 1;
                if *rebound == 1 { &[IpAddr::V4(PUBLIC)] } else { &[IpAddr::V4(PRIVATE)] }
            }
            _ => return Resolved::NoSuchName,
        };
        Resolved::Addresses(addresses.to_vec())
    }

    fn may_connect(&self, address: SocketAddr) -> Result<(), Refused> {
        if address.ip().to_canonical() == IpAddr::V4(PUBLIC) {
            return Ok(());
        }
        self.refused.lock().unwrap().push(address);
        Err(Refused)
    }

    fn is_of_machine(&self, loopback: SocketAddr) -> bool {
        *self.of_machine.lock().unwrap() == Some(loopback.port())
    }

    fn opened(&self, address: SocketAddr) {
        self.opened.lock().unwrap().push(address);
    }

    fn datagram_refused(&self, address: SocketAddr) {
        self.datagrams.lock().unwrap().push(address);
    }
}

/// A program in its namespace, and what makes its connections.
struct Program {
    process: Child,
    supervisor: Supervisor,
}

impl Program {
    fn start(policy: &Arc<Policy>, program: &[&str], variables: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("channel");
        let channel = UnixListener::bind(&path).unwrap();
        let mut sandbox = Command::new("unshare");
        sandbox.args(["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        sandbox.arg(env::current_exe().unwrap());
        sandbox.args(["network::tests::the_sandbox_of_a_test", "--exact", "--nocapture", "--quiet"]);
        sandbox.env(CHANNEL, &path).env("PROGRAM", program.join("\u{1}")).env_remove("http_proxy");
        sandbox.envs(variables.iter().map(|(name, value)| (name, value)));
        let process = sandbox.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (channel, _) = channel.accept().unwrap();
        let ([listener, resolver, sockets], forbidden) = receive(&channel);
        let handover = Handover { listener, resolver, sockets, tcp_forbidden: forbidden == 1 };
        let supervisor = Supervisor::start(handover, Arc::clone(policy) as Arc<dyn Connections>, None).unwrap();
        Self { process, supervisor }
    }

    /// The first line that the program prints.
    fn first_line(&mut self) -> String {
        let lines = BufReader::new(self.process.stdout.as_mut().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap).skip_while(|line| line != BEGIN.trim_end());
        lines.nth(1).expect("the program prints a line")
    }

    /// The output of the program. Fails when the program does.
    async fn output(self) -> String {
        let Self { process, supervisor } = self;
        let output: Output = tokio::task::spawn_blocking(|| process.wait_with_output().unwrap()).await.unwrap();
        drop(supervisor);
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{printed}\n{errors}");
        printed.split_once(BEGIN).expect("the program began").1.to_owned()
    }
}

/// Printed before the program's output: the test harness prints, too.
const BEGIN: &str = "-- the program begins --\n";

fn receive(channel: &UnixStream) -> ([OwnedFd; 3], u8) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        })
        .collect();
    (descriptors.try_into().expect("three descriptors"), byte[0])
}

fn send(channel: &UnixStream, installed: &Installed, outside: &Outside) {
    let descriptors = [installed.listener.as_fd(), outside.resolver.as_fd(), outside.sockets.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [installed.tcp_forbidden.into()];
    sendmsg(channel, &[IoSlice::new(&byte)], &mut control, SendFlags::empty()).unwrap();
}

/// Runs a script of Python with the filter for no connections.
fn run_without_network(servers: &Servers, script: &str) -> String {
    let script = format!("{}\n{script}", include_str!("tests/prelude.py"));
    let mut sandbox = Command::new("unshare");
    sandbox.args(["--user", "--map-root-user", "--net"]).arg(env::current_exe().unwrap());
    sandbox.args(["network::tests::the_sandbox_without_network_of_a_test", "--exact", "--nocapture", "--quiet"]);
    let output = sandbox.env(SCRIPT, script).envs(servers.variables()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).split_once(BEGIN).expect("the program began").1.to_owned()
}

/// The script of [`run_without_network`].
const SCRIPT: &str = "SEKISHO_TEST_SCRIPT";

/// Not a test: what starts a program without connections.
#[test]
fn the_sandbox_without_network_of_a_test() {
    let Some(script) = env::var_os(SCRIPT) else { return };
    super::loopback_up().unwrap();
    print!("{BEGIN}");
    std::io::stdout().flush().unwrap();
    let mut command = Command::new("python3");
    command.arg("-c").arg(script);
    #[expect(unsafe_code, reason = "the filter is for the program alone")]
    // SAFETY: no other thread of this process holds a lock.
    unsafe {
        command.pre_exec(|| {
            rustix::thread::set_no_new_privs(true)?;
            super::install_none()
        });
    }
    std::process::exit(command.status().unwrap().code().unwrap_or(99));
}

/// Not a test: the first process of a program's namespaces.
#[test]
fn the_sandbox_of_a_test() {
    let Some(channel) = env::var_os(CHANNEL) else { return };
    let (inside, outside) = prepare().unwrap();
    let channel = UnixStream::connect(PathBuf::from(channel)).unwrap();
    thread::spawn(move || serve_sockets(inside).unwrap());
    let program = env::var("PROGRAM").unwrap();
    let mut program = program.split('\u{1}');
    let mut command = Command::new(program.next().unwrap());
    command.args(program).env_remove(CHANNEL).env_remove(WITHIN).env_remove("PROGRAM");
    name_the_resolver();
    print!("{BEGIN}");
    std::io::stdout().flush().unwrap();
    #[expect(unsafe_code, reason = "the filter is for the program alone")]
    // SAFETY: no other thread of this process holds a lock: the one above waits for a message.
    unsafe {
        command.pre_exec(move || {
            rustix::thread::set_no_new_privs(true)?;
            send(&channel, &install_listener(false)?, &outside);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    drop(command);
    let status = child.wait().unwrap();
    std::process::exit(status.code().unwrap_or(99));
}

/// In place of the system's: programs begin there with names.
fn name_the_resolver() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "nameserver {RESOLVER}").unwrap();
    let mounted = Command::new("mount").arg("--bind").arg(file.path()).arg("/etc/resolv.conf").status().unwrap();
    assert!(mounted.success());
}

/// Only Python and curl are on every machine that builds this.
fn is_installed(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap()).any(|folder| folder.join(program).is_file())
}

/// A server at an address, which answers requests of HTTP with its name.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

fn server(address: impl Into<IpAddr>, name: &'static str) -> Server {
    let listener = TcpListener::bind(SocketAddr::new(address.into(), 0)).unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connections);
    thread::spawn(move || {
        for connection in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            let connection = connection.unwrap();
            thread::spawn(move || reply(connection, name));
        }
    });
    Server { address, connections }
}

fn reply(mut connection: TcpStream, name: &str) {
    let mut request: Vec<u8> = Vec::new();
    let mut part = [0; 4_096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match connection.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend(&part[..read]),
        }
    }
    let length = name.len();
    _ = write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{name}");
}

/// The servers of a test.
struct Servers {
    public: Server,
    private: Server,
    /// At the loopback of the gateway.
    loopback: Server,
}

impl Servers {
    fn start() -> Self {
        Self {
            public: server(PUBLIC, "public"),
            private: server(PRIVATE, "private"),
            loopback: server(Ipv4Addr::LOCALHOST, "loopback"),
        }
    }

    fn variables(&self) -> [(&'static str, String); 3] {
        let port = |server: &Server| server.address.port().to_string();
        [
            ("PUBLIC_PORT", port(&self.public)),
            ("PRIVATE_PORT", port(&self.private)),
            ("LOOPBACK_PORT", port(&self.loopback)),
        ]
    }

    /// Runs a script of Python, and gives its output.
    async fn run_python(&self, policy: &Arc<Policy>, script: &str) -> String {
        self.start_python(policy, script).output().await
    }

    fn start_python(&self, policy: &Arc<Policy>, script: &str) -> Program {
        let script = format!("{}\n{script}", include_str!("tests/prelude.py"));
        Program::start(policy, &["python3", "-c", &script], &self.variables())
    }

    /// No program reached the other servers.
    fn assert_nothing_else_was_reached(&self) {
        for server in [&self.private, &self.loopback] {
            assert_eq!(server.connections.load(Ordering::SeqCst), 0, "{}", server.address);
        }
    }
}
