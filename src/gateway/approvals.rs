//! Approvals for the APIs: who sees and decides which, and calls that wait for a decision.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{Configuration, Reach};
use sekisho_calls::approval::{Approval, Judgement, MAX_WAIT, Proposal, SentToShow, Waited};
use sekisho_calls::pipeline::{Answered, Pipeline};
use sekisho_calls::policy::ApproverInput;
use sekisho_core::approval::ApprovalState;
use sekisho_core::call::{Arguments, CallBody, CallContext, Caller, Via};
use sekisho_core::error::{CallError, Detail, ErrorCode, NeededApproval};
use sekisho_core::json;
use sekisho_store::ApprovalFilter;

/// The role of persons who decide.
pub const APPROVER: &str = "approver";

/// The interval of looks for decisions at other replicas for which callers wait here.
const DECISIONS_POLL: Duration = Duration::from_millis(500);

/// How often a waiting call is made again: each time for a reason that the approver was not shown.
const MAX_CALLS: u32 = 8;

/// An answer that a call may have waited for.
#[derive(Debug)]
pub struct WaitedAnswer {
    pub answered: Answered,
    /// The arguments with which it was made, if an approver changed them: only for an agent's call.
    pub changed: Option<Arguments>,
}

/// A call whose approval is decided.
struct DecidedCall {
    call: Box<CallContext>,
    arguments: Arguments,
    changed: Option<Arguments>,
}

/// The arguments of a list of effects without those that an approver strikes out, if there are any.
fn effects_left(asked: &Arguments, judgement: &Judgement) -> Result<Option<Arguments>, CallError> {
    if judgement.arguments.is_some() {
        let message = "the arguments of effects cannot be changed: name those that are not to be made in `strike`, or deny the approval";
        return Err(CallError::new(ErrorCode::InvalidRequest, message));
    }
    if judgement.strike.is_empty() {
        return Ok(None);
    }
    Proposal::from_arguments(asked.clone())?.without(&judgement.strike)?.to_arguments().map(Some)
}

/// Names the approval of which a decision about several is refused.
fn about(approval: &Approval) -> Detail {
    let message = format!("this is about the call of {}: leave it out, or decide otherwise about it", approval.tool);
    Detail { path: approval.id.to_string(), rule: "approvals".to_owned(), message }
}

/// What an approver wrote comes from no stranger.
fn declare(call: &mut CallContext, changed: Option<&Arguments>) {
    if let Some(changed) = changed {
        call.origin.user_text = Some(Value::Object(changed.clone()).to_string().into());
    }
}

/// Calls that a person must approve: how they are made once that is decided, and who sees and decides which.
#[derive(Debug)]
pub struct CallApprovals {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
}

impl CallApprovals {
    pub(super) fn new(configuration: &Arc<Configuration>, pipeline: &Arc<Pipeline>) -> Self {
        Self { configuration: Arc::clone(configuration), pipeline: Arc::clone(pipeline) }
    }

    /// Makes a call. A call that needs approval ends, and is made again after the decision. Until then it has no slot,
    /// no budget and no arguments in memory. `max_wait` gives, for each approval that nobody has decided yet, the time
    /// to wait for the decision.
    pub async fn call_when_approved(
        &self,
        call: Box<CallContext>,
        arguments: Arguments,
        max_wait: impl Fn(NeededApproval) -> BoxFuture<'static, Duration> + Send + Sync,
    ) -> WaitedAnswer {
        let (mut next, mut calls) = (DecidedCall { call, arguments, changed: None }, 0);
        loop {
            let DecidedCall { call, arguments, changed } = next;
            calls += 1;
            // A file is gone with its call.
            let may_need = self.pipeline.may_need_approval(&call);
            let may_wait = calls < MAX_CALLS && call.body.upload.is_none() && may_need;
            let again = may_wait.then(|| {
                let body = CallBody { agent_call: call.body.agent_call.clone(), ..CallBody::default() };
                Box::new(CallContext { body, ..call.repeated() })
            });
            let answered = self.pipeline.call(call, arguments).await;
            let answer = WaitedAnswer { answered, changed };
            let Some((again, needed)) = again.zip(answer.answered.needed_approval().cloned()) else { return answer };
            let again = (again, answer.answered.stopped_run().cloned());
            // Boxed, because few calls wait.
            let Some(decided) = Box::pin(self.decided_call(again, needed, &max_wait)).await else { return answer };
            // The arguments that an approver wrote may need another approval, which has nothing in its place.
            next = DecidedCall { changed: decided.changed.or(answer.changed), ..decided };
        }
    }

    /// Makes a call for which the run of an agent paused, with the arguments that its approval has for it. `written`:
    /// the model's arguments.
    /// Errors: the approval, while nobody has decided about it.
    pub async fn call_of_paused_run(
        &self,
        mut call: CallContext,
        written: Arguments,
        id: &str,
    ) -> Result<WaitedAnswer, NeededApproval> {
        let approvals = &self.pipeline.approvals;
        let found = approvals.find(id).await;
        if let Ok(approval) = &found
            && approval.state == ApprovalState::Pending
        {
            return Err(approvals.needed(approval));
        }
        // The decision may be about a run of a program, which goes on.
        if self.pipeline.run_awaiting(&call, &written, id).await.is_some() {
            call.resumption.approval = Some(id.into());
            return Ok(WaitedAnswer { answered: self.pipeline.call(call, written).await, changed: None });
        }
        let decided = match found {
            Ok(approval) => self.approved_arguments(&approval, call.via).map(|found| (approval, found)),
            Err(error) => Err(error),
        };
        let (approval, (arguments, changed)) = match decided {
            Ok(decided) => decided,
            Err(error) => return Ok(WaitedAnswer { answered: Answered::refused(&call, error), changed: None }),
        };
        let changed = if approval.is_changed() { changed } else { self.unless_written(&call, written, &arguments) };
        let changed = changed.filter(|_| approval.caller_key == *call.caller.key);
        declare(&mut call, changed.as_ref());
        call.resumption.approval = Some(approval.id);
        Ok(WaitedAnswer { answered: self.pipeline.call(call, arguments).await, changed })
    }

    /// The arguments with which a call is made, if an approver wrote them before this approval was needed.
    fn unless_written(&self, call: &CallContext, written: Arguments, made: &Arguments) -> Option<Arguments> {
        let tool = self.pipeline.registry.find_for(call).ok()?;
        let valid = tool.valid_arguments(written, &call.origin.prompt_params).ok()?;
        (json::digest(valid.as_map()) != json::digest(made)).then(|| made.clone())
    }

    /// The call of an approval that is decided in time, with the arguments that were kept. With a run, the call that resumes it.
    async fn decided_call(
        &self,
        (mut call, run): (Box<CallContext>, Option<Arc<str>>),
        needed: NeededApproval,
        max_wait: &(impl Fn(NeededApproval) -> BoxFuture<'static, Duration> + Send + Sync),
    ) -> Option<DecidedCall> {
        let (approvals, id) = (&self.pipeline.approvals, Arc::clone(&needed.id));
        // Approved already, or denied: by an approver who was faster.
        let mut waited = approvals.wait(&call.caller, &id, Instant::now()).await.ok()?;
        if waited == Waited::Undecided {
            let deadline = Instant::now() + max_wait(needed).await.min(MAX_WAIT);
            waited = approvals.wait(&call.caller, &id, deadline).await.ok()?;
        }
        if waited == Waited::Undecided {
            return None;
        }
        if let Some(run) = run {
            let arguments = self.pipeline.journals.recorded_call(&call, &run).await.ok()?.arguments;
            (call.resumption.approval, call.resumption.run) = (None, Some(run));
            return Some(DecidedCall { call, arguments, changed: None });
        }
        let approval = approvals.find(&id).await.ok()?;
        let (arguments, changed) = self.approved_arguments(&approval, call.via).ok()?;
        declare(&mut call, changed.as_ref());
        call.resumption.approval = Some(id);
        Some(DecidedCall { call, arguments, changed })
    }

    /// The arguments of a call that is decided; a second time, if an approver changed them and the call is to be made so.
    fn approved_arguments(&self, approval: &Approval, via: Via) -> Result<(Arguments, Option<Arguments>), CallError> {
        let approvals = &self.pipeline.approvals;
        // Nobody but the run of an agent is told of a change: other calls are made as they were sent, and refused.
        let changed = if via == Via::Agent { approvals.changed_arguments(approval)? } else { None };
        let arguments = match &changed {
            Some(changed) => changed.clone(),
            None => approvals.arguments(approval)?,
        };
        let is_refused = matches!(approval.state, ApprovalState::Denied | ApprovalState::Expired);
        Ok((arguments, changed.filter(|_| !is_refused)))
    }

    /// An approval that the caller may see, and whether it may see the arguments too: approvers see the arguments of
    /// their tenant.
    /// Errors: `not_found`, `overloaded` when the store cannot be read.
    pub async fn find(&self, caller: &Caller, id: &str) -> Result<(Approval, bool), CallError> {
        // The same sentence for both: nobody learns which ids exist.
        let unknown = || {
            let message = "there is no such approval, or it is not yours to see: `GET /approvals` lists those that are";
            CallError::new(ErrorCode::NotFound, message)
        };
        let found = self.pipeline.approvals.find(id).await;
        let approval = found.map_err(|error| if error.code() == ErrorCode::NotFound { unknown() } else { error })?;
        let is_visible = match self.reach_of(caller) {
            Reach::Own => approval.caller_key == *caller.key,
            Reach::Tenant => approval.tenant == *caller.tenant,
            Reach::AllTenants => true,
        };
        match is_visible {
            true => Ok((approval, caller.has_role(APPROVER))),
            false => Err(unknown()),
        }
    }

    /// The approvals that the caller may see, the latest first.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn list(&self, caller: &Caller, filter: ApprovalFilter<'_>) -> Result<Vec<Approval>, CallError> {
        let reach = self.reach_of(caller);
        let filter = ApprovalFilter {
            tenant: (reach != Reach::AllTenants).then_some(&*caller.tenant),
            caller_key: (reach == Reach::Own).then_some(&*caller.key),
            ..filter
        };
        self.pipeline.approvals.list(filter).await
    }

    /// Approves or denies a call of another, the first one, and others that wait with it: all of them, or none.
    /// Errors: `denied` for a caller who is no approver or may not approve one of these, `not_found`, `invalid_request` for one
    /// that does not wait with the first one, and the errors of [`decide_seen`](sekisho_calls::approval::Approvals::decide_seen).
    pub async fn decide(
        &self,
        approver: &Caller,
        decisions: &[(String, Judgement)],
    ) -> Result<Vec<Approval>, CallError> {
        let mut judged: Vec<(Approval, Judgement)> = Vec::with_capacity(decisions.len());
        for (id, judgement) in decisions {
            let found = match self.find(approver, id).await {
                Err(error) if error.code() == ErrorCode::NotFound && !judged.is_empty() => None,
                found => Some(found?),
            };
            let first = judged.first().map(|(first, _)| first);
            let found = found.filter(|(approval, _)| first.is_none_or(|first| approval.waits_with(first)));
            let (approval, is_approver) = found.ok_or_else(|| {
                let message = format!("the approval {id} does not wait with this one: name those that its `with` has");
                CallError::new(ErrorCode::InvalidRequest, message)
            })?;
            if !is_approver {
                let message = format!("this requires the role `{APPROVER}`; use a key that has it");
                return Err(CallError::new(ErrorCode::Denied, message));
            }
            if judged.iter().any(|(other, _)| other.id == approval.id) {
                let message = format!("the approval {id} is named twice: decide about it once");
                return Err(CallError::new(ErrorCode::InvalidRequest, message));
            }
            let judgement = match judgement.approved {
                true => self.permitted(approver, &approval, judgement),
                false => Ok(judgement.clone()),
            };
            let judgement = judgement.map_err(|error| match decisions {
                [_] => error,
                _ => error.with_detail(about(&approval)),
            })?;
            judged.push((approval, judgement));
        }
        self.pipeline.approvals.decide_seen(&judged, approver).await
    }

    /// The decision with the arguments with which the call is made instead, where the policies permit it.
    fn permitted(&self, approver: &Caller, approval: &Approval, judgement: &Judgement) -> Result<Judgement, CallError> {
        let approvals = &self.pipeline.approvals;
        let asked = approvals.arguments(approval)?;
        let (arguments, sent) = match approval.is_for_effects() {
            true => (effects_left(&asked, judgement)?, None),
            false if !judgement.strike.is_empty() => {
                let message = "`strike` is for the effects of a program, and this is one call: deny it instead";
                return Err(CallError::new(ErrorCode::InvalidRequest, message));
            }
            false => {
                let written = judgement.arguments.clone().map(|written| self.valid_change(approval, &asked, written));
                let (arguments, sent) = written.transpose()?.unzip();
                (arguments, sent.flatten())
            }
        };
        let judgement = Judgement { arguments, sent, ..judgement.clone() };
        let changed_before = approvals.changed_arguments(approval)?;
        let arguments = judgement.arguments.as_ref().or(changed_before.as_ref()).unwrap_or(&asked);
        let given = ApproverInput {
            id: &approval.id,
            tool: &approval.tool,
            arguments,
            reasons: &approval.details.reasons,
            session: approval.details.session.as_deref(),
            caller: (&approval.caller_id, &approval.tenant, &approval.details.person),
            scope: judgement.scope.as_str(),
        };
        self.pipeline.policy.check_approver(given, approver)?;
        if approval.is_for_effects() {
            // Who may not approve a call by itself may not approve it in a list.
            for effect in Proposal::from_arguments(arguments.clone())?.effects_to_make() {
                let (tool, arguments, reasons) = (&*effect.tool, &effect.arguments, &effect.reasons[..]);
                let of_effect = ApproverInput { tool, arguments, reasons, ..given };
                self.pipeline.policy.check_approver(of_effect, approver)?;
            }
        }
        Ok(judgement)
    }

    /// The arguments that an approver writes, as the tool takes them, and their sent form, where it is another one.
    /// Errors: `invalid_arguments`, also where a masked part is left out; `invalid_request`: the tool is another one by
    /// now.
    fn valid_change(
        &self,
        approval: &Approval,
        asked: &Arguments,
        written: Arguments,
    ) -> Result<(Arguments, Option<SentToShow>), CallError> {
        let snapshot = self.pipeline.registry.snapshot();
        let tool = snapshot.get(&approval.tool).filter(|tool| tool.input.hash() == approval.details.schema_hash);
        let tool = tool.ok_or_else(|| {
            let message = "the tool is gone or has changed since this call was asked for, so its arguments cannot be changed: \
                           deny the call, so that it is asked for anew";
            CallError::new(ErrorCode::InvalidRequest, message)
        })?;
        // The run of an agent has no `prompt_params`: the sent form of its call follows from its arguments.
        let valid = tool.valid_arguments(approval.with_masked(asked, written)?, &Map::new())?;
        let sent = SentToShow::of_change(tool, &valid, &approval.details.masks);
        Ok((valid.as_map().clone(), sent))
    }

    /// The reach of a caller: an approver sees the approvals of the tenant.
    fn reach_of(&self, caller: &Caller) -> Reach {
        match self.configuration.reach(caller) {
            Reach::Own if caller.has_role(APPROVER) => Reach::Tenant,
            reach => reach,
        }
    }

    /// Wakes callers who wait here for a decision that was made at another replica.
    pub(super) async fn follow_decisions(self: Arc<Self>, closing: CancellationToken) {
        let mut ticks = tokio::time::interval(DECISIONS_POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while closing.run_until_cancelled(ticks.tick()).await.is_some() {
            if let Err(error) = self.pipeline.approvals.wake_decided_elsewhere().await {
                tracing::debug!(%error, "the decisions of other replicas could not be read");
            }
        }
    }
}
