//! `Idempotency-Key`: a call that is sent again gets the same reply and is not run again.
//!
//! A key belongs to a tenant, a caller and a tool. The first call with a key runs in its own task until its own
//! deadline, even if its client disconnects. A second call waits while the first one runs, and later gets its reply.
//! Only calls that began are recorded: a call that was refused or not sent can be sent again, and then runs.
//!
//! Where several replicas share the store, a call that runs at another one is waited for in the same way.
//!
//! A call is recorded in the store before it is sent, so that it does not run twice after a crash: the outcome of a
//! call that ran then is unknown. Each tenant has a bounded number of records ([`record_counts`]). When a reply is too large
//! or evicted, its record stays. Where replicas share object storage, a large one goes there ([`objects`]).

mod effects;
mod errors;
mod in_flight;
mod key;
mod objects;
mod record_counts;
mod stored;
mod turns;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::effects::{Effect, EffectState, Resolution};
pub use self::turns::{EnteredTurn, KeyedTurn, TurnGuard};

pub(super) use self::in_flight::InFlightGuard;

pub(super) use self::errors::{no_answer_yet, outcome_unknown};
pub(super) use self::key::{RecordKind, RequestDigest};

use self::errors::{all_open, conflict, no_longer_kept, still_running, unavailable};

use self::key::RecordId;
use self::record_counts::{Count, RecordCounts};
use super::receipt::Reply;
use crate::approval::Binding;
use sekisho_config::SessionConfig;
use sekisho_core::call::{CallContext, Caller, Deadline};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::CallError;
use sekisho_outbound::blobs::Blobs;
use sekisho_store::replica::LOST_AFTER;
use sekisho_store::{IdempotencyRecord, OpenRecord, RecordFence, RecordOwner, RecordedOutcome, Store, StoreError};

/// How often it is looked whether a call at another replica has ended.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// Bytes that the stored replies of one tenant may have together.
const MAX_TENANT_BYTES: u64 = 64 << 20;

/// The records of calls with a key, and the calls that are running.
#[derive(Debug)]
pub struct Replies {
    store: Store,
    running: Mutex<HashMap<RecordId, Running>>,
    /// Locked while records are added or removed, so that concurrent calls do not exceed the bound.
    counts: tokio::sync::Mutex<RecordCounts>,
    ttl_seconds: AtomicU64,
    max_records_of_tenant: AtomicUsize,
    /// `session.record_effects`.
    records_effects: AtomicBool,
    tasks: TaskTracker,
    abort: CancellationToken,
    /// The id of this gateway, if it is a replica.
    replica: OnceLock<Arc<str>>,
    /// For replies that are too large for the store, if there is object storage.
    blobs: OnceLock<Blobs>,
}

/// The result of looking up a call with a key.
#[derive(Debug)]
pub(super) enum IdempotentOutcome {
    /// The call is the first with its key, and must be run.
    First(InFlightGuard),
    /// The reply to the first call with the key.
    Answered(Arc<Reply>),
    /// The first call was recorded at that time, and its outcome is not known. The right to find it out, and to make the call
    /// if it was not made.
    Unknown(InFlightGuard, DatabaseTime),
}

/// The stored state of a key.
enum Found {
    Nothing,
    Reply(Arc<Reply>),
    /// Another replica, which is not lost, runs the call.
    RunsElsewhere,
    /// The outcome of the call, which was recorded at that time, is not known.
    Unknown(DatabaseTime),
}

/// The stored state of a key that no other replica has.
enum Recalled {
    Nothing,
    Reply(Arc<Reply>),
    Unknown(DatabaseTime),
}

/// The result of claiming a key.
enum Claim {
    Acquired(InFlightGuard),
    /// Another call holds the key; its reply may arrive on this channel.
    HeldByAnother(watch::Receiver<Option<PublishedReply>>),
}

/// A call that runs, or whose record is being looked up.
#[derive(Debug)]
struct Running {
    /// `None` while the record is looked up, because the record may belong to another request.
    request: Option<RequestDigest>,
    answer: watch::Receiver<Option<PublishedReply>>,
    /// The client that began it: gone once it has left, or has the reply.
    client: Weak<()>,
}

/// A reply and the request it answers.
#[derive(Debug, Clone)]
struct PublishedReply {
    request: RequestDigest,
    reply: Arc<Reply>,
}

impl Replies {
    pub async fn open(config: &SessionConfig, store: Store) -> Result<Self, StoreError> {
        let counts = RecordCounts::of(store.idempotency().by_owner().await?);
        let replies = Self {
            store,
            running: Mutex::default(),
            counts: tokio::sync::Mutex::new(counts),
            ttl_seconds: AtomicU64::default(),
            max_records_of_tenant: AtomicUsize::default(),
            records_effects: AtomicBool::default(),
            tasks: TaskTracker::new(),
            abort: CancellationToken::new(),
            replica: OnceLock::new(),
            blobs: OnceLock::new(),
        };
        replies.reconfigure(config);
        Ok(replies)
    }

    /// Sets the id of this replica: calls that run at another one are waited for until it is lost.
    pub fn set_replica(&self, id: &Arc<str>) {
        self.replica.get_or_init(|| Arc::clone(id));
    }

    pub fn reconfigure(&self, config: &SessionConfig) {
        self.ttl_seconds.store(config.idempotency_seconds, Ordering::Relaxed);
        self.max_records_of_tenant.store(config.max_idempotency_keys, Ordering::Relaxed);
        self.records_effects.store(config.record_effects, Ordering::Relaxed);
    }

    /// Removes expired records whose calls do not run. Called every minute, so that they expire in an idle service
    /// too.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        let mut counts = self.counts.lock().await;
        let (records, until) = (self.store.idempotency(), self.expired_at(self.store.now()));
        for (owner, reply) in records.forget_until(until).await? {
            counts.remove_record(&owner, reply.bytes);
            self.remove_object(reply.object);
        }
        let own = self.replica.get().map(|id| &**id);
        for OpenRecord { id, owner, started } in records.open_until(until, own, LOST_AFTER).await? {
            let call = RecordFence { id: &id, started };
            if !self.is_running(&id) && records.forget(call).await? {
                counts.remove_record(&owner, 0);
            }
        }
        Ok(())
    }

    /// Whether this process runs the call of a record.
    fn is_running(&self, hash: &str) -> bool {
        let running = self.running.lock();
        running.iter().any(|(id, running)| id.hash == hash && running.request.is_some())
    }

    /// Waits until the given time for running calls to end, then aborts the others.
    pub async fn finish(&self, until: Instant) {
        self.tasks.close();
        if timeout_at(until, self.tasks.wait()).await.is_err() {
            let calls = self.tasks.len();
            tracing::warn!(calls, "calls with an Idempotency-Key were aborted; their outcome is unknown");
            self.abort.cancel();
            self.tasks.wait().await;
        }
    }

    /// The number of records in the store, and of running calls.
    #[cfg(test)]
    pub(super) async fn len(&self) -> (u64, usize) {
        (self.counts.lock().await.records(), self.running.lock().len())
    }

    /// Runs a call in its own task, which continues when this future is dropped; `None` when the call was aborted.
    pub(super) async fn run<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let task = self.tasks.spawn(self.abort.clone().run_until_cancelled_owned(call));
        task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the task of a call with an Idempotency-Key failed");
            None
        })
    }

    /// Returns whether the call is the first with its key. If the first call still runs, waits for its reply, at most
    /// until `deadline`. If the first call ends without a reply to store, the next waiting call becomes the first.
    /// Errors: `invalid_request` for an invalid key; `idempotency_conflict` when the key was used with another request,
    /// or its reply is not available; `timeout` when the first call still runs at the deadline; `overloaded` when the
    /// store cannot be read.
    pub(super) async fn enter(
        self: &Arc<Self>,
        call: &CallContext,
        key: &str,
        request: RequestDigest,
        deadline: Deadline,
    ) -> Result<IdempotentOutcome, CallError> {
        let id = RecordId::new(&call.caller, &call.tool, key)?;
        self.enter_record(&id, request, &call.caller, deadline).await
    }

    /// As [`enter`](Self::enter), for the call of an approval, whose binding was checked.
    pub(super) async fn enter_approved(
        self: &Arc<Self>,
        call: &CallContext,
        approval: &str,
        binding: &Binding,
        deadline: Deadline,
    ) -> Result<IdempotentOutcome, CallError> {
        let id = RecordId::of_approval(&call.caller, &call.tool, approval);
        self.enter_record(&id, RequestDigest::of_approval(binding), &call.caller, deadline).await
    }

    async fn enter_record(
        self: &Arc<Self>,
        id: &RecordId,
        request: RequestDigest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<IdempotentOutcome, CallError> {
        loop {
            let mut guard = match self.claim(id, caller, &request)? {
                Claim::Acquired(guard) => guard,
                Claim::HeldByAnother(mut first) => {
                    let answer = timeout_at(deadline.0, first.wait_for(Option::is_some)).await;
                    match answer.map_err(|_| still_running(id.kind))?.as_deref() {
                        Ok(Some(published)) => return published.reply_to(&request).map(IdempotentOutcome::Answered),
                        // Closed without a reply: the first call was refused or aborted.
                        Ok(None) | Err(_) => continue,
                    }
                }
            };
            return match self.look_up(id, &request, deadline).await? {
                Recalled::Reply(reply) => {
                    guard.publish(&reply);
                    Ok(IdempotentOutcome::Answered(reply))
                }
                Recalled::Nothing => {
                    guard.mark_first();
                    Ok(IdempotentOutcome::First(guard))
                }
                Recalled::Unknown(started) => {
                    guard.mark_first();
                    Ok(IdempotentOutcome::Unknown(guard, started))
                }
            };
        }
    }

    fn claim(self: &Arc<Self>, id: &RecordId, caller: &Caller, request: &RequestDigest) -> Result<Claim, CallError> {
        let mut running = self.running.lock();
        if let Some(first) = running.get(id) {
            return match &first.request {
                Some(other) if other != request => Err(conflict()),
                _ => Ok(Claim::HeldByAnother(first.answer.clone())),
            };
        }
        let (answer, waiting) = watch::channel(None);
        let client = Arc::new(());
        running.insert(id.clone(), Running { request: None, answer: waiting, client: Arc::downgrade(&client) });
        let owner = RecordOwner { tenant: Arc::clone(&caller.tenant), caller_key: Arc::clone(&caller.key) };
        let (replies, id, request) = (Arc::clone(self), id.clone(), request.clone());
        let client = Some(client);
        let (named, recorded, elsewhere) = (None, None, None);
        Ok(Claim::Acquired(InFlightGuard { replies, id, owner, request, client, named, recorded, elsewhere, answer }))
    }

    /// The stored state of the call. Where the call runs at another replica, its reply is waited for, at most until `deadline`.
    async fn look_up(&self, id: &RecordId, request: &RequestDigest, deadline: Deadline) -> Result<Recalled, CallError> {
        loop {
            match self.read(id, request).await? {
                Found::Nothing => return Ok(Recalled::Nothing),
                Found::Reply(reply) => return Ok(Recalled::Reply(reply)),
                Found::Unknown(started) => return Ok(Recalled::Unknown(started)),
                Found::RunsElsewhere if deadline.has_passed() => return Err(still_running(id.kind)),
                Found::RunsElsewhere => sleep_until(deadline.0.min(Instant::now() + POLL)).await,
            }
        }
    }

    async fn read(&self, id: &RecordId, request: &RequestDigest) -> Result<Found, CallError> {
        let record = self.store.idempotency().get(&id.hash).await.map_err(|error| unavailable(&error))?;
        let Some(IdempotencyRecord { request: recorded, kept_since, outcome, runner, is_named }) = record else {
            return Ok(Found::Nothing);
        };
        let now = self.store.now();
        let runs_elsewhere = outcome == RecordedOutcome::Unknown && self.runs_elsewhere(runner.as_deref()).await?;
        if kept_since <= self.expired_at(now) && !runs_elsewhere {
            // Removes all other expired records too.
            self.forget_expired().await.map_err(|error| unavailable(&error))?;
            return Ok(Found::Nothing);
        }
        if !request.is_recorded_as(&recorded) {
            return Err(conflict());
        }
        let text = match outcome {
            RecordedOutcome::Unknown if runs_elsewhere => return Ok(Found::RunsElsewhere),
            RecordedOutcome::Unknown if is_named => return Ok(Found::Unknown(kept_since)),
            RecordedOutcome::Unknown => return Err(outcome_unknown(id.kind)),
            RecordedOutcome::ReplyDropped => return Err(no_longer_kept(id.kind)),
            RecordedOutcome::Answered(text) => text,
            RecordedOutcome::AnsweredByObject(object) => self.read_object(&object, id.kind).await?,
        };
        if let Err(error) = self.store.idempotency().record_use(&id.hash, now).await {
            tracing::debug!(%error, "the last use of a call with an Idempotency-Key was not recorded");
        }
        stored::read(text).map(Found::Reply).map_err(CallError::internal)
    }

    /// Whether another replica runs the call.
    async fn runs_elsewhere(&self, runner: Option<&str>) -> Result<bool, CallError> {
        match (runner, self.replica.get()) {
            (Some(runner), Some(own)) if *runner != **own => {
                let lost = self.store.replicas().is_lost(runner, own, LOST_AFTER).await;
                lost.map(|lost| !lost).map_err(|error| unavailable(&error))
            }
            _ => Ok(false),
        }
    }

    /// Evicts records until the tenant may have one more, from the caller with the most records first.
    async fn evict_for(&self, counts: &mut RecordCounts, tenant: &Arc<str>) -> Result<(), CallError> {
        let max = self.max_records_of_tenant.load(Ordering::Relaxed) as u64;
        let mut is_exact = false;
        while counts.of_tenant(tenant).records >= max {
            let forgotten = self.forget_oldest(counts, tenant).await.map_err(|error| unavailable(&error))?;
            if !forgotten && is_exact {
                return Err(all_open(max));
            }
            if !forgotten {
                *counts = self.count().await.map_err(|error| unavailable(&error))?;
                is_exact = true;
            }
        }
        Ok(())
    }

    async fn forget_oldest(&self, counts: &mut RecordCounts, tenant: &Arc<str>) -> Result<bool, StoreError> {
        for owner in counts.largest_first(tenant, |count: &Count| count.records) {
            if let Some(reply) = self.store.idempotency().forget_oldest(&owner).await? {
                counts.remove_record(&owner, reply.bytes);
                self.remove_object(reply.object);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the counts from the store, which another process may have changed.
    async fn count(&self) -> Result<RecordCounts, StoreError> {
        self.store.idempotency().by_owner().await.map(RecordCounts::of)
    }

    /// `started`: when the call was recorded.
    async fn keep(&self, guard: &InFlightGuard, started: DatabaseTime, reply: &Reply) -> Result<(), StoreError> {
        let call = RecordFence { id: &guard.id.hash, started };
        if !self.end(call, &guard.owner, reply).await? {
            tracing::warn!("a call with an Idempotency-Key ended after it counted as lost: its reply is not kept");
        }
        Ok(())
    }

    /// Keeps the reply of a recorded call. False if the record is gone, or has an answer.
    async fn end(&self, call: RecordFence<'_>, owner: &RecordOwner, reply: &Reply) -> Result<bool, StoreError> {
        let kept = self.kept(&owner.tenant, reply).await;
        let mut counts = self.counts.lock().await;
        if !self.store.idempotency().end(call, kept.in_store(), self.store.now()).await? {
            self.remove_object(kept.into_object());
            return Ok(false);
        }
        counts.add_bytes(owner, kept.bytes_in_store());
        let tenant = &owner.tenant;
        while counts.of_tenant(tenant).bytes > MAX_TENANT_BYTES {
            let largest = counts.largest_first(tenant, |count: &Count| count.bytes);
            let Some(owner) = largest.first() else { break };
            match self.store.idempotency().drop_oldest_reply(owner).await? {
                Some(bytes) => counts.remove_bytes(owner, bytes),
                None => *counts = self.count().await?,
            }
        }
        Ok(true)
    }

    async fn forget(&self, guard: &InFlightGuard, started: DatabaseTime) -> Result<(), StoreError> {
        let mut counts = self.counts.lock().await;
        if self.store.idempotency().forget(RecordFence { id: &guard.id.hash, started }).await? {
            counts.remove_record(&guard.owner, 0);
        }
        Ok(())
    }

    /// Records stored at or before this time have expired.
    fn expired_at(&self, now: DatabaseTime) -> DatabaseTime {
        let seconds = i64::try_from(self.ttl_seconds.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        now.earlier(SignedDuration::from_secs(seconds))
    }
}

impl PublishedReply {
    fn reply_to(&self, request: &RequestDigest) -> Result<Arc<Reply>, CallError> {
        if self.request == *request { Ok(Arc::clone(&self.reply)) } else { Err(conflict()) }
    }
}

#[cfg(test)]
mod tests;
