//! The plans that this process runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The abort token of each run, by the id of its plan and a number: a plan that is continued may run again while the last events
/// of its run before are still read.
#[derive(Default)]
pub(super) struct RunningPlans {
    runs: Mutex<BTreeMap<(Arc<str>, u64), CancellationToken>>,
    last: AtomicU64,
}

/// A run of a plan, until it is dropped. It is there before the store says that the plan runs, and until the store has the end: a
/// plan that runs by the store, and not here, is interrupted.
pub(super) struct RunningPlan {
    plans: Arc<RunningPlans>,
    key: (Arc<str>, u64),
}

impl RunningPlans {
    pub(super) fn begin(self: &Arc<Self>, id: &Arc<str>, abort: &CancellationToken) -> RunningPlan {
        let key = (Arc::clone(id), self.last.fetch_add(1, Ordering::Relaxed));
        self.runs.lock().insert(key.clone(), abort.clone());
        RunningPlan { plans: Arc::clone(self), key }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        !self.runs_of(id).is_empty()
    }

    pub(super) fn abort(&self, id: &str) {
        self.runs_of(id).iter().for_each(CancellationToken::cancel);
    }

    /// The ids of all.
    pub(super) fn ids(&self) -> BTreeSet<Arc<str>> {
        self.runs.lock().keys().map(|(id, _)| Arc::clone(id)).collect()
    }

    fn runs_of(&self, id: &str) -> Vec<CancellationToken> {
        let id: Arc<str> = id.into();
        let of_plan = (Arc::clone(&id), 0)..=(id, u64::MAX);
        self.runs.lock().range(of_plan).map(|(_, abort)| abort.clone()).collect()
    }
}

impl Drop for RunningPlan {
    fn drop(&mut self) {
        self.plans.runs.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_runs_until_the_last_of_its_runs_is_over() {
        let (plans, id, abort) = (Arc::new(RunningPlans::default()), Arc::<str>::from("b"), CancellationToken::new());
        let others = ["a", "ba", "c"].map(|id| plans.begin(&Arc::<str>::from(id), &CancellationToken::new()));
        let (first, second) = (plans.begin(&id, &CancellationToken::new()), plans.begin(&id, &abort));
        drop(first);
        assert!(plans.has("b") && plans.ids().contains("b"));
        plans.abort("b");
        assert!(abort.is_cancelled());
        drop(second);
        assert!(!plans.has("b") && plans.has("ba") && plans.ids().len() == others.len());
    }
}
