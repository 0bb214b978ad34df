//! A request of a session over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream;
use rmcp::model::RequestId;

use super::event_response::event_response;
use super::event_stream::EventStream;
use super::headers::Era;
use super::result;
use super::running_request::{RunningRequest, Step};
use super::session::{Active, McpSession};
use crate::reply;
use sekisho_core::peer::ClientSession;

/// A request that takes longer continues as a stream, which its client can cancel and resume.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A request of a session that was started. Disconnecting does not cancel it: if this is dropped, it runs on, and its
/// messages are in the session's log.
pub(super) struct SessionRequest {
    id: RequestId,
    running: Option<RunningRequest>,
    session: Arc<McpSession>,
    active: Option<Active>,
}

impl SessionRequest {
    pub(super) fn new(id: RequestId, running: RunningRequest, session: Arc<McpSession>, active: Active) -> Self {
        Self { id, running: Some(running), session, active: Some(active) }
    }

    /// The response: the result if the request ends at once, else a stream of events.
    pub(super) async fn answer(mut self) -> Response {
        match tokio::time::timeout(AT_ONCE, self.first()).await {
            Ok(Some(Step::End(outcome))) => {
                self.running = None;
                let message = result::message(Era::Sessions, self.id.clone(), outcome);
                reply::json(StatusCode::OK, &message)
            }
            // Cancelled: the protocol has no answer to it.
            Ok(None) => {
                self.running = None;
                event_response(stream::empty())
            }
            Ok(Some(step)) => self.continue_as_stream(Some(step)),
            Err(_not_at_once) => self.continue_as_stream(None),
        }
    }

    /// The first step; `None` if the client cancels the request before.
    async fn first(&mut self) -> Option<Step> {
        let running = self.running.as_mut()?;
        tokio::select! {
            biased;
            () = self.session.cancelled.until(&self.id) => None,
            () = self.session.ended().cancelled() => None,
            step = running.next() => Some(step),
        }
    }

    fn continue_as_stream(mut self, first: Option<Step>) -> Response {
        let stream = EventStream::new(Arc::clone(&self.session.events), self.session.events.open());
        let received = stream.connect();
        stream.begin();
        self.spawn(first, stream);
        match received {
            Some(received) => event_response(received),
            None => event_response(stream::empty()),
        }
    }

    fn spawn(&mut self, first: Option<Step>, stream: Arc<EventStream>) {
        let Some(running) = self.running.take() else { return };
        let (id, session, active) = (self.id.clone(), Arc::clone(&self.session), self.active.take());
        tokio::spawn(async move {
            let _active = active;
            running.finish_in_session(id, first, &session, &stream).await;
            stream.close();
        });
    }
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        if self.running.is_some() && tokio::runtime::Handle::try_current().is_ok() {
            let stream = EventStream::new(Arc::clone(&self.session.events), self.session.events.open());
            self.spawn(None, stream);
        }
    }
}
