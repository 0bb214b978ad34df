//! Evaluation by rules, without a model (A23, A24, B23).

use super::state::{PlanState, StepStatus, Verdict};
use sekisho_config::Evaluate;

/// The verdict of the rules about the current step; `None` where the model has to evaluate it.
pub(super) fn by_rules(state: &PlanState) -> Option<Verdict> {
    let (planner, observation) = (&state.planner, state.last_observation.as_str());
    let (prefix, word) = (planner.error_prefix(), planner.error_word());
    let has_failed = state.current().iter().any(|step| step.status == StepStatus::Failed)
        || !prefix.is_empty() && observation.starts_with(prefix)
        || !word.is_empty() && observation.contains(word);
    if has_failed {
        return Some(verdict(false, observation));
    }
    // A model that had no answer of its last tool may still have written something.
    let ended_with_failure = state.run.calls.last().is_some_and(|call| call.failed);
    let is_long = observation.chars().count() > planner.min_result_chars;
    (planner.evaluate() == Evaluate::WhenUnclear && is_long && !ended_with_failure)
        .then(|| verdict(true, "the step has a result"))
}

fn verdict(passed: bool, reason: &str) -> Verdict {
    Verdict { passed, reason: reason.to_owned(), need_replan: false, goal_reached: false, impossible: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::state::CallMade;
    use sekisho_config::{PlanPreset, PlannerConfig};

    #[test]
    fn rules_decide_by_status_words_and_length() {
        let (long, exactly) = ("x".repeat(51), "x".repeat(50));
        let japanese = "価".repeat(51);
        for (preset, status, observation, last_call_failed, expected) in [
            (PlanPreset::Steps, StepStatus::Failed, long.as_str(), false, Some(false)),
            (PlanPreset::Steps, StepStatus::Completed, "Error: no such page", false, Some(false)),
            (PlanPreset::Steps, StepStatus::Completed, &format!("It says Error: {long}"), false, Some(true)),
            (PlanPreset::Steps, StepStatus::Completed, &long, false, Some(true)),
            (PlanPreset::Steps, StepStatus::Completed, &japanese, false, Some(true)),
            (PlanPreset::Steps, StepStatus::Completed, &long, true, None),
            (PlanPreset::Steps, StepStatus::Completed, &exactly, false, None),
            (PlanPreset::Steps, StepStatus::Completed, "", false, None),
            (PlanPreset::PlanAndAct, StepStatus::Completed, "done, ERROR: 404", false, Some(false)),
            (PlanPreset::PlanAndAct, StepStatus::Completed, "Error: 404", false, None),
            (PlanPreset::PlanAndAct, StepStatus::Failed, &long, false, Some(false)),
            (PlanPreset::PlanAndAct, StepStatus::Completed, &long, false, None),
        ] {
            let planner = PlannerConfig { preset, ..PlannerConfig::default() };
            let mut state = PlanState::new("goal".into(), String::new(), planner, false).unwrap();
            state.plan_anew(vec![("step".into(), String::new())]);
            state.plan[0].status = status;
            observation.clone_into(&mut state.last_observation);
            state.run.calls = vec![CallMade {
                id: "a".into(),
                key: None,
                tool: "t".into(),
                arguments: "{}".into(),
                answer: Some("x".into()),
                failed: last_call_failed,
                earlier: false,
            }];
            let passed = by_rules(&state).map(|verdict| verdict.passed);
            assert_eq!(passed, expected, "{preset:?} {status:?} {observation:?}");
        }
    }

    #[test]
    fn the_words_are_options() {
        let words = PlannerConfig {
            error_prefix: Some(String::new()),
            error_word: Some("失敗".into()),
            ..PlannerConfig::default()
        };
        let mut state = PlanState::new("goal".into(), String::new(), words, false).unwrap();
        state.plan_anew(vec![("step".into(), String::new())]);
        state.plan[0].status = StepStatus::Completed;
        "Error: ".repeat(10).clone_into(&mut state.last_observation);
        assert!(by_rules(&state).unwrap().passed);
        "購入に失敗した".clone_into(&mut state.last_observation);
        assert!(!by_rules(&state).unwrap().passed);
    }
}
