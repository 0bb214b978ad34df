//! `Idempotency-Key`: a call that is sent again is answered again, not run again.
//!
//! A key belongs to a tenant, a caller and a tool. The first call that comes with it runs in a task of its own, to its
//! own deadline also where its client has gone; one that comes meanwhile waits for it; one that comes later gets its
//! reply. Only what was begun is kept: a call that was refused, or not sent, may be sent again and then runs.
//!
//! The store knows of a call before it is sent, so that nothing runs twice after a crash either: what was under way
//! then has an unknown outcome. Records are bounded for each tenant ([`shares`]). A reply that is too large, or was
//! evicted, leaves its record behind.

mod errors;
mod key;
mod shares;
mod stored;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::errors::{
    all_open, conflict, no_longer_kept, outcome_unknown, recorded_too_late, still_running, unavailable,
};
use self::key::{RecordId, RequestDigest};
use self::shares::{Share, Shares};
use super::receipt::Reply;
use crate::config::SessionConfig;
use crate::core::call::{Arguments, CallContext, Caller, Deadline, SendingState};
use crate::core::error::CallError;
use crate::infra::store::{IdempotencyRecord, RecordOwner, RecordedOutcome, StartedCall, Store, StoreError};

/// Bytes that the kept replies of one tenant may have together.
const MAX_TENANT_BYTES: u64 = 64 << 20;

/// The records of calls with a key, and the calls that run.
#[derive(Debug)]
pub struct Replies {
    store: Store,
    running: Mutex<HashMap<RecordId, Running>>,
    /// Locked while records are added or removed, so that no two calls take the same place.
    shares: tokio::sync::Mutex<Shares>,
    kept_for_seconds: AtomicU64,
    max_records_of_tenant: AtomicUsize,
    tasks: TaskTracker,
    cut_off: CancellationToken,
}

/// What a call with a key finds.
#[derive(Debug)]
pub(super) enum IdempotentOutcome {
    /// It is the first.
    First(InFlightGuard),
    /// Another was answered this.
    Answered(Arc<Reply>),
}

/// The right to run the call. Without a kept reply, its end lets the next one look for itself.
#[derive(Debug)]
pub(super) struct InFlightGuard {
    replies: Arc<Replies>,
    id: RecordId,
    owner: RecordOwner,
    request: RequestDigest,
    is_recorded: bool,
    /// Set before the turn ends, and wakes those who wait.
    answer: watch::Sender<Option<Known>>,
}

/// Who has the turn of a key.
enum Taken {
    InFlightGuard(InFlightGuard),
    /// Of whom an answer may come.
    ByAnother(watch::Receiver<Option<Known>>),
}

/// A call that runs, or whose record is being looked for.
#[derive(Debug)]
struct Running {
    /// `None` while the record is looked for: what it says decides.
    request: Option<RequestDigest>,
    answer: watch::Receiver<Option<Known>>,
}

/// What a call was answered that asked this.
#[derive(Debug, Clone)]
struct Known {
    request: RequestDigest,
    reply: Arc<Reply>,
}

impl Replies {
    /// # Errors
    /// The store cannot be read.
    pub async fn open(config: &SessionConfig, store: Store) -> Result<Self, StoreError> {
        let shares = Shares::of(store.owned_idempotency_records().await?);
        let replies = Self {
            store,
            running: Mutex::default(),
            shares: tokio::sync::Mutex::new(shares),
            kept_for_seconds: AtomicU64::default(),
            max_records_of_tenant: AtomicUsize::default(),
            tasks: TaskTracker::new(),
            cut_off: CancellationToken::new(),
        };
        replies.reconfigure(config);
        Ok(replies)
    }

    pub fn reconfigure(&self, config: &SessionConfig) {
        self.kept_for_seconds.store(config.idempotency_seconds, Ordering::Relaxed);
        self.max_records_of_tenant.store(config.max_idempotency_keys, Ordering::Relaxed);
    }

    /// Forgets records that are old enough; run every minute, so that an idle service forgets too.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        let mut shares = self.shares.lock().await;
        for (owner, bytes) in self.store.forget_idempotency_records_until(self.expired_at(Timestamp::now())).await? {
            shares.remove_record(&owner, bytes);
        }
        Ok(())
    }

    /// Lets the calls that run end until then, and cuts off those that do not.
    pub async fn finish(&self, until: Instant) {
        self.tasks.close();
        if timeout_at(until, self.tasks.wait()).await.is_err() {
            let calls = self.tasks.len();
            tracing::warn!(calls, "calls with an Idempotency-Key were cut off; their outcome is unknown");
            self.cut_off.cancel();
            self.tasks.wait().await;
        }
    }

    /// Records in the store, and calls under way.
    #[cfg(test)]
    pub(super) async fn len(&self) -> (u64, usize) {
        (self.shares.lock().await.records(), self.lock().len())
    }

    /// Runs a call in a task of its own, which goes on when nobody waits for it; `None` when it was cut off.
    pub(super) async fn run<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let task = self.tasks.spawn(self.cut_off.clone().run_until_cancelled_owned(call));
        task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the task of a call with an Idempotency-Key broke down");
            None
        })
    }

    /// Finds out whether a call is the first with its key, and waits for the first where it still runs, at most until
    /// `deadline`. Where the first ends without a reply to keep, the next one that waits is first.
    ///
    /// # Errors
    /// `invalid_request` for what is no key; `idempotency_conflict` when the key came with another body before, or its
    /// reply is not known; `timeout` when the first still runs at the deadline; `overloaded` when the store cannot be
    /// read.
    pub(super) async fn enter(
        self: &Arc<Self>,
        call: &CallContext,
        key: &str,
        arguments: &Arguments,
        deadline: Deadline,
    ) -> Result<IdempotentOutcome, CallError> {
        let id = RecordId::new(&call.caller, &call.tool, key)?;
        let request = RequestDigest::new(call, arguments);
        loop {
            let mut turn = match self.take_turn(&id, &call.caller, &request)? {
                Taken::InFlightGuard(turn) => turn,
                Taken::ByAnother(mut first) => {
                    let answer = timeout_at(deadline.0, first.wait_for(Option::is_some)).await;
                    match answer.map_err(|_| still_running())?.as_deref() {
                        Ok(Some(known)) => return known.answer_to(&request).map(IdempotentOutcome::Answered),
                        // Closed without a reply to give on: the first was refused, or cut off.
                        Ok(None) | Err(_) => continue,
                    }
                }
            };
            return match self.look_up(&id, &request).await? {
                Some(reply) => {
                    turn.publish(&reply);
                    Ok(IdempotentOutcome::Answered(reply))
                }
                None => {
                    turn.mark_first();
                    Ok(IdempotentOutcome::First(turn))
                }
            };
        }
    }

    fn take_turn(
        self: &Arc<Self>,
        id: &RecordId,
        caller: &Caller,
        request: &RequestDigest,
    ) -> Result<Taken, CallError> {
        let mut running = self.lock();
        if let Some(first) = running.get(id) {
            return match &first.request {
                Some(other) if other != request => Err(conflict()),
                _ => Ok(Taken::ByAnother(first.answer.clone())),
            };
        }
        let (answer, waiting) = watch::channel(None);
        running.insert(id.clone(), Running { request: None, answer: waiting });
        let owner = RecordOwner { tenant: Arc::clone(&caller.tenant), caller_key: Arc::clone(&caller.key) };
        let (replies, id, request) = (Arc::clone(self), id.clone(), request.clone());
        Ok(Taken::InFlightGuard(InFlightGuard { replies, id, owner, request, is_recorded: false, answer }))
    }

    /// The reply that the store has for the call; `None` where there is no record of it.
    async fn look_up(&self, id: &RecordId, request: &RequestDigest) -> Result<Option<Arc<Reply>>, CallError> {
        let record = self.store.idempotency_record(&id.0).await.map_err(|error| unavailable(&error))?;
        let Some(IdempotencyRecord { request: recorded, kept_since, outcome }) = record else { return Ok(None) };
        let now = Timestamp::now();
        if kept_since <= self.expired_at(now) {
            // All that is as old goes with it.
            self.forget_expired().await.map_err(|error| unavailable(&error))?;
            return Ok(None);
        }
        if recorded != request.0 {
            return Err(conflict());
        }
        let text = match outcome {
            RecordedOutcome::Unknown => return Err(outcome_unknown()),
            RecordedOutcome::ReplyDropped => return Err(no_longer_kept()),
            RecordedOutcome::Answered(text) => text,
        };
        if let Err(error) = self.store.use_idempotency_record(&id.0, now).await {
            tracing::debug!(%error, "a record of a call with an Idempotency-Key keeps its age");
        }
        stored::read(text).map(Some).map_err(CallError::internal)
    }

    /// Evicts records until a tenant may have one more: those of the caller that has most.
    async fn evict_for(&self, shares: &mut Shares, tenant: &Arc<str>) -> Result<(), CallError> {
        let most = self.max_records_of_tenant.load(Ordering::Relaxed) as u64;
        let mut is_exact = false;
        while shares.of_tenant(tenant).records >= most {
            let forgotten = self.forget_oldest(shares, tenant).await.map_err(|error| unavailable(&error))?;
            if !forgotten && is_exact {
                return Err(all_open(most));
            }
            if !forgotten {
                *shares = self.count().await.map_err(|error| unavailable(&error))?;
                is_exact = true;
            }
        }
        Ok(())
    }

    async fn forget_oldest(&self, shares: &mut Shares, tenant: &Arc<str>) -> Result<bool, StoreError> {
        for owner in shares.largest_first(tenant, |share: &Share| share.records) {
            if let Some(bytes) = self.store.forget_oldest_idempotency_record(&owner).await? {
                shares.remove_record(&owner, bytes);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Another process may have the same store.
    async fn count(&self) -> Result<Shares, StoreError> {
        self.store.owned_idempotency_records().await.map(Shares::of)
    }

    async fn keep(&self, turn: &InFlightGuard, reply: &Reply) -> Result<(), StoreError> {
        let text = stored::text_of(reply).unwrap_or_else(|error| {
            tracing::error!(%error, "a reply could not be written as JSON");
            None
        });
        let mut shares = self.shares.lock().await;
        if self.store.end_idempotent_call(&turn.id.0, text.as_deref(), Timestamp::now()).await? {
            shares.add_bytes(&turn.owner, text.map_or(0, |text| text.len() as u64));
        }
        let tenant = &turn.owner.tenant;
        while shares.of_tenant(tenant).bytes > MAX_TENANT_BYTES {
            let largest = shares.largest_first(tenant, |share: &Share| share.bytes);
            let Some(owner) = largest.first() else { break };
            match self.store.drop_oldest_idempotent_reply(owner).await? {
                Some(bytes) => shares.remove_bytes(owner, bytes),
                None => *shares = self.count().await?,
            }
        }
        Ok(())
    }

    async fn forget(&self, turn: &InFlightGuard) -> Result<(), StoreError> {
        let mut shares = self.shares.lock().await;
        if let Some(bytes) = self.store.forget_idempotency_record(&turn.id.0).await? {
            shares.remove_record(&turn.owner, bytes);
        }
        Ok(())
    }

    /// What was kept since then, or longer, has expired.
    fn expired_at(&self, now: Timestamp) -> Timestamp {
        let seconds = i64::try_from(self.kept_for_seconds.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightGuard {
    /// Has the store know of the call, which is about to be sent.
    ///
    /// # Errors
    /// `overloaded` where that cannot be done, `timeout` where it is done too late: the call must not run then.
    pub(super) async fn record(&mut self, deadline: Deadline) -> Result<(), CallError> {
        let replies = &self.replies;
        let mut shares = timeout_at(deadline.0, replies.shares.lock()).await.map_err(|_| recorded_too_late())?;
        replies.evict_for(&mut shares, &self.owner.tenant).await?;
        let call = StartedCall { id: &self.id.0, owner: &self.owner, request: &self.request.0 };
        let added = replies.store.start_idempotent_call(call, Timestamp::now()).await;
        if !added.map_err(|error| unavailable(&error))? {
            return Err(still_running());
        }
        shares.add_record(&self.owner);
        self.is_recorded = true;
        if deadline.has_passed() { Err(recorded_too_late()) } else { Ok(()) }
    }

    /// Keeps the reply, unless nothing was begun for it, and wakes those who wait with it.
    pub(super) async fn end(mut self, reply: &Arc<Reply>, state: SendingState) {
        if !self.is_recorded {
            return;
        }
        let kept = match state {
            SendingState::Pending => self.replies.forget(&self).await,
            SendingState::Begun | SendingState::Sent => self.replies.keep(&self, reply).await,
        };
        if let Err(error) = kept {
            tracing::error!(%error, "what became of a call with an Idempotency-Key is not recorded: its outcome is unknown");
        }
        if state != SendingState::Pending {
            self.publish(reply);
        }
    }

    /// From here on it is known what the call with this key asks.
    fn mark_first(&self) {
        if let Some(running) = self.replies.lock().get_mut(&self.id) {
            running.request = Some(self.request.clone());
        }
    }

    fn publish(&mut self, reply: &Arc<Reply>) {
        self.answer.send_replace(Some(Known { request: self.request.clone(), reply: Arc::clone(reply) }));
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.replies.lock().remove(&self.id);
    }
}

impl Known {
    fn answer_to(&self, request: &RequestDigest) -> Result<Arc<Reply>, CallError> {
        if self.request == *request { Ok(Arc::clone(&self.reply)) } else { Err(conflict()) }
    }
}

#[cfg(test)]
mod tests;
