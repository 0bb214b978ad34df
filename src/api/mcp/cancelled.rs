//! Requests of a session that were cancelled lately: on a connection of its own a cancellation may overtake
//! the request it takes back.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Cancellations of one session that are remembered at once, and for how long: connections of one client are not
/// further apart. No id is used twice in a session, so that nothing else can be meant.
const MOST: usize = 64;
const KEPT: Duration = Duration::from_secs(10);

/// In the order they came.
type Known = VecDeque<(RequestId, Instant)>;

#[derive(Debug, Default)]
pub(super) struct Cancelled {
    known: Mutex<Known>,
    more: Notify,
}

impl Cancelled {
    /// Takes note of a message that is a cancellation.
    pub(super) fn record(&self, message: &ClientJsonRpcMessage) {
        let JsonRpcMessage::Notification(notification) = message else { return };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification else { return };
        let Some(id) = cancelled.params.request_id.clone() else { return };
        let mut known = self.known();
        known.retain(|(_, noted)| noted.elapsed() < KEPT);
        if known.len() >= MOST {
            known.pop_front();
        }
        known.push_back((id, Instant::now()));
        self.more.notify_waiters();
    }

    /// Waits until the request is cancelled, for ever where it is not. What is remembered stays so.
    pub(super) async fn until(&self, id: &RequestId) {
        loop {
            let mut more = pin!(self.more.notified());
            more.as_mut().enable();
            if place(&self.known(), id).is_some() {
                return;
            }
            more.await;
        }
    }

    /// Whether a request was cancelled before it came. Says so once.
    pub(super) fn take(&self, id: &RequestId) -> bool {
        let mut known = self.known();
        let at = place(&known, id);
        at.is_some_and(|at| known.remove(at).is_some())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(known: &Known, id: &RequestId) -> Option<usize> {
    known.iter().position(|(cancelled, noted)| cancelled == id && noted.elapsed() < KEPT)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn cancellation(id: &RequestId) -> ClientJsonRpcMessage {
        let message = serde_json::json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        });
        serde_json::from_value(message).expect("a message")
    }

    #[tokio::test]
    async fn a_request_that_is_served_hears_of_its_own_cancellation_alone() {
        let cancelled = Cancelled::default();
        let mut waiting = pin!(cancelled.until(&RequestId::Number(5)));
        assert!(waiting.as_mut().now_or_never().is_none());
        cancelled.record(&cancellation(&RequestId::Number(6)));
        assert!(waiting.as_mut().now_or_never().is_none(), "another's");
        cancelled.record(&cancellation(&RequestId::Number(5)));
        assert!(waiting.now_or_never().is_some());
        assert!(cancelled.take(&RequestId::Number(5)), "it is still remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn cancellations_are_remembered_for_their_own_request_for_a_while_and_up_to_a_number() {
        let cancelled = Cancelled::default();
        let (number, text) = (RequestId::Number(5), RequestId::String("5".into()));
        cancelled.record(&cancellation(&number));
        assert!(!cancelled.take(&text), "another kind of id");
        assert!(cancelled.take(&number));
        assert!(!cancelled.take(&number), "once");

        cancelled.record(&cancellation(&number));
        tokio::time::advance(KEPT).await;
        assert!(!cancelled.take(&number), "too long ago");

        for id in 0..=MOST {
            cancelled.record(&cancellation(&RequestId::Number(id as i64)));
        }
        assert!(!cancelled.take(&RequestId::Number(0)), "the oldest made room");
        assert!(cancelled.take(&RequestId::Number(1)));
    }
}
