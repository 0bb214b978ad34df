//! Who administers keys, and the keys that they may give.

use jiff::Timestamp;

use super::{Keys, MAX_ENTRIES, MAX_TEXT};
use sekisho_auth::check_identity;
use sekisho_core::call::Caller;
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::visible_text::is_visible;
use sekisho_store::NewManagedKey;

/// The administrator of keys, and the rights that it may give.
#[derive(Debug, Clone, Copy)]
pub struct KeyAdministrator<'a> {
    pub caller: &'a Caller,
    /// Anyone who can open the Unix socket may name any caller, and so give any rights.
    pub over_socket: bool,
}

/// The rights of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyRights<'a> {
    pub(super) tenant: &'a str,
    pub(super) roles: &'a [String],
    pub(super) tools: Option<&'a [String]>,
    pub(super) expires: Option<Timestamp>,
}

impl KeyAdministrator<'_> {
    /// The creators of a key of this person, once this administrator has a token of it. The administrator may be any of
    /// the persons as whom it counts. Over the socket it counts as nobody: anyone who can open the socket may change
    /// the configuration's keys too.
    /// Errors: `invalid_request`: they are too many.
    pub(super) fn creators_with(self, person: &str, creators: &[String]) -> Result<Vec<String>, CallError> {
        let mut creators = creators.to_vec();
        for creator in self.caller.persons().filter(|creator| !self.over_socket && *creator != person) {
            if !creators.iter().any(|known| known == creator) {
                creators.push(creator.to_owned());
            }
        }
        if creators.len() <= MAX_ENTRIES {
            return Ok(creators);
        }
        let message = format!(
            "more than {MAX_ENTRIES} persons would have had a token of this key, or of those by which it was made; create another \
             one with a key of the configuration"
        );
        Err(CallError::invalid(message))
    }
}

impl Keys {
    /// The tenant to which the administrator is limited.
    pub(super) fn tenant_of(by: KeyAdministrator<'_>) -> Option<&str> {
        match by.over_socket || by.caller.administers_shared() {
            true => None,
            false => Some(&by.caller.tenant),
        }
    }

    /// Nobody gives a key more than they have.
    pub(super) fn check_rights(&self, by: KeyAdministrator<'_>, rights: KeyRights<'_>) -> Result<(), CallError> {
        let caller = by.caller;
        if let Some(tenant) = Self::tenant_of(by).filter(|tenant| *tenant != rights.tenant) {
            return Err(denied(format!("you may give keys of your own tenant alone, {tenant:?}")));
        }
        let lacking = rights.roles.iter().find(|role| !by.over_socket && !caller.has_role(role));
        if let Some(role) = lacking {
            return Err(denied(format!("you may not give the role {role:?}, which you do not have")));
        }
        if !caller.tools.covers(rights.tools) {
            let message =
                "you may not give tools that your own key leaves out; name in `tools` some of those that it has";
            return Err(denied(message));
        }
        if !caller.scopes.covers(rights.tools) {
            let message =
                "you may not give tools that need a scope which your token lacks; name in `tools` some that do not";
            return Err(denied(message));
        }
        let own = caller.key_id.as_ref().and_then(|id| self.managed.get(id)).and_then(|key| key.expires);
        match own {
            Some(own) if rights.expires.is_none_or(|expires| expires > own) => {
                Err(denied(format!("a key may not be valid for longer than your own, which expires at {own}")))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn check_form(key: &NewManagedKey, now: DatabaseTime) -> Result<(), CallError> {
    check_identity(&key.person, &key.tenant, &key.roles).map_err(CallError::invalid)?;
    if key.description.len() > MAX_TEXT || !is_visible(&key.description) {
        return Err(CallError::invalid(format!(
            "`description` has control or invisible characters, or more than {MAX_TEXT} bytes"
        )));
    }
    let tools = key.tools.as_deref().unwrap_or_default();
    if key.roles.len() > MAX_ENTRIES || tools.len() > MAX_ENTRIES {
        return Err(CallError::invalid(format!(
            "a key has at most {MAX_ENTRIES} roles, and as many patterns of tools"
        )));
    }
    let is_pattern = |pattern: &str| {
        let beginning = pattern.strip_suffix('*').unwrap_or(pattern);
        !pattern.is_empty() && pattern.len() <= MAX_TEXT && !beginning.contains(|c: char| c == '*' || c.is_control())
    };
    if let Some(pattern) = tools.iter().find(|pattern| !is_pattern(pattern)) {
        return Err(CallError::invalid(format!(
            "{pattern:?} is no pattern of tools: write a name, whose final `*` matches any rest"
        )));
    }
    match key.expires {
        Some(expires) if expires <= *now => Err(CallError::invalid("`expires_at` must be in the future")),
        _ => Ok(()),
    }
}

fn denied(message: impl Into<String>) -> CallError {
    CallError::new(ErrorCode::Denied, message)
}
