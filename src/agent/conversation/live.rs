//! The runs of this process that are on: how they are stopped, and the questions that they wait with.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use sekisho_store::{ConversationRun, RunStatus};

/// Why a run is stopped before it has an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// `POST /api/runs/{id}/cancel`.
    Request,
    Disconnected,
    /// A later request of the conversation, with `on_busy: interrupt`.
    LaterRun,
    TimeOut,
    LockLost,
    Shutdown,
}

impl StopCause {
    /// Whether a run ended for this cause.
    pub fn has_ended(self, run: &ConversationRun) -> bool {
        run.status == RunStatus::Cancelled && run.error.as_ref().is_some_and(|error| error.message == self.message())
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Request => "the run was cancelled on request",
            Self::Disconnected => "the client disconnected, and the run was cancelled",
            Self::LaterRun => "a later request of the conversation interrupted the run",
            Self::TimeOut => "the run took too long and was stopped",
            Self::LockLost => "the run lost the lock of its conversation and was stopped",
            Self::Shutdown => "the gateway was shut down",
        }
    }
}

/// What to do about a call that was sent and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Send it again.
    Repeat,
    /// Tell the model that it may have happened.
    Skip,
}

/// A call that was sent and not answered, about which a run waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownCall {
    pub call_id: String,
    pub tool_name: String,
    /// The arguments as the model wrote them.
    pub tool_input: String,
    pub reason: String,
}

/// A question, and where its answer goes.
#[derive(Debug)]
struct Question {
    about: UnknownCall,
    answer: oneshot::Sender<Decision>,
}

/// A run that is on.
#[derive(Debug)]
pub struct LiveRun {
    pub(super) id: Arc<str>,
    pub(super) caller_key: Arc<str>,
    pub(super) conversation: String,
    pub(super) stop: CancellationToken,
    cause: Mutex<Option<StopCause>>,
    /// One at a time: the calls are decided one after the other.
    question: Mutex<Option<Question>>,
}

impl LiveRun {
    /// `closing` stops it too.
    pub(super) fn new(
        id: &Arc<str>,
        caller_key: &Arc<str>,
        conversation: &str,
        closing: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: Arc::clone(id),
            caller_key: Arc::clone(caller_key),
            conversation: conversation.to_owned(),
            stop: closing.child_token(),
            cause: Mutex::default(),
            question: Mutex::default(),
        })
    }

    /// Ends the run soon. The first cause counts.
    pub fn stop(&self, cause: StopCause) {
        self.cause.lock().get_or_insert(cause);
        self.stop.cancel();
    }

    /// Why it is stopped.
    pub(super) fn cause(&self) -> StopCause {
        self.cause.lock().unwrap_or(StopCause::Shutdown)
    }

    /// Waits for the decision about a call. `None` if the run is stopped meanwhile.
    pub(super) async fn ask(&self, about: UnknownCall) -> Option<Decision> {
        let (answer, decided) = oneshot::channel();
        *self.question.lock() = Some(Question { about, answer });
        let decision = self.stop.run_until_cancelled(decided).await.and_then(Result::ok);
        *self.question.lock() = None;
        decision
    }

    /// The call about which it waits for a decision.
    pub(super) fn asks_about(&self) -> Option<UnknownCall> {
        self.question.lock().as_ref().map(|question| question.about.clone())
    }

    /// Gives the decision about a call; false if the run does not wait for it.
    pub(super) fn decide(&self, call: &str, decision: Decision) -> bool {
        let question = self.question.lock().take_if(|question| question.about.call_id == call);
        question.is_some_and(|question| question.answer.send(decision).is_ok())
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Arc<Self> {
        Self::new(&"r".into(), &"ann".into(), "c", &CancellationToken::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::until::until;

    fn call(id: &str) -> UnknownCall {
        let (tool_name, tool_input) = ("transfer".to_owned(), r#"{"amount": 1}"#.to_owned());
        UnknownCall { call_id: id.to_owned(), tool_name, tool_input, reason: "it was cut off".to_owned() }
    }

    #[tokio::test]
    async fn a_run_waits_for_a_decision_until_it_is_stopped() {
        let run = LiveRun::for_tests();
        assert!(!run.decide("1", Decision::Repeat), "it waits for nothing");
        let asking = {
            let run = Arc::clone(&run);
            tokio::spawn(async move { (run.ask(call("1")).await, run.ask(call("2")).await) })
        };
        until("it asks about the first call", async || run.decide("1", Decision::Repeat)).await;
        until("it asks about the second call", async || run.asks_about() == Some(call("2"))).await;
        assert!(!run.decide("1", Decision::Repeat), "that is decided");
        run.stop(StopCause::LaterRun);
        run.stop(StopCause::Request);
        assert_eq!(asking.await.unwrap(), (Some(Decision::Repeat), None));
        assert_eq!((run.cause(), run.asks_about()), (StopCause::LaterRun, None));
    }
}
