//! Decisions of approvers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Approval, Approvals, Decision, SentToShow, refusal};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::call::{Arguments, Caller};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_observe::metrics::ApprovalEvent;
use sekisho_store::{DecidedApproval, StoredApproval};

/// How long an approved call may be made.
const USABLE_TTL: Duration = Duration::from_secs(3_600);

/// How long calls of a session may be made.
const SESSION_TTL: Duration = Duration::from_secs(8 * 3_600);

/// Most minutes of an approval: a day.
const MAX_MINUTES: u32 = 1_440;

/// Longest reason of an approver, in characters.
const MAX_REASON: usize = 1_000;

/// How often a decision is tried that another one overtook.
const ATTEMPTS: u32 = 8;

/// The answer of an approver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub approved: bool,
    pub reason: String,
    pub scope: ApprovalScope,
    /// For the scope `minutes`.
    pub minutes: Option<u32>,
    /// The arguments with which the call is made instead, as its tool takes them.
    pub arguments: Option<Arguments>,
    /// The effects of a program that are not made, by their positions among its calls.
    pub strike: Vec<u32>,
    /// The form in which the changed arguments are sent, where it is another one.
    pub sent: Option<SentToShow>,
    /// The digest of the arguments that the approver has looked at.
    pub arguments_sha256: Option<String>,
}

impl Approvals {
    /// Decides about one, as it is now.
    #[cfg(test)]
    pub async fn decide(&self, id: &str, approver: &Caller, judgement: &Judgement) -> Result<Approval, CallError> {
        let seen = [(self.find(id).await?, judgement.clone())];
        self.decide_seen(&seen, approver).await.map(|mut decided| decided.remove(0))
    }

    /// Approves or denies each of these approvals, as they were when the approver and the policies judged them: all of them, or
    /// none. An approval that is not used up can still be denied.
    /// Errors: `denied` for the approver's own call or a second approval by one person, `invalid_request` for an
    /// approval that is decided already, a scope that it cannot have, arguments that cannot be changed, or that another
    /// approver has changed since, or since the approver of this judgement has looked at them; `overloaded` when it cannot
    /// be written.
    pub async fn decide_seen(
        &self,
        seen: &[(Approval, Judgement)],
        approver: &Caller,
    ) -> Result<Vec<Approval>, CallError> {
        for (_, judgement) in seen {
            judgement.check()?;
        }
        for _ in 0..ATTEMPTS {
            let mut decided = Vec::with_capacity(seen.len());
            for (one, judgement) in seen {
                decided.push(self.decided(one, approver, judgement).await?);
            }
            let rows: Vec<_> = decided.iter().map(Decided::row).collect();
            let stored = self.store.approvals().decide(&rows).await;
            if stored.map_err(|error| refusal::unavailable(&error))? {
                return self.announce(&decided).await;
            }
        }
        Err(CallError::new(ErrorCode::Overloaded, "others decide about this approval at the same time: try again"))
    }

    /// An approval as it is with a decision more, which is not stored yet.
    async fn decided(&self, seen: &Approval, approver: &Caller, judgement: &Judgement) -> Result<Decided, CallError> {
        let approval = self.find(&seen.id).await?;
        if judgement.approved && approval.is_changed() != seen.is_changed() {
            let message = "another approver has changed the arguments meanwhile: look at them, and decide again";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        self.check_decision(&approval, approver, judgement)?;
        self.check_looked_at(&approval, judgement)?;
        let mut decisions = approval.decisions.clone();
        decisions.push(judgement.by(approver, self.store.now()));
        let outcome = Outcome::of(&approval, &decisions, judgement.approved);
        let decisions = serde_json::to_string(&decisions).map_err(CallError::internal)?;
        let seal = |changed| self.seal_change(&approval, changed, judgement.sent.as_ref());
        let changed = judgement.arguments.as_ref().map(seal).transpose()?;
        Ok(Decided { approval, approved: judgement.approved, outcome, decisions, changed })
    }

    /// Announces decisions that are stored to callers who wait and to the receiver of webhooks.
    async fn announce(&self, decided: &[Decided]) -> Result<Vec<Approval>, CallError> {
        let mut announced = Vec::with_capacity(decided.len());
        for Decided { approval, approved, .. } in decided {
            self.metrics.approval(if *approved { ApprovalEvent::Approved } else { ApprovalEvent::Denied });
            self.waiting.wake(&approval.id);
        }
        self.count_pending().await;
        for Decided { approval, outcome, .. } in decided {
            // A call that waited may be under way by now: the answer has the state that was decided.
            let approval = Approval { state: outcome.state, ..self.find(&approval.id).await? };
            self.notify(&approval);
            announced.push(approval);
        }
        Ok(announced)
    }

    fn check_decision(&self, approval: &Approval, approver: &Caller, judgement: &Judgement) -> Result<(), CallError> {
        let may_be_decided = match approval.state {
            ApprovalState::Pending => true,
            ApprovalState::Approved => !judgement.approved,
            _ => false,
        };
        if !may_be_decided {
            let message = format!("the approval is {} already: there is nothing to decide", approval.state.as_str());
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        if !judgement.approved {
            return Ok(());
        }
        let is_own = approval.details.may_be_of(approver) || approval.caller_key == *approver.key;
        if is_own && !self.own.load(Ordering::Relaxed) {
            let message = "you cannot approve your own call: ask another approver (`approvals.self` lets you). A call is your own, \
                           too, if you or the creator of your key created or rotated the key that made it";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        if approval.decisions.iter().any(|decision| decision.may_be_of(approver)) {
            let message = "you have approved this call: it needs a second person, so ask another approver. Keys that you or the \
                           creator of your key created or rotated count as one person with you";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        if judgement.scope == ApprovalScope::Session && approval.stored.session_digest.is_none() {
            let message = "the call is in no session: approve it with the scope `once` or `minutes`";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        if judgement.scope != ApprovalScope::Once && approval.is_for_effects() {
            let message = "the effects of a program are approved once: leave `scope` out";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        match judgement.arguments {
            Some(_) => approval.check_changeable(),
            None => Ok(()),
        }
    }

    /// Nobody approves arguments that were changed after they were looked at.
    fn check_looked_at(&self, approval: &Approval, judgement: &Judgement) -> Result<(), CallError> {
        let id = &approval.id;
        let problem = match &judgement.arguments_sha256 {
            _ if !judgement.approved => return Ok(()),
            None if !approval.is_changed() => return Ok(()),
            None => format!(
                "another approver has changed the arguments of the call of approval {id}: look at them, and approve it by itself, \
                 with the `arguments_sha256` that it is shown with"
            ),
            Some(seen) if *seen == self.arguments_sha256(approval)? => return Ok(()),
            Some(_) => format!(
                "the arguments of the call of approval {id} are not those of `arguments_sha256`: another approver has changed them \
                 since you looked at them; open the approval again, and decide about what it shows"
            ),
        };
        Err(CallError::new(ErrorCode::InvalidRequest, problem))
    }
}

impl Judgement {
    fn check(&self) -> Result<(), CallError> {
        let invalid = |message: String| Err(CallError::new(ErrorCode::InvalidRequest, message));
        if self.reason.chars().count() > MAX_REASON {
            return invalid(format!("the reason is longer than {MAX_REASON} characters: shorten it"));
        }
        if self.arguments.is_some() && self.scope != ApprovalScope::Once {
            return invalid(
                "a call with other `arguments` is approved once: leave `scope` out, or `arguments`".to_owned(),
            );
        }
        match (self.scope, self.minutes) {
            (ApprovalScope::Minutes, Some(1..=MAX_MINUTES)) => Ok(()),
            (ApprovalScope::Minutes, _) => {
                invalid(format!("the scope `minutes` needs `minutes`: send a number from 1 to {MAX_MINUTES}"))
            }
            (_, Some(_)) => invalid("`minutes` is for the scope `minutes`: send that, or leave it out".to_owned()),
            _ => Ok(()),
        }
    }

    fn by(&self, approver: &Caller, now: DatabaseTime) -> Decision {
        Decision {
            person: approver.person().to_owned(),
            creators: approver.creators.clone(),
            approver: approver.id.to_string(),
            approved: self.approved,
            reason: self.reason.clone(),
            scope: self.scope,
            minutes: self.minutes,
            changed_arguments: self.arguments.is_some(),
            at: now.to_string(),
        }
    }
}

/// A decision that is to be stored.
#[derive(Debug)]
struct Decided {
    approval: Approval,
    approved: bool,
    outcome: Outcome,
    /// All of them, as JSON.
    decisions: String,
    /// Sealed.
    changed: Option<String>,
}

impl Decided {
    fn row(&self) -> (&StoredApproval, DecidedApproval<'_>) {
        let Self { approval, outcome, decisions, changed, .. } = self;
        let Outcome { state, scope, ttl } = *outcome;
        (&approval.stored, DecidedApproval { state, decisions, scope, ttl, arguments: changed.as_deref() })
    }
}

/// The effect of the decisions on an approval.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    state: ApprovalState,
    scope: Option<ApprovalScope>,
    ttl: Option<Duration>,
}

impl Outcome {
    fn of(approval: &Approval, decisions: &[Decision], approved: bool) -> Self {
        if !approved {
            return Self { state: ApprovalState::Denied, scope: approval.scope, ttl: None };
        }
        if decisions.len() < usize::from(approval.details.needed) {
            return Self { state: ApprovalState::Pending, scope: None, ttl: None };
        }
        let (scope, ttl) = common_extent(decisions);
        Self { state: ApprovalState::Approved, scope: Some(scope), ttl: Some(ttl) }
    }
}

/// The extent that all decisions allow, and its duration.
fn common_extent(decisions: &[Decision]) -> (ApprovalScope, Duration) {
    let scope = decisions.first().map(|decision| decision.scope).unwrap_or_default();
    let is_common = decisions.iter().all(|decision| decision.scope == scope);
    let minutes = decisions.iter().filter_map(|decision| decision.minutes).min().unwrap_or_default();
    match if is_common { scope } else { ApprovalScope::Once } {
        ApprovalScope::Once => (ApprovalScope::Once, USABLE_TTL),
        ApprovalScope::Minutes => (ApprovalScope::Minutes, Duration::from_secs(60 * u64::from(minutes))),
        ApprovalScope::Session => (ApprovalScope::Session, SESSION_TTL),
    }
}
