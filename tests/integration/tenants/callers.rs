//! Who asks, and who has things beside them.

/// A caller; the key is empty for one without credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub id: &'static str,
    pub key: &'static str,
    pub tenant: &'static str,
    pub roles: &'static str,
    /// Has a role of the console.
    pub signs_in: bool,
}

impl Caller {
    const fn of(id: &'static str, key: &'static str, tenant: &'static str, roles: &'static str) -> Self {
        Self { id, key, tenant, roles, signs_in: !roles.is_empty() }
    }

    /// What this caller writes into its things.
    pub(super) fn secret(&self) -> String {
        format!("secret-of-{}", self.id)
    }
}

pub(super) const ANN: Caller = Caller::of("ann", "key-of-ann", "acme", "");
pub(super) const ADA: Caller = Caller::of("ada", "key-of-ada", "acme", "admin");
pub(super) const ROOT: Caller = Caller::of("root", "key-of-root", "default", "admin, approver");

/// In the order of the matrix's columns.
pub(super) const CALLERS: [Caller; 7] = [
    Caller::of("nobody", "", "", ""),
    ANN,
    Caller::of("vic", "key-of-vic", "acme", "support"),
    Caller::of("pat", "key-of-pat", "acme", "approver"),
    Caller::of("ola", "key-of-ola", "acme", "on-call"),
    ADA,
    ROOT,
];

/// The administrator of the other tenant.
pub(super) const GIL: Caller = Caller::of("gil", "key-of-gil", "globex", "admin");

/// The owners of what is of the tenant, and of what is another tenant's.
pub(super) const MAX: Caller = Caller::of("max", "key-of-max", "acme", "");
pub(super) const EVE: Caller = Caller::of("eve", "key-of-eve", "globex", "");
