//! Calls that wait for their client while no request of it is open: a client of 2026-07-28 is told
//! `InputRequiredResult`, and answers in a further request.
//!
//! The `requestState` it sends back names the waiting call. It is signed with a key of this process and bound
//! to caller and request, so that it opens nothing for anybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rmcp::model::{ErrorCode, ErrorData, InputRequests, InputRequiredResult, RequestStateCodec, SealOptions};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client::{ClientQuestion, fits};
use super::running_request::Running;
use crate::core::call::Caller;
use crate::core::json;
use crate::core::peer::{ANSWER_TIMEOUT, Answers, Questions, Unanswered};

/// ParkedCall calls of all callers, and of one.
const MAX_WAITING: usize = 256;
const MAX_WAITING_OF_A_CALLER: usize = 16;

#[derive(Debug)]
pub(super) struct ParkedCalls {
    codec: RequestStateCodec,
    calls: Arc<Mutex<HashMap<u128, ParkedCall>>>,
}

/// What a `requestState` is good for: the same request of the same caller.
#[derive(Debug)]
pub(super) struct Binding(Vec<u8>);

#[derive(Debug)]
struct ParkedCall {
    caller: Arc<str>,
    running: Running,
    questions: Questions,
    askers: Vec<PendingAnswer>,
}

/// Who waits for which of the answers.
#[derive(Debug)]
struct PendingAnswer {
    /// As the client is asked → as they were asked.
    keys: Vec<(String, String)>,
    answer: oneshot::Sender<Result<Answers, Unanswered>>,
}

/// What a further request with a `requestState` comes to.
pub(super) enum Resumed {
    /// The call has its answers and runs again.
    Running(Running),
    /// Some answers are still missing.
    StillAsking(InputRequiredResult),
}

impl Binding {
    /// `request` is the method and what of its parameters may not change.
    pub(super) fn new(caller: &Caller, request: &Map<String, Value>) -> Self {
        let mut bound = json::digest(request).to_vec();
        bound.extend(caller.key.as_bytes());
        Self(bound)
    }
}

impl ParkedCalls {
    pub(super) fn new() -> Self {
        Self { codec: RequestStateCodec::new_unchecked(rand::random::<[u8; 32]>().to_vec()), calls: Arc::default() }
    }

    /// Lets a call wait for the answers to all it asked, for as long as it may wait itself.
    ///
    /// # Errors
    /// The call again, which has been told why there is no answer.
    pub(super) fn park(
        &self,
        caller: &Caller,
        binding: &Binding,
        running: Running,
        asked: Vec<ClientQuestion>,
    ) -> Result<InputRequiredResult, Running> {
        let id = rand::random();
        let (questions, askers) = merge_questions(asked);
        let result = match self.ask(id, &questions, binding) {
            Ok(result) => result,
            Err(error) => {
                let message = format!("the gateway cannot pass this question on: {error}");
                refuse(askers, &Unanswered::Refused { code: ErrorCode::INVALID_PARAMS.0, message });
                return Err(running);
            }
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let of_caller = calls.values().filter(|waiting| waiting.caller == caller.key).count();
        if calls.len() >= MAX_WAITING || of_caller >= MAX_WAITING_OF_A_CALLER {
            drop(calls);
            refuse(askers, &Unanswered::TooMany);
            return Err(running);
        }
        let until = Instant::now() + ANSWER_TIMEOUT;
        let waiting =
            ParkedCall { caller: Arc::clone(&caller.key), running: running.in_background(), questions, askers };
        calls.insert(id, waiting);
        forget_later(Arc::downgrade(&self.calls), id, until);
        Ok(result)
    }

    /// Goes on with the call that `state` names.
    ///
    /// # Errors
    /// Invalid params: the state was altered, is another caller's or request's, another process's, or too old;
    /// or an answer is not what the protocol says an answer is.
    pub(super) fn resume(&self, binding: &Binding, state: &str, mut given: Answers) -> Result<Resumed, ErrorData> {
        let opened = self.codec.open_with(state, &binding.0).map_err(|error| {
            tracing::debug!(%error, "a request state was refused");
            not_ours()
        })?;
        let id = u128::from_le_bytes(<[u8; 16]>::try_from(opened).map_err(|_wrong_length| not_ours())?);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = calls.get(&id).ok_or_else(not_ours)?;
        let questions = &waiting.questions;
        let mismatch = questions.iter().find(|(key, asked)| given.get(*key).is_some_and(|it| !fits(asked.method, it)));
        if let Some((key, question)) = mismatch {
            let message = format!("inputResponses.{key} is not an answer to {}", json!(question.method));
            return Err(ErrorData::invalid_params(message, None));
        }
        if questions.keys().any(|key| !given.contains_key(key)) {
            return self.ask(id, questions, binding).map(Resumed::StillAsking).map_err(|_not_json| not_ours());
        }
        // It is there: the lock has been held since.
        let Some(ParkedCall { running, askers, .. }) = calls.remove(&id) else { return Err(not_ours()) };
        drop(calls);
        for PendingAnswer { keys, answer } in askers {
            let answers = keys.into_iter().filter_map(|(key, own)| Some((own, given.remove(&key)?)));
            // A call that no longer waits ends in its own words.
            _ = answer.send(Ok(answers.collect()));
        }
        Ok(Resumed::Running(running))
    }

    fn ask(
        &self,
        id: u128,
        questions: &Questions,
        binding: &Binding,
    ) -> Result<InputRequiredResult, serde_json::Error> {
        let options = SealOptions::new().associated_data(&binding.0).ttl(ANSWER_TIMEOUT);
        let state = self.codec.seal_with(&id.to_le_bytes(), &options);
        let requests: Result<InputRequests, _> = questions
            .iter()
            .map(|(key, question)| Ok((key.clone(), serde_json::from_value(json!(question))?)))
            .collect();
        Ok(InputRequiredResult::new(Some(requests?), Some(state)))
    }
}

/// All the questions, each under a key of its own: older servers give theirs none, and ask several side by side.
fn merge_questions(asked: Vec<ClientQuestion>) -> (Questions, Vec<PendingAnswer>) {
    let mut all = Questions::new();
    let mut askers = Vec::with_capacity(asked.len());
    for ClientQuestion { questions, answer } in asked {
        let mut keys = Vec::with_capacity(questions.len());
        for (own, question) in questions {
            let numbered = (2..).map(|number| format!("{own}_{number}"));
            let free = std::iter::once(own.clone()).chain(numbered).find(|key| !all.contains_key(key));
            let key = free.unwrap_or_else(|| own.clone());
            all.insert(key.clone(), question);
            keys.push((key, own));
        }
        askers.push(PendingAnswer { keys, answer });
    }
    (all, askers)
}

fn refuse(askers: Vec<PendingAnswer>, why: &Unanswered) {
    for asker in askers {
        _ = asker.answer.send(Err(why.clone()));
    }
}

/// Dropping a waiting call cancels it.
fn forget_later(calls: Weak<Mutex<HashMap<u128, ParkedCall>>>, id: u128, until: Instant) {
    tokio::spawn(async move {
        tokio::time::sleep_until(until).await;
        if let Some(calls) = calls.upgrade() {
            let forgotten = calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            drop(forgotten);
        }
    });
}

/// One sentence for every reason, so that it tells nothing of other callers.
fn not_ours() -> ErrorData {
    let message = "no call waits under this requestState: it was altered, is older than two minutes, belongs to another \
                   caller or request, or was made by another replica of this gateway; send the request again without it";
    ErrorData::invalid_params(message, Some(json!({"reason": "unknown_request_state"})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::peer::{Question, QuestionMethod};

    #[tokio::test]
    async fn questions_asked_side_by_side_get_keys_of_their_own_and_their_own_answers() {
        let asked = |key: &str, method| {
            let (answer, answered) = oneshot::channel();
            let questions = Questions::from([(key.to_owned(), Question { method, params: json!({}) })]);
            (ClientQuestion { questions, answer }, answered)
        };
        let (first, _) = asked("question", QuestionMethod::Elicitation);
        let (second, _) = asked("question", QuestionMethod::Sampling);
        let (third, _) = asked("roots", QuestionMethod::Roots);
        let (questions, askers) = merge_questions(vec![first, second, third]);
        let methods: Vec<_> = questions.iter().map(|(key, question)| (key.as_str(), question.method)).collect();
        assert_eq!(
            methods,
            [
                ("question", QuestionMethod::Elicitation),
                ("question_2", QuestionMethod::Sampling),
                ("roots", QuestionMethod::Roots),
            ]
        );
        let keys: Vec<_> = askers.iter().flat_map(|asker| &asker.keys).map(|(key, own)| (&**key, &**own)).collect();
        assert_eq!(keys, [("question", "question"), ("question_2", "question"), ("roots", "roots")]);
    }
}
