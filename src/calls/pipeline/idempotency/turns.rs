//! Turns of agents that a client sends with an idempotency key. Their records have the form of calls' records: the
//! answer of a turn is kept as the output of a reply.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::key::{RecordId, RequestDigest};
use super::{IdempotentOutcome, InFlightGuard, Replies, outcome_unknown};
use crate::pipeline::receipt::{Answer, Receipt, Reply};
use sekisho_core::call::{CallId, Caller, Deadline, SendingState};
use sekisho_core::error::CallError;

/// A turn, with the data that tell it from others.
#[derive(Debug, Clone, Copy)]
pub struct KeyedTurn<'a> {
    /// The path of the request.
    pub route: &'a str,
    pub key: &'a str,
    /// The digest of its body.
    pub body: &'a str,
}

/// Whether a turn is to be run.
#[derive(Debug)]
pub enum EnteredTurn {
    First(TurnGuard),
    /// The answer to the first request with the key.
    Answered(Value),
}

/// The right to run a turn. Dropped before the turn begins, it may be run by the next request; dropped before its end, the
/// turn's outcome is unknown.
#[derive(Debug)]
pub struct TurnGuard {
    /// Until the turn has ended.
    guard: Option<InFlightGuard>,
    has_begun: bool,
}

impl Replies {
    /// Records a turn before it begins, unless it was recorded before. While the first one runs, waits for its answer, at most
    /// until `deadline`.
    /// Errors: `invalid_request` for an invalid key; `idempotency_conflict` when it was used with another body or with
    /// other rights, or the answer is not kept; `timeout` when the first one still runs at the deadline;
    /// `unknown_outcome` when its process ended before it did; `overloaded` when the store cannot be used.
    pub async fn enter_turn(
        self: &Arc<Self>,
        caller: &Caller,
        turn: KeyedTurn<'_>,
        deadline: Deadline,
    ) -> Result<EnteredTurn, CallError> {
        let id = RecordId::of_turn(caller, turn.route, turn.key)?;
        let request = RequestDigest::of_turn(caller, turn.body);
        let guard = match self.enter_record(&id, request, caller, deadline).await? {
            IdempotentOutcome::Answered(reply) => return answer_of(&reply).map(EnteredTurn::Answered),
            IdempotentOutcome::First(guard) => guard,
            IdempotentOutcome::Unknown(guard, _) => return Err(outcome_unknown(guard.kind())),
        };
        let (sender, recorded) = oneshot::channel();
        // In a task of its own: if this future were dropped while the store writes, the record would stay without a turn.
        self.tasks.spawn(async move {
            let mut turn = TurnGuard { guard: Some(guard), has_begun: false };
            let outcome = turn.record(deadline).await;
            let _nobody_waits = sender.send(outcome.map(|answered| (turn, answered)));
        });
        match recorded.await.map_err(CallError::internal)?? {
            (_, Some(reply)) => answer_of(&reply).map(EnteredTurn::Answered),
            (turn, None) => Ok(EnteredTurn::First(turn)),
        }
    }
}

impl TurnGuard {
    /// The reply of another replica that recorded the turn first.
    async fn record(&mut self, deadline: Deadline) -> Result<Option<Arc<Reply>>, CallError> {
        let Some(guard) = &mut self.guard else { return Ok(None) };
        match guard.record(deadline).await {
            Ok(()) => Ok(None),
            Err(error) => guard.take_elsewhere().map(Some).ok_or(error),
        }
    }

    /// From now on the turn may have effects.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Keeps the answer of the turn.
    pub async fn keep(mut self, answer: Value) {
        if let Some(guard) = self.guard.take() {
            guard.end(&reply_with(answer), SendingState::Sent).await;
        }
    }

    /// The turn did nothing: sent again, it runs.
    pub async fn forget(mut self) {
        if let Some(guard) = self.guard.take() {
            guard.end(&reply_with(Value::Null), SendingState::Pending).await;
        }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take().filter(|_| !self.has_begun) else { return };
        // Without a runtime the process ends, and the outcome is unknown.
        if Handle::try_current().is_ok() {
            let tasks = guard.replies.tasks.clone();
            tasks.spawn(async move { guard.end(&reply_with(Value::Null), SendingState::Pending).await });
        }
    }
}

fn answer_of(reply: &Reply) -> Result<Value, CallError> {
    // Only turns have records with their ids, and turns end with an output.
    let answer = reply.outcome.as_ref().map_err(|_| CallError::internal("the record of a turn is one of a call"))?;
    Ok(answer.output.clone())
}

fn reply_with(output: Value) -> Arc<Reply> {
    Arc::new(Reply {
        outcome: Ok(Answer { output, ..Answer::default() }),
        duration: Duration::ZERO,
        tokens: 0,
        cost_usd: Decimal::ZERO,
        receipt: Receipt::of(CallId::new()),
        stored: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_config::SessionConfig;
    use sekisho_core::error::ErrorCode;
    use sekisho_core::until::until;
    use sekisho_store::Store;
    use sekisho_store::test_support::test_store;

    async fn replies(store: &Store) -> Arc<Replies> {
        Arc::new(Replies::open(&SessionConfig::default(), store.clone()).await.unwrap())
    }

    fn ann() -> Caller {
        Caller::new("ann", "acme", Vec::new())
    }

    /// Enters a turn with the key `k`.
    async fn enter(replies: &Arc<Replies>, caller: &Caller, body: &str) -> Result<EnteredTurn, ErrorCode> {
        let turn = KeyedTurn { route: "/r", key: "k", body };
        let entered = replies.enter_turn(caller, turn, Deadline::after(Duration::from_secs(60))).await;
        entered.map_err(|error| error.code())
    }

    async fn first(replies: &Arc<Replies>) -> TurnGuard {
        match enter(replies, &ann(), "b").await {
            Ok(EnteredTurn::First(mut turn)) => {
                turn.begin();
                turn
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_turn_is_answered_once_for_the_same_body_and_rights() {
        let store = test_store().await;
        let one = replies(&store).await;
        let turn = first(&one).await;
        let answer = json!({"status": 200, "body": "x"});
        let waiting = {
            let one = Arc::clone(&one);
            tokio::spawn(async move { enter(&one, &ann(), "b").await })
        };
        turn.keep(answer.clone()).await;
        let is_answer = |entered: Result<EnteredTurn, ErrorCode>| matches!(entered, Ok(EnteredTurn::Answered(found)) if found == answer);
        assert!(is_answer(waiting.await.unwrap()));
        // As after a restart.
        let other = replies(&store).await;
        assert!(is_answer(enter(&other, &ann(), "b").await));
        let conflict = Some(ErrorCode::IdempotencyConflict);
        assert_eq!(enter(&other, &ann(), "c").await.err(), conflict);
        let narrower = Caller { roles: vec!["viewer".into()], ..ann() };
        assert_eq!(enter(&other, &narrower, "b").await.err(), conflict, "the same person with other rights");
        let bob = Caller::new("bob", "acme", Vec::new());
        assert!(matches!(enter(&other, &bob, "b").await, Ok(EnteredTurn::First(_))));
    }

    #[tokio::test]
    async fn a_turn_that_did_nothing_or_never_began_runs_again() {
        let store = test_store().await;
        let one = replies(&store).await;
        first(&one).await.forget().await;
        let never_began = enter(&one, &ann(), "b").await;
        assert!(matches!(never_began, Ok(EnteredTurn::First(_))));
        drop(never_began);
        let is_free = async || one.len().await == (0, 0);
        until("the record is removed", is_free).await;
        first(&one).await.keep(Value::Null).await;
    }

    #[tokio::test]
    async fn the_outcome_of_a_turn_whose_process_ended_is_unknown() {
        let store = test_store().await;
        drop(first(&replies(&store).await).await);
        assert_eq!(enter(&replies(&store).await, &ann(), "b").await.err(), Some(ErrorCode::UnknownOutcome));
    }
}
