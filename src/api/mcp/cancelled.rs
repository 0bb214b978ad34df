//! Recently cancelled requests of a session: on a separate connection a cancellation may arrive before its request.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many cancellations of a session are kept, and for how long: a client's connections differ by less. An id is
/// used only once in a session, so a kept cancellation matches no other request.
const MAX_CANCELLATIONS: usize = 64;
const CANCELLATION_TTL: Duration = Duration::from_secs(10);

/// In order of arrival.
type Cancellations = VecDeque<(RequestId, Instant)>;

#[derive(Debug, Default)]
pub(super) struct Cancelled {
    cancellations: Mutex<Cancellations>,
    more: Notify,
}

impl Cancelled {
    /// Records the message if it is a cancellation.
    pub(super) fn record(&self, message: &ClientJsonRpcMessage) {
        let JsonRpcMessage::Notification(notification) = message else { return };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification else { return };
        let Some(id) = cancelled.params.request_id.clone() else { return };
        let mut cancellations = self.cancellations();
        cancellations.retain(|(_, noted)| noted.elapsed() < CANCELLATION_TTL);
        if cancellations.len() >= MAX_CANCELLATIONS {
            cancellations.pop_front();
        }
        cancellations.push_back((id, Instant::now()));
        self.more.notify_waiters();
    }

    /// Waits until the request is cancelled; pending forever if it is not. Does not consume the cancellation.
    pub(super) async fn until(&self, id: &RequestId) {
        loop {
            let mut more = pin!(self.more.notified());
            more.as_mut().enable();
            if place(&self.cancellations(), id).is_some() {
                return;
            }
            more.await;
        }
    }

    /// Whether a request was cancelled before it arrived. Consumes the cancellation.
    pub(super) fn take(&self, id: &RequestId) -> bool {
        let mut cancellations = self.cancellations();
        let at = place(&cancellations, id);
        at.is_some_and(|at| cancellations.remove(at).is_some())
    }

    fn cancellations(&self) -> MutexGuard<'_, Cancellations> {
        self.cancellations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(cancellations: &Cancellations, id: &RequestId) -> Option<usize> {
    cancellations.iter().position(|(cancelled, noted)| cancelled == id && noted.elapsed() < CANCELLATION_TTL)
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
    async fn a_running_request_receives_only_its_own_cancellation() {
        let cancelled = Cancelled::default();
        let mut waiting = pin!(cancelled.until(&RequestId::Number(5)));
        assert!(waiting.as_mut().now_or_never().is_none());
        cancelled.record(&cancellation(&RequestId::Number(6)));
        assert!(waiting.as_mut().now_or_never().is_none(), "another's");
        cancelled.record(&cancellation(&RequestId::Number(5)));
        assert!(waiting.now_or_never().is_some());
        assert!(cancelled.take(&RequestId::Number(5)), "it is still kept");
    }

    #[tokio::test(start_paused = true)]
    async fn cancellations_are_kept_for_their_own_request_for_a_while_and_up_to_a_number() {
        let cancelled = Cancelled::default();
        let (number, text) = (RequestId::Number(5), RequestId::String("5".into()));
        cancelled.record(&cancellation(&number));
        assert!(!cancelled.take(&text), "another kind of id");
        assert!(cancelled.take(&number));
        assert!(!cancelled.take(&number), "once");

        cancelled.record(&cancellation(&number));
        tokio::time::advance(CANCELLATION_TTL).await;
        assert!(!cancelled.take(&number), "too long ago");

        for id in 0..=MAX_CANCELLATIONS {
            cancelled.record(&cancellation(&RequestId::Number(id as i64)));
        }
        assert!(!cancelled.take(&RequestId::Number(0)), "the oldest was evicted");
        assert!(cancelled.take(&RequestId::Number(1)));
    }
}
