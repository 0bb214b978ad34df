//! Who may change configuration and data. Administrators may change the data of their own tenant; administrators of the
//! tenant `default` also shared data and the data of every tenant.

use std::sync::Arc;

use super::caller::{Caller, DEFAULT_TENANT};
use super::error::{CallError, ErrorCode};

/// The role of administrators.
const ADMINISTRATOR: &str = "admin";

/// Whose a registration, a model or a skill is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// All tenants use it: it is in the configuration, or an administrator of the tenant `default` registered it.
    #[default]
    Shared,
    /// Of one tenant. Other tenants do not see it.
    Tenant(Arc<str>),
}

/// Proof that a caller may change data that has an owner. Every function that changes such data takes a proof and
/// changes only data of its [`owner`](Self::owner), so that no route, form or command can leave the check out.
pub trait AdministratorProof: Sized + Send + Sync + 'static {
    /// For data that the caller adds.
    /// Errors: `denied`.
    fn of(caller: &Caller) -> Result<Self, CallError>;

    /// For existing data of this owner.
    /// Errors: `denied`.
    fn for_owner(caller: &Caller, owner: &Ownership) -> Result<Self, CallError>;

    /// The owner whose data may be changed.
    fn owner(&self) -> &Ownership;
}

/// Proof for servers, collections, models and skills. An administrator of the tenant `default` adds shared ones; an
/// administrator of another tenant adds ones of that tenant.
#[derive(Debug, Clone)]
pub struct Administrator(Ownership);

/// Proof for data without a tenant: the lock of tools, the records of tenants with their budgets, and the
/// configuration.
#[derive(Debug, Clone, Copy)]
pub struct SharedAdministrator(());

impl Ownership {
    /// The owner of data that this caller adds.
    fn of_additions_by(caller: &Caller) -> Self {
        if caller.is_of_default() { Self::Shared } else { Self::Tenant(Arc::clone(&caller.tenant)) }
    }

    /// Whether callers of this tenant see it.
    pub fn is_visible_to(&self, tenant: &str) -> bool {
        self.tenant().is_none_or(|owner| owner == tenant)
    }

    pub fn is_shared(&self) -> bool {
        *self == Self::Shared
    }

    /// The one tenant that has it.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::Shared => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }
}

impl From<Option<String>> for Ownership {
    fn from(tenant: Option<String>) -> Self {
        tenant.map_or(Self::Shared, |tenant| Self::Tenant(tenant.into()))
    }
}

impl AdministratorProof for Administrator {
    fn of(caller: &Caller) -> Result<Self, CallError> {
        caller.require_administrator()?;
        Ok(Self(Ownership::of_additions_by(caller)))
    }

    fn for_owner(caller: &Caller, owner: &Ownership) -> Result<Self, CallError> {
        match owner.tenant() {
            None => SharedAdministrator::of(caller).map(drop)?,
            Some(tenant) if caller.administers(tenant) => {}
            // Data of another tenant is not shown to the caller: the error must not tell which tenant has it.
            Some(_) => return Err(lacks_role()),
        }
        Ok(Self(owner.clone()))
    }

    fn owner(&self) -> &Ownership {
        &self.0
    }
}

impl AdministratorProof for SharedAdministrator {
    fn of(caller: &Caller) -> Result<Self, CallError> {
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

    fn for_owner(caller: &Caller, _owner: &Ownership) -> Result<Self, CallError> {
        Self::of(caller)
    }

    fn owner(&self) -> &Ownership {
        &Ownership::Shared
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Administrator {
    /// A proof for tests of changes to data of this owner.
    pub const fn of_tests(owner: Ownership) -> Self {
        Self(owner)
    }
}

#[cfg(any(test, feature = "test-support"))]
impl SharedAdministrator {
    /// A proof for tests of changes.
    pub const fn of_tests() -> Self {
        Self(())
    }
}

impl Caller {
    /// Whether this is an administrator of the tenant: of the own one, or of the tenant `default`, whose administrators
    /// administer all.
    pub fn administers(&self, tenant: &str) -> bool {
        self.has_role(ADMINISTRATOR) && (*self.tenant == *tenant || self.is_of_default())
    }

    /// Whether this is an administrator of the data that all tenants share.
    pub fn administers_shared(&self) -> bool {
        self.has_role(ADMINISTRATOR) && self.is_of_default()
    }

    /// Whether this caller is of the tenant `default`, whose operators and administrators see the data of all tenants.
    pub fn is_of_default(&self) -> bool {
        *self.tenant == *DEFAULT_TENANT
    }

    /// Requires that this is an administrator of the own tenant.
    /// Errors: `denied`.
    pub fn require_administrator(&self) -> Result<(), CallError> {
        if self.administers(&self.tenant) { Ok(()) } else { Err(lacks_role()) }
    }
}

fn lacks_role() -> CallError {
    let message = format!("this requires the role `{ADMINISTRATOR}`; use a key that has it");
    CallError::new(ErrorCode::Denied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(tenant: &str, roles: &[&str]) -> Caller {
        Caller::new("ann", tenant, roles.iter().map(|role| (*role).to_owned()).collect())
    }

    #[test]
    fn administrators_administer_their_tenant_and_those_of_default_all() {
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

    #[test]
    fn what_an_administrator_adds_is_of_its_tenant_and_of_default_shared() {
        let added = |caller: &Caller| Administrator::of(caller).ok().map(|proof| proof.owner().clone());
        assert_eq!(added(&caller("default", &["admin"])), Some(Ownership::Shared));
        assert_eq!(added(&caller("acme", &["admin"])), Some(Ownership::Tenant("acme".into())));
        assert_eq!(added(&caller("acme", &["operator"])), None);
        assert_eq!(added(&caller("default", &[])), None);
    }

    #[test]
    fn what_a_tenant_has_is_changed_by_its_administrators_and_those_of_default() {
        let acme = Ownership::Tenant("acme".into());
        for (caller, changes_shared, changes_acme) in [
            (caller("default", &["admin"]), true, true),
            (caller("acme", &["admin"]), false, true),
            (caller("other", &["admin"]), false, false),
            (caller("acme", &["operator"]), false, false),
        ] {
            let proofs = [&Ownership::Shared, &acme].map(|owner| Administrator::for_owner(&caller, owner));
            assert_eq!(proofs.each_ref().map(Result::is_ok), [changes_shared, changes_acme], "{caller:?}");
            for (proof, owner) in proofs.into_iter().zip([&Ownership::Shared, &acme]) {
                assert!(
                    proof.as_ref().ok().is_none_or(|proof| proof.owner() == owner),
                    "a proof is for the owner that was checked"
                );
            }
        }
        let refused = Administrator::for_owner(&caller("other", &["admin"]), &acme).unwrap_err();
        assert!(!refused.message().contains("acme"), "{refused}");
    }

    #[test]
    fn what_is_of_a_tenant_is_visible_to_it_alone() {
        let acme = Ownership::Tenant("acme".into());
        assert!(acme.is_visible_to("acme") && !acme.is_visible_to("other") && !acme.is_visible_to("default"));
        assert!(Ownership::Shared.is_visible_to("acme") && Ownership::from(None).is_shared());
        assert_eq!(Ownership::from(Some("acme".to_owned())), acme);
    }
}
