//! What may be somebody's id, tenant and roles, whether an operator or an issuer says so.

use std::sync::Arc;

use crate::core::call::Caller;

/// Longest id, tenant or role, in bytes: they are keys of limits, budgets and sessions.
const LONGEST: usize = 256;

/// # Errors
/// What is wrong with the caller, beginning with the name of the part.
pub(super) fn checked(caller: Caller) -> Result<Arc<Caller>, &'static str> {
    let Caller { id, tenant, .. } = &caller;
    let anonymous = Caller::anonymous();
    if !is_name(id) {
        Err("the caller's id is empty, longer than 256 bytes, or has control characters in it")
    } else if !is_name(tenant) {
        Err("the caller's tenant is empty, longer than 256 bytes, or has control characters in it")
    } else if !caller.roles.iter().all(|role| is_name(role)) {
        Err("the caller's roles include one that is empty, longer than 256 bytes, or has control characters in it")
    } else if (id, tenant) == (&anonymous.id, &anonymous.tenant) {
        // Otherwise policies and the audit trail would take it for callers without credentials.
        Err("the caller's id `anonymous` in the tenant `public` is for callers without credentials")
    } else {
        Ok(Arc::new(caller))
    }
}

/// Control characters are out since [`Caller::key`] joins its parts with one.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control)
}
