//! Recently cancelled requests of a session: on a separate connection a cancellation may arrive before its request.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio::sync::Notify;
use tokio::time::Instant;

use sekisho_core::bounded::Ring;

/// How many cancellations of a session are kept, and for how long: a client's connections differ by less. An id is
/// used only once in a session, so a kept cancellation matches no other request.
const MAX_CANCELLATIONS: usize = 64;
const CANCELLATION_TTL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Cancelled {
    /// In order of arrival.
    cancellations: Mutex<Ring<(RequestId, Instant)>>,
    more: Notify,
}

impl Default for Cancelled {
    fn default() -> Self {
        Self { cancellations: Mutex::new(Ring::new(MAX_CANCELLATIONS)), more: Notify::new() }
    }
}

impl Cancelled {
    /// Records a cancellation.
    pub(super) fn record(&self, id: RequestId) {
        let mut cancellations = self.cancellations.lock();
        cancellations.retain(|(_, noted)| noted.elapsed() < CANCELLATION_TTL);
        cancellations.push((id, Instant::now()));
        drop(cancellations);
        self.more.notify_waiters();
    }

    /// Waits until the request is cancelled, also if it was before it arrived; pending forever if it is not.
    pub(super) async fn until(&self, id: &RequestId) {
        loop {
            let mut more = pin!(self.more.notified());
            more.as_mut().enable();
            if self
                .cancellations
                .lock()
                .iter()
                .any(|(cancelled, noted)| cancelled == id && noted.elapsed() < CANCELLATION_TTL)
            {
                return;
            }
            more.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_cancelled(cancelled: &Cancelled, id: &RequestId) -> bool {
        pin!(cancelled.until(id)).now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_running_request_receives_only_its_own_cancellation() {
        let cancelled = Cancelled::default();
        let mut waiting = pin!(cancelled.until(&RequestId::Number(5)));
        assert!(waiting.as_mut().now_or_never().is_none());
        cancelled.record(RequestId::Number(6));
        assert!(waiting.as_mut().now_or_never().is_none(), "another's");
        cancelled.record(RequestId::Number(5));
        assert!(waiting.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn cancellations_are_kept_for_their_own_request_for_a_while_and_up_to_a_number() {
        let cancelled = Cancelled::default();
        let (number, text) = (RequestId::Number(5), RequestId::String("5".into()));
        cancelled.record(number.clone());
        assert!(!is_cancelled(&cancelled, &text), "another kind of id");
        assert!(is_cancelled(&cancelled, &number));
        tokio::time::advance(CANCELLATION_TTL).await;
        assert!(!is_cancelled(&cancelled, &number), "too long ago");

        for id in 0..=MAX_CANCELLATIONS {
            cancelled.record(RequestId::Number(id as i64));
        }
        assert!(!is_cancelled(&cancelled, &RequestId::Number(0)), "the oldest was evicted");
        assert!(is_cancelled(&cancelled, &RequestId::Number(1)));
    }
}
