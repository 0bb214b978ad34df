//! Who may approve which calls: `deny[msg]` in `package approvals`. Its input, which operators' rules use, so that it
//! must not change:
//!
//! ```json
//! {"approval": {"id", "tool", "arguments": {}, "reasons": [], "session",
//!               "caller": {"id", "tenant", "person"}},
//!  "approver": {"id", "tenant", "person", "creators": [], "roles": []}, "scope": "once|minutes|session"}
//! ```

use serde_json::{Value as Json, json};

use super::{Policy, UNDECIDED, input, refusal};
use sekisho_core::call::{Arguments, Caller};
use sekisho_core::error::{CallError, ErrorCode};

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
    /// Errors: `denied`, with all reasons.
    pub fn check_approver(&self, given: ApproverInput<'_>, approver: &Caller) -> Result<(), CallError> {
        let set = self.current.load();
        if !set.checks_approvers {
            return Ok(());
        }
        let evaluated = input::converted(&given.json(approver), 1).and_then(|input| set.approver_denials(&input));
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
                "id": approver.id,
                "tenant": approver.tenant,
                "person": approver.person(),
                "creators": approver.creators,
                "roles": approver.roles,
            },
            "scope": self.scope,
        })
    }
}

/// The fields of the input, two levels deep.
pub(super) const FIELDS: [(&str, &[&str]); 3] = [
    ("approval", &["id", "tool", "arguments", "reasons", "session", "caller"]),
    ("approver", &["id", "tenant", "person", "creators", "roles"]),
    ("scope", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::folder;
    use sekisho_config::PolicyConfig;

    const CALLS: &str = "package tools\ndeny[\"no\"] { false }\n";

    fn check(rules: &str, person: &str) -> Result<(), CallError> {
        let folder = folder(&[("tools.rego", CALLS), ("approvals.rego", rules)]);
        let config = PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() };
        let policy = Policy::load(&config).unwrap();
        let arguments = json!({"amount": 7}).as_object().cloned().unwrap();
        let given = ApproverInput {
            id: "1",
            tool: "pay",
            arguments: &arguments,
            reasons: &["costly".to_owned()],
            session: None,
            caller: ("ann", "acme", "ann"),
            scope: "once",
        };
        policy.check_approver(given, &Caller::new(person, "acme", vec!["approver".to_owned()]))
    }

    #[test]
    fn rules_restrict_who_approves_what_and_fail_closed() {
        let eve = "package approvals\ndeny[\"ask Eve\"] { input.approval.arguments.amount > 5; input.approver.id != \"eve\" }\n";
        assert!(check(eve, "eve").is_ok());
        let error = check(eve, "bob").unwrap_err();
        assert_eq!((error.code(), error.message()), (ErrorCode::Denied, "ask Eve"));
        let errs = "package approvals\ndeny[\"x\"] { to_number(input.approver.id) > 3 }\n";
        assert_eq!(check(errs, "bob").unwrap_err().code(), ErrorCode::Denied);
    }

    #[test]
    fn a_package_that_would_never_deny_or_has_other_fields_is_broken() {
        for (calls, rules, expected) in [
            (CALLS, "package approvals\nallow { true }\n", "has no rule `deny[msg]`"),
            (CALLS, "package approvals\ndeny = true\n", "`deny` must be a set of reasons"),
            (CALLS, "package approvals\ndeny[\"x\"] { input.user.id == \"x\" }\n", "no field `user`"),
            (
                "package tools\ndeny[\"no\"] { data.approvals.deny[\"x\"] }\n",
                "package approvals\ndeny[\"x\"] { true }\n",
                "`data.approvals` is about approvers",
            ),
        ] {
            let folder = folder(&[("tools.rego", calls), ("approvals.rego", rules)]);
            let config = PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() };
            let errors = Policy::load(&config).unwrap_err();
            assert!(errors.iter().any(|error| error.to_string().contains(expected)), "{expected}: {errors:?}");
        }
    }
}
