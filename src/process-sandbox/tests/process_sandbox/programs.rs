//! What works in a sandbox as it does outside.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::common::{profile, run, running_with};
use sekisho_process_sandbox::{Folder, Home, HomeError, Layer, StartError, Started, start};

const ALL: [Layer; 7] = [
    Layer::Namespaces,
    Layer::Processes,
    Layer::Network,
    Layer::Connections,
    Layer::Landlock,
    Layer::Seccomp,
    Layer::MemoryLimit,
];

#[tokio::test]
async fn interpreters_run_with_all_layers() {
    let node = "const {networkInterfaces, cpus} = require('os'); networkInterfaces(); \
                new (require('worker_threads').Worker)('', {eval: true}); \
                require('child_process').execSync('true'); \
                fetch('data:text/plain,a').then(a => a.text()).then(a => console.log(a + cpus().length.toString().length))";
    let python = "import ssl, sqlite3, multiprocessing, tempfile, threading, subprocess, asyncio\n\
                  assert ssl.create_default_context().cert_store_stats()['x509_ca'] > 50\n\
                  multiprocessing.Semaphore(1); tempfile.TemporaryFile(); subprocess.run(['true'], check=True)\n\
                  threading.Thread(target=print).start(); asyncio.run(asyncio.sleep(0))\n\
                  import os, pwd; assert pwd.getpwuid(os.getuid()).pw_dir == os.path.expanduser('~')\n\
                  open(os.path.expanduser('~/own'), 'w').write('own')";
    let pair = "import socket; a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen(); \
                b = socket.create_connection(a.getsockname()); a.accept()[0].send(b'x'); print(b.recv(1))";
    for (program, option, script, expected) in [
        ("sh", "-c", "echo out; cat; pwd; tty; exit 0", "out\n/root\nnot a tty\n"),
        ("python3", "-c", python, "\n"),
        ("node", "-e", node, "a1\n"),
        ("python3", "-c", pair, "b'x'\n"),
    ] {
        let ended = run(&profile(program, &[option, script])).await;
        let home = std::env::home_dir().unwrap();
        let expected = expected.replace("/root", home.to_str().unwrap());
        assert_eq!((ended.output, ended.errors, ended.status.code()), (expected, String::new(), Some(0)), "{program}");
        let lacks = ALL.iter().filter(|layer| !ended.applied.layers.contains(layer)).collect::<Vec<_>>();
        assert!(lacks.is_empty(), "{lacks:?} {}", ended.applied.missing_text());
    }
}

#[tokio::test]
async fn a_program_ends_as_it_would_without_a_sandbox() {
    let ended = |script| async move { run(&profile("sh", &["-c", script])).await.status };
    assert_eq!(ended("exit 7").await.code(), Some(7));
    assert_eq!(ended("kill -SEGV $$").await.signal(), Some(libc::SIGSEGV));
    assert_eq!(ended("kill -KILL $$").await.signal(), Some(libc::SIGKILL));
}

#[tokio::test]
async fn a_program_that_is_not_there_or_not_executable_is_the_error_of_exec() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    for (program, expected) in [(folder.path().join("missing"), libc::ENOENT), (file, libc::EACCES)] {
        let mut profile = profile("sh", &[]);
        profile.folders.push(Folder::new(folder.path().to_owned(), false));
        profile.program = program;
        let error = start(&profile, false).await.unwrap_err();
        let StartError::Program(error) = error else { panic!("{error}") };
        assert_eq!(error.raw_os_error(), Some(expected));
    }
}

#[tokio::test]
async fn granted_folders_are_readable_or_writable_through_their_links() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["read", "write"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("file"), name).unwrap();
    }
    std::os::unix::fs::symlink("write", path("link")).unwrap();
    let script = format!(
        "cd {}; cat read/file link/file; (echo new > read/new) 2>/dev/null || echo refused; echo new > link/new; ls",
        folder.path().display()
    );
    let mut profile = profile("sh", &["-c", &script]);
    profile.folders.push(Folder::new(path("read"), false));
    profile.folders.push(Folder::new(path("link"), true));
    let ended = run(&profile).await;
    assert_eq!((&*ended.output, &*ended.errors), ("readwriterefused\nlink\nread\nwrite\n", ""));
    assert_eq!(fs::read_to_string(path("write/new")).unwrap(), "new\n");
    // The link leads elsewhere than when it was examined.
    fs::remove_file(path("link")).unwrap();
    std::os::unix::fs::symlink("read", path("link")).unwrap();
    let error = start(&profile, false).await.unwrap_err();
    assert!(error.to_string().contains("link is another folder"), "{error}");
}

/// On the machine, such a file would have the rights of the gateway's user.
#[tokio::test]
async fn no_file_gets_the_rights_of_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let script = "import os, sys; os.chdir(sys.argv[1]); open('a', 'w').close(); os.chmod('a', 0o755)\n\
                  for mode in (0o4755, 0o2755):\n\
                  \tfor make in (lambda: os.chmod('a', mode), lambda: os.open('b', os.O_CREAT, mode), \
                  lambda: os.open('.', os.O_TMPFILE | os.O_RDWR, mode), \
                  lambda: os.fchmod(os.open('a', 0), mode), lambda: os.mknod('c', mode)):\n\
                  \t\ttry: make(); print('made')\n\
                  \t\texcept PermissionError: pass\n\
                  print(oct(os.stat('a').st_mode))";
    let mut profile = profile("python3", &["-c", script, folder.path().to_str().unwrap()]);
    profile.folders.push(Folder::new(folder.path().to_owned(), true));
    let ended = run(&profile).await;
    assert_eq!((&*ended.output, &*ended.errors), ("0o100755\n", ""));
}

#[tokio::test]
async fn a_kept_home_is_there_at_the_next_start_and_another_is_not() {
    let kept = tempfile::tempdir().unwrap();
    let mut with_home = profile("sh", &["-c", "cat ~/seen 2>/dev/null; echo seen > ~/seen"]);
    for expected in ["", ""] {
        assert_eq!(run(&with_home).await.output, expected);
    }
    with_home.home = Home { kept: Some(kept.path().to_owned()), ..with_home.home };
    for expected in ["", "seen\n"] {
        assert_eq!(run(&with_home).await.output, expected);
    }
}

/// Folders that are too deep for a home, as for any that has too much in it.
#[tokio::test]
async fn a_kept_home_that_is_too_large_is_refused_with_its_path() {
    let kept = tempfile::tempdir().unwrap();
    let mut profile = profile("true", &[]);
    profile.home = Home { kept: Some(kept.path().to_owned()), ..profile.home };
    assert!(run(&profile).await.status.success());
    fs::create_dir_all(kept.path().join("d/".repeat(200))).unwrap();
    let error = start(&profile, false).await.unwrap_err();
    assert!(matches!(&error, StartError::Home(HomeError::TooLarge(path)) if path == kept.path()), "{error}");
    assert!(error.to_string().contains("`sandbox.folders`"), "{error}");
}

/// Traps that a program leaves in its kept home neither lead out of the sandbox at the next start, nor give it a weaker one.
#[tokio::test]
async fn a_kept_home_with_traps_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["home/docs/deep", "outside", "with_link", "with_file"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    // Where the machine's files are while the sandbox is built.
    let outside = Path::new("/old").join(path("outside").strip_prefix("/").unwrap());
    std::os::unix::fs::symlink(outside, path("with_link/docs")).unwrap();
    fs::write(path("with_file/docs"), "").unwrap();
    for kept in ["with_link", "with_file"] {
        let mut profile = profile("true", &[]);
        profile.folders.push(Folder::new(path("home/docs/deep"), false));
        profile.home = Home { path: path("home"), kept: Some(path(kept)) };
        let error = start(&profile, false).await.unwrap_err();
        assert!(matches!(&error, StartError::Sandbox(why) if why.contains("docs/deep")), "{kept}: {error}");
        assert_eq!(fs::read_dir(path("outside")).unwrap().count(), 0, "{kept}");
    }
}

/// As of a gateway that is installed in one folder, which is granted.
#[tokio::test]
async fn private_files_are_hidden_in_granted_folders() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("state")).unwrap();
    fs::write(path("state/secret"), "secret").unwrap();
    fs::write(path("config"), "secret").unwrap();
    let script = format!("cd {}; ls; cat state/secret config; ls -A state", folder.path().display());
    let mut profile = profile("sh", &["-c", &script]);
    profile.folders.push(Folder::new(folder.path().to_owned(), true));
    profile.private = vec![path("state"), path("config"), path("missing")];
    let ended = run(&profile).await;
    assert_eq!(ended.output, "config\nstate\n", "{}", ended.errors);
}

/// SIGTERM reaches all processes of the sandbox; a killed helper takes them with it.
#[tokio::test]
async fn signals_are_passed_on_and_nothing_survives() {
    let mark = format!("sandbox-of-{}", std::process::id());
    let script = "trap 'echo terminated; exit 5' TERM; sleep 600 & (setsid sleep 600 &) ; echo ready; wait";
    let begin = async || {
        let mut profile = profile("sh", &["-c", script]);
        profile.env.push(("MARK".to_owned(), mark.clone()));
        let Started { mut child, guard, .. } = start(&profile, false).await.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
        let all_run = async {
            while running_with(&mark).len() < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(slack(Duration::from_secs(20)), all_run).await.unwrap();
        (child, lines, pid, guard)
    };
    let (mut child, mut lines, pid, _guard) = begin().await;
    kill_process_group(pid, Signal::TERM).unwrap();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("terminated"));
    assert_eq!(child.wait().await.unwrap().code(), Some(5));
    assert_eq!(running_with(&mark), [""; 0]);
    let (mut child, mut lines, pid, _guard) = begin().await;
    kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(child.wait().await.unwrap().signal(), Some(libc::SIGKILL));
    // Its output ends with its last process.
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert_eq!(running_with(&mark), [""; 0]);
}

/// Only the program holds its streams: when it closes one, the other end sees it.
#[tokio::test]
async fn streams_end_with_those_of_the_program() {
    let profile = profile("sh", &["-c", "exec >&-; read line; exit 4"]);
    let Started { mut child, guard: _guard, .. } = start(&profile, false).await.unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap(), None);
    child.stdin.take().unwrap().write_all(b"line\n").await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(4));
}

/// Without namespaces, as in containers that refuse them: Landlock, seccomp and the limits are left, and `required` refuses.
#[tokio::test]
async fn without_namespaces_the_other_layers_hold() {
    // `/tmp` is the machine's.
    let installed = tempfile::tempdir_in("/var").unwrap();
    let config = installed.path().join("config");
    fs::write(&config, "secret").unwrap();
    fs::write(installed.path().join("file"), "file\n").unwrap();
    std::os::unix::fs::symlink("config", installed.path().join("link")).unwrap();
    let script = format!(
        "cd {}; cat /etc/hostname config link file; (: < /dev/ptmx) && echo terminal; : > /dev/null; getent hosts localhost; kill -0 {}; echo end",
        installed.path().display(),
        std::process::id()
    );
    let mut profile = profile("sh", &["-c", &script]);
    profile.folders.retain(|folder| !folder.path.starts_with("/tmp"));
    profile.folders.push(Folder::new(installed.path().to_owned(), true));
    profile.private = vec![config];
    profile.without_namespaces = Some("as a test".to_owned());
    profile.cwd = "/".into();
    let ended = run(&profile).await;
    let lines: Vec<_> = ended.output.lines().collect();
    let [file, host, end] = lines[..] else { panic!("{ended:?}") };
    assert!(file == "file" && host.contains("localhost") && end == "end", "{ended:?}");
    assert!(ended.applied.layers.contains(&Layer::Landlock) && ended.applied.layers.contains(&Layer::Seccomp));
    let missing = ended.applied.missing_text();
    assert!(missing.contains("namespaces (as a test)"), "{missing}");
    assert!(ended.errors.contains("ermitted"), "the signal is refused: {}", ended.errors);
    let error = start(&profile, true).await.unwrap_err();
    assert!(error.to_string().contains("`required`: namespaces (as a test)"), "{error}");
}

/// Prints the cost of a start; a bound on it would depend on the machine.
#[tokio::test]
async fn a_start_costs_little() {
    let profile = profile("true", &[]);
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..15 {
        let begun = Instant::now();
        run(&profile).await;
        let with = begun.elapsed();
        let begun = Instant::now();
        tokio::process::Command::new("true").status().await.unwrap();
        times.push(with.saturating_sub(begun.elapsed()));
    }
    times.sort();
    println!("a start in a sandbox takes {:?} longer", times[7]);
    assert!(times[7] < slack(Duration::from_millis(500)), "{times:?}");
}

/// As `slack` in `src/core`, which this crate does not use.
fn slack(time: Duration) -> Duration {
    let factor = std::env::var("SEKISHO_TEST_SLACK").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    time * factor
}
