//! The checks of the gateway before any rule: the tenant of the tool, whether its source is switched on, the tools of the caller's key and endpoint, a tool's `roles`,
//! `requires_auth` and `dangerous`, and the scopes of the caller's token. Rules are evaluated in addition and cannot disable these checks.

use crate::tool::Metadata;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, Detail, ErrorCode};

/// The configuration of the checks, in addition to each tool's settings.
#[derive(Debug, Clone)]
pub(super) struct Checks {
    /// A dangerous tool requires one of these roles. If the list is empty, no caller may call such a tool.
    pub(super) dangerous_roles: Vec<String>,
}

/// The object of a check: the tool's owner, the tools that are left to the caller, a setting of the tool, or the scopes
/// that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Check {
    Tenant,
    Source,
    Tools,
    Roles,
    RequiresAuth,
    Dangerous,
    Scopes,
}

/// A check that a caller does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet<'a> {
    pub(super) check: Check,
    tool: &'a str,
    /// The roles of which one is sufficient; empty when the check is not about roles.
    pub(super) roles: &'a [String],
    /// The scopes that are all needed; empty when the check is not about scopes.
    scopes: Vec<&'a str>,
}

impl Checks {
    /// The checks that the caller does not pass, in order.
    pub(super) fn unmet<'a>(&'a self, tool: &'a Metadata, caller: &'a Caller) -> impl Iterator<Item = Unmet<'a>> {
        let unmet = |check, roles| Unmet { check, tool: &tool.name, roles, scopes: Vec::new() };
        let foreign = tool.is_of_another_tenant(caller).then(|| unmet(Check::Tenant, &[]));
        let off = tool.is_off_for(caller).then(|| unmet(Check::Source, &[]));
        let left_out = (!caller.tools.admits(tool.admitted_as())).then(|| unmet(Check::Tools, &[]));
        let hidden = tool.lacks_role(caller).then(|| unmet(Check::Roles, &tool.roles[..]));
        let scopes: Vec<_> = caller.scopes.missing_for(tool.admitted_as()).collect();
        // A caller without a token gets one by signing in.
        let requires_auth = tool.requires_auth || !scopes.is_empty();
        let unknown = (requires_auth && caller.anonymous).then(|| unmet(Check::RequiresAuth, &[]));
        let unfit = tool.dangerous && !caller.has_one_of(&self.dangerous_roles);
        let unfit = unfit.then(|| unmet(Check::Dangerous, &self.dangerous_roles[..]));
        let narrow = !scopes.is_empty() && !caller.anonymous;
        let narrow = narrow.then(|| Unmet { scopes, ..unmet(Check::Scopes, &[]) });
        [foreign, off, left_out, hidden, unknown, unfit, narrow].into_iter().flatten()
    }

    /// Whether the scopes of the caller's token are all that it lacks for the tool.
    pub(super) fn needs_only_scopes(&self, tool: &Metadata, caller: &Caller) -> bool {
        let mut unmet = self.unmet(tool, caller);
        unmet.next().is_some_and(|first| first.check == Check::Scopes) && unmet.next().is_none()
    }

    /// The refusal of a call, by the first check that the caller does not pass, with all of them as its details.
    /// Errors: `unauthenticated` or `denied`.
    pub(super) fn pass(&self, tool: &Metadata, caller: &Caller) -> Result<(), CallError> {
        let Some(first) = self.unmet(tool, caller).next() else { return Ok(()) };
        let details: Vec<_> = self.unmet(tool, caller).map(|unmet| unmet.detail()).collect();
        let message = details.iter().map(|detail| &*detail.message).collect::<Vec<_>>().join("; ");
        let error = CallError::new(first.code(), message).with_details(details);
        Err(match self.needs_only_scopes(tool, caller) {
            true => error.needing_scopes(caller.scopes.to_ask_for(&tool.name)),
            false => error,
        })
    }
}

sekisho_core::as_str!(Check);

impl Unmet<'_> {
    fn code(&self) -> ErrorCode {
        match self.check {
            Check::RequiresAuth => ErrorCode::Unauthenticated,
            Check::Tenant | Check::Source | Check::Tools | Check::Roles | Check::Dangerous | Check::Scopes => {
                ErrorCode::Denied
            }
        }
    }

    /// The requirement of the check, as the object of "needs".
    pub(super) fn need(&self) -> String {
        match (self.check, self.roles) {
            (Check::Tenant, _) => "a caller of its tenant".to_owned(),
            (Check::Source, _) => "its source switched on".to_owned(),
            (Check::Tools, _) => "a key and an endpoint that include it".to_owned(),
            (Check::RequiresAuth, _) => "a signed-in caller".to_owned(),
            (Check::Scopes, _) => format!("a token with the scope {}", self.scopes.join(" ")),
            (Check::Roles | Check::Dangerous, [role]) => format!("the role {role}"),
            (Check::Roles | Check::Dangerous, roles) => format!("one of the roles {}", roles.join(", ")),
        }
    }

    /// The message for the caller.
    pub(super) fn message(&self) -> String {
        let (tool, roles) = (self.tool, self.roles);
        match (self.check, roles) {
            (Check::Tenant, _) => format!("{tool} is of another tenant"),
            (Check::Source, _) => {
                format!("the source of {tool} is not switched on for you: ask for it in the catalogue")
            }
            (Check::Tools, _) => format!("{tool} is not among the tools of this key, or of this endpoint"),
            (Check::RequiresAuth, _) => format!("{tool} needs a signed-in caller: send an API key or a token"),
            (Check::Scopes, _) => {
                format!("{tool} needs a token with the scope {}: sign in again, and ask for it", self.scopes.join(" "))
            }
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
