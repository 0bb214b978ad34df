//! What a connection does with the messages that a server sends by itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use rmcp::model::{ErrorData, RequestId, ServerNotification, ServerRequest};
use serde_json::Value;

use super::in_flight::InFlight;
use super::message::{Failure, Message};
use crate::core::peer::ClientPeer;

/// Handles the notifications and requests of one connection's server.
pub(crate) trait Inbound: fmt::Debug + Send + Sync {
    /// `peer` is the client of the call that the notification belongs to.
    fn notification(&self, notification: ServerNotification, peer: Option<&dyn ClientPeer>);

    /// Answers a request on behalf of `peer`. Dropping the future withdraws it.
    ///
    /// # Errors
    /// The error that the server receives.
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
    ///
    /// # Errors
    /// The source has ended.
    fn next(&mut self) -> impl Future<Output = Result<Message, Failure>> + Send;
}

/// The requests of a server that are being answered by the task that reads its messages.
#[derive(Default)]
pub(super) struct PendingAnswers<'a> {
    answering: FuturesUnordered<Abortable<BoxFuture<'a, RequestId>>>,
    handles: HashMap<RequestId, AbortHandle>,
}

impl<'a> PendingAnswers<'a> {
    /// `answer` gives the id when the answer is sent.
    pub(super) fn push(&mut self, id: RequestId, answer: BoxFuture<'a, RequestId>) {
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(id, handle);
        self.answering.push(Abortable::new(answer, registration));
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
