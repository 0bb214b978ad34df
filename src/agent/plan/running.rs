//! The plans that this process runs.

use std::collections::BTreeMap;
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

/// A run of a plan, until it is dropped. It is there before the store says that the plan runs, and until the store has the end.
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

    pub(super) fn abort(&self, id: &str) {
        self.runs_of(id).iter().for_each(CancellationToken::cancel);
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
        plans.abort("b");
        assert!(abort.is_cancelled());
        drop(second);
        let left: Vec<_> = plans.runs.lock().keys().map(|(id, _)| Arc::clone(id)).collect();
        assert_eq!(left, ["a", "ba", "c"].map(Arc::<str>::from));
        assert!(plans.runs_of("a").iter().all(|other| !other.is_cancelled()));
        drop(others);
    }
}
