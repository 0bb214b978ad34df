//! The degraded components, by name, for `/readyz`: the service continues, and reports them. Some of them refuse every
//! call; then it is not ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use parking_lot::Mutex;

/// Shared by everything that can be degraded.
#[derive(Debug, Default)]
pub struct Readiness {
    components: Mutex<Components>,
}

#[derive(Debug, Default)]
struct Components {
    degraded: BTreeMap<String, Degraded>,
    /// The components without which every call is refused.
    refusing: BTreeSet<String>,
}

#[derive(Debug)]
struct Degraded {
    reason: String,
    since: SystemTime,
}

impl Readiness {
    /// `component` is degraded, and why; replaces an earlier reason.
    pub fn degrade(&self, component: &str, reason: impl Into<String>) {
        let reason = reason.into();
        if self.record(component, &reason) {
            tracing::warn!(component, reason, "a component is degraded");
        }
    }

    /// As [`degrade`](Self::degrade), for a component without which every call is refused.
    pub fn refuse_calls(&self, component: &str, reason: impl Into<String>) {
        self.components.lock().refusing.insert(component.to_owned());
        self.degrade(component, reason);
    }

    /// The gateway is to stop, which is no fault: every call is refused.
    pub fn leave(&self) {
        let (component, reason) = ("shutdown", "the gateway is shutting down");
        self.components.lock().refusing.insert(component.to_owned());
        if self.record(component, reason) {
            tracing::info!("{reason}");
        }
    }

    /// Whether every call is refused.
    pub fn refuses_calls(&self) -> bool {
        !self.components.lock().refusing.is_empty()
    }

    /// `component` works again.
    pub fn restore(&self, component: &str) {
        if self.remove(component) {
            tracing::info!(component, "a component works again");
        }
    }

    /// Removes `component`.
    pub fn forget(&self, component: &str) {
        self.remove(component);
    }

    /// Degrades the parts in `now`. A part that is only in `before` works again, or is removed where it no longer
    /// exists.
    pub fn replace(
        &self,
        before: &BTreeMap<String, String>,
        now: BTreeMap<String, String>,
        is_there: impl Fn(&str) -> bool,
    ) {
        for component in before.keys().filter(|component| !now.contains_key(*component)) {
            match is_there(component) {
                true => self.restore(component),
                false => self.forget(component),
            }
        }
        for (component, reason) in now {
            self.degrade(&component, reason);
        }
    }

    /// Component → reason, empty when all is well.
    pub fn degraded(&self) -> BTreeMap<String, String> {
        let components = self.components.lock();
        components.degraded.iter().map(|(component, degraded)| (component.clone(), degraded.reason.clone())).collect()
    }

    /// Since when `component` has been degraded, whatever its reasons were.
    pub fn degraded_since(&self, component: &str) -> Option<SystemTime> {
        self.components.lock().degraded.get(component).map(|degraded| degraded.since)
    }

    /// Whether there was another reason before, or none.
    fn record(&self, component: &str, reason: &str) -> bool {
        let mut components = self.components.lock();
        let before = components.degraded.get(component);
        let since = before.map_or_else(SystemTime::now, |degraded| degraded.since);
        let is_new = before.is_none_or(|degraded| degraded.reason != reason);
        components.degraded.insert(component.to_owned(), Degraded { reason: reason.to_owned(), since });
        is_new
    }

    fn remove(&self, component: &str) -> bool {
        let mut components = self.components.lock();
        components.refusing.remove(component);
        components.degraded.remove(component).is_some()
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
        let since = readiness.degraded_since("policy");
        readiness.degrade("policy", "broken at line 4");
        assert!(since.is_some() && readiness.degraded_since("policy") == since, "another reason changes no beginning");
        assert!(!readiness.refuses_calls());
        readiness.refuse_calls("audit", "no space left");
        assert!(readiness.refuses_calls() && readiness.degraded()["audit"] == "no space left");
        readiness.restore("policy");
        readiness.restore("audit");
        assert_eq!(readiness.degraded_since("policy"), None);
        assert!(readiness.degraded().is_empty() && !readiness.refuses_calls());
        readiness.degrade("mcp:gone", "it does not answer");
        readiness.forget("mcp:gone");
        assert!(readiness.degraded().is_empty());
    }

    #[test]
    fn what_works_again_or_is_gone_is_not_named() {
        let problems = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "bad".to_owned())).collect();
        let (readiness, before) = (Readiness::default(), problems(&["mended", "gone", "bad"]));
        readiness.replace(&BTreeMap::new(), problems(&["mended", "gone", "bad"]), |_| true);
        readiness.degrade("other", "of somebody else");
        readiness.replace(&before, problems(&["bad", "new"]), |component| component != "gone");
        assert_eq!(readiness.degraded().into_keys().collect::<Vec<_>>(), ["bad", "new", "other"]);
    }
}
