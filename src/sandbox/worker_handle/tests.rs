//! The worker of these tests is the test binary itself, running [`as_a_worker`].

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as BlockingStream;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::super::admission::Admission;
use super::super::interpreter::Kind;
use super::super::prepare::Prepared;
use super::*;
use crate::core::call::{Deadline, SentFlag};
use crate::core::caller::Owner;
use crate::infra::metrics::SandboxMetrics;
use crate::sandbox::capacity::Capacity;
use crate::sandbox::protocol::{
    Captured, End, Greeting, ImageCursor, Job, JobLimits, JobSession, Load, ReadSoFar, ToolQuestion, ToolReply, Usage,
};

/// Not a test: the process that `WorkerHandle::start` starts below. Run directly, its standard input is not a socket, and
/// it exits at once. The code of a job names what it does.
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
                "sessions" | "trap" => {
                    let JobSession { id, entry } = job.session.unwrap();
                    sessions.insert(id);
                    let is_trap = job.code == "trap";
                    let end = if is_trap { End::Trap(String::new()) } else { End::Exited { code: 0 } };
                    let told = outcome(end, format!("{entry:?} {}", sessions.len()));
                    let told = Outcome { session_bytes: Some(10).filter(|_| !is_trap), ..told };
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
    }
}

pub(in crate::sandbox) fn job(code: &str) -> Job {
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
        },
        session: None,
        past: None,
        image: None,
    }
}

/// The load message for the worker above; it returns the arguments as its missing protections.
pub(in crate::sandbox) fn load() -> Vec<u8> {
    let interpreter = Prepared {
        kind: Kind::Command,
        arguments: vec!["seccomp".into()],
        environment: BTreeMap::new(),
        mounts: Vec::new(),
        profiles: Vec::new(),
    };
    encode(&ToWorker::Load(Box::new(Load { interpreter, instances: 1, data_files: Vec::new(), packages: Vec::new() })))
        .unwrap()
}

fn program(file: &str) -> Program {
    Program { file: file.into(), arguments: Vec::new() }
}

/// This test binary, running [`as_a_worker`].
pub(in crate::sandbox) fn stand_in() -> Program {
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

/// Waits for a condition in another process; fails when it does not occur.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn each_job_gets_its_own_answer() {
    let (worker, admission) = (worker().await, admission());
    assert_eq!(worker.missing_protections, ["seccomp"]);
    let (left, right) = tokio::join!(
        async { worker.run(job("left"), room(&admission).await, &SentFlag::default(), None).await.unwrap() },
        async { worker.run(job("right"), room(&admission).await, &SentFlag::default(), None).await.unwrap() },
    );
    assert_eq!((left.result.unwrap(), right.result.unwrap()), ("LEFT".into(), "RIGHT".into()));
    assert_eq!((worker.in_flight(), admission.in_use()), (Some(0), (0, 0)));
}

#[tokio::test]
async fn a_job_too_long_for_a_frame_fails_alone() {
    let (worker, admission) = (worker().await, admission());
    let (long, sent) = (job(&"x".repeat(256 << 20)), SentFlag::default());
    let (long, short) =
        tokio::join!(async { worker.run(long, room(&admission).await, &sent, None).await.unwrap() }, async {
            worker.run(job("short"), room(&admission).await, &SentFlag::default(), None).await.unwrap()
        },);
    assert_eq!(long.end, End::Output("frame_bytes".to_owned()));
    assert_eq!(short.result.unwrap(), "SHORT");
    let next = worker.run(job("next"), room(&admission).await, &SentFlag::default(), None).await.unwrap();
    assert_eq!(next.result.unwrap(), "NEXT", "the worker continues");
    assert_eq!((worker.in_flight(), admission.in_use()), (Some(0), (0, 0)));
}

#[tokio::test]
async fn a_worker_has_no_environment() {
    let worker = worker().await;
    let seen = worker.run(job("environment"), room(&admission()).await, &SentFlag::default(), None).await.unwrap();
    assert_eq!(seen.result.unwrap(), "");
}

#[tokio::test]
async fn a_worker_that_exits_fails_its_jobs_and_frees_their_capacity() {
    let (worker, admission) = (worker().await, admission());
    let (hanging, dying) = tokio::join!(
        async { worker.run(job("hang"), room(&admission).await, &SentFlag::default(), None).await },
        async { worker.run(job("die"), room(&admission).await, &SentFlag::default(), None).await },
    );
    for end in [hanging, dying] {
        assert_eq!(end.unwrap_err().code(), ErrorCode::SandboxTrap);
    }
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is gone");
    assert_eq!((worker.in_flight(), admission.in_use()), (None, (0, 0)));
    let late = worker.run(job("late"), room(&admission).await, &SentFlag::default(), None).await;
    assert_eq!(late.unwrap_err().code(), ErrorCode::SandboxTrap, "no further job is taken");
}

#[tokio::test]
async fn a_cancelled_job_keeps_its_capacity_until_it_has_stopped() {
    let (worker, admission) = (worker().await, admission());
    let ticket = room(&admission).await;
    let waited = timeout(Duration::from_millis(50), worker.run(job("hang"), ticket, &SentFlag::default(), None)).await;
    assert!(waited.is_err());
    assert_eq!(admission.in_use(), (1, 0), "the worker has not confirmed yet that it stopped");
    eventually("the capacity of a cancelled job is free", || admission.in_use() == (0, 0)).await;
    let next = worker.run(job("next"), room(&admission).await, &SentFlag::default(), None).await.unwrap();
    assert_eq!(next.result.unwrap(), "NEXT", "the worker continues");
}

#[tokio::test]
async fn a_worker_that_does_not_stop_a_cancelled_job_is_ended() {
    let (worker, admission) = (worker().await, admission());
    let ticket = room(&admission).await;
    assert!(
        timeout(Duration::from_millis(50), worker.run(job("hang, deaf"), ticket, &SentFlag::default(), None))
            .await
            .is_err()
    );
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is ended");
    assert_eq!(admission.in_use(), (0, 0));
}

#[tokio::test]
async fn a_stopped_worker_is_gone_with_its_jobs() {
    let (worker, admission) = (worker().await, admission());
    let ticket = room(&admission).await;
    let sent = SentFlag::default();
    let (end, ()) = tokio::join!(worker.run(job("hang"), ticket, &sent, None), async { worker.stop() });
    assert_eq!(end.unwrap_err().code(), ErrorCode::SandboxTrap);
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is gone");
}

#[tokio::test]
async fn a_program_that_does_not_exist_or_exits_at_once_is_named() {
    let arguments = ["-c", "kill -9 $$"].map(OsString::from).to_vec();
    let killed = Program { file: "/bin/sh".into(), arguments };
    let cases = [
        (program("/no/such/program"), "/no/such/program", false),
        (program("/bin/true"), "before it was ready", false),
        (killed, "signal: 9", true),
    ];
    for (program, says, was_killed) in cases {
        let error = WorkerHandle::start(&program, &load()).await.unwrap_err();
        assert!(error.reason.contains(says) && error.was_killed == was_killed, "{error:?}");
    }
}

#[tokio::test]
async fn a_job_that_sleeps_gives_memory_back_and_goes_on_when_there_is_memory_again() {
    let (worker, admission) = (worker().await, admission());
    let deadline = Deadline::after(Duration::from_secs(10));
    let ticket = admission.enter(Owner::gateway(), 5, deadline).await.unwrap();
    let mut job = job("sleep");
    job.limits.memory_bytes = 4;
    let sent = SentFlag::default();
    let others = admission.enter(Owner::gateway(), 5, deadline).await.unwrap();
    let freed = async {
        // Before the job runs, all is taken: these three units are the job's.
        let of_job = admission.enter(Owner::gateway(), 3, deadline).await.unwrap();
        assert_eq!(worker.in_flight(), Some(1), "it waits for them");
        drop((others, of_job));
    };
    // In this order: the request is in the queue before the job begins.
    let (freed, run) = (Box::pin(freed), Box::pin(worker.run(job, ticket, &sent, None)));
    let ((), outcome) = tokio::join!(biased; freed, run);
    assert_eq!(outcome.unwrap().result.unwrap(), "AWAKE");
    assert_eq!((admission.in_use(), admission.load().memory_bytes), ((0, 0), 0));
}

/// Answers the question with its number, once all questions of `expected` have been asked.
struct Tools {
    expected: tokio::sync::Barrier,
    answered: u32,
}

impl ToolHost for Tools {
    fn answer(&self, request: ToolRequest) -> BoxFuture<'_, Option<ToolReply>> {
        Box::pin(async move {
            self.expected.wait().await;
            match request.number == self.answered {
                true => Some(ToolReply { number: request.number, is_ok: true, json: b"\"answered\"".to_vec() }),
                false => std::future::pending().await,
            }
        })
    }
}

#[tokio::test]
async fn questions_of_a_program_are_answered_at_the_same_time() {
    let (worker, admission) = (worker().await, admission());
    let tools = Tools { expected: tokio::sync::Barrier::new(3), answered: 1 };
    let sent = SentFlag::default();
    let ended = worker.run(job("ask 3"), room(&admission).await, &sent, Some(&tools)).await.unwrap();
    assert_eq!(ended.result.unwrap(), "\"answered\"");
    assert_eq!(admission.in_use(), (0, 0));
}

#[tokio::test]
async fn what_is_asked_about_sessions_is_answered_until_the_worker_exits() {
    let worker = worker().await;
    let read = || SessionRequest::Read { session: 7, profile: "base".into(), from: ImageCursor::State };
    let finish = |session| SessionRequest::Restored { session, profile: "base".into(), is_copy: false };
    let (none, restored) = tokio::join!(worker.ask(read()), worker.ask(finish(7)));
    assert_eq!((none, restored), (Some(SessionReply::Failed("none".into())), Some(SessionReply::Rests(10))));
    assert!(matches!(worker.ask(read()).await, Some(SessionReply::Part { next: Some(_), .. })));
    worker.stop();
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is gone");
    assert_eq!(worker.ask(read()).await, None);
}

#[tokio::test]
async fn a_worker_that_asks_more_than_programs_may_is_ended() {
    let (worker, admission) = (worker().await, admission());
    let tools = Tools { expected: tokio::sync::Barrier::new(1_000), answered: 0 };
    let sent = SentFlag::default();
    let ended = worker.run(job("ask 200"), room(&admission).await, &sent, Some(&tools)).await;
    assert_eq!(ended.unwrap_err().code(), ErrorCode::SandboxTrap);
    timeout(Duration::from_secs(10), worker.gone()).await.expect("it is ended");
}
