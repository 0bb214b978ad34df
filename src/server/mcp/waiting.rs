//! Calls that wait for their client while no request of it is open: a client of 2026-07-28 is told
//! `InputRequiredResult`, and answers in a further request.
//!
//! The `requestState` it sends back names the waiting call. It is signed with a key of this process and bound
//! to caller and request, so that it opens nothing for anybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rmcp::model::{ErrorCode, ErrorData, InputRequests, InputRequiredResult, RequestStateCodec, SealOptions};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::calling::Running;
use super::client::{Asked, fits};
use crate::call::Caller;
use crate::json;
use crate::peer::{ANSWER_WITHIN, Answers, Questions, Unanswered};

/// Waiting calls of all callers, and of one.
const MOST_WAITING: usize = 256;
const MOST_WAITING_OF_A_CALLER: usize = 16;

#[derive(Debug)]
pub(super) struct WaitingCalls {
    codec: RequestStateCodec,
    calls: Arc<Mutex<HashMap<u128, Waiting>>>,
}

/// What a `requestState` is good for: the same request of the same caller.
#[derive(Debug)]
pub(super) struct Binding(Vec<u8>);

#[derive(Debug)]
struct Waiting {
    caller: Arc<str>,
    running: Running,
    asked: Asked,
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

impl WaitingCalls {
    pub(super) fn new() -> Self {
        Self { codec: RequestStateCodec::new_unchecked(rand::random::<[u8; 32]>().to_vec()), calls: Arc::default() }
    }

    /// Lets a call wait for the answers to what it asked, for as long as it may wait itself.
    pub(super) fn park(
        &self,
        caller: &Caller,
        binding: &Binding,
        running: Running,
        asked: Asked,
    ) -> Result<InputRequiredResult, Running> {
        let id = rand::random();
        let result = match self.ask(id, &asked.questions, binding) {
            Ok(result) => result,
            Err(error) => {
                let message = format!("the gateway cannot pass this question on: {error}");
                _ = asked.answer.send(Err(Unanswered::Refused { code: ErrorCode::INVALID_PARAMS.0, message }));
                return Err(running);
            }
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let of_caller = calls.values().filter(|waiting| waiting.caller == caller.key).count();
        if calls.len() >= MOST_WAITING || of_caller >= MOST_WAITING_OF_A_CALLER {
            drop(calls);
            _ = asked.answer.send(Err(Unanswered::TooMany));
            return Err(running);
        }
        let until = Instant::now() + ANSWER_WITHIN;
        let waiting = Waiting { caller: Arc::clone(&caller.key), running: running.in_background(), asked };
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
        let questions = &waiting.asked.questions;
        let misfit = questions.iter().find(|(key, asked)| given.get(*key).is_some_and(|it| !fits(asked.method, it)));
        if let Some((key, question)) = misfit {
            let message = format!("inputResponses.{key} is not an answer to {}", json!(question.method));
            return Err(ErrorData::invalid_params(message, None));
        }
        if questions.keys().any(|key| !given.contains_key(key)) {
            return self.ask(id, questions, binding).map(Resumed::StillAsking).map_err(|_not_json| not_ours());
        }
        // It is there: the lock has been held since.
        let Some(Waiting { running, asked, .. }) = calls.remove(&id) else { return Err(not_ours()) };
        drop(calls);
        given.retain(|key, _| asked.questions.contains_key(key));
        // A call that no longer waits ends in its own words.
        _ = asked.answer.send(Ok(given));
        Ok(Resumed::Running(running))
    }

    fn ask(
        &self,
        id: u128,
        questions: &Questions,
        binding: &Binding,
    ) -> Result<InputRequiredResult, serde_json::Error> {
        let options = SealOptions::new().associated_data(&binding.0).ttl(ANSWER_WITHIN);
        let state = self.codec.seal_with(&id.to_le_bytes(), &options);
        let requests: Result<InputRequests, _> = questions
            .iter()
            .map(|(key, question)| Ok((key.clone(), serde_json::from_value(json!(question))?)))
            .collect();
        Ok(InputRequiredResult::new(Some(requests?), Some(state)))
    }
}

/// Dropping a waiting call cancels it.
fn forget_later(calls: Weak<Mutex<HashMap<u128, Waiting>>>, id: u128, until: Instant) {
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
