//! Connections of programs in a whole sandbox: its files, its filter, its user.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncReadExt;

use super::common::profile;
use sekisho_process_sandbox::network::{Connections, Files, Refused, Resolved, Supervisor};
use sekisho_process_sandbox::{Network, Profile, Started, start};

/// Allows one port of the machine's loopback, and knows one name.
#[derive(Debug)]
struct OnePort(u16);

#[async_trait]
impl Connections for OnePort {
    async fn resolve(&self, host: &str) -> Resolved {
        match host {
            "machine.test" => Resolved::Addresses(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            _ => Resolved::NoSuchName,
        }
    }

    fn may_connect(&self, _address: SocketAddr) -> Result<(), Refused> {
        Err(Refused)
    }

    fn is_of_machine(&self, loopback: SocketAddr) -> bool {
        loopback.port() == self.0
    }

    fn opened(&self, _address: SocketAddr) {}
}

fn server(answer: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            // The request is shorter.
            _ = connection.read(&mut [0; 4_096]);
            _ = write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n{answer}");
        }
    });
    port
}

/// The files that a program used, and whether they were to change.
#[derive(Debug, Default)]
struct Used(Mutex<Vec<(PathBuf, bool)>>);

impl Files for Used {
    fn used(&self, path: &Path, writes: bool) {
        self.0.lock().unwrap().push((path.to_owned(), writes));
    }
}

async fn output(program: &str, args: &[&str], port: u16) -> String {
    observed(program, args, port, None).await
}

async fn observed(program: &str, args: &[&str], port: u16, files: Option<Arc<Used>>) -> String {
    let observed = files.is_some();
    let profile = Profile { network: Network::Public, supervised: true, observed, ..profile(program, args) };
    let Started { mut child, handover, guard: _guard, .. } = start(&profile, true).await.unwrap();
    let files = files.map(|files| files as Arc<dyn Files>);
    let _supervisor = Supervisor::start(handover.unwrap(), Arc::new(OnePort(port)), files).unwrap();
    drop(child.stdin.take());
    let (mut output, mut errors) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reading = async {
        let (output, errors) = tokio::join!(stdout.read_to_string(&mut output), stderr.read_to_string(&mut errors));
        output.unwrap();
        errors.unwrap();
        child.wait().await.unwrap()
    };
    let status = tokio::time::timeout(Duration::from_secs(60), reading).await.unwrap();
    assert!(status.success(), "{program}: {status} {errors}");
    output
}

#[tokio::test]
async fn a_program_reaches_the_allowed_server_by_its_name_and_no_other() {
    let (allowed, other) = (server("mine"), server("else"));
    let python = format!(
        "import socket, urllib.request, os
print(urllib.request.urlopen('http://machine.test:{allowed}/').read().decode())
for address in [('127.0.0.1', {other}), ('8.8.8.8', 53), ('machine.test', {other}), ('unknown.test', 80)]:
    try: socket.create_connection(address)
    except OSError as error: print(type(error).__name__)
server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname()); print('own')"
    );
    let expected = "mine\nConnectionRefusedError\nPermissionError\nConnectionRefusedError\ngaierror\nown\n";
    assert_eq!(output("python3", &["-c", &python], allowed).await, expected);
    let fetch = format!("fetch('http://machine.test:{allowed}/').then(r => r.text()).then(console.log)");
    assert_eq!(output("node", &["-e", &fetch], allowed).await, "mine\n");
    let url = format!("http://machine.test:{allowed}/");
    assert_eq!(output("curl", &["--silent", "--show-error", &url], allowed).await, "mine");
}

/// A domain of Landlock for connections forbids it, unless it has a rule.
#[tokio::test]
async fn files_are_moved_and_linked_between_folders() {
    let script = "import os; os.chdir(os.path.expanduser('~')); os.makedirs('a/b'); os.mkdir('c'); open('a/f', 'w').close(); \
                  os.rename('a/b', 'c/b'); os.rename('a/f', 'c/f'); os.link('c/f', 'a/g'); print(sorted(os.listdir('c')))";
    assert_eq!(output("python3", &["-c", script], 1).await, "['b', 'f']\n");
}

#[tokio::test]
async fn the_files_of_an_observed_program_are_recorded_and_nothing_else_changes() {
    let files = Arc::<Used>::default();
    let python = "
import os
for path in ['/etc/shadow', '/etc/../root/nothing', '/tmp/made/../made']:
    try: print(len(os.listdir(path)))
    except OSError as error: print(type(error).__name__)
os.makedirs('/tmp/made'); os.chdir('/tmp/made')
open('note', 'w').write('x'); print(open('note').read())
folder = os.open('/tmp', os.O_RDONLY); os.stat('made/note', dir_fd=folder)";
    let printed = observed("python3", &["-c", python], 0, Some(Arc::clone(&files))).await;
    assert_eq!(printed, "FileNotFoundError\nFileNotFoundError\nFileNotFoundError\nx\n");
    let used = files.0.lock().unwrap();
    for (path, writes) in [
        ("/etc/shadow", false),
        ("/root/nothing", false),
        ("/tmp/made", true),
        ("/tmp/made/note", true),
        ("/tmp/made/note", false),
    ] {
        assert!(used.contains(&(PathBuf::from(path), writes)), "{path} {writes}: {used:?}");
    }
    assert!(!used.contains(&(PathBuf::from("/etc/shadow"), true)));
}
