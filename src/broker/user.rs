//! Who signed in: the claims of an ID token as the tenant and the roles of a caller.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{OAuthError, OAuthErrorCode};
use super::preset::roles_claim;
use sekisho_config::BrokerConfig;
use sekisho_core::visible_text::is_hidden;

/// Longest name by which a user is listed.
const MAX_LOGIN: usize = 200;

/// A user whom the provider signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) subject: String,
    pub(crate) tenant: String,
    pub(crate) roles: Vec<String>,
    /// The name by which administrators know it.
    pub(crate) login: String,
}

impl User {
    /// Errors: `access_denied`: the rules of the configuration let this user not in.
    pub(crate) fn of(claims: &Map<String, Value>, config: &BrokerConfig) -> Result<Self, OAuthError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let denied = |why: &str| OAuthError::new(OAuthErrorCode::AccessDenied, why);
        let subject = text("sub").ok_or_else(|| denied("the ID token names no user (`sub`)"))?;
        let claim = roles_claim(config);
        // At many providers a user writes any address; one that was verified is the user's.
        let is_own = claim != "email" || claims.get("email_verified") == Some(&Value::Bool(true));
        let held = if is_own { values(claims, claim) } else { Vec::new() };
        let given: Vec<_> = config.roles.iter().filter(|(value, _)| held.contains(&value.as_str())).collect();
        if !config.roles.is_empty() && given.is_empty() && config.default_roles.is_empty() {
            let why = "no rule of this gateway lets you in: ask its operators, whose rules are in `auth.broker.roles`";
            return Err(denied(why));
        }
        let mut roles = config.default_roles.clone();
        roles.extend(given.into_iter().flat_map(|(_, roles)| roles.iter().cloned()));
        roles.sort_unstable();
        roles.dedup();
        let login = ["preferred_username", "email", "upn", "name"].into_iter().find_map(text).unwrap_or(subject);
        let login = login.chars().filter(|c| !c.is_control() && !is_hidden(*c)).take(MAX_LOGIN).collect();
        Ok(Self { subject: subject.to_owned(), tenant: config.tenant.clone(), roles, login })
    }
}

/// The texts of a claim. A name with dots names a member of a claim, where no claim has the whole name.
fn values<'a>(claims: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    let claim = claims.get(name).or_else(|| {
        let mut parts = name.split('.');
        let first = claims.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    });
    match claim {
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
