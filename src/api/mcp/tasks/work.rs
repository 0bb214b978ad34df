//! The background work of a task: the work of a request for which a client would wait, without the client.

use std::sync::{Arc, Weak};

use rmcp::model::{ErrorData, ServerJsonRpcMessage};
use serde_json::{Value, json};

use super::super::catalogue::size;
use super::super::headers::Era;
use super::super::running_request::{MAX_OPEN_QUESTIONS, Outcome, RunningRequest, Step, ask};
use super::super::session::McpSession;
use super::{Task, TaskState};
use crate::mcp::client::ClientQuestion;
use sekisho_core::bounded::BoundedFutures;
use sekisho_core::per_owner::PerOwner;
use sekisho_core::share::{Lease, Share};

/// Where results are kept.
pub(super) struct Kept {
    pub(super) results: Arc<Share>,
    pub(super) tasks: Weak<PerOwner<String, Task>>,
}

/// Runs the request to its end.
pub(super) async fn run(state: Arc<TaskState>, mut running: RunningRequest, kept: Kept) {
    let session = state.owner.session.as_ref().and_then(Weak::upgrade);
    // The session is not idle while its task runs.
    let _active = session.as_ref().map(McpSession::active);
    let mut asking = BoundedFutures::new(MAX_OPEN_QUESTIONS);
    let outcome = loop {
        let has_room = asking.has_room();
        let step = tokio::select! {
            biased;
            Some(()) = asking.next() => {
                state.asks(false);
                continue;
            }
            step = running.next_with(has_room) => step,
        };
        match (step, &session) {
            (Step::End(outcome), _) => break outcome,
            (Step::Notify(notification), Some(session)) => {
                session.outside.send(&ServerJsonRpcMessage::notification(notification));
            }
            (Step::Ask(mut question), Some(session)) => {
                relate(&state, &mut question);
                state.asks(true);
                notify(&state, Some(session));
                // There is room: questions are taken only then.
                _ = asking.push(ask(session, &session.outside, question));
            }
            // The client gets it when it polls.
            (Step::Ask(question), None) => state.ask(question),
            // The extension has no other messages of tasks.
            (Step::Notify(_), None) => {}
        }
    };
    let (outcome, memory) = kept.keep(&state, written(outcome, state.owner.session.is_some()));
    if state.finish(outcome, memory) {
        notify(&state, session.as_deref());
    }
}

fn relate(state: &TaskState, question: &mut ClientQuestion) {
    for question in question.questions.values_mut() {
        state.relate(&mut question.params);
    }
}

/// Tells the client of a session how the task is.
fn notify(state: &TaskState, session: Option<&McpSession>) {
    if let Some(session) = session {
        let params = state.shown(Era::Sessions);
        session.outside.send(&json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params}));
    }
}

/// The result as JSON, for a client of a revision with sessions or for another.
fn written(outcome: Outcome, in_session: bool) -> Result<Value, ErrorData> {
    let mut result = outcome?;
    if in_session {
        result.strip_result_type_for_legacy_peer();
    }
    serde_json::to_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl Kept {
    /// Makes place for a result. Without place, the result is an error that says so.
    fn keep(&self, state: &TaskState, outcome: Result<Value, ErrorData>) -> (Result<Value, ErrorData>, Option<Lease>) {
        let Ok(result) = &outcome else { return (outcome, None) };
        let owner = &state.owner.owner;
        let bytes = size(result) as u64;
        let lease = self.results.try_acquire(owner, bytes).or_else(|| {
            let tasks = self.tasks.upgrade()?;
            let fetched = tasks.take_if(|task| task.state.is_fetched() && task.state.owner.owner == *owner);
            drop(fetched);
            self.results.try_acquire(owner, bytes)
        });
        match lease {
            Some(lease) => (outcome, Some(lease)),
            None => {
                let message = format!(
                    "the call has ended, but its result of {bytes} bytes cannot be kept: too many results of tasks \
                     were not fetched"
                );
                (Err(ErrorData::internal_error(message, None)), None)
            }
        }
    }
}
