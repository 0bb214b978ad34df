//! The world outside of the sandbox, which must stay unchanged.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;

use super::super::common::profile;
use sekisho_process_sandbox::network::{Connections, Refused, Resolved};
use sekisho_process_sandbox::{Folder, Limits, Network, Packages, Profile};

pub(super) const SECRET: &str = "the-content-of-the-secret";

/// Files that a program would like to write: others execute them, or install packages from them.
const FILES_OF_OTHERS: [&str; 17] = [
    "~/.bashrc",
    "~/.profile",
    "~/.bash_logout",
    "~/.ssh/authorized_keys",
    "~/.config/autostart/a.desktop",
    "~/.config/systemd/user/a.service",
    "~/.local/bin/node",
    "~/.npmrc",
    "~/.pip/pip.conf",
    "~/.gitconfig",
    "~/.npm/_cacache/index-v5/a",
    "~/.npm/_npx/a",
    "~/.cache/pip/a",
    "~/.cache/uv/a",
    "~/.cache/sekisho/a",
    "/etc/cron.d/a",
    "/usr/local/bin/node",
];

/// Allows one port of the machine. Of the names that it knows, none leads to a public address for long.
#[derive(Debug)]
pub(super) struct Policy {
    allowed: u16,
    is_rebound: AtomicBool,
}

#[async_trait]
impl Connections for Policy {
    async fn resolve(&self, host: &str) -> Resolved {
        let addresses: &[&str] = match host {
            "private.test" => &["10.9.8.7", "fd00::1"],
            "loopback.test" => &["127.0.0.1", "::1"],
            "mapped.test" => &["::ffff:127.0.0.1", "0.0.0.0"],
            "rebind.test" if !self.is_rebound.swap(true, Ordering::SeqCst) => &["203.0.113.7"],
            "rebind.test" => &["127.0.0.1"],
            _ => return Resolved::NoSuchName,
        };
        Resolved::Addresses(addresses.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect())
    }

    fn may_connect(&self, _address: SocketAddr) -> Result<(), Refused> {
        Err(Refused)
    }

    fn is_of_machine(&self, loopback: SocketAddr) -> bool {
        loopback.port() == self.allowed
    }

    fn opened(&self, _address: SocketAddr) {}
}

pub(super) struct Outside {
    folder: tempfile::TempDir,
    port: TcpListener,
    listeners: Vec<UnixListener>,
    process: Child,
    _inherited: fs::File,
    files_of_others: Vec<Option<SystemTime>>,
    mounts: usize,
    pub(super) policy: Arc<Policy>,
    /// Processes of sandboxes that go on.
    pub(super) neighbours: Vec<Vec<String>>,
}

impl Outside {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["program", "work", "other", "packages"] {
            fs::create_dir(path(name)).unwrap();
        }
        for (name, text) in [
            ("secret", SECRET),
            ("program/tool", "#!/bin/sh\n"),
            ("packages/tool", "#!/bin/sh\n"),
            ("other/token", SECRET),
        ] {
            fs::write(path(name), text).unwrap();
        }
        let folder_name = folder.path().to_str().unwrap();
        let abstract_name = std::os::unix::net::SocketAddr::from_abstract_name(folder_name).unwrap();
        let listeners =
            vec![UnixListener::bind(path("gateway.sock")).unwrap(), UnixListener::bind_addr(&abstract_name).unwrap()];
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        port.set_nonblocking(true).unwrap();
        let process = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
        let inherited = fs::File::open(path("secret")).unwrap();
        clear_close_on_exec(&inherited);
        Self {
            folder,
            port,
            listeners,
            process,
            _inherited: inherited,
            files_of_others: files_of_others(),
            mounts: mounts(),
            policy: Arc::new(Policy { allowed: allowed_port(), is_rebound: AtomicBool::new(false) }),
            neighbours: Vec::new(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn is_neighbour(&self, process: &str) -> bool {
        self.neighbours.iter().flatten().any(|neighbour| neighbour == process)
    }

    /// With the connections that a server has without configuration.
    pub(super) fn profile(&self, script: &str, neighbour: u16) -> Profile {
        let mut profile = profile("python3", &["-c", script]);
        profile.folders.push(Folder::new(self.path("program"), false));
        profile.folders.push(Folder::new(self.path("work"), true));
        let packages = Packages { path: "/sekisho-packages".into(), kept: self.path("packages"), write: false };
        profile.packages = Some(packages);
        profile.limits =
            Limits { processes: 200, memory_bytes: 1 << 30, temporary_bytes: 16 << 20, ..Limits::default() };
        (profile.network, profile.supervised) = (Network::Public, true);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        profile.env.extend([
            ("SECRET".to_owned(), text(&self.path("secret"))),
            ("FOLDER".to_owned(), text(self.folder.path())),
            ("WORK".to_owned(), text(&self.path("work"))),
            ("OTHER".to_owned(), text(&self.path("other"))),
            ("SOCKET".to_owned(), text(&self.path("gateway.sock"))),
            ("ABSTRACT".to_owned(), text(self.folder.path())),
            ("PORT".to_owned(), self.port.local_addr().unwrap().port().to_string()),
            ("ALLOWED".to_owned(), self.policy.allowed.to_string()),
            ("NEIGHBOUR".to_owned(), neighbour.to_string()),
            ("PROCESS".to_owned(), self.process.id().to_string()),
            ("PROGRAM".to_owned(), text(&self.path("program/tool"))),
        ]);
        profile
    }

    /// Changes that a program made, and places that it reached.
    pub(super) fn changes(&mut self) -> Vec<&'static str> {
        let mut changes = Vec::new();
        let mut check = |is_unchanged: bool, what| (!is_unchanged).then(|| changes.push(what));
        check(self.process.try_wait().unwrap().is_none(), "the process was ended");
        check(fs::read_to_string(self.path("program/tool")).unwrap() == "#!/bin/sh\n", "the program was written");
        check(entries(&self.path("program")) == 1, "a file was written beside the program");
        check(fs::read_to_string(self.path("packages/tool")).unwrap() == "#!/bin/sh\n", "a package was written");
        check(entries(&self.path("packages")) == 1, "a file was written beside the packages");
        check(entries(&self.path("other")) == 1, "a file was written into another home");
        check(entries(&self.path("work")) == 0, "a file is left in the writable folder");
        check(self.port.accept().is_err(), "the port was connected to");
        check(self.listeners.iter().all(|listener| listener.accept().is_err()), "a Unix socket was connected to");
        check(self.files_of_others == files_of_others(), "a file of others was written");
        check(self.mounts == mounts(), "a mount is left");
        changes
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Mounts at the places where a sandbox has its own.
fn mounts() -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| ["/tmp", "/mnt", "/old", "/new"].iter().any(|base| point.starts_with(base))).count()
}

fn files_of_others() -> Vec<Option<SystemTime>> {
    let home = std::env::home_dir().unwrap();
    let path = |name: &str| name.strip_prefix("~/").map_or_else(|| name.into(), |name| home.join(name));
    FILES_OF_OTHERS.iter().map(|name| fs::metadata(path(name)).and_then(|file| file.modified()).ok()).collect()
}

/// Takes connections and ends them.
fn allowed_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    port
}

#[expect(unsafe_code, reason = "the standard library closes all its files on exec")]
fn clear_close_on_exec(file: &fs::File) {
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }, 0);
}
