//! Who may approve what: `deny[msg]` in `package approvals`. Its input, which operators' rules use, so that it must not change:
//!
//! ```json
//! {"approval": {"id", "tool", "arguments": {}, "reasons": [], "session",
//!               "caller": {"id", "tenant", "person"}},
//!  "approver": {"id", "tenant", "person", "roles": []}, "scope": "once|minutes|session"}
//! ```

use serde_json::{Value as Json, json};

use super::{Policy, UNDECIDED, input, refusal};
use crate::core::call::{Arguments, Caller};
use crate::core::error::{CallError, ErrorCode};

/// An approval that is about to be given.
#[derive(Debug, Clone, Copy)]
pub struct ApproverInput<'a> {
    pub id: &'a str,
    pub tool: &'a str,
    pub arguments: &'a Arguments,
    pub reasons: &'a [String],
    pub session: Option<&'a str>,
    /// Id, tenant and person.
    pub caller: (&'a str, &'a str, &'a str),
    pub scope: &'static str,
}

impl Policy {
    /// Whether the approver may give the approval.
    ///
    /// # Errors
    /// `denied`, with all reasons.
    pub fn check_approver(&self, given: ApproverInput<'_>, approver: &Caller) -> Result<(), CallError> {
        let set = self.current.load();
        if !set.checks_approvers {
            return Ok(());
        }
        let evaluated = input::converted(&given.json(approver), 1).and_then(|input| set.approver_denials(input));
        let error = match evaluated {
            Ok(reasons) if reasons.is_empty() => return Ok(()),
            Ok(reasons) => refusal(ErrorCode::Denied, "approvals.deny", reasons),
            Err(failure) => refusal(ErrorCode::Denied, "approvals.deny", vec![UNDECIDED.to_owned()]).caused_by(failure),
        };
        Err(error.decided_by(set.version.clone()))
    }
}

impl ApproverInput<'_> {
    fn json(&self, approver: &Caller) -> Json {
        let (id, tenant, person) = self.caller;
        json!({
            "approval": {
                "id": self.id,
                "tool": self.tool,
                "arguments": self.arguments,
                "reasons": self.reasons,
                "session": self.session,
                "caller": {"id": id, "tenant": tenant, "person": person},
            },
            "approver": {
                "id": approver.id, "tenant": approver.tenant, "person": approver.person(), "roles": approver.roles,
            },
            "scope": self.scope,
        })
    }
}

/// The fields of the input, two levels deep.
pub(super) const FIELDS: [(&str, &[&str]); 3] = [
    ("approval", &["id", "tool", "arguments", "reasons", "session", "caller"]),
    ("approver", &["id", "tenant", "person", "roles"]),
    ("scope", &[]),
];
