//! The identity of a caller.

use std::sync::Arc;

/// The caller. Created by `auth` alone (and by tests).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub id: Arc<str>,
    pub tenant: Arc<str>,
    pub roles: Vec<String>,
    pub anonymous: bool,
    /// Tenant and identity in one string: the key of everything a caller owns.
    pub key: Arc<str>,
}

/// Separates the parts of [`Caller::key`]. It is a control character (unit separator), which `auth` refuses in ids,
/// tenants and issuers, so two callers never share a key.
const KEY_SEPARATOR: char = '\u{1f}';

impl Caller {
    /// A caller with an id of ours, such as an API key's. Stored data is found by this key.
    pub fn new(id: &str, tenant: &str, roles: Vec<String>) -> Self {
        let key = format!("{tenant}{KEY_SEPARATOR}{id}").into();
        Self { id: id.into(), tenant: tenant.into(), roles, anonymous: false, key }
    }

    /// A caller identified by an issuer: different from a caller with the same id of ours. The issuer's length marks
    /// its end, whatever characters it contains.
    pub fn of_issuer(issuer: &str, subject: &str, tenant: &str, roles: Vec<String>) -> Self {
        let length = issuer.len();
        let key = format!("{tenant}{KEY_SEPARATOR}{length}{KEY_SEPARATOR}{issuer}#{subject}").into();
        Self { key, ..Self::new(subject, tenant, roles) }
    }

    /// The caller without credentials: no roles, tenant `public`.
    pub fn anonymous() -> Self {
        Self { anonymous: true, ..Self::new("anonymous", "public", Vec::new()) }
    }

    /// The identity within the tenant: the id, and for a token its issuer too.
    pub fn identity(&self) -> &str {
        self.key.get(self.tenant.len() + KEY_SEPARATOR.len_utf8()..).unwrap_or(&self.key)
    }

    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|held| held == role)
    }

    pub fn has_one_of(&self, roles: &[String]) -> bool {
        roles.iter().any(|role| self.has_role(role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_callers_share_a_key_and_stored_keys_are_unchanged() {
        let key = |id: &str, tenant: &str| Caller::new(id, tenant, Vec::new());
        let token = |issuer: &str, id: &str, tenant: &str| Caller::of_issuer(issuer, id, tenant, Vec::new());
        // The keys in existing state directories.
        assert_eq!(&*key("ann", "acme").key, "acme\u{1f}ann");
        assert_eq!(&*Caller::anonymous().key, "public\u{1f}anonymous");
        assert!(token("https://i.example", "ann", "acme").key.ends_with("https://i.example#ann"));
        assert_eq!(&*token("https://i.example", "ann", "acme").id, "ann");
        let callers = [
            key("ann", "acme"),
            key("https://i.example#ann", "acme"),
            key("17 https://i.example#ann", "acme"),
            key("anonymous", "acme"),
            Caller::anonymous(),
            token("https://i.example", "ann", "acme"),
            token("https://i.example", "ann", "other"),
            token("https://i.example#a", "b", "acme"),
            token("https://i.example", "a#b", "acme"),
            token("", "https://i.example#ann", "acme"),
        ];
        for (index, caller) in callers.iter().enumerate() {
            assert_eq!(*caller.key, format!("{}\u{1f}{}", caller.tenant, caller.identity()));
            for other in &callers[index + 1..] {
                assert_ne!(caller.key, other.key);
            }
        }
    }
}
