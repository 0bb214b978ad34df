//! Programs that try to leave their sandbox, or to reach something else. Each prints its successes.

mod neighbour;
mod outside;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::neighbour::Neighbour;
use self::outside::{Outside, SECRET};
use super::common;
use sekisho_process_sandbox::network::Supervisor;
use sekisho_process_sandbox::{Applied, Layer, Profile, Started, start};

/// Programs in Python. The line before each is `## NAME: EXPECTED`.
const TABLE: [&str; 5] = [
    include_str!("hostile_servers/files.txt"),
    include_str!("hostile_servers/kernel.txt"),
    include_str!("hostile_servers/life.txt"),
    include_str!("hostile_servers/network.txt"),
    include_str!("hostile_servers/resources.txt"),
];
const PRELUDE: &str = include_str!("prelude.py");

/// The time of one program.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program that writes without end is read to its end, as the gateway does, and this much is kept.
const KEPT_OUTPUT: usize = 1 << 20;

/// The observation of a program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The kernel, the sandbox or the gateway says no.
    Refused,
    /// There is nothing that could be reached.
    Empty,
    /// It gets something up to a limit.
    Bounded,
    /// It goes on until it is ended from outside.
    Ended,
}

const OBSERVATIONS: [(&str, Expected); 4] = [
    ("refused", Expected::Refused),
    ("empty", Expected::Empty),
    ("bounded", Expected::Bounded),
    ("ended", Expected::Ended),
];

struct HostileProgram {
    name: &'static str,
    expected: Expected,
    script: String,
}

fn programs() -> impl Iterator<Item = HostileProgram> {
    TABLE.iter().flat_map(|text| text.split("## ").filter(|part| !part.is_empty())).map(|part| {
        let (line, script) = part.split_once('\n').unwrap();
        let (name, expected) = line.rsplit_once(": ").unwrap();
        let (_, expected) = OBSERVATIONS.into_iter().find(|(word, _)| *word == expected).unwrap();
        let script = format!("{PRELUDE}{script}\nprint('done', flush=True)\nos._exit(0)\n");
        HostileProgram { name, expected, script }
    })
}

/// The traces of one program.
struct Observed {
    output: String,
    errors: String,
    applied: Applied,
    /// It was ended from outside.
    went_on: bool,
    left_behind: Vec<String>,
}

/// Reads a stream to its end.
fn drain(mut stream: impl AsyncRead + Send + Unpin + 'static) -> (watch::Receiver<String>, JoinHandle<()>) {
    let (sender, receiver) = watch::channel(String::new());
    let reading = tokio::spawn(async move {
        let mut part = vec![0; 1 << 16];
        while let Ok(length @ 1..) = stream.read(&mut part).await {
            sender.send_modify(|text| {
                if text.len() < KEPT_OUTPUT {
                    text.push_str(&String::from_utf8_lossy(&part[..length]));
                }
            });
        }
    });
    (receiver, reading)
}

/// Runs a program to its end, or ends it when its neighbour was served.
async fn observe(
    program: &HostileProgram,
    profile: &Profile,
    outside: &Outside,
    neighbour: &mut Neighbour,
) -> Observed {
    let Started { mut child, applied, handover, guard: _guard } = start(profile, false).await.unwrap();
    let supervisor =
        handover.map(|handover| Supervisor::start(handover, Arc::clone(&outside.policy) as _, None).unwrap());
    let namespace = std::fs::read_link(format!("/proc/{}/ns/pid_for_children", child.id().unwrap())).ok();
    let (mut output, reading_output) = drain(child.stdout.take().unwrap());
    let (errors, reading_errors) = drain(child.stderr.take().unwrap());
    let went_on = program.expected == Expected::Ended;
    if went_on {
        let begins = output.wait_for(|text| text.contains("ready\n"));
        let begun = tokio::time::timeout(TIMEOUT, begins).await.is_ok_and(|text| text.is_ok());
        assert!(begun, "{}: it does not begin: {}", program.name, errors.borrow().as_str());
        neighbour.ask(program.name).await;
        child.start_kill().unwrap();
    } else {
        drop(child.stdin.take());
    }
    let ends = tokio::time::timeout(TIMEOUT, async {
        child.wait().await.unwrap();
        reading_output.await.unwrap();
        reading_errors.await.unwrap();
    });
    assert!(ends.await.is_ok(), "{}: it does not end: {}", program.name, output.borrow().as_str());
    drop(supervisor);
    let left_behind = left_behind(outside, namespace.as_ref()).await;
    let (output, errors) = (output.borrow().clone(), errors.borrow().clone());
    Observed { output, errors, applied, went_on, left_behind }
}

/// Processes that there are after the end of a sandbox. The kernel takes a moment to end them.
async fn left_behind(outside: &Outside, namespace: Option<&PathBuf>) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut left = common::running_with(outside.path("").to_str().unwrap());
        left.retain(|process| !outside.is_neighbour(process));
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let is_in = |process: &std::fs::DirEntry| {
            namespace.is_some() && std::fs::read_link(process.path().join("ns/pid")).ok().as_ref() == namespace
        };
        left.extend(processes.filter(is_in).map(|process| process.path().display().to_string()));
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The faults in the end of a hostile program.
fn faults(program: &HostileProgram, observed: &Observed, outside: &mut Outside) -> Vec<String> {
    let Observed { output, errors, applied, went_on, left_behind } = observed;
    let mut faults: Vec<_> = outside.changes().into_iter().map(str::to_owned).collect();
    faults.extend(output.lines().filter(|line| line.contains("REACHED")).map(str::to_owned));
    faults.extend(left_behind.iter().map(|process| format!("left behind: {process}")));
    if format!("{output}{errors}").contains(SECRET) {
        faults.push("the secret was read".to_owned());
    }
    if output.ends_with("done\n") == *went_on {
        faults.push(format!("its end is another: {output} {errors}"));
    }
    let says_no = output.lines().any(|line| line.starts_with("refused "));
    if matches!(program.expected, Expected::Refused | Expected::Bounded) && !says_no {
        faults.push(format!("nothing was refused: {output} {errors}"));
    }
    // The tests are run on machines that have all of them.
    let missing = applied.missing.iter().filter(|missing| missing.layer != Layer::ProcessLimit);
    faults.extend(missing.map(ToString::to_string));
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_programs_reach_nothing() {
    assert!(programs().count() >= 95);
    let chosen = std::env::var("HOSTILE").unwrap_or_default();
    let mut found = Vec::new();
    let mut outside = Outside::new();
    let mut neighbour = Neighbour::start(&outside).await;
    outside.neighbours.push(neighbour.processes());
    for program in programs().filter(|program| program.name.contains(&chosen)) {
        let profile = outside.profile(&program.script, neighbour.port);
        let begun = Instant::now();
        let observed = observe(&program, &profile, &outside, &mut neighbour).await;
        println!("{}: {:?} after {:?}", program.name, program.expected, begun.elapsed());
        neighbour.ask(program.name).await;
        let faults = faults(&program, &observed, &mut outside);
        found.extend(faults.into_iter().map(|fault| format!("{}: {fault}", program.name)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The test above can fail: without the sandbox the same programs reach their aims.
#[test]
fn without_a_sandbox_the_programs_reach_what_they_try() {
    let outside = Outside::new();
    for name in [
        "secret by its path",
        "secret by a link in a folder that it may write",
        "socket of the gateway",
        "ports of the machine",
        "environments of other processes",
        "home of another server",
    ] {
        let program = programs().find(|program| program.name == name).unwrap();
        let profile = outside.profile("", 0);
        let mut command = Command::new("python3");
        let output = command.args(["-c", &program.script]).envs(profile.env).output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains("REACHED"), "{name}: {output}");
    }
}
