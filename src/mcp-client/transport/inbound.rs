//! How a connection handles the messages that a server sends by itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use rmcp::model::{ErrorData, RequestId, ServerNotification, ServerRequest};
use serde_json::Value;

use super::in_flight::InFlight;
use super::message::{Failure, Message};
use sekisho_core::bounded::BoundedFutures;
use sekisho_core::peer::ClientPeer;

/// Maximum requests of a server that are being answered by one task. Twice as many as wait for answers of clients, so that the
/// others end as soon as their answers are written.
pub(super) const MAX_PENDING_ANSWERS: usize = 64;

/// Handles the notifications and requests of one connection's server.
pub(crate) trait Inbound: fmt::Debug + Send + Sync {
    /// `peer` is the client of the call that the notification belongs to.
    fn notification(&self, notification: ServerNotification, peer: Option<&dyn ClientPeer>);

    /// Answers a request on behalf of `peer`. Dropping the future withdraws it.
    /// Errors: the error that the server receives.
    fn answer<'a>(
        &'a self,
        request: &'a ServerRequest,
        peer: Option<Arc<dyn ClientPeer>>,
    ) -> BoxFuture<'a, Result<Value, ErrorData>>;

    /// The client of a message that belongs to no call.
    fn client(&self, in_flight: &InFlight) -> Option<Arc<dyn ClientPeer>>;
}

/// Where messages of a server come from.
pub(super) trait Source: Send {
    /// The next message.
    /// Errors: the source has ended.
    fn next(&mut self) -> impl Future<Output = Result<Message, Failure>> + Send;
}

/// The requests of a server that are being answered by the task that reads its messages; at most [`MAX_PENDING_ANSWERS`].
pub(super) struct PendingAnswers<'a> {
    answering: BoundedFutures<Abortable<BoxFuture<'a, RequestId>>>,
    handles: HashMap<RequestId, AbortHandle>,
}

impl<'a> PendingAnswers<'a> {
    pub(super) fn new() -> Self {
        Self { answering: BoundedFutures::new(MAX_PENDING_ANSWERS), handles: HashMap::new() }
    }

    /// Whether a further request can be answered. While it cannot, the server is not read: it waits, as for any reader that
    /// is slow.
    pub(super) fn has_room(&self) -> bool {
        self.answering.has_room()
    }

    /// `answer` gives the id when the answer is sent.
    /// Errors: the id: there is no room, and the request must be answered with an error.
    pub(super) fn push(&mut self, id: RequestId, answer: BoxFuture<'a, RequestId>) -> Result<(), RequestId> {
        let (handle, registration) = AbortHandle::new_pair();
        if self.answering.push(Abortable::new(answer, registration)).is_err() {
            return Err(id);
        }
        self.handles.insert(id, handle);
        Ok(())
    }

    /// The server no longer wants an answer.
    pub(super) fn withdraw(&mut self, id: &RequestId) {
        if let Some(handle) = self.handles.remove(id) {
            handle.abort();
        }
    }

    /// Makes progress with all answers. Returns when one has ended; never, if there are none.
    pub(super) async fn progress(&mut self) {
        match self.answering.next().await {
            Some(Ok(id)) => _ = self.handles.remove(&id),
            // Withdrawn.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_request_without_room_is_given_back_to_be_refused() {
        let mut pending = PendingAnswers::new();
        let id = |number| RequestId::Number(number);
        let max = i64::try_from(MAX_PENDING_ANSWERS).unwrap();
        for number in 0..max {
            assert!(pending.has_room());
            assert_eq!(pending.push(id(number), std::future::ready(id(number)).boxed()), Ok(()));
        }
        assert_eq!(pending.push(id(max), std::future::ready(id(max)).boxed()), Err(id(max)));
        assert!(pending.progress().now_or_never().is_some() && pending.has_room());
        assert_eq!(pending.push(id(max), std::future::ready(id(max)).boxed()), Ok(()));
        assert_eq!(pending.handles.len(), MAX_PENDING_ANSWERS);
    }
}
