//! Calls whose outcome is not known, or whose client may not have the reply: recognized when they are sent again without a key,
//! listed, and resolved by a person.
//!
//! Each call has a record of its own, which is removed once its client has the reply. So an equal call of the same caller in the
//! same session is the same call, sent again, where there is a record for which nobody waits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use rust_decimal::Decimal;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::errors::{effect_runs, no_such_effect, outcome_unknown, still_running, unavailable};
use super::key::{RecordId, RecordKind};
use super::{IdempotentOutcome, InFlightGuard, POLL, Replies, RequestDigest, stored};
use crate::pipeline::receipt::{Answer, AnsweredBy, Receipt, Reply};
use sekisho_core::call::{CallContext, CallId, Deadline, SendingState};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::CallError;
use sekisho_store::{EqualEffect, OpenEffect, RecordFence, RecordOwner};

/// How long an equal call without a key counts as the same one.
const RETRY_TTL: SignedDuration = SignedDuration::from_mins(10);

/// A call without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The id of the call.
    pub id: String,
    pub tool: String,
    pub state: EffectState,
    pub started: DatabaseTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum EffectState {
    Running,
    /// Its process ended, or its upstream was cut off, before the answer.
    Unknown,
}

sekisho_core::as_str!(EffectState);

/// A person's statement about a call whose outcome is not known.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// It was made: sent again, it gets this output.
    Made(Value),
    /// It was not: sent again, it is made.
    NotMade,
}

impl Replies {
    /// Whether calls without a key are recorded for their effects.
    pub(in crate::pipeline) fn records_effects(&self) -> bool {
        self.records_effects.load(Ordering::Relaxed)
    }

    /// As [`enter`](Self::enter), for a call without a key: the first one, unless there is a record of an equal call for which
    /// nobody waits.
    pub(in crate::pipeline) async fn enter_effect(
        self: &Arc<Self>,
        call: &CallContext,
        request: RequestDigest,
        deadline: Deadline,
    ) -> Result<IdempotentOutcome, CallError> {
        let (request, caller) = (request.of_effect(), &call.caller);
        let owner = RecordOwner { tenant: Arc::clone(&caller.tenant), caller_key: Arc::clone(&caller.key) };
        let after = self.store.now().earlier(RETRY_TTL);
        let equal = self.store.idempotency().equal_effects(&owner, request.as_str(), after).await;
        for effect in equal.map_err(|error| unavailable(&error))? {
            if self.is_awaited(&effect).await? {
                continue;
            }
            let id = RecordId { hash: effect.id, kind: RecordKind::Effect };
            match self.enter_record(&id, request.clone(), caller, deadline).await? {
                // Its client has got the reply meanwhile.
                IdempotentOutcome::First(_) => {}
                IdempotentOutcome::Answered(reply) => {
                    self.forget_later(owner, id.hash);
                    return reply.of_record().map(IdempotentOutcome::Answered);
                }
                unknown @ IdempotentOutcome::Unknown(..) => return Ok(unknown),
            }
        }
        self.enter_record(&RecordId::of_effect(call), request, caller, deadline).await
    }

    /// Whether a client of this process waits for the reply. For one at another replica it is waited here: the client may have
    /// left it, or its record is removed in a moment.
    async fn is_awaited(&self, effect: &EqualEffect) -> Result<bool, CallError> {
        let id = RecordId { hash: effect.id.clone(), kind: RecordKind::Effect };
        let here = self.running.lock().get(&id).map(|running| running.client.strong_count() > 0);
        if let Some(waits) = here {
            return Ok(waits);
        }
        if effect.has_answer && self.runs_elsewhere(effect.runner.as_deref()).await? {
            sleep_until(Instant::now() + POLL).await;
        }
        Ok(false)
    }

    /// Removes the record of a call whose client has the reply. Until then the call counts as awaited.
    pub(in crate::pipeline) fn forget_delivered(&self, guard: InFlightGuard, client: Option<Arc<()>>) {
        self.tasks.spawn(async move {
            guard.replies.forget_answered(&guard.owner, &guard.id.hash).await;
            drop((guard, client));
        });
    }

    fn forget_later(self: &Arc<Self>, owner: RecordOwner, id: String) {
        let replies = Arc::clone(self);
        self.tasks.spawn(async move { replies.forget_answered(&owner, &id).await });
    }

    async fn forget_answered(&self, owner: &RecordOwner, id: &str) {
        let mut counts = self.counts.lock().await;
        match self.store.idempotency().forget_answered(id).await {
            Ok(Some(reply)) => {
                counts.remove_record(owner, reply.bytes);
                self.remove_object(reply.object);
            }
            Ok(None) => {}
            // It expires; until then an equal call of the session gets its reply.
            Err(error) => tracing::warn!(%error, "the record of a call whose client has the reply was not removed"),
        }
    }

    /// The calls of a tenant without an answer; of one caller, or of all.
    /// Errors: `overloaded` when they cannot be read now.
    pub async fn effects(&self, tenant: &str, caller_key: Option<&str>) -> Result<Vec<Effect>, CallError> {
        let open = self.store.idempotency().open_effects(tenant, caller_key).await;
        let (mut effects, mut live) = (Vec::new(), HashMap::new());
        let open = open.map_err(|error| unavailable(&error))?;
        let here: HashSet<String> = {
            let running = self.running.lock();
            running.iter().filter(|(_, call)| call.request.is_some()).map(|(id, _)| id.hash.clone()).collect()
        };
        for effect in open {
            let is_running = here.contains(&effect.id) || self.is_live(&mut live, effect.runner.as_deref()).await?;
            effects.push(Effect::of(effect, is_running));
        }
        Ok(effects)
    }

    /// Whether the runner of a call is another replica that lives. Each is asked for once.
    async fn is_live(&self, live: &mut HashMap<String, bool>, runner: Option<&str>) -> Result<bool, CallError> {
        let Some(runner) = runner else { return Ok(false) };
        if let Some(known) = live.get(runner) {
            return Ok(*known);
        }
        let lives = self.runs_elsewhere(Some(runner)).await?;
        live.insert(runner.to_owned(), lives);
        Ok(lives)
    }

    /// Takes over a person's statement about a call. `caller_key`: as for [`effects`](Self::effects).
    /// Errors: `not_found` if there is no such call; `idempotency_conflict` while it runs; `overloaded`.
    pub async fn resolve(
        &self,
        (tenant, caller_key): (&str, Option<&str>),
        id: &str,
        resolution: Resolution,
    ) -> Result<(), CallError> {
        let open = self.store.idempotency().open_effects(tenant, caller_key).await;
        let mut open = open.map_err(|error| unavailable(&error))?.into_iter();
        let effect = open.find(|effect| effect.call_id == id).ok_or_else(no_such_effect)?;
        if self.is_running(&effect.id) || self.runs_elsewhere(effect.runner.as_deref()).await? {
            return Err(effect_runs());
        }
        let fence = RecordFence { id: &effect.id, started: effect.started };
        let resolved = match resolution {
            Resolution::Made(output) => {
                let call_id = serde_json::from_value(effect.call_id.into()).map_err(CallError::internal)?;
                let reply = Reply::resolved(call_id, output, AnsweredBy::Person);
                self.end(fence, &effect.owner, &reply).await.map_err(|error| unavailable(&error))?
            }
            Resolution::NotMade => self.forget_open(fence, &effect.owner).await?,
        };
        if resolved { Ok(()) } else { Err(no_such_effect()) }
    }

    /// Removes the record of a call without an answer. False if somebody else has resolved it.
    async fn forget_open(&self, fence: RecordFence<'_>, owner: &RecordOwner) -> Result<bool, CallError> {
        let mut counts = self.counts.lock().await;
        let forgotten = self.store.idempotency().forget(fence).await.map_err(|error| unavailable(&error))?;
        if forgotten {
            counts.remove_record(owner, 0);
        }
        Ok(forgotten)
    }
}

impl InFlightGuard {
    /// Stores the reply. While the guard is kept, the call counts as awaited.
    pub(in crate::pipeline) async fn end_for_client(mut self, reply: &Arc<Reply>, state: SendingState) -> Self {
        self.store(reply, state).await;
        self
    }

    /// The call was made: it has this reply.
    /// Errors: `unknown_outcome` if somebody else has resolved it; `overloaded`.
    pub(in crate::pipeline) async fn made(
        mut self,
        started: DatabaseTime,
        reply: Arc<Reply>,
    ) -> Result<IdempotentOutcome, CallError> {
        let fence = RecordFence { id: &self.id.hash, started };
        let ended = self.replies.end(fence, &self.owner, &reply).await;
        if !ended.map_err(|error| unavailable(&error))? {
            return Err(outcome_unknown(self.id.kind));
        }
        self.publish(&reply);
        if self.id.kind == RecordKind::Effect {
            self.replies.forget_later(self.owner.clone(), self.id.hash.clone());
        }
        Ok(IdempotentOutcome::Answered(reply))
    }

    /// The call was not made: it may begin again, with the same key for its upstream.
    /// Errors: `timeout` if somebody else has begun it again; `overloaded`.
    pub(in crate::pipeline) async fn not_made(self, started: DatabaseTime) -> Result<IdempotentOutcome, CallError> {
        let fence = RecordFence { id: &self.id.hash, started };
        match self.replies.forget_open(fence, &self.owner).await? {
            true => Ok(IdempotentOutcome::First(self)),
            false => Err(still_running(self.id.kind)),
        }
    }

    /// How long ago the call was recorded.
    pub(in crate::pipeline) fn age(&self, started: DatabaseTime) -> SignedDuration {
        self.replies.store.now().duration_since(*started)
    }
}

impl Reply {
    /// The reply of a call that ran before, whose outcome was found out by that call, or for it.
    pub(in crate::pipeline) fn resolved(call_id: CallId, output: Value, by: AnsweredBy) -> Self {
        let answer = Answer { text: output.to_string(), output, ..Answer::default() };
        Self {
            outcome: Ok(answer),
            duration: Duration::ZERO,
            tokens: 0,
            cost_usd: Decimal::ZERO,
            receipt: Receipt { answered_by: Some(by), ..Receipt::of(call_id) },
            stored: None,
        }
    }

    /// The reply, with a receipt that says that it is of a record.
    fn of_record(&self) -> Result<Arc<Self>, CallError> {
        let marked = || -> Result<Arc<Self>, serde_json::Error> {
            let mut reply: Value = serde_json::from_str(&stored::text_of(self)?)?;
            if let Some(receipt) = reply.get_mut("receipt").and_then(Value::as_object_mut) {
                receipt.entry("answered_by").or_insert(serde_json::to_value(AnsweredBy::Record)?);
            }
            stored::read(reply.to_string())
        };
        marked().map_err(CallError::internal)
    }
}

impl Effect {
    fn of(effect: OpenEffect, is_running: bool) -> Self {
        let state = if is_running { EffectState::Running } else { EffectState::Unknown };
        Self { id: effect.call_id, tool: effect.tool, state, started: effect.started }
    }
}
