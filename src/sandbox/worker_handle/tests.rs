//! The worker of these tests is the test binary itself, running [`as_a_worker`].

mod jobs;
mod questions;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::admission::Admission;
use crate::capacity::Capacity;
use sekisho_core::call::Deadline;
use sekisho_core::caller::Owner;
use sekisho_guest_protocol::InterpreterKind;
use sekisho_guest_protocol::Prepared;
use sekisho_guest_protocol::{
    Captured, End, Greeting, ImageCursor, Job, JobLimits, JobSession, Load, ReadSoFar, ToolQuestion, Usage,
};
use sekisho_observe::metrics::SandboxMetrics;

/// Not a test: the process that `WorkerHandle::start` starts below. Run directly, its standard input is not a socket,
/// and it exits at once. The code of a job names its action.
#[test]
#[ignore = "the worker process of the tests beside it"]
fn as_a_worker() {
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut gateway = BlockingStream::from(input);
    if gateway.peer_addr().is_err() {
        return;
    }
    let Some(ToWorker::Load(load)) = hear(&mut gateway) else { return };
    let greeting = Greeting { missing_protections: load.interpreter.arguments, ..Greeting::default() };
    say(&mut gateway, &FromWorker::Ready(Box::new(greeting)));
    let (mut deaf, mut is_full, mut sessions, mut looks) = (false, false, HashSet::new(), 0);
    while let Some(message) = hear(&mut gateway) {
        match message {
            ToWorker::Run(job) => match job.code.as_str() {
                code @ ("sessions" | "trap" | "timeout" | "undone") => {
                    let JobSession { id, entry } = job.session.unwrap();
                    sessions.insert(id);
                    let (end, session_bytes) = match code {
                        "trap" => (End::Trap(String::new()), None),
                        "timeout" => (End::Timeout, None),
                        "undone" => (End::Timeout, Some(10)),
                        _ => (End::Exited { code: 0 }, Some(10)),
                    };
                    let told = outcome(end, format!("{entry:?} {}", sessions.len()));
                    let told = Outcome { session_bytes, ..told };
                    say(&mut gateway, &FromWorker::Done(job.id, Box::new(told)));
                }
                // Instead of a program, the variables of a session.
                "" => {
                    looks += 1;
                    let name = format!("looked_{looks}");
                    let list = serde_json::json!({"variables": [{"name": name, "type": "int"}], "truncated": false});
                    let told = outcome(End::Exited { code: 0 }, list.to_string());
                    let told = Outcome { session_bytes: Some(10), ..told };
                    say(&mut gateway, &FromWorker::Done(job.id, Box::new(told)));
                }
                "full" => {
                    is_full = !is_full;
                    let told = outcome(End::Exited { code: 0 }, String::new());
                    say(&mut gateway, &FromWorker::Done(job.id, Box::new(told)));
                }
                "die" => std::process::abort(),
                "hang" => {}
                "sleep" => {
                    say(&mut gateway, &FromWorker::Sleeping(job.id, 1));
                    say(&mut gateway, &FromWorker::Waking(job.id));
                }
                "hang, deaf" => deaf = true,
                asks if asks.starts_with("ask ") => {
                    for number in 0..asks["ask ".len()..].parse().unwrap() {
                        let question = ToolQuestion::Describe(number.to_string());
                        let request = ToolRequest { number, question, read: ReadSoFar::default() };
                        say(&mut gateway, &FromWorker::Ask(job.id, Box::new(request)));
                    }
                }
                "environment" => {
                    let variables = std::env::vars().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
                    say(&mut gateway, &FromWorker::Done(job.id, Box::new(outcome(End::Exited { code: 0 }, variables))));
                }
                other => {
                    let end = End::Exited { code: 0 };
                    say(&mut gateway, &FromWorker::Done(job.id, Box::new(outcome(end, other.to_uppercase()))));
                }
            },
            ToWorker::Cancel(id) if !deaf => {
                say(&mut gateway, &FromWorker::Done(id, Box::new(outcome(End::Cancelled, String::new()))));
            }
            ToWorker::Continue(id) => {
                let end = End::Exited { code: 0 };
                say(&mut gateway, &FromWorker::Done(id, Box::new(outcome(end, "AWAKE".to_owned()))));
            }
            ToWorker::Answer(id, reply) => {
                let end = End::Exited { code: 0 };
                let text = String::from_utf8(reply.json).unwrap();
                say(&mut gateway, &FromWorker::Done(id, Box::new(outcome(end, text))));
            }
            ToWorker::EndSession(id) => _ = sessions.remove(&id),
            ToWorker::Session(id, request) => {
                let reply = answer_about(&mut sessions, is_full, *request);
                say(&mut gateway, &FromWorker::Session(id, Box::new(reply)));
            }
            ToWorker::Call(call) => {
                let told = outcome(End::Exited { code: 0 }, format!("{} {}", call.component, call.arguments));
                say(&mut gateway, &FromWorker::Done(call.id, Box::new(told)));
            }
            ToWorker::Cancel(_)
            | ToWorker::Load(_)
            | ToWorker::LoadComponents(_)
            | ToWorker::Examine(_)
            | ToWorker::ModuleImage(_) => {}
        }
    }
}

/// Its images have two parts: the id of the session that was read, and as many megabytes of noise. Copies hold twice as
/// much.
fn answer_about(sessions: &mut HashSet<SessionId>, is_full: bool, request: SessionRequest) -> SessionReply {
    match request {
        SessionRequest::Read { session, .. } if !sessions.contains(&session) => SessionReply::Failed("none".into()),
        SessionRequest::Read { session, from: ImageCursor::State, .. } => {
            let next = Some(ImageCursor::Memory { offset: session });
            SessionReply::Part { part: session.to_le_bytes().to_vec(), next }
        }
        SessionRequest::Read { from: ImageCursor::Memory { offset }, .. } => {
            let numbers = 0..u32::try_from(offset).unwrap() << 18;
            let noise = numbers.flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes());
            SessionReply::Part { part: noise.collect(), next: None }
        }
        SessionRequest::Read { .. } => SessionReply::Failed("no such part".into()),
        SessionRequest::Restore { part, .. } if part.is_empty() => SessionReply::Failed("empty".into()),
        SessionRequest::Restore { .. } if is_full => SessionReply::NoSpace("all instances are in use".into()),
        SessionRequest::Restore { .. } => SessionReply::Added,
        SessionRequest::Restored { session, is_copy, .. } => {
            sessions.insert(session);
            SessionReply::Rests(if is_copy { 20 } else { 10 })
        }
    }
}

fn say(gateway: &mut BlockingStream, message: &FromWorker) {
    gateway.write_all(&encode(message).unwrap()).unwrap();
}

fn hear(gateway: &mut BlockingStream) -> Option<ToWorker> {
    let mut length = [0; 4];
    gateway.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    gateway.read_exact(&mut frame).ok()?;
    postcard::from_bytes(&frame).ok()
}

fn outcome(end: End, result: String) -> Outcome {
    Outcome {
        end,
        result: Some(result),
        stdout: Captured::default(),
        stderr: Captured::default(),
        files: Vec::new(),
        images: Vec::new(),
        usage: Usage::default(),
        session_bytes: None,
        read: None,
    }
}

pub(crate) fn job(code: &str) -> Job {
    Job {
        id: 0,
        profile: "base".into(),
        code: code.into(),
        module: None,
        packages: Arc::default(),
        stdin: Vec::new(),
        files: Vec::new(),
        limits: JobLimits {
            wall_time: Duration::from_secs(1),
            total_time: Duration::from_secs(1),
            memory_bytes: 1,
            stream_bytes: 1,
            result_bytes: 1,
            image_bytes: 1,
            file_bytes: 1,
            max_files: 1,
            max_open_files: 1,
            random_bytes: 1,
            host_calls: 1,
            tool_calls: 1,
            state_bytes: 0,
        },
        session: None,
        past: None,
        proposes: false,
        reads_to_end: false,
        image: None,
    }
}

/// The load message for the worker above; it returns the arguments as its missing protections.
pub(crate) fn load() -> Vec<u8> {
    let interpreter = Prepared {
        kind: InterpreterKind::Command,
        arguments: vec!["seccomp".into()],
        environment: BTreeMap::new(),
        mounts: Vec::new(),
        table_elements: 0,
        profiles: Vec::new(),
    };
    encode(&ToWorker::Load(Box::new(Load { interpreter, instances: 1, data_files: Vec::new(), packages: Vec::new() })))
        .unwrap()
}

/// This test binary, running [`as_a_worker`].
pub(crate) fn stand_in() -> Program {
    let name = concat!(module_path!(), "::as_a_worker").split_once("::").unwrap().1;
    let arguments = ["--exact", name, "--ignored", "--nocapture"].map(OsString::from).to_vec();
    Program { file: std::env::current_exe().unwrap(), arguments }
}

async fn worker() -> Arc<WorkerHandle> {
    WorkerHandle::start(&stand_in(), &load()).await.unwrap()
}

fn admission() -> Admission {
    let capacity = Capacity { instances: 10, memory_bytes: 10, sleeping_bytes: 5, session_bytes: 0, max_queued: 10 };
    Admission::new(capacity, SandboxMetrics::for_tests())
}

async fn room(admission: &Admission) -> Ticket {
    admission.enter(Owner::gateway(), 1, Deadline::after(Duration::from_secs(1))).await.unwrap()
}
