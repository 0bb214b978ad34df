//! Programs that try to leave their sandbox, or to reach something else. Each prints its successes.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::common::{self, Ended, profile, run};
use sekisho_process_sandbox::{Folder, Layer, Limits, Profile};

const PROGRAMS: &str = include_str!("hostile_programs.txt");
const PRELUDE: &str = include_str!("prelude.py");
const SECRET: &str = "the-content-of-the-secret";

/// The world outside of the sandbox, which must stay unchanged.
struct Outside {
    folder: tempfile::TempDir,
    port: std::net::TcpListener,
    listeners: Vec<UnixListener>,
    process: Child,
    _inherited: fs::File,
}

impl Outside {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("secret"), SECRET).unwrap();
        fs::create_dir(path("program")).unwrap();
        fs::write(path("program/tool"), "#!/bin/sh\n").unwrap();
        let abstract_name = SocketAddr::from_abstract_name(folder.path().to_str().unwrap()).unwrap();
        let listeners =
            vec![UnixListener::bind(path("gateway.sock")).unwrap(), UnixListener::bind_addr(&abstract_name).unwrap()];
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        let process = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
        let inherited = fs::File::open(path("secret")).unwrap();
        clear_close_on_exec(&inherited);
        Self { folder, port, listeners, process, _inherited: inherited }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn profile(&self, script: &str) -> Profile {
        let mut profile = profile("python3", &["-c", script]);
        profile.folders.push(Folder { path: self.path("program"), write: false });
        profile.limits =
            Limits { processes: 200, memory_bytes: 1 << 30, temporary_bytes: 16 << 20, ..Limits::default() };
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        profile.env.extend([
            ("SECRET".to_owned(), text(&self.path("secret"))),
            ("FOLDER".to_owned(), text(self.folder.path())),
            ("SOCKET".to_owned(), text(&self.path("gateway.sock"))),
            ("ABSTRACT".to_owned(), text(self.folder.path())),
            ("PORT".to_owned(), self.port.local_addr().unwrap().port().to_string()),
            ("PROCESS".to_owned(), self.process.id().to_string()),
            ("PROGRAM".to_owned(), text(&self.path("program/tool"))),
        ]);
        profile
    }

    /// Changes and connections that a program made.
    fn changes(&mut self) -> Vec<&'static str> {
        let mut changes = Vec::new();
        let mut check = |is_unchanged: bool, what| (!is_unchanged).then(|| changes.push(what));
        check(self.process.try_wait().unwrap().is_none(), "the process was ended");
        check(fs::read_to_string(self.path("program/tool")).unwrap() == "#!/bin/sh\n", "the program was written");
        check(fs::read_dir(self.path("program")).unwrap().count() == 1, "a file was written beside the program");
        check(self.port.accept().is_err(), "the port was connected to");
        check(self.listeners.iter().all(|listener| listener.accept().is_err()), "a Unix socket was connected to");
        changes
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[expect(unsafe_code, reason = "the standard library closes all its files on exec")]
fn clear_close_on_exec(file: &fs::File) {
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }, 0);
}

fn programs() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROGRAMS.split("\n## ").skip(1).map(|program| program.split_once('\n').unwrap())
}

/// The successes of a hostile program.
fn faults(script_ended: &Ended, outside: &mut Outside) -> Vec<String> {
    let Ended { output, errors, applied, .. } = script_ended;
    let mut faults: Vec<_> = outside.changes().into_iter().map(str::to_owned).collect();
    faults.extend(output.lines().filter(|line| line.contains("REACHED")).map(str::to_owned));
    if format!("{output}{errors}").contains(SECRET) {
        faults.push("the secret was read".to_owned());
    }
    if !output.ends_with("done\n") {
        faults.push(format!("it did not come to its end: {errors}"));
    }
    // The tests are run on machines that have all of them.
    let missing = applied.missing.iter().filter(|missing| missing.layer != Layer::ProcessLimit);
    faults.extend(missing.map(ToString::to_string));
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_programs_reach_nothing() {
    assert!(programs().count() >= 35);
    let mut found = Vec::new();
    let mut outside = Outside::new();
    for (name, program) in programs() {
        let script = format!("{PRELUDE}{program}\nprint('done', flush=True)\nos._exit(0)\n");
        let ended = run(&outside.profile(&script)).await;
        found.extend(faults(&ended, &mut outside).into_iter().map(|fault| format!("{name}: {fault}")));
        let left = common::running_with(outside.folder.path().to_str().unwrap());
        found.extend(left.into_iter().map(|process| format!("{name}: left behind: {process}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The test above can fail: without the sandbox the same programs have successes.
#[test]
fn without_a_sandbox_the_programs_reach_what_they_try() {
    let outside = Outside::new();
    for name in
        ["secret by its path", "socket of the gateway", "ports of the machine", "environments of other processes"]
    {
        let (_, program) = programs().find(|(own, _)| *own == name).unwrap();
        let profile = outside.profile("");
        let mut command = Command::new("python3");
        let output = command.args(["-c", &format!("{PRELUDE}{program}")]).envs(profile.env).output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains("REACHED"), "{name}: {output}");
    }
}
