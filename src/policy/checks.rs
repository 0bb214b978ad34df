//! The checks of the gateway before any rule: the tools of the caller's key and endpoint, and a tool's `roles`,
//! `requires_auth` and `dangerous`. Rules are evaluated in addition and cannot disable these checks.

use crate::core::call::Caller;
use crate::core::error::{CallError, Detail, ErrorCode};
use crate::tool::Metadata;

/// The configuration of the checks, in addition to each tool's settings.
#[derive(Debug, Clone)]
pub(super) struct Checks {
    /// A dangerous tool requires one of these roles. If the list is empty, no caller may call such a tool.
    pub(super) dangerous_roles: Vec<String>,
}

/// What is checked: the tools that are left to the caller, or a setting of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Tools,
    Roles,
    RequiresAuth,
    Dangerous,
}

/// A check that a caller does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unmet<'a> {
    pub(super) check: Check,
    tool: &'a str,
    /// The roles of which one is sufficient; empty when the check is not about roles.
    pub(super) roles: &'a [String],
}

impl Checks {
    /// The checks that the caller does not pass, in order.
    pub(super) fn unmet<'a>(&'a self, tool: &'a Metadata, caller: &Caller) -> impl Iterator<Item = Unmet<'a>> {
        let unmet = |check, roles| Unmet { check, tool: &tool.name, roles };
        let left_out = (!caller.tools.admits(&tool.name)).then(|| unmet(Check::Tools, &[]));
        let hidden = tool.lacks_role(caller).then(|| unmet(Check::Roles, &tool.roles[..]));
        let unknown = (tool.requires_auth && caller.anonymous).then(|| unmet(Check::RequiresAuth, &[]));
        let unfit = tool.dangerous && !caller.has_one_of(&self.dangerous_roles);
        let unfit = unfit.then(|| unmet(Check::Dangerous, &self.dangerous_roles[..]));
        [left_out, hidden, unknown, unfit].into_iter().flatten()
    }

    /// The refusal of a call, by the first check that the caller does not pass, with all of them as its details.
    ///
    /// # Errors
    /// `unauthenticated` or `denied`.
    pub(super) fn pass(&self, tool: &Metadata, caller: &Caller) -> Result<(), CallError> {
        let Some(first) = self.unmet(tool, caller).next() else { return Ok(()) };
        let details: Vec<_> = self.unmet(tool, caller).map(|unmet| unmet.detail()).collect();
        let message = details.iter().map(|detail| &*detail.message).collect::<Vec<_>>().join("; ");
        Err(CallError::new(first.code(), message).with_details(details))
    }
}

impl Check {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Roles => "roles",
            Self::RequiresAuth => "requires_auth",
            Self::Dangerous => "dangerous",
        }
    }
}

impl Unmet<'_> {
    fn code(&self) -> ErrorCode {
        match self.check {
            Check::RequiresAuth => ErrorCode::Unauthenticated,
            Check::Tools | Check::Roles | Check::Dangerous => ErrorCode::Denied,
        }
    }

    /// The requirement of the check, as the object of "needs".
    pub(super) fn need(&self) -> String {
        match (self.check, self.roles) {
            (Check::Tools, _) => "a key and an endpoint that include it".to_owned(),
            (Check::RequiresAuth, _) => "a signed-in caller".to_owned(),
            (Check::Roles | Check::Dangerous, [role]) => format!("the role {role}"),
            (Check::Roles | Check::Dangerous, roles) => format!("one of the roles {}", roles.join(", ")),
        }
    }

    /// The message for the caller.
    pub(super) fn message(&self) -> String {
        let (tool, roles) = (self.tool, self.roles);
        match (self.check, roles) {
            (Check::Tools, _) => format!("{tool} is not among the tools of this key, or of this endpoint"),
            (Check::RequiresAuth, _) => format!("{tool} needs a signed-in caller: send an API key or a token"),
            (Check::Dangerous, [role]) => format!("{tool} is dangerous: the caller needs the role {role}"),
            (Check::Dangerous, _) => {
                format!("{tool} is dangerous: the caller needs one of the roles {}", roles.join(", "))
            }
            (Check::Roles, _) => format!("{tool} needs one of these roles: {}", roles.join(", ")),
        }
    }

    fn detail(&self) -> Detail {
        Detail { path: "policy".into(), rule: self.check.as_str().into(), message: self.message() }
    }
}
