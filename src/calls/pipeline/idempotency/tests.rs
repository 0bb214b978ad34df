//! Calls with an `Idempotency-Key`, around a tool that answers with the number of its run.

mod calls;
mod keys;
mod limits;
mod restarts;
mod waiting;

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::*;
use crate::pipeline::Answered;
use crate::pipeline::receipt::{Answer, Receipt};
use crate::pipeline::tests::{Checkpoint, Scripted, call};
use crate::tool::Metadata;
use crate::tool::tests::tool_with;
use sekisho_config::Config;
use sekisho_core::call::{Arguments, CallId, CallResumption, SendingState, ToolOutput};
use sekisho_core::error::ErrorCode;
use sekisho_core::until::until;

/// Answers with the number of the run.
fn counting() -> Scripted {
    Scripted::answering(|run| Ok(ToolOutput::from(json!(run))))
}

/// As [`counting`], but each run waits for a permit.
fn gated() -> (Scripted, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    (Scripted { gate: Some(Arc::clone(&gate)), ..counting() }, gate)
}

fn config(max_idempotency_keys: usize) -> Config {
    let session = SessionConfig { max_idempotency_keys, ..SessionConfig::default() };
    Config { session, ..Config::default() }
}

fn keyed(key: &str) -> CallContext {
    CallContext {
        resumption: CallResumption { idempotency_key: Some(key.into()), ..CallResumption::default() },
        ..call()
    }
}

fn keyed_by(tenant: &str, caller: &str, key: &str) -> CallContext {
    CallContext { caller: Arc::new(Caller::new(caller, tenant, Vec::new())), ..keyed(key) }
}

/// A call of a tool without arguments.
pub(super) fn request() -> RequestDigest {
    RequestDigest::new(&call(), &tool_with(Metadata::default(), json!({}), None), &Arguments::new(), None)
}

fn arguments(n: u32) -> Arguments {
    json!({"n": n}).as_object().cloned().unwrap()
}

/// The output, or the error's code, and whether the reply was replayed.
fn outcome_of(answered: &Answered) -> (Result<Value, ErrorCode>, bool) {
    let outcome = answered.reply.outcome.as_ref();
    (outcome.map(|answer| answer.output.clone()).map_err(CallError::code), answered.replayed)
}

async fn send(checkpoint: &Checkpoint, key: &str) -> (Result<Value, ErrorCode>, bool) {
    outcome_of(&checkpoint.pipeline.call(keyed(key), Arguments::new()).await)
}

/// Waits until the tool has begun so many runs.
async fn until_runs(checkpoint: &Checkpoint, runs: usize) {
    until("the tool runs", async || checkpoint.runs() == runs).await;
}

/// A store on disk, and its folder.
async fn store_on_disk() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    (folder, store)
}

/// A reply whose text has at least this many bytes.
pub(super) fn reply_of(bytes: usize) -> Arc<Reply> {
    let answer = Answer { text: "x".repeat(bytes), ..Answer::default() };
    let receipt = Receipt::of(CallId::new());
    let duration = Duration::ZERO;
    Arc::new(Reply { outcome: Ok(answer), duration, tokens: 0, cost_usd: 0.into(), receipt, stored: None })
}

/// Enters with a key and, as the first call, ends with a reply of this size. Returns whether it was the first.
async fn keep(replies: &Arc<Replies>, key: &str, bytes: usize) -> Result<bool, ErrorCode> {
    let deadline = Deadline::after(Duration::from_secs(60));
    match replies.enter(&call(), key, request(), deadline).await.map_err(|error| error.code())? {
        IdempotentOutcome::Answered(_) => Ok(false),
        IdempotentOutcome::Unknown(..) => Err(ErrorCode::UnknownOutcome),
        IdempotentOutcome::First(mut guard) => {
            guard.record(deadline).await.unwrap();
            guard.end(&reply_of(bytes), SendingState::Sent).await;
            Ok(true)
        }
    }
}
