//! The protocols by which replicas share budgets, work and approvals, as models of which each state within bounds is visited
//! (`docs/replicas.md`). A variant with a mistake must lead to a state that breaks the property that its table names.

mod approval;
mod budget;
mod replicas;
mod work;

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

use self::approval::Approval;
use self::budget::Budget;
use self::work::Work;

/// Replicas of each model.
const REPLICAS: usize = 3;

const THREADS: usize = 2;

/// Visits all states; the number of different ones.
fn check_all<M>(model: M) -> usize
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    let broken = checker.discoveries().into_iter().map(|(property, path)| (property, path.into_actions()));
    let broken: Vec<_> = broken.collect();
    assert!(broken.is_empty(), "{broken:#?}");
    checker.unique_state_count()
}

/// Actions that lead to a state that breaks the property; depth first, which finds one of many at once.
fn counterexample<M>(model: M, property: &'static str) -> Option<Vec<M::Action>>
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
        + Send
        + Sync
        + 'static,
{
    let until = HasDiscoveries::AllOf([property].into());
    let checker = model.checker().threads(THREADS).finish_when(until).spawn_dfs().join();
    checker.discovery(property).map(stateright::Path::into_actions)
}

#[test]
fn budgets_are_never_overspent_and_always_freed() {
    println!("{:?} states", budget::ALL.map(check_all));
}

#[test]
fn a_thing_has_one_holder_and_is_always_freed() {
    println!("{:?} states", work::ALL.map(check_all));
}

#[test]
fn an_approval_is_used_once_and_always_ends() {
    println!("{:?} states", approval::ALL.map(check_all));
}

#[test]
fn each_mistake_about_budgets_is_found() {
    for (mistake, budget, property) in budget::MISTAKES {
        let found = counterexample(Budget { mistake: Some(mistake), ..budget }, property);
        assert!(found.is_some(), "{mistake:?} breaks no property");
    }
}

#[test]
fn each_mistake_about_work_is_found() {
    for (mistake, work, property) in work::MISTAKES {
        let found = counterexample(Work { mistake: Some(mistake), ..work }, property);
        assert!(found.is_some(), "{mistake:?} breaks no property");
    }
}

#[test]
fn each_mistake_about_approvals_is_found() {
    for (mistake, approval, property) in approval::MISTAKES {
        let found = counterexample(Approval { mistake: Some(mistake), ..approval }, property);
        assert!(found.is_some(), "{mistake:?} breaks no property");
    }
}
