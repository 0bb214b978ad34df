//! The state of one task, as a client sees it.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rmcp::model::{ErrorCode, ErrorData};
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};

use super::super::headers::Era;
use super::{POLL_INTERVAL, TaskOwner};
use crate::mcp::client::{ClientQuestion, fits};
use sekisho_core::peer::{Answers, Questions, Unanswered};
use sekisho_core::share::Lease;

/// The task that a message is about.
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Maximum questions of one task that wait for its client, without questions that its call has withdrawn. One upstream
/// asks at most half as many at the same time, and a program may make several calls.
const MAX_PENDING: usize = 64;

#[derive(Debug)]
pub(in crate::mcp) struct TaskState {
    pub(in crate::mcp) id: String,
    pub(super) owner: TaskOwner,
    pub(super) created: Timestamp,
    ttl: Duration,
    progress: Mutex<Progress>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Progress {
    updated: Timestamp,
    /// Questions that the client of a session was sent and has not answered.
    asked: usize,
    /// Questions that a client without a session gets when it polls; at most [`MAX_PENDING`].
    pending: Vec<PendingQuestion>,
    /// Questions so far: their keys are unique.
    numbered: usize,
    end: Option<End>,
    is_fetched: bool,
}

#[derive(Debug)]
enum End {
    Cancelled(&'static str),
    Done { outcome: Result<Value, ErrorData>, _memory: Option<Lease> },
}

/// Questions of the call that wait for their answers together.
#[derive(Debug)]
struct PendingQuestion {
    /// Under the keys that the client sees.
    questions: Questions,
    /// The original key of each.
    keys: Vec<(String, String)>,
    answers: Answers,
    answer: oneshot::Sender<Result<Answers, Unanswered>>,
}

impl TaskState {
    pub(super) fn new(id: String, owner: TaskOwner, ttl: Duration) -> Self {
        let created = Timestamp::now();
        let progress =
            Progress { updated: created, asked: 0, pending: Vec::new(), numbered: 0, end: None, is_fetched: false };
        Self { id, owner, created, ttl, progress: Mutex::new(progress), changed: watch::Sender::new(()) }
    }

    /// The task as a poll gives it: `Task` of 2025-11-25, or `DetailedTask` of the extension.
    pub(in crate::mcp) fn polled(&self, era: Era) -> Value {
        let mut shown = self.shown(era);
        if era == Era::Stateless {
            let mut progress = self.progress.lock();
            // It may have ended just now.
            shown["status"] = progress.status(era).into();
            if let Some((member, value)) = progress.detail() {
                progress.is_fetched |= progress.end.is_some();
                shown[member] = value;
            }
        }
        shown
    }

    /// `Task` of the client's revision.
    pub(in crate::mcp) fn shown(&self, era: Era) -> Value {
        let mut progress = self.progress.lock();
        progress.forget_withdrawn();
        let (ttl, interval) = (milliseconds(self.ttl), milliseconds(POLL_INTERVAL));
        let mut shown = json!({
            "taskId": self.id, "status": progress.status(era),
            "createdAt": self.created.to_string(), "lastUpdatedAt": progress.updated.to_string(),
        });
        if let Some(message) = progress.message() {
            shown["statusMessage"] = message.into();
        }
        match era {
            Era::Sessions => {
                shown["ttl"] = ttl.into();
                shown["pollInterval"] = interval.into();
            }
            Era::Stateless => {
                shown["ttlMs"] = ttl.into();
                shown["pollIntervalMs"] = interval.into();
            }
        }
        shown
    }

    /// Waits for the end of the task, for the result of its call.
    /// Errors: the call's own, or that the task was cancelled.
    pub(in crate::mcp) async fn outcome(&self) -> Result<Value, ErrorData> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let mut progress = self.progress.lock();
                progress.is_fetched |= progress.end.is_some();
                match &progress.end {
                    Some(End::Done { outcome, .. }) => return outcome.clone(),
                    Some(End::Cancelled(why)) => return Err(ErrorData::invalid_request(*why, None)),
                    None => {}
                }
            }
            // Cannot fail: `self` has the sender.
            let _ = changed.changed().await;
        }
    }

    /// The result as `tasks/result` gives it: it names its task.
    pub(in crate::mcp) fn related(&self, mut result: Value) -> Value {
        self.relate(&mut result);
        result
    }

    /// Marks a result or parameters as belonging to this task.
    pub(super) fn relate(&self, holder: &mut Value) {
        if let Some(members) = holder.as_object_mut()
            && let Some(meta) = members.entry("_meta").or_insert_with(|| Map::new().into()).as_object_mut()
        {
            meta.insert(RELATED.to_owned(), json!({"taskId": self.id}));
        }
    }

    /// Receives each change of the state that [`polled`](Self::polled) gives.
    pub(in crate::mcp) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(in crate::mcp) fn has_ended(&self) -> bool {
        self.progress.lock().end.is_some()
    }

    pub(super) fn is_fetched(&self) -> bool {
        self.progress.lock().is_fetched
    }

    /// Returns whether it was still running.
    pub(super) fn cancel(&self, why: &'static str) -> bool {
        self.settle(|| End::Cancelled(why))
    }

    pub(super) fn finish(&self, outcome: Result<Value, ErrorData>, memory: Option<Lease>) -> bool {
        self.settle(|| End::Done { outcome, _memory: memory })
    }

    fn settle(&self, end: impl FnOnce() -> End) -> bool {
        let mut progress = self.progress.lock();
        if progress.end.is_some() {
            return false;
        }
        progress.end = Some(end());
        // Their call does not wait for them any more.
        let pending = std::mem::take(&mut progress.pending);
        self.update(&mut progress);
        drop(progress);
        drop(pending);
        true
    }

    fn update(&self, progress: &mut Progress) {
        progress.updated = Timestamp::now();
        self.changed.send_replace(());
    }

    /// Counts the questions that the client of a session is being asked.
    pub(super) fn asks(&self, more: bool) {
        let mut progress = self.progress.lock();
        progress.asked = if more { progress.asked + 1 } else { progress.asked.saturating_sub(1) };
        self.update(&mut progress);
    }

    /// Keeps a question until the client polls and answers it. A question beyond the maximum is refused.
    pub(super) fn ask(&self, question: ClientQuestion) {
        let mut progress = self.progress.lock();
        progress.forget_withdrawn();
        if progress.pending.len() >= MAX_PENDING {
            drop(progress);
            // A call that no longer waits ends with its own error.
            _ = question.answer.send(Err(Unanswered::TooMany));
            return;
        }
        let (mut questions, mut keys) = (Questions::new(), Vec::with_capacity(question.questions.len()));
        for (own, question) in question.questions {
            progress.numbered += 1;
            let key = format!("{own}_{}", progress.numbered);
            questions.insert(key.clone(), question);
            keys.push((key, own));
        }
        progress.pending.push(PendingQuestion { questions, keys, answers: Answers::new(), answer: question.answer });
        self.update(&mut progress);
    }

    /// Passes answers on. Answers to no open question are ignored.
    /// Errors: invalid params: an answer does not match its question.
    pub(in crate::mcp) fn answer(&self, mut given: Answers) -> Result<(), ErrorData> {
        let mut progress = self.progress.lock();
        let open = || progress.pending.iter().flat_map(|pending| &pending.questions);
        if let Some((key, question)) =
            open().find(|(key, question)| given.get(*key).is_some_and(|it| !fits(question.method, it)))
        {
            let message = format!("inputResponses.{key} is not an answer to {}", json!(question.method));
            return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, message, None));
        }
        for pending in &mut progress.pending {
            for (key, own) in &pending.keys {
                if pending.questions.contains_key(key)
                    && let Some(answer) = given.remove(key)
                {
                    pending.questions.remove(key);
                    pending.answers.insert(own.clone(), answer);
                }
            }
        }
        let (waiting, answered): (Vec<_>, Vec<_>) =
            std::mem::take(&mut progress.pending).into_iter().partition(|pending| !pending.questions.is_empty());
        progress.pending = waiting;
        for pending in answered {
            // A call that no longer waits ends with its own error.
            _ = pending.answer.send(Ok(pending.answers));
        }
        self.update(&mut progress);
        Ok(())
    }
}

impl Progress {
    /// Removes the questions that the call no longer waits for.
    fn forget_withdrawn(&mut self) {
        self.pending.retain(|pending| !pending.answer.is_closed());
    }

    fn status(&self, era: Era) -> &'static str {
        let is_error = |outcome: &Value| outcome["isError"] == true;
        match &self.end {
            None if self.asked > 0 || !self.pending.is_empty() => "input_required",
            None => "working",
            Some(End::Cancelled(_)) => "cancelled",
            Some(End::Done { outcome: Err(_), .. }) => "failed",
            // Since the extension, a failure of the tool is a result.
            Some(End::Done { outcome: Ok(outcome), .. }) if era == Era::Sessions && is_error(outcome) => "failed",
            Some(End::Done { .. }) => "completed",
        }
    }

    fn message(&self) -> Option<String> {
        match &self.end {
            Some(End::Cancelled(why)) => Some((*why).to_owned()),
            Some(End::Done { outcome: Err(error), .. }) => Some(error.message.to_string()),
            _ => None,
        }
    }

    /// The member that a polled task of the extension has for its status.
    fn detail(&self) -> Option<(&'static str, Value)> {
        match &self.end {
            Some(End::Done { outcome: Ok(result), .. }) => Some(("result", result.clone())),
            Some(End::Done { outcome: Err(error), .. }) => Some(("error", json!(error))),
            Some(End::Cancelled(_)) => None,
            None if self.pending.is_empty() => None,
            None => {
                let open: Map<_, _> = self.pending.iter().flat_map(|pending| &pending.questions).map(written).collect();
                Some(("inputRequests", open.into()))
            }
        }
    }
}

fn written((key, question): (&String, &sekisho_core::peer::Question)) -> (String, Value) {
    (key.clone(), json!(question))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::client_context::McpClientContext;
    use sekisho_core::call::Caller;
    use sekisho_core::peer::{Question, QuestionMethod};

    fn state() -> TaskState {
        let client = McpClientContext::new(std::sync::Arc::new(Caller::new("a", "t", Vec::new())));
        TaskState::new("id".to_owned(), TaskOwner::of(&client, Era::Stateless), Duration::from_secs(60))
    }

    fn status(state: &TaskState, era: Era) -> String {
        state.shown(era)["status"].as_str().expect("a status").to_owned()
    }

    #[test]
    fn each_revision_has_its_own_form_of_a_failure() {
        for (outcome, expected) in [
            (Ok(json!({"content": []})), ["completed", "completed"]),
            (Ok(json!({"content": [], "isError": true})), ["failed", "completed"]),
            (Err(ErrorData::internal_error("no", None)), ["failed", "failed"]),
        ] {
            let state = state();
            assert_eq!(status(&state, Era::Sessions), "working");
            assert!(state.finish(outcome.clone(), None) && !state.cancel("late"));
            assert_eq!([status(&state, Era::Sessions), status(&state, Era::Stateless)], expected, "{outcome:?}");
            assert_eq!(state.shown(Era::Sessions)["ttl"], 60_000);
            let shown = state.polled(Era::Stateless);
            assert_eq!((&shown["ttlMs"], &shown["pollIntervalMs"]), (&json!(60_000), &json!(1_000)));
            assert_eq!(shown.get("result").is_some(), outcome.is_ok());
        }
    }

    #[test]
    fn questions_are_answered_one_by_one_under_keys_of_their_own() {
        let state = state();
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let (answer, answered) = oneshot::channel();
            let question = |method| Question { method, params: json!({}) };
            let questions = Questions::from([
                ("who".to_owned(), question(QuestionMethod::Elicitation)),
                ("where".to_owned(), question(QuestionMethod::Roots)),
            ]);
            state.ask(ClientQuestion { questions, answer });
            waiting.push(answered);
        }
        let open = |state: &TaskState| {
            let shown = state.polled(Era::Stateless);
            let open = shown["inputRequests"].as_object().cloned().unwrap_or_default();
            open.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!((open(&state).len(), status(&state, Era::Sessions)), (4, "input_required".to_owned()));
        let accepted = json!({"action": "accept", "content": {}});
        let give = |key: &str, answer: &Value| state.answer(Answers::from([(key.to_owned(), answer.clone())]));
        assert!(give("who_2", &json!(7)).is_err(), "no answer to an elicitation");
        give("who_2", &accepted).expect("an answer");
        give("unknown", &accepted).expect("an answer to nothing");
        assert_eq!(open(&state).len(), 3);
        assert!(waiting[0].try_recv().is_err());
        give("where_1", &json!({"roots": []})).expect("an answer");
        let answers = waiting[0].try_recv().expect("answers").expect("answers");
        assert_eq!(answers["who"], accepted);
        assert_eq!(open(&state).len(), 2);
        drop(waiting);
        assert_eq!((open(&state).len(), status(&state, Era::Stateless)), (0, "working".to_owned()), "withdrawn");
    }

    #[test]
    fn questions_that_wait_are_bounded_and_withdrawn_ones_go_without_a_poll() {
        let state = state();
        let ask = || {
            let (answer, answered) = oneshot::channel();
            let question = Question { method: QuestionMethod::Roots, params: json!({}) };
            state.ask(ClientQuestion { questions: Questions::from([("where".to_owned(), question)]), answer });
            answered
        };
        (0..1_000).for_each(|_| drop(ask()));
        assert!(state.progress.lock().pending.len() <= 1, "the others were withdrawn");
        let mut waiting: Vec<_> = (0..MAX_PENDING).map(|_| ask()).collect();
        assert!(matches!(ask().try_recv(), Ok(Err(Unanswered::TooMany))));
        assert!(waiting.iter_mut().all(|answered| answered.try_recv().is_err()), "those before it wait");
        waiting.pop();
        assert!(ask().try_recv().is_err(), "there is a place again");
        assert_eq!(state.progress.lock().pending.len(), MAX_PENDING);
    }
}
