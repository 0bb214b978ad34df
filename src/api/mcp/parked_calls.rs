//! Calls that wait for their client without an open request: a client of 2026-07-28 gets `InputRequiredResult`, and
//! answers in a further request.
//!
//! The `requestState` that it sends back is `ID:SEALED`. The id of the parked call says which replica has it, so that
//! the further request may come to any. The sealed part is the same id, signed with a key of the process that has the
//! call and bound to caller and request, so that nobody else can use it.

use std::sync::{Arc, Weak};

use rmcp::model::{ErrorCode, ErrorData, InputRequests, InputRequiredResult, RequestStateCodec, SealOptions};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::client::{ClientQuestion, fits};
use super::replica_ids::ReplicaIds;
use super::running_request::RunningRequest;
use sekisho_core::call::{Arguments, Caller};
use sekisho_core::json;
use sekisho_core::peer::{ANSWER_TIMEOUT, Answers, Questions, Unanswered};
use sekisho_core::per_owner::{NotAdded, PerOwner};

/// Maximum number of parked calls: of all callers, and of one caller.
const MAX_WAITING: usize = 256;
const MAX_WAITING_OF_A_CALLER: usize = 16;

/// Ends the id at the beginning of a `requestState`; neither part has it.
const ID_END: char = ':';

#[derive(Debug)]
pub(super) struct ParkedCalls {
    ids: ReplicaIds,
    codec: RequestStateCodec,
    calls: Arc<PerOwner<String, ParkedCall>>,
}

/// The scope of a `requestState`: the same request of the same caller.
#[derive(Debug, Clone)]
pub(super) struct Binding(Vec<u8>);

#[derive(Debug)]
struct ParkedCall {
    running: RunningRequest,
    questions: Questions,
    pending: Vec<PendingAnswer>,
    /// Removes it when its time has passed. Ends when the call is resumed or evicted.
    _expiry: AbortOnDropHandle<()>,
}

/// A question that waits for its answers.
#[derive(Debug)]
struct PendingAnswer {
    /// Key sent to the client → key of the original question.
    keys: Vec<(String, String)>,
    answer: oneshot::Sender<Result<Answers, Unanswered>>,
}

/// The result of a further request with a `requestState`.
pub(super) enum Resumed {
    /// The call has its answers and runs again.
    Running(RunningRequest),
    /// Some answers are still missing.
    StillAsking(InputRequiredResult),
}

impl Binding {
    /// A request of this method, with these parameters.
    pub(super) fn new(caller: &Caller, method: &str, name: &str, arguments: &Arguments) -> Self {
        let request = [("method", json!(method)), ("name", json!(name)), ("arguments", json!(arguments))];
        let request = request.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut bound = json::digest(&request).to_vec();
        bound.extend(caller.key.as_bytes());
        Self(bound)
    }
}

impl ParkedCalls {
    pub(super) fn new(ids: ReplicaIds) -> Self {
        let codec = RequestStateCodec::new_unchecked(rand::random::<[u8; 32]>().to_vec());
        Self { ids, codec, calls: Arc::new(PerOwner::new(MAX_WAITING, MAX_WAITING_OF_A_CALLER)) }
    }

    /// Parks a call until all its questions are answered, at most until the call's own deadline.
    /// Errors: the call is returned; its questions have received an error.
    pub(super) fn park(
        &self,
        caller: &Caller,
        binding: &Binding,
        running: RunningRequest,
        client_questions: Vec<ClientQuestion>,
    ) -> Result<InputRequiredResult, RunningRequest> {
        let id = self.ids.create();
        let (questions, pending) = merge_questions(client_questions);
        let result = match self.ask(&id, &questions, binding) {
            Ok(result) => result,
            Err(error) => {
                let message = format!("the gateway cannot forward this question: {error}");
                refuse(pending, &Unanswered::Refused { code: ErrorCode::INVALID_PARAMS.0, message });
                return Err(running);
            }
        };
        let expiry = expire(Arc::downgrade(&self.calls), id.clone(), Instant::now() + ANSWER_TIMEOUT);
        let expiry = AbortOnDropHandle::new(tokio::spawn(expiry));
        let parked = ParkedCall { running: running.in_background(), questions, pending, _expiry: expiry };
        let (parked, evicted) = match self.calls.insert(&caller.owner, id, parked, |_, _| true) {
            Ok(evicted) => (Ok(result), evicted),
            Err(NotAdded { value: ParkedCall { running, pending, .. }, gone }) => {
                refuse(pending, &Unanswered::TooMany);
                (Err(running), gone)
            }
        };
        for (_, ParkedCall { pending, .. }) in evicted {
            refuse(pending, &Unanswered::TooMany);
        }
        parked
    }

    /// Continues the call that `state` names.
    /// Errors: invalid params: the state was altered, expired, or belongs to another caller, request or process; or an
    /// answer does not match its question. A state of another replica that can be asked does not come here.
    pub(super) fn resume(&self, binding: &Binding, state: &str, mut given: Answers) -> Result<Resumed, ErrorData> {
        let (_, sealed) = state.split_once(ID_END).ok_or_else(not_ours)?;
        let opened = self.codec.open_with(sealed, &binding.0).map_err(|error| {
            tracing::debug!(%error, "a request state was refused");
            not_ours()
        })?;
        let id = String::from_utf8(opened).map_err(|_not_text| not_ours())?;
        let missing =
            self.calls.with(&id, |parked| missing_answers(&parked.questions, &given)).ok_or_else(not_ours)??;
        if let Some(questions) = missing {
            return self.ask(&id, &questions, binding).map(Resumed::StillAsking).map_err(|_not_json| not_ours());
        }
        // Another request may have resumed it in between.
        let Some(ParkedCall { running, pending, .. }) = self.calls.remove(&id) else { return Err(not_ours()) };
        for PendingAnswer { keys, answer } in pending {
            let answers = keys.into_iter().filter_map(|(key, own)| Some((own, given.remove(&key)?)));
            // A call that no longer waits ends with its own error.
            _ = answer.send(Ok(answers.collect()));
        }
        Ok(Resumed::Running(running))
    }

    fn ask(
        &self,
        id: &str,
        questions: &Questions,
        binding: &Binding,
    ) -> Result<InputRequiredResult, serde_json::Error> {
        let options = SealOptions::new().associated_data(&binding.0).ttl(ANSWER_TIMEOUT);
        let state = format!("{id}{ID_END}{}", self.codec.seal_with(id.as_bytes(), &options));
        let requests: Result<InputRequests, _> = questions
            .iter()
            .map(|(key, question)| Ok((key.clone(), serde_json::from_value(json!(question))?)))
            .collect();
        Ok(InputRequiredResult::new(Some(requests?), Some(state)))
    }
}

/// The id of the parked call that a `requestState` names.
pub(super) fn id_of(state: &str) -> Option<&str> {
    state.split_once(ID_END).map(|(id, _)| id)
}

/// The questions, if not all of them have their answers.
/// Errors: an answer does not match its question.
fn missing_answers(questions: &Questions, given: &Answers) -> Result<Option<Questions>, ErrorData> {
    let mismatch =
        questions.iter().find(|(key, question)| given.get(*key).is_some_and(|it| !fits(question.method, it)));
    if let Some((key, question)) = mismatch {
        let message = format!("inputResponses.{key} is not an answer to {}", json!(question.method));
        return Err(ErrorData::invalid_params(message, None));
    }
    let is_missing = questions.keys().any(|key| !given.contains_key(key));
    Ok(is_missing.then(|| questions.clone()))
}

/// All questions, each with a unique key: older servers send none, and send several concurrent questions.
fn merge_questions(client_questions: Vec<ClientQuestion>) -> (Questions, Vec<PendingAnswer>) {
    let mut all = Questions::new();
    let mut pending = Vec::with_capacity(client_questions.len());
    for ClientQuestion { questions, answer } in client_questions {
        let mut keys = Vec::with_capacity(questions.len());
        for (own, question) in questions {
            let numbered = (2..).map(|number| format!("{own}_{number}"));
            let free = std::iter::once(own.clone()).chain(numbered).find(|key| !all.contains_key(key));
            let key = free.unwrap_or_else(|| own.clone());
            all.insert(key.clone(), question);
            keys.push((key, own));
        }
        pending.push(PendingAnswer { keys, answer });
    }
    (all, pending)
}

fn refuse(pending: Vec<PendingAnswer>, why: &Unanswered) {
    for pending_answer in pending {
        _ = pending_answer.answer.send(Err(why.clone()));
    }
}

/// Removes a parked call at a time. Dropping it cancels it.
async fn expire(calls: Weak<PerOwner<String, ParkedCall>>, id: String, at: Instant) {
    tokio::time::sleep_until(at).await;
    if let Some(calls) = calls.upgrade() {
        drop(calls.remove(&id));
    }
}

/// One message for every reason, so that it reveals nothing of other callers.
fn not_ours() -> ErrorData {
    let message = "unknown requestState: it was altered, is older than two minutes, belongs to another \
                   caller or request, or was made by another replica, which cannot be asked; send the request again without it";
    ErrorData::invalid_params(message, Some(json!({"reason": "unknown_request_state"})))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use tokio::runtime::Handle;

    use super::super::client::ClientEvents;
    use super::*;
    use sekisho_core::peer::{Question, QuestionMethod};
    use sekisho_core::until::until;

    fn asking(key: &str, method: QuestionMethod) -> ClientQuestion {
        let questions = Questions::from([(key.to_owned(), Question { method, params: json!({}) })]);
        ClientQuestion { questions, answer: oneshot::channel().0 }
    }

    fn running() -> RunningRequest {
        RunningRequest { work: pending().boxed(), client_events: ClientEvents::none() }
    }

    /// A parked call has the task of its work, and the one that removes it.
    #[tokio::test]
    async fn no_task_is_left_of_a_call_that_was_resumed_or_evicted() {
        let parked = ParkedCalls::new(ReplicaIds::new(None));
        let caller = Caller::new("ann", "acme", Vec::new());
        let binding = Binding::new(&caller, "tools/call", "t", &Arguments::default());
        let park = || {
            let questions = vec![asking("question", QuestionMethod::Roots)];
            parked.park(&caller, &binding, running(), questions).expect("a place")
        };
        for _ in 0..3 * MAX_WAITING_OF_A_CALLER {
            park();
        }
        let tasks = || Handle::current().metrics().num_alive_tasks();
        until("those that were evicted have ended", async || tasks() == 2 * MAX_WAITING_OF_A_CALLER).await;
        let state = park().request_state.expect("a state");
        let answers = Answers::from([("question".to_owned(), json!({"roots": []}))]);
        let Ok(Resumed::Running(resumed)) = parked.resume(&binding, &state, answers) else { panic!("it is resumed") };
        drop(resumed);
        until("the resumed one has ended", async || tasks() == 2 * (MAX_WAITING_OF_A_CALLER - 1)).await;
    }

    #[tokio::test]
    async fn concurrent_questions_get_unique_keys_and_their_own_answers() {
        let question = |key: &str, method| {
            let (answer, answered) = oneshot::channel();
            let questions = Questions::from([(key.to_owned(), Question { method, params: json!({}) })]);
            (ClientQuestion { questions, answer }, answered)
        };
        let (first, _) = question("question", QuestionMethod::Elicitation);
        let (second, _) = question("question", QuestionMethod::Sampling);
        let (third, _) = question("roots", QuestionMethod::Roots);
        let (questions, pending) = merge_questions(vec![first, second, third]);
        let methods: Vec<_> = questions.iter().map(|(key, question)| (key.as_str(), question.method)).collect();
        assert_eq!(
            methods,
            [
                ("question", QuestionMethod::Elicitation),
                ("question_2", QuestionMethod::Sampling),
                ("roots", QuestionMethod::Roots),
            ]
        );
        let keys: Vec<_> =
            pending.iter().flat_map(|pending_answer| &pending_answer.keys).map(|(key, own)| (&**key, &**own)).collect();
        assert_eq!(keys, [("question", "question"), ("question_2", "question"), ("roots", "roots")]);
    }
}
