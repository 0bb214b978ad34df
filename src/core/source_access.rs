//! Sources of tools that callers get on request: for whom each is switched on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;

use super::caller::Caller;

/// For whom a source is switched on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Beneficiary {
    /// A user with all of its keys, by [`Caller::key`].
    User(Arc<str>),
    /// One managed key, by its id.
    Key(Arc<str>),
    Tenant(Arc<str>),
}

/// The sources that are switched on, by their names (`mcp:SERVER`), for whom. A change counts at once wherever this is asked. A
/// source that is not in it is off.
#[derive(Debug, Default)]
pub struct SwitchedSources(RwLock<HashMap<String, HashSet<Beneficiary>>>);

/// The mark of a tool whose source is on request. Two are equal if they ask the same switches.
#[derive(Debug, Clone)]
pub struct OnRequest(pub Arc<SwitchedSources>);

impl SwitchedSources {
    /// Returns whether these are others than before.
    pub fn replace(&self, switched: HashMap<String, HashSet<Beneficiary>>) -> bool {
        let mut current = self.0.write();
        let is_other = *current != switched;
        *current = switched;
        is_other
    }

    /// Whether the source is switched on for this caller. For callers without credentials none is.
    pub fn admits(&self, source: &str, caller: &Caller) -> bool {
        let switched = self.0.read();
        let Some(admitted) = switched.get(source).filter(|_| !caller.anonymous) else { return false };
        let key = caller.key_id.iter().map(|id| Beneficiary::Key(Arc::clone(id)));
        let whole = [Beneficiary::User(Arc::clone(&caller.key)), Beneficiary::Tenant(Arc::clone(&caller.tenant))];
        whole.into_iter().chain(key).any(|one| admitted.contains(&one))
    }

    /// Whether somebody has the source.
    pub fn is_in_use(&self, source: &str) -> bool {
        self.0.read().get(source).is_some_and(|admitted| !admitted.is_empty())
    }
}

impl PartialEq for OnRequest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnRequest {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_on_for_the_user_the_key_or_the_tenant_and_for_nobody_else() {
        let ann = Caller::new("ann", "acme", Vec::new());
        let by_key = |id: &str| Caller { key_id: Some(id.into()), ..ann.clone() };
        let (bob, elsewhere) = (Caller::new("bob", "acme", Vec::new()), Caller::new("ann", "globex", Vec::new()));
        let anonymous = Caller { anonymous: true, ..ann.clone() };
        for (beneficiary, expected) in [
            (Beneficiary::User(Arc::clone(&ann.key)), [true, true, true, false, false, false]),
            (Beneficiary::Key("k1".into()), [false, true, false, false, false, false]),
            (Beneficiary::Tenant("acme".into()), [true, true, true, true, false, false]),
        ] {
            let switched = SwitchedSources::default();
            let callers = [&ann, &by_key("k1"), &by_key("k2"), &bob, &elsewhere, &anonymous];
            assert!(!callers.iter().any(|caller| switched.admits("mcp:git", caller)), "it is off at first");
            let admitted = HashSet::from([beneficiary.clone()]);
            switched.replace(HashMap::from([("mcp:git".to_owned(), admitted)]));
            assert_eq!(callers.map(|caller| switched.admits("mcp:git", caller)), expected, "{beneficiary:?}");
            assert!(!switched.admits("mcp:time", &ann), "another source stays off");
            assert_eq!(["mcp:git", "mcp:time"].map(|source| switched.is_in_use(source)), [true, false]);
            switched.replace(HashMap::new());
            assert!(!callers.iter().any(|caller| switched.admits("mcp:git", caller)), "it is taken away at once");
        }
    }
}
