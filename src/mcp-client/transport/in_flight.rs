//! The requests of one connection that wait for answers, and the clients behind them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{ProgressToken, RequestId};
use serde_json::Value;
use tokio::sync::oneshot;

use super::message::{Answer, Failure};
use sekisho_core::peer::ClientPeer;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    requests: Mutex<HashMap<i64, Waiting>>,
    given_up: AtomicBool,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The client behind it.
    pub(super) peer: Option<Arc<dyn ClientPeer>>,
    /// Where its answer goes, if all answers come in one stream.
    pub(super) answer: Option<oneshot::Sender<Result<Value, Failure>>>,
    pub(super) kind: RequestKind,
}

/// The part of a connection's life that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Handshake,
    /// The server works on it, so that its messages may be about it.
    Call,
    /// It waits for changes.
    Subscription,
}

impl InFlight {
    pub(super) fn record(&self, id: i64, waiting: Waiting) {
        self.lock().insert(id, waiting);
    }

    /// Removes a request that was answered.
    pub(super) fn forget(&self, id: i64) {
        self.lock().remove(&id);
    }

    /// Removes a request whose caller no longer waits.
    pub(super) fn give_up(&self, id: i64) {
        let is_call = self.lock().remove(&id).is_some_and(|waiting| waiting.kind == RequestKind::Call);
        self.given_up.fetch_or(is_call, Ordering::Relaxed);
    }

    /// Passes an answer on to its request. An error without an id may refuse the handshake; later it is no answer, since many
    /// servers answer notifications with one.
    pub(super) fn settle(&self, answer: Answer) {
        let mut requests = self.lock();
        let id = answer.number().or_else(|| {
            let handshake = requests.iter().find(|(_, waiting)| waiting.kind == RequestKind::Handshake);
            handshake.map(|(id, _)| *id).filter(|id| answer.is_to(*id))
        });
        let sender = id.and_then(|id| requests.get_mut(&id)).and_then(|waiting| waiting.answer.take());
        match sender {
            // It is not an error if the caller has just left.
            Some(sender) => _ = sender.send(answer.outcome),
            None => tracing::debug!("an MCP server answered an unknown request"),
        }
    }

    /// The client behind the request that reports progress under `token`.
    pub(super) fn by_token(&self, token: &ProgressToken) -> Option<Arc<dyn ClientPeer>> {
        let RequestId::Number(id) = token.0 else { return None };
        self.lock().get(&id)?.peer.clone()
    }

    /// The client behind the only call; `None` if there are none or several.
    pub(crate) fn single(&self) -> Option<Arc<dyn ClientPeer>> {
        let requests = self.lock();
        let mut waiting = requests.values().filter(|waiting| waiting.kind == RequestKind::Call);
        let first = waiting.next()?;
        if waiting.next().is_some() { None } else { first.peer.clone() }
    }

    /// Whether a call was given up before it was answered: the server may still work on it.
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Waiting>> {
        self.requests.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(kind: RequestKind) -> (Waiting, oneshot::Receiver<Result<Value, Failure>>) {
        let (answer, answered) = oneshot::channel();
        (Waiting { peer: None, answer: Some(answer), kind }, answered)
    }

    fn answer(text: &str) -> Answer {
        Answer::of(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_answer_reaches_its_request_and_an_error_without_an_id_the_handshake_only() {
        let refusals = [
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#,
        ];
        for refusal in refusals {
            let in_flight = InFlight::default();
            let (call, mut called) = waiting(RequestKind::Call);
            in_flight.record(1, call);
            in_flight.settle(answer(refusal));
            in_flight.settle(answer(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#));
            assert!(called.try_recv().is_err(), "they are for nobody");
            in_flight.settle(answer(r#"{"jsonrpc":"2.0","id":"1","result":{"n":1}}"#));
            assert_eq!(called.try_recv().unwrap().unwrap()["n"], 1);
            in_flight.forget(1);
            let (handshake, mut refused) = waiting(RequestKind::Handshake);
            in_flight.record(2, handshake);
            in_flight.settle(answer(refusal));
            assert!(matches!(refused.try_recv().unwrap(), Err(Failure::Refused(error)) if error.code.0 == -1));
        }
    }

    #[test]
    fn a_handshake_that_is_given_up_is_no_call() {
        let in_flight = InFlight::default();
        in_flight.record(1, waiting(RequestKind::Handshake).0);
        in_flight.give_up(1);
        assert!(!in_flight.has_given_up());
        in_flight.record(2, waiting(RequestKind::Call).0);
        in_flight.give_up(2);
        assert!(in_flight.has_given_up() && in_flight.is_empty());
    }
}
