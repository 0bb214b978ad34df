//! The degraded components, by name, for `/readyz`: the service continues, and reports them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Shared by everything that can be degraded.
#[derive(Debug, Default)]
pub struct Readiness {
    degraded: Mutex<BTreeMap<String, String>>,
}

impl Readiness {
    /// `component` is degraded, and why; replaces an earlier reason.
    pub fn degrade(&self, component: &str, reason: impl Into<String>) {
        let reason = reason.into();
        if self.degraded.lock().insert(component.to_owned(), reason.clone()).as_ref() != Some(&reason) {
            tracing::warn!(component, reason, "a component is degraded");
        }
    }

    /// `component` works again.
    pub fn restore(&self, component: &str) {
        if self.degraded.lock().remove(component).is_some() {
            tracing::info!(component, "a component works again");
        }
    }

    /// Removes `component`.
    pub fn forget(&self, component: &str) {
        self.degraded.lock().remove(component);
    }

    /// Component → reason, empty when all is well.
    pub fn degraded(&self) -> BTreeMap<String, String> {
        self.degraded.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_named_until_it_works_again() {
        let readiness = Readiness::default();
        readiness.degrade("policy", "broken at line 3");
        assert_eq!(readiness.degraded()["policy"], "broken at line 3");
        readiness.restore("policy");
        assert!(readiness.degraded().is_empty());
        readiness.degrade("mcp:gone", "it does not answer");
        readiness.forget("mcp:gone");
        assert!(readiness.degraded().is_empty());
    }
}
