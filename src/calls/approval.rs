//! Calls that a person must approve before they run.
//!
//! A call that needs approval ends, and its request is kept: the caller, the tool, the arguments, and why a person must
//! decide ([`binding`]). Where another form of the arguments is sent, an approver sees both ([`sent`]). An approver
//! decides later. The same call, sent again, passes every stage anew: the approval stands for the reasons that the
//! approver was shown, and only for those.
//!
//! An approver may change the arguments of a call that the run of an agent makes ([`changed`]). Every other caller
//! sends its own. The effects that a program proposes are one call, whose arguments are the list ([`proposal`]): an approver
//! may strike out some.
//!
//! An approval of one call goes from `approved` to `executing` before the call is sent, and to `done` when it has
//! ended. Where its process stops between the two, the outcome is unknown and the call is never sent again by itself.

mod binding;
mod changed;
mod decide;
mod grant;
mod notices;
mod proposal;
mod record;
mod refusal;
mod sent;
mod shown;
mod sweep;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::tool::{Tool, ValidArguments};
use sekisho_audit::{Audit, AuditEvent, AuditSlot, EventKind};
use sekisho_config::{ApprovalsConfig, Config};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{CallContext, Via};
use sekisho_core::error::CallError;
use sekisho_observe::metrics::{ApprovalEvent, Metrics};
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{ApprovalFilter, Asked, NewApproval, Store};

pub use self::binding::Binding;
pub use self::decide::Judgement;
pub use self::grant::{ApprovedCall, Grant, Standing};
pub use self::notices::Notice;
pub use self::proposal::{Proposal, ProposedEffect, ProposedRead};
pub use self::record::{Approval, Decision, Details};
pub use self::sent::SentToShow;
pub use self::waiting::{MAX_WAIT, Waited};

use self::grant::Kind;
use self::sent::kept_text;
use self::waiting::Waiting;

/// Maximum bytes of canonical arguments that an approval keeps, and of the form of them that is sent instead.
const MAX_ARGUMENTS: usize = 256 << 10;

/// The kind of the sealed texts.
const SEALED_KIND: &str = "approval";

/// Maximum calls that wait together and are shown so.
const MAX_TOGETHER: u32 = 50;

/// Tools whose first use is known to be approved: some 1 MB.
const MAX_KNOWN_USES: usize = 10_000;

/// The approvals of all callers.
#[derive(Debug)]
pub struct Approvals {
    store: Store,
    sealer: Sealer,
    audit: Audit,
    metrics: Arc<Metrics>,
    /// The address of the page of an approval, without its id.
    page: String,
    /// Whether approvers may approve their own calls.
    own: AtomicBool,
    /// This process, where it is no replica.
    process: Arc<str>,
    replica: OnceLock<Arc<str>>,
    waiting: Waiting,
    known_uses: Mutex<BoundedMap<String, ()>>,
    notices: mpsc::Sender<Notice>,
    notices_to_send: Mutex<Option<mpsc::Receiver<Notice>>>,
}

/// A call that needs approval, as the policies ask for it.
#[derive(Debug, Clone, Copy)]
pub struct AskedCall<'a> {
    pub call: &'a CallContext,
    pub tool: &'a Tool,
    pub arguments: &'a ValidArguments,
    pub reasons: &'a [String],
    /// The first use of the tool by the caller needs approval.
    pub first_use: bool,
    /// JSON Pointers into the arguments: the parts that an approver does not see.
    pub masks: &'a [String],
    /// The version of the policies, for the record.
    pub policy_version: &'a Arc<str>,
}

impl Approvals {
    pub fn new(config: &Config, store: Store, audit: Audit, metrics: Arc<Metrics>) -> Self {
        let (notices, to_send) = notices::queue();
        Self {
            store,
            sealer: Sealer::new(config),
            audit,
            metrics,
            page: format!("{}/console/approvals/", config.server.public_address()),
            own: config.approvals.own.into(),
            process: Uuid::new_v4().to_string().into(),
            replica: OnceLock::new(),
            waiting: Waiting::default(),
            known_uses: Mutex::new(BoundedMap::new(MAX_KNOWN_USES)),
            notices,
            notices_to_send: Mutex::new(Some(to_send)),
        }
    }

    pub fn reconfigure(&self, config: &ApprovalsConfig) {
        self.own.store(config.own, Ordering::Relaxed);
    }

    /// Sets the id of this replica: calls that run at another one are waited for until it is lost.
    pub fn set_replica(&self, id: &Arc<str>) {
        self.replica.get_or_init(|| Arc::clone(id));
    }

    /// Whether the arguments of calls can be kept until they are approved.
    pub fn can_keep_arguments(&self) -> bool {
        self.sealer.is_available()
    }

    /// Lets a call pass that needs no approval any more or has one, and asks for one otherwise.
    /// Errors: `approval_required` with the approval to wait for; `approval_mismatch` if the approved call is not this
    /// one; `overloaded`, `too_large` if none can be asked.
    pub async fn grant(&self, asked: AskedCall<'_>, approved: Option<&ApprovedCall>) -> Result<Grant, CallError> {
        let binding = Binding::of(asked.call, asked.tool, asked.arguments);
        if let Some(approved) = approved {
            approved.check(&binding, asked.call)?;
        }
        let reasons = self.reasons(&asked, &binding).await?;
        if reasons.is_empty() {
            return Ok(Grant(Kind::NotNeeded));
        }
        if asked.was_shown(&reasons) {
            return Ok(Grant(Kind::NotNeeded));
        }
        if approved.is_some_and(|approved| approved.has_shown(&reasons)) {
            return Ok(Grant(Kind::Once));
        }
        let open = self.store.approvals().list_open(&binding.call, binding.session.as_deref()).await;
        let open = open.map_err(|error| refusal::unavailable(&error))?;
        let open = open.into_iter().map(Approval::read).collect::<Result<Vec<_>, _>>()?;
        // Only the run of an agent makes a call with the arguments that an approver wrote.
        let takes_changes = asked.call.via == Via::Agent;
        let is_for = |approval: &&Approval| approval.shows(&reasons) && (takes_changes || !approval.is_changed());
        let mut known: Vec<_> = open.iter().filter(is_for).collect();
        // Approvals that cover several calls come first, then approvals of this call, then approvals that wait.
        known.sort_by_key(|approval| (!approval.covers_several(), !approval.is_approved()));
        match known.first() {
            Some(approval) if approval.covers_several() => Ok(Grant(Kind::Several(Arc::clone(&approval.id)))),
            Some(approval) => Err(self.required(approval, &reasons, asked.policy_version)),
            None if asked.call.dry_run => Err(refusal::not_asked(&reasons, asked.policy_version)),
            None => Err(self.ask(&asked, &reasons, &binding).await?),
        }
    }

    /// The reasons why a person must approve a call, if it is made now.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn reasons_of(&self, asked: &AskedCall<'_>) -> Result<Vec<String>, CallError> {
        self.reasons(asked, &Binding::of(asked.call, asked.tool, asked.arguments)).await
    }

    /// The reasons that hold now.
    async fn reasons(&self, asked: &AskedCall<'_>, binding: &Binding) -> Result<Vec<String>, CallError> {
        let mut reasons = asked.reasons.to_vec();
        if asked.first_use && !self.was_approved_before(binding).await? {
            reasons.push(format!("the first use of {} by a caller needs approval", asked.tool.name()));
        }
        Ok(reasons)
    }

    async fn was_approved_before(&self, binding: &Binding) -> Result<bool, CallError> {
        if self.known_uses.lock().contains(&binding.tool) {
            return Ok(true);
        }
        let was = self
            .store
            .approvals()
            .was_approved_before(&binding.tool)
            .await
            .map_err(|error| refusal::unavailable(&error))?;
        if was {
            self.known_uses.lock().insert_or_clear(binding.tool.clone(), (), |()| false);
        }
        Ok(was)
    }

    /// Adds a request, unless an equal one waits, and returns the refusal of the call.
    async fn ask(&self, asked: &AskedCall<'_>, reasons: &[String], binding: &Binding) -> Result<CallError, CallError> {
        let AskedCall { call, tool, arguments, policy_version, .. } = *asked;
        let sent = SentToShow::of_call(asked);
        let questions = arguments.judgement().map(|judged| &judged.judgement.questions[..]).unwrap_or_default();
        let request = call.origin.asked.as_ref();
        let text = kept_text(arguments.as_map(), sent.as_ref(), questions, request)?;
        let keeps_more = sent.is_some() || !questions.is_empty() || request.is_some();
        let (caller, mut details) = (&call.caller, Details::of(asked, reasons, keeps_more));
        if let Some(proposal) = asked.proposal()? {
            details.masks.extend(proposal.masks());
            details.needed = details.needed.max(proposal.approvals_needed());
        }
        let sealed = self.sealer.seal(sealed_for(&caller.tenant, &caller.key), &text);
        let arguments =
            sealed.map_err(|error| refusal::not_kept(reasons, &error).decided_by(policy_version.clone()))?;
        let (slot, id) = (self.audit.reserve()?, Uuid::new_v4().to_string());
        let group_digest = binding::group_digest(call);
        let new = NewApproval {
            id: &id,
            tenant: &caller.tenant,
            caller_key: &caller.key,
            caller_id: &caller.id,
            tool: tool.name(),
            pending_digest: &binding.with_reasons(reasons),
            call_digest: &binding.call,
            tool_digest: &binding.tool,
            session_digest: binding.session.as_deref(),
            group_digest: group_digest.as_deref(),
            details: &details.text()?,
            arguments: &arguments,
        };
        let approval = match self.store.approvals().ask(new).await.map_err(|error| refusal::unavailable(&error))? {
            Asked::Known(stored) => Approval::read(stored)?,
            Asked::New(stored) => self.asked(Approval::read(stored)?, call, slot, true).await,
            Asked::Further(stored) => self.asked(Approval::read(stored)?, call, slot, false).await,
            Asked::TooManyOfCaller => return Err(refusal::too_many_of_caller()),
            Asked::TooMany => return Err(refusal::too_many()),
        };
        Ok(self.required(&approval, reasons, policy_version))
    }

    /// Records a new request. `tells`: also to the receiver of webhooks, who is told of calls that come at once by the first of
    /// them.
    async fn asked(&self, approval: Approval, call: &CallContext, slot: AuditSlot, tells: bool) -> Approval {
        self.metrics.approval(ApprovalEvent::Asked);
        let event = AuditEvent {
            subject: Some(approval.id.to_string()),
            detail: Some(format!("{}: {}", approval.tool, approval.details.reasons.join("; "))),
            caller: Some(Arc::clone(&call.caller)),
            ..AuditEvent::new(EventKind::ApprovalAsked)
                .of_request(call.origin.request.as_ref(), call.origin.trace.as_ref())
        };
        _ = slot.write_event(event);
        if tells {
            self.notify(&approval);
        }
        self.count_pending().await;
        approval
    }

    /// An approval, for any caller.
    /// Errors: `not_found`, `overloaded` when the store cannot be read.
    pub async fn find(&self, id: &str) -> Result<Approval, CallError> {
        let stored = self.store.approvals().get(id).await.map_err(|error| refusal::unavailable(&error))?;
        Approval::read(stored.ok_or_else(refusal::not_found)?)
    }

    /// The latest first; the calls of one run, conversation or session that wait are one item, which is the first of them.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn list(&self, filter: ApprovalFilter<'_>) -> Result<Vec<Approval>, CallError> {
        let stored = self.store.approvals().list(filter).await.map_err(|error| refusal::unavailable(&error))?;
        stored.into_iter().map(Approval::read).collect()
    }

    /// The other calls of its run, conversation or session that wait, the oldest first: a person decides about them together.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn waiting_with(&self, approval: &Approval) -> Result<Vec<Approval>, CallError> {
        let Some(group) = &approval.stored.group_digest else { return Ok(Vec::new()) };
        let waiting = self.store.approvals().list_waiting(group, MAX_TOGETHER).await;
        let waiting = waiting.map_err(|error| refusal::unavailable(&error))?;
        let waiting = waiting.into_iter().map(Approval::read).collect::<Result<Vec<_>, _>>()?;
        Ok(waiting.into_iter().filter(|other| other.id != approval.id).collect())
    }

    /// The number of calls that each of these items has: those that wait with it, and itself.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn count_calls(&self, approvals: &[Approval]) -> Result<Vec<u64>, CallError> {
        let groups: Vec<_> = approvals.iter().filter_map(Approval::waiting_group).collect();
        let counts = self.store.approvals().count_waiting(&groups).await;
        let counts = counts.map_err(|error| refusal::unavailable(&error))?;
        let count = |approval: &Approval| {
            let of_group = approval.waiting_group().and_then(|group| counts.get(group)).copied();
            of_group.and_then(|count| u64::try_from(count).ok()).unwrap_or(1)
        };
        Ok(approvals.iter().map(count).collect())
    }

    /// The address of the page where it is decided.
    pub fn page_of(&self, approval: &Approval) -> String {
        format!("{}{}", self.page, approval.id)
    }

    /// This process, as the runner of a call.
    fn runner(&self) -> &Arc<str> {
        self.replica.get().unwrap_or(&self.process)
    }
}

fn sealed_for<'a>(tenant: &'a str, owner: &'a str) -> SealedFor<'a> {
    SealedFor { tenant, owner, kind: SEALED_KIND }
}
