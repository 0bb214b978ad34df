//! The right to run a call with a key.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::errors::{outcome_unknown, ran_elsewhere, recorded_too_late, still_running, unavailable};
use super::key::{RecordId, RecordKind, RequestDigest};
use super::{POLL, PublishedReply, Recalled, Replies};
use crate::pipeline::receipt::Reply;
use sekisho_core::call::{CallContext, Deadline, SendingState};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::CallError;
use sekisho_store::{NamedCall, RecordOwner, StartedCall};

/// The right to run the call. If it is dropped without a stored reply, the next waiting call looks up the key again.
#[derive(Debug)]
pub(in crate::pipeline) struct InFlightGuard {
    pub(super) replies: Arc<Replies>,
    pub(super) id: RecordId,
    pub(super) owner: RecordOwner,
    pub(super) request: RequestDigest,
    /// Taken by whoever waits for the reply.
    pub(super) client: Option<Arc<()>>,
    /// The tool and the id of the call; `None` for a turn of an agent.
    pub(super) named: Option<Box<(String, String)>>,
    /// When the call was recorded.
    pub(super) recorded: Option<DatabaseTime>,
    /// The reply of another replica, which ran a call with this key at the same time.
    pub(super) elsewhere: Option<Arc<Reply>>,
    /// Set before the guard is dropped; wakes the waiting calls.
    pub(super) answer: watch::Sender<Option<PublishedReply>>,
}

impl InFlightGuard {
    /// The client that waits for the reply.
    pub(in crate::pipeline) fn take_client(&mut self) -> Option<Arc<()>> {
        self.client.take()
    }

    /// Has the record name its call, so that the effect of the call can be looked for.
    pub(in crate::pipeline) fn name(&mut self, call: &CallContext) {
        self.named = Some(Box::new((call.tool.clone(), call.id.to_string())));
    }

    /// The key for an upstream that knows a request that it has had already: the same one when the call is sent again.
    pub(in crate::pipeline) fn upstream_key(&self) -> Arc<str> {
        Arc::from(&*self.id.hash)
    }

    pub(in crate::pipeline) fn kind(&self) -> RecordKind {
        self.id.kind
    }

    /// Records in the store that the call is about to be sent.
    /// Errors: `overloaded` when the record cannot be written, `timeout` when it is written after the deadline. The
    /// call must not run in either case.
    pub(in crate::pipeline) async fn record(&mut self, deadline: Deadline) -> Result<(), CallError> {
        let replies = &self.replies;
        let too_late = || recorded_too_late(self.id.kind);
        let mut counts = timeout_at(deadline.0, replies.counts.lock()).await.map_err(|_| too_late())?;
        replies.evict_for(&mut counts, &self.owner.tenant).await?;
        let runner = replies.replica.get().map(|id| &**id);
        let named = self.named.as_deref().map(|(tool, call_id)| NamedCall { tool, call_id });
        let call = StartedCall { id: &self.id.hash, owner: &self.owner, request: self.request.as_str(), runner, named };
        let now = replies.store.now();
        let added = replies.store.idempotency().start(call, now).await;
        if !added.map_err(|error| unavailable(&error))? {
            drop(counts);
            return Err(self.wait_elsewhere(deadline).await);
        }
        counts.add_record(&self.owner);
        self.recorded = Some(now);
        if deadline.has_passed() { Err(recorded_too_late(self.id.kind)) } else { Ok(()) }
    }

    /// Another process makes this call, or records it first. If it is a replica, waits for the reply.
    pub(in crate::pipeline) async fn wait_elsewhere(&mut self, deadline: Deadline) -> CallError {
        let kind = self.id.kind;
        if self.replies.replica.get().is_none() {
            return still_running(kind);
        }
        loop {
            match self.replies.look_up(&self.id, &self.request, deadline).await {
                Ok(Recalled::Reply(reply)) => {
                    self.publish(&reply);
                    self.elsewhere = Some(reply);
                    return ran_elsewhere(kind);
                }
                // An approval is taken before the call is recorded.
                Ok(Recalled::Nothing) if kind == RecordKind::Approval && !deadline.has_passed() => {
                    sleep_until(deadline.0.min(Instant::now() + POLL)).await;
                }
                Ok(Recalled::Nothing) => return still_running(kind),
                Ok(Recalled::Unknown(_)) => return outcome_unknown(kind),
                Err(error) => return error,
            }
        }
    }

    /// The reply of another replica, which ran a call with this key at the same time.
    pub(in crate::pipeline) fn take_elsewhere(&mut self) -> Option<Arc<Reply>> {
        self.elsewhere.take()
    }

    /// Stores the reply, unless the call did not begin, and sends it to the waiting calls.
    pub(in crate::pipeline) async fn end(mut self, reply: &Arc<Reply>, state: SendingState) {
        self.store(reply, state).await;
    }

    /// As [`end`](Self::end), while the call still counts as one whose client waits.
    pub(super) async fn store(&mut self, reply: &Arc<Reply>, state: SendingState) {
        let Some(started) = self.recorded else { return };
        let kept = match state {
            SendingState::Pending => self.replies.forget(self, started).await,
            SendingState::Begun | SendingState::Sent => self.replies.keep(self, started, reply).await,
        };
        if let Err(error) = kept {
            tracing::error!(%error, "the outcome of a call with an Idempotency-Key could not be recorded");
        }
        if state != SendingState::Pending {
            self.publish(reply);
        }
    }

    /// Publishes the request of the first call, so that another request with the same key is a conflict at once.
    pub(super) fn mark_first(&self) {
        if let Some(running) = self.replies.running.lock().get_mut(&self.id) {
            running.request = Some(self.request.clone());
        }
    }

    pub(super) fn publish(&mut self, reply: &Arc<Reply>) {
        self.answer.send_replace(Some(PublishedReply { request: self.request.clone(), reply: Arc::clone(reply) }));
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.replies.running.lock().remove(&self.id);
    }
}
