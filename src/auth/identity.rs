//! Valid ids, tenants and roles, for operators and issuers alike.

use std::sync::Arc;

use sekisho_core::call::Caller;

/// Maximum length of an id, tenant or role, in bytes: they are keys of limits, budgets and sessions.
const LONGEST: usize = 256;

/// Errors: the invalid part, beginning with its name.
pub(super) fn checked(caller: Caller) -> Result<Arc<Caller>, &'static str> {
    let Caller { id, tenant, .. } = &caller;
    let anonymous = Caller::anonymous();
    if !is_name(id) {
        Err("the caller's id is empty, longer than 256 bytes, or contains control characters")
    } else if !is_name(tenant) {
        Err("the caller's tenant is empty, longer than 256 bytes, or contains control characters")
    } else if !caller.roles.iter().all(|role| is_name(role)) {
        Err("the caller's roles include one that is empty, longer than 256 bytes, or contains control characters")
    } else if (id, tenant) == (&anonymous.id, &anonymous.tenant) {
        // Otherwise policies and the audit trail would treat it as a caller without credentials.
        Err("the caller's id `anonymous` in the tenant `public` is reserved for callers without credentials")
    } else {
        Ok(Arc::new(caller))
    }
}

/// Control characters are refused, since [`Caller::key`] joins its parts with one.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control)
}
