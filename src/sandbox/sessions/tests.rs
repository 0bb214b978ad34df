//! Calls in sessions of workers that are substitutes: the tests beside [`WorkerHandle`] have them.

mod stored;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use crate::CallSession;
use crate::Sandbox;
use crate::pool::{COMPONENT, Pool, Start};
use crate::search::{Available, Found};
use crate::worker_handle::tests::{job, load, stand_in};
use crate::worker_setup::ReadyProfile;
use sekisho_config::{InterpreterSessionsConfig, SandboxConfig};
use sekisho_core::call::{CallContext, Caller, Deadline, InterpreterSession, NotStored, SessionEnd, Via};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::until::until;
use sekisho_guest_protocol::{End, Outcome};
use sekisho_observe::metrics::SandboxMetrics;
use sekisho_observe::readiness::Readiness;

/// A sandbox whose workers are substitutes.
fn sandbox(sessions: InterpreterSessionsConfig) -> Sandbox {
    let config = SandboxConfig { workers: Some(1), sessions, ..SandboxConfig::default() };
    let (metrics, readiness) = (SandboxMetrics::for_tests(), Arc::new(Readiness::default()));
    let sandbox = Sandbox::new(&config, metrics.clone(), Arc::clone(&readiness)).unwrap();
    let pool = |is_counted| {
        let (metrics, readiness) = (metrics.clone(), Arc::clone(&readiness));
        let (program, load, component) = (stand_in(), load(), COMPONENT);
        Pool::new(Start { program, load, workers: 1, component, is_counted, metrics, readiness })
    };
    let (name, snapshot) = ("base".to_owned(), Some("s1".to_owned()));
    let profiles = vec![ReadyProfile { name, snapshot, module_base: Some("s1 seen".to_owned()) }];
    let (pool, background, packages) = (pool(true), pool(false), String::new());
    let available = Available { pool, background, profiles, is_complete: true, packages };
    sandbox.found.store(Some(Arc::new(Found::Prepared(available))));
    sandbox
}

/// The outcome of a call, and the session that it noted.
async fn call(
    sandbox: &Sandbox,
    caller: &str,
    session: &str,
    code: &str,
) -> (Result<Outcome, CallError>, Option<InterpreterSession>) {
    let caller = Arc::new(Caller::new(caller, "tenant", Vec::new()));
    let context = CallContext::new("python_executor", caller, Via::Rest);
    let deadline = Deadline::after(Duration::from_secs(20));
    let session = CallSession { name: session, every_call: false };
    let outcome = sandbox.run_job_in_session(&context, session, job(code), deadline).await;
    (outcome, context.progress.interpreter.get())
}

fn owner(caller: &str) -> Owner {
    Caller::new(caller, "tenant", Vec::new()).owner
}

/// The worker's answer: how the job entered its session, and how many sessions the worker has.
async fn entry_of(sandbox: &Sandbox, caller: &str, session: &str) -> String {
    call(sandbox, caller, session, "sessions").await.0.unwrap().result.unwrap()
}

#[tokio::test]
async fn each_session_of_each_caller_has_an_interpreter_of_its_own() {
    let sandbox = sandbox(InterpreterSessionsConfig::default());
    assert_eq!(entry_of(&sandbox, "ann", "a").await, "Begin 1");
    assert_eq!(entry_of(&sandbox, "ann", "a").await, "Continue 1");
    assert_eq!(entry_of(&sandbox, "ann", "b").await, "Begin 2");
    assert_eq!(entry_of(&sandbox, "bob", "a").await, "Begin 3");
    let (ann, eve) = (Caller::new("ann", "tenant", Vec::new()), Caller::new("eve", "tenant", Vec::new()));
    assert_eq!(sandbox.list_sessions(&ann.owner).await.unwrap().len(), 2);
    assert!(sandbox.list_sessions(&eve.owner).await.unwrap().is_empty());
    assert_eq!(sandbox.show_session(&eve.owner, "a").await.unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(sandbox.delete_session(&eve.owner, "a").await.unwrap_err().code(), ErrorCode::NotFound);
    sandbox.delete_session(&ann.owner, "a").await.unwrap();
    assert_eq!(entry_of(&sandbox, "ann", "b").await, "Continue 2", "the worker has ended it");
    sandbox.close().await;
}

/// A program that runs in place of our list runs once for each call, however often somebody looks.
#[tokio::test]
async fn variables_are_listed_once_after_each_call() {
    let sandbox = sandbox(InterpreterSessionsConfig::default());
    let ann = Caller::new("ann", "tenant", Vec::new());
    let mut seen = Vec::new();
    for _ in 0..2 {
        entry_of(&sandbox, "ann", "a").await;
        for _ in 0..2 {
            let details = serde_json::to_value(sandbox.show_session(&ann.owner, "a").await.unwrap()).unwrap();
            seen.push(details["variables"][0]["name"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(seen, ["looked_1", "looked_1", "looked_2", "looked_2"]);
    sandbox.close().await;
}

#[tokio::test]
async fn a_worker_that_dies_ends_its_sessions_and_the_next_calls_say_so() {
    let sandbox = sandbox(InterpreterSessionsConfig::default());
    for session in ["a", "b"] {
        entry_of(&sandbox, "ann", session).await;
    }
    let (outcome, noted) = call(&sandbox, "ann", "a", "die").await;
    assert_eq!(outcome.unwrap_err().code(), ErrorCode::SandboxTrap);
    assert_eq!(noted.unwrap().end, Some(SessionEnd::WorkerDied));
    for session in ["a", "b"] {
        let (outcome, noted) = call(&sandbox, "ann", session, "sessions").await;
        assert!(outcome.unwrap().result.unwrap().starts_with("Begin"));
        let noted = noted.unwrap();
        assert_eq!((noted.generation, noted.is_new, noted.previous_end), (2, true, Some(SessionEnd::WorkerDied)));
    }
    sandbox.close().await;
}

#[tokio::test]
async fn a_session_whose_program_does_not_return_ends_in_the_worker_too() {
    let sandbox = sandbox(InterpreterSessionsConfig::default());
    let (_, noted) = call(&sandbox, "ann", "a", "trap").await;
    assert_eq!(noted.unwrap().end, Some(SessionEnd::Trap));
    let hanging = tokio::time::timeout(Duration::from_millis(200), call(&sandbox, "ann", "b", "hang"));
    assert!(hanging.await.is_err(), "its client leaves");
    let (outcome, noted) = call(&sandbox, "ann", "b", "sessions").await;
    assert_eq!(outcome.unwrap().result.unwrap(), "Begin 1");
    assert_eq!(noted.unwrap().previous_end, Some(SessionEnd::Cancelled));
    sandbox.close().await;
}

#[tokio::test]
async fn a_session_whose_worker_has_undone_a_program_goes_on() {
    let sandbox = sandbox(InterpreterSessionsConfig::default());
    entry_of(&sandbox, "ann", "a").await;
    let (outcome, noted) = call(&sandbox, "ann", "a", "undone").await;
    let noted = noted.unwrap();
    assert_eq!((outcome.unwrap().end, noted.end, noted.not_stored), (End::Timeout, None, Some(NotStored::Stopped)));
    assert_eq!(entry_of(&sandbox, "ann", "a").await, "Continue 1");
    sandbox.close().await;
}

#[tokio::test]
async fn a_session_that_is_deleted_during_a_call_fails_that_call() {
    let sandbox = sandbox(InterpreterSessionsConfig::default());
    entry_of(&sandbox, "ann", "a").await;
    let ann = Caller::new("ann", "tenant", Vec::new());
    let deleting = async {
        let has_it = async || sandbox.list_sessions(&ann.owner).await.unwrap().iter().any(|session| session.is_used);
        until("a call has it", has_it).await;
        let details = sandbox.show_session(&ann.owner, "a").await.unwrap();
        assert!(details.variables.is_none(), "a call has it");
        sandbox.delete_session(&ann.owner, "a").await.unwrap();
    };
    let ((outcome, noted), ()) = join(call(&sandbox, "ann", "a", "hang"), deleting).await;
    assert!(outcome.unwrap_err().message().contains("was deleted"));
    assert_eq!(noted.unwrap().end, Some(SessionEnd::Deleted));
    assert_eq!(entry_of(&sandbox, "ann", "a").await, "Begin 1");
    sandbox.close().await;
}

#[tokio::test]
async fn a_gateway_without_sessions_refuses_them() {
    let sandbox = sandbox(InterpreterSessionsConfig { max: 0, ..InterpreterSessionsConfig::default() });
    let (refused, noted) = call(&sandbox, "ann", "a", "sessions").await;
    assert_eq!((refused.unwrap_err().code(), noted), (ErrorCode::InvalidArguments, None));
    assert!(!sandbox.offers_sessions());
}
