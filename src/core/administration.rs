//! Who may change what: administrators what is of their tenant, those of the tenant `default` what all tenants share too.

use super::caller::{Caller, DEFAULT_TENANT};
use super::error::{CallError, ErrorCode};

/// The role of administrators.
const ADMINISTRATOR: &str = "admin";

/// Proof that a caller may change what all tenants share: servers, collections, models, skills, the lock of tools, the records of
/// tenants with their budgets, and the configuration. Whatever changes one of these takes it, so that no route, form or command
/// can leave the check out; [`of`](Self::of) alone makes it.
#[derive(Debug, Clone, Copy)]
pub struct SharedAdministrator(());

impl SharedAdministrator {
    /// # Errors
    /// `denied` for all but administrators of the tenant `default`.
    pub fn of(caller: &Caller) -> Result<Self, CallError> {
        if caller.administers_shared() {
            return Ok(Self(()));
        }
        let message = match caller.administers(&caller.tenant) {
            true => format!(
                "this is about what all tenants share: it requires the role `{ADMINISTRATOR}` in the tenant `{DEFAULT_TENANT}`, and \
                 your key has it in the tenant {:?} alone; ask an administrator of the gateway",
                caller.tenant
            ),
            false => format!(
                "this requires the role `{ADMINISTRATOR}` in the tenant `{DEFAULT_TENANT}`; use a key that has it"
            ),
        };
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// That of tests of what is changed.
    #[cfg(test)]
    pub(crate) const fn of_tests() -> Self {
        Self(())
    }
}

impl Caller {
    /// Whether this is an administrator of the tenant: of the own one, or of the tenant `default`, who are administrators of all.
    pub fn administers(&self, tenant: &str) -> bool {
        self.has_role(ADMINISTRATOR) && (*self.tenant == *tenant || self.is_of_default())
    }

    /// Whether this is an administrator of what all tenants share.
    pub fn administers_shared(&self) -> bool {
        self.has_role(ADMINISTRATOR) && self.is_of_default()
    }

    /// Whether this caller is of the tenant `default`, whose operators and administrators see what is of all tenants.
    pub fn is_of_default(&self) -> bool {
        *self.tenant == *DEFAULT_TENANT
    }

    /// Requires that this is an administrator of the own tenant.
    ///
    /// # Errors
    /// `denied`.
    pub fn require_administrator(&self) -> Result<(), CallError> {
        if self.administers(&self.tenant) {
            return Ok(());
        }
        let message = format!("this requires the role `{ADMINISTRATOR}`; use a key that has it");
        Err(CallError::new(ErrorCode::Denied, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrators_administer_their_tenant_and_those_of_default_all() {
        let caller = |tenant: &str, roles: &[&str]| {
            Caller::new("ann", tenant, roles.iter().map(|role| (*role).to_owned()).collect())
        };
        for (caller, of_acme, of_default, of_shared) in [
            (caller("default", &["admin"]), true, true, true),
            (caller("acme", &["admin", "operator"]), true, false, false),
            (caller("other", &["admin"]), false, false, false),
            (caller("default", &["operator", "Admin"]), false, false, false),
            (caller("acme", &[]), false, false, false),
            (Caller::anonymous(), false, false, false),
        ] {
            assert_eq!(caller.administers("acme"), of_acme, "{caller:?}");
            assert_eq!(caller.administers("default"), of_default, "{caller:?}");
            assert_eq!(caller.administers_shared(), of_shared, "{caller:?}");
            let proof = SharedAdministrator::of(&caller).map(drop).map_err(|error| error.code());
            assert_eq!(proof, if of_shared { Ok(()) } else { Err(ErrorCode::Denied) }, "{caller:?}");
            assert_eq!(caller.require_administrator().is_ok(), caller.has_role("admin"), "{caller:?}");
        }
        let refused = SharedAdministrator::of(&caller("acme", &["admin"])).unwrap_err();
        assert!(
            refused.message().contains("the tenant `default`") && refused.message().contains("\"acme\""),
            "{refused}"
        );
    }
}
