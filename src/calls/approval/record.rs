//! An approval as it is read.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::AskedCall;
use super::sent::ShownDestination;
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::caller::Caller;
use sekisho_core::error::CallError;
use sekisho_store::StoredApproval;

#[derive(Debug, Clone)]
pub struct Approval {
    pub id: Arc<str>,
    pub tenant: String,
    pub caller_id: String,
    pub tool: String,
    pub state: ApprovalState,
    pub details: Details,
    pub decisions: Vec<Decision>,
    /// The calls that an approved approval covers.
    pub scope: Option<ApprovalScope>,
    /// Calls that it let through.
    pub uses: i64,
    pub created: Timestamp,
    /// When it can no longer be decided, or used.
    pub expires: Timestamp,
    pub changed: Timestamp,
    pub caller_key: String,
    pub(super) sealed: String,
    pub(super) stored: StoredApproval,
}

/// The call, without its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The id of the call that asked first.
    pub call_id: String,
    pub via: String,
    pub kind: String,
    pub target: Option<String>,
    pub session: Option<String>,
    /// Why a person must approve it.
    pub reasons: Vec<String>,
    pub masks: Vec<String>,
    /// The person who uses the caller's credentials.
    pub person: String,
    /// The persons who have had a token of the caller's managed key: they may use the credentials too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creators: Vec<String>,
    /// How many persons must approve it.
    pub needed: u8,
    pub schema_hash: String,
    pub policy_version: String,
    /// Where the call is sent, unless its arguments say it. Records of the version before have none.
    #[serde(default)]
    pub destination: Option<ShownDestination>,
    /// Whether the sealed text has more than the arguments: the form that is sent, questions, or the request of the agent.
    #[serde(default)]
    pub keeps_sent: bool,
}

/// The decision of one approver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The person who uses the approver's credentials.
    pub person: String,
    /// The persons who have had a token of the approver's managed key: they may use the credentials too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creators: Vec<String>,
    pub approver: String,
    pub approved: bool,
    pub reason: String,
    pub scope: ApprovalScope,
    /// For `minutes`.
    pub minutes: Option<u32>,
    /// The approver changed the arguments of the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_arguments: bool,
    /// RFC 3339.
    pub at: String,
}

impl Approval {
    /// Errors: `internal`: another form.
    pub(super) fn read(stored: StoredApproval) -> Result<Self, CallError> {
        let details = serde_json::from_str(&stored.details).map_err(CallError::internal)?;
        let decisions = serde_json::from_str(&stored.decisions).map_err(CallError::internal)?;
        Ok(Self {
            id: stored.id.as_str().into(),
            tenant: stored.tenant.clone(),
            caller_id: stored.caller_id.clone(),
            tool: stored.tool.clone(),
            state: stored.state,
            details,
            decisions,
            scope: stored.scope,
            uses: stored.uses,
            created: stored.created,
            expires: stored.expires,
            changed: stored.changed,
            caller_key: stored.caller_key.clone(),
            sealed: stored.arguments.clone(),
            stored,
        })
    }

    /// Whether the approver is shown all of these reasons.
    pub(super) fn shows(&self, reasons: &[String]) -> bool {
        reasons.iter().all(|reason| self.details.reasons.contains(reason))
    }

    /// The digest of its group, while it waits.
    pub(super) fn waiting_group(&self) -> Option<&str> {
        self.stored.group_digest.as_deref().filter(|_| self.state == ApprovalState::Pending)
    }

    /// Whether a person decides about both at once: it waits, and is of the same run, conversation or session.
    pub fn waits_with(&self, other: &Self) -> bool {
        self.waiting_group().is_some_and(|group| other.stored.group_digest.as_deref() == Some(group))
    }

    pub(super) fn is_approved(&self) -> bool {
        self.state == ApprovalState::Approved
    }

    pub(super) fn covers_several(&self) -> bool {
        self.is_approved() && self.scope.is_some_and(|scope| scope != ApprovalScope::Once)
    }

    /// Whether an approver changed the arguments of the call.
    pub fn is_changed(&self) -> bool {
        self.decisions.iter().any(|decision| decision.changed_arguments)
    }

    /// The last decision, if it was against the call.
    pub fn denial(&self) -> Option<&Decision> {
        self.decisions.last().filter(|decision| !decision.approved)
    }
}

impl Details {
    pub(super) fn of(asked: &AskedCall<'_>, reasons: &[String], keeps_sent: bool) -> Self {
        let AskedCall { call, tool, masks, policy_version, .. } = *asked;
        Self {
            call_id: call.id.to_string(),
            via: call.via.as_str().to_owned(),
            kind: tool.metadata.kind.as_str().to_owned(),
            target: call.target.as_deref().map(|target| target.name.clone()),
            session: call.origin.session.as_ref().map(|session| session.id.to_string()),
            reasons: reasons.to_vec(),
            masks: masks.to_vec(),
            person: call.caller.person().to_owned(),
            creators: call.caller.creators.clone(),
            needed: tool.metadata.approvals_needed,
            schema_hash: tool.input.hash().to_owned(),
            policy_version: policy_version.to_string(),
            destination: ShownDestination::of(asked),
            keeps_sent,
        }
    }

    /// Whether the caller may be this approver.
    pub(super) fn may_be_of(&self, approver: &Caller) -> bool {
        may_be_one(&self.person, &self.creators, approver)
    }

    /// As JSON.
    pub(super) fn text(&self) -> Result<String, CallError> {
        serde_json::to_string(self).map_err(CallError::internal)
    }
}

impl Decision {
    /// Whether this approver may have decided it.
    pub(super) fn may_be_of(&self, approver: &Caller) -> bool {
        may_be_one(&self.person, &self.creators, approver)
    }
}

/// Whether one person may be both. A person who creates or rotates a key has its token, and so may act as its holder
/// too.
fn may_be_one(person: &str, creators: &[String], approver: &Caller) -> bool {
    approver.persons().any(|one| one == person || creators.iter().any(|creator| creator == one))
}
