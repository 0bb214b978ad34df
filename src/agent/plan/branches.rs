//! The step after an evaluation: the first branch whose conditions hold.

use super::state::{Node, PlanState, PlanStatus, StepStatus};
use sekisho_config::{Branch, Condition, Move};

/// The result of an evaluation, for the conditions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one condition of a branch")]
pub(super) struct Facts {
    pub(super) passed: bool,
    pub(super) need_replan: bool,
    pub(super) attempts_used_up: bool,
    pub(super) steps_left: bool,
    pub(super) goal_reached: bool,
    pub(super) impossible: bool,
}

impl Facts {
    fn holds(self, condition: Condition) -> bool {
        match condition {
            Condition::Passed => self.passed,
            Condition::Failed => !self.passed,
            Condition::NeedReplan => self.need_replan,
            // Work that is done needs no further attempt.
            Condition::AttemptsUsedUp => self.attempts_used_up && (!self.passed || self.need_replan || self.steps_left),
            Condition::StepsLeft => self.steps_left,
            Condition::GoalReached => self.goal_reached,
            Condition::Impossible => self.impossible,
        }
    }
}

/// The move of the first branch whose conditions all hold. Whatever a file of branches says, a plan makes no more attempts
/// than it may, and finishes where no step is left.
pub(super) fn choose(branches: &[Branch], facts: Facts) -> Move {
    let holds = |branch: &&Branch| branch.when.iter().all(|condition| facts.holds(*condition));
    let chosen = branches.iter().find(holds).map_or(Move::GiveUp, |branch| branch.then);
    match chosen {
        Move::NextStep if !facts.steps_left => Move::Finish,
        Move::NextStep | Move::SameStep | Move::PlanAnew | Move::Replan if facts.attempts_used_up => Move::GiveUp,
        chosen => chosen,
    }
}

/// Takes a move: the node after the evaluation.
pub(super) fn take(state: &mut PlanState, chosen: Move, reason: &str) {
    match chosen {
        Move::NextStep => {
            state.step_idx += state.dispatched.max(1);
            (state.dispatched, state.attempts) = (0, 0);
            state.node = Node::ExecutorDispatch;
        }
        Move::SameStep => {
            for step in state.current_mut() {
                step.status = StepStatus::Pending;
            }
            state.node = Node::ExecutorDispatch;
        }
        Move::PlanAnew | Move::Replan => {
            state.need_replan = true;
            reason.clone_into(&mut state.replan_reason);
            state.node = if chosen == Move::PlanAnew { Node::PlannerInit } else { Node::PlannerReplanning };
        }
        Move::Finish => (state.node, state.outcome) = (Node::End, Some(PlanStatus::Finished)),
        Move::GiveUp => {
            reason.clone_into(&mut state.reason);
            (state.node, state.outcome) = (Node::End, Some(PlanStatus::Impossible));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{PlanPreset, PlannerConfig};

    const PASSED: Facts = Facts {
        passed: true,
        need_replan: false,
        attempts_used_up: false,
        steps_left: false,
        goal_reached: false,
        impossible: false,
    };
    const FAILED: Facts = Facts { passed: false, ..PASSED };

    #[test]
    fn each_preset_takes_the_branch_of_its_document() {
        for (what, facts, steps, act) in [
            ("passed, further steps", Facts { steps_left: true, ..PASSED }, Move::NextStep, Move::NextStep),
            ("passed, the last step", PASSED, Move::Finish, Move::Finish),
            ("failed within its attempts", FAILED, Move::SameStep, Move::SameStep),
            ("failed, further steps", Facts { steps_left: true, ..FAILED }, Move::SameStep, Move::SameStep),
            ("another plan is needed", Facts { need_replan: true, ..FAILED }, Move::PlanAnew, Move::Replan),
            ("passed, another plan", Facts { need_replan: true, ..PASSED }, Move::PlanAnew, Move::Replan),
            ("impossible", Facts { impossible: true, need_replan: true, ..FAILED }, Move::GiveUp, Move::GiveUp),
            (
                "over ten before another plan",
                Facts { attempts_used_up: true, need_replan: true, ..FAILED },
                Move::GiveUp,
                Move::GiveUp,
            ),
            (
                "over ten before the next step",
                Facts { attempts_used_up: true, steps_left: true, ..PASSED },
                Move::GiveUp,
                Move::GiveUp,
            ),
            (
                "the tenth attempt was the last step",
                Facts { attempts_used_up: true, ..PASSED },
                Move::Finish,
                Move::Finish,
            ),
            (
                "the goal is reached early",
                Facts { goal_reached: true, steps_left: true, ..PASSED },
                Move::NextStep,
                Move::Finish,
            ),
            ("a failed step reaches no goal", Facts { goal_reached: true, ..FAILED }, Move::SameStep, Move::SameStep),
        ] {
            let of = |preset| PlannerConfig { preset, ..PlannerConfig::default() }.read_branches().unwrap();
            assert_eq!(choose(&of(PlanPreset::Steps), facts), steps, "steps: {what}");
            assert_eq!(choose(&of(PlanPreset::PlanAndAct), facts), act, "plan_and_act: {what}");
        }
    }

    #[test]
    fn a_file_of_branches_cannot_loosen_the_bounds() {
        let only = |then| [Branch { when: Vec::new(), then }];
        let used_up = Facts { attempts_used_up: true, steps_left: true, ..FAILED };
        for then in [Move::NextStep, Move::SameStep, Move::PlanAnew, Move::Replan] {
            assert_eq!(choose(&only(then), used_up), Move::GiveUp, "{then:?}");
        }
        assert_eq!(choose(&only(Move::NextStep), PASSED), Move::Finish);
        assert_eq!(choose(&[], PASSED), Move::GiveUp);
    }

    #[test]
    fn a_move_leads_to_its_node() {
        let begun = || {
            let mut state = PlanState::new("goal".into(), String::new(), PlannerConfig::default(), false).unwrap();
            state.plan_anew(vec![("a".into(), String::new()), ("b".into(), String::new())]);
            (state.dispatched, state.attempts) = (1, 1);
            state
        };
        for (chosen, node, step, attempts, outcome) in [
            (Move::NextStep, Node::ExecutorDispatch, 1, 0, None),
            (Move::SameStep, Node::ExecutorDispatch, 0, 1, None),
            (Move::PlanAnew, Node::PlannerInit, 0, 1, None),
            (Move::Replan, Node::PlannerReplanning, 0, 1, None),
            (Move::Finish, Node::End, 0, 1, Some(PlanStatus::Finished)),
            (Move::GiveUp, Node::End, 0, 1, Some(PlanStatus::Impossible)),
        ] {
            let mut state = begun();
            take(&mut state, chosen, "why");
            let is = (state.node, state.step_idx, state.attempts, state.outcome);
            assert_eq!(is, (node, step, attempts, outcome), "{chosen:?}");
        }
    }
}
