//! Evaluation by rules, without a model (A23, A24, B23). The text of a page decides nothing: its author could.

use super::observation::CallStatus;
use super::state::{PlanState, StepStatus, Verdict};
use sekisho_config::Evaluate;

/// The verdict of the rules about the current step, by its answer and the statuses of its calls; `None` where the model has to
/// evaluate it.
pub(super) fn by_rules(state: &PlanState) -> Option<Verdict> {
    let (planner, calls) = (&state.planner, &state.run.calls);
    let answer = state.current().first().map_or("", |step| step.result.as_str());
    let (prefix, word) = (planner.error_prefix(), planner.error_word());
    let has_failed = state.current().iter().any(|step| step.status == StepStatus::Failed)
        || !prefix.is_empty() && answer.starts_with(prefix)
        || !word.is_empty() && answer.contains(word);
    if has_failed {
        return Some(verdict(false, answer));
    }
    // The model may say otherwise.
    if let Some(call) = calls.last().filter(|call| call.begins_with(word)) {
        let reported = call.answer.as_deref().unwrap_or_default();
        return Some(verdict(false, &format!("`{}`, the last call of the step, answered: {reported}", call.tool)));
    }
    // A model whose call failed may still have written something.
    let all_succeeded = calls.iter().all(|call| call.status(planner) == CallStatus::Succeeded);
    let is_long = answer.chars().count() > planner.min_result_chars;
    (planner.evaluate() == Evaluate::WhenUnclear && is_long && all_succeeded)
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

    fn call(answer: &str, failed: bool) -> CallMade {
        let (id, tool, arguments) = ("a".to_owned(), "t".to_owned(), "{}".to_owned());
        CallMade { id, key: None, tool, arguments, answer: Some(answer.to_owned()), failed, earlier: false }
    }

    fn passed(planner: PlannerConfig, status: StepStatus, answer: &str, calls: Vec<CallMade>) -> Option<bool> {
        let mut state = PlanState::new("goal".into(), String::new(), planner, false).unwrap();
        state.plan_anew(vec![("step".into(), String::new())]);
        (state.plan[0].status, state.plan[0].result) = (status, answer.to_owned());
        // For the model: with the text of a page.
        state.last_observation =
            format!("{answer}\n\nThe page:\n- heading \"ERROR: a list of errors\" {}", "x".repeat(60));
        state.run.calls = calls;
        by_rules(&state).map(|verdict| verdict.passed)
    }

    #[test]
    fn rules_decide_by_status_words_and_length() {
        let (long, exactly) = ("x".repeat(51), "x".repeat(50));
        let japanese = "価".repeat(51);
        for (preset, status, answer, expected) in [
            (PlanPreset::Steps, StepStatus::Failed, long.as_str(), Some(false)),
            (PlanPreset::Steps, StepStatus::Completed, "Error: no such page", Some(false)),
            (PlanPreset::Steps, StepStatus::Completed, &format!("It says Error: {long}"), Some(true)),
            (PlanPreset::Steps, StepStatus::Completed, &long, Some(true)),
            (PlanPreset::Steps, StepStatus::Completed, &japanese, Some(true)),
            (PlanPreset::Steps, StepStatus::Completed, &exactly, None),
            (PlanPreset::Steps, StepStatus::Completed, "?", None),
            (PlanPreset::Steps, StepStatus::Completed, "", None),
            (PlanPreset::PlanAndAct, StepStatus::Completed, "done, ERROR: 404", Some(false)),
            (PlanPreset::PlanAndAct, StepStatus::Completed, "Error: 404", None),
            (PlanPreset::PlanAndAct, StepStatus::Failed, &long, Some(false)),
            (PlanPreset::PlanAndAct, StepStatus::Completed, &long, None),
        ] {
            let planner = PlannerConfig { preset, ..PlannerConfig::default() };
            let found = passed(planner, status, answer, vec![call("x", false)]);
            assert_eq!(found, expected, "{preset:?} {status:?} {answer:?}");
        }
    }

    #[test]
    fn rules_decide_by_what_the_calls_of_the_step_did() {
        let not_found = || call("ERROR: element not found", false);
        let page = || call("- heading \"ERROR: a list of errors\" [ref=e1]", false);
        let act = |evaluate| PlannerConfig { preset: PlanPreset::PlanAndAct, evaluate, ..PlannerConfig::default() };
        for (what, evaluate, calls, expected) in [
            ("reports an error", Evaluate::Always, vec![call("x", false), not_found()], Some(false)),
            ("reports an error and fails", Evaluate::Always, vec![call("ERROR: no", true)], Some(false)),
            ("showed an error", Evaluate::Always, vec![page()], None),
            ("showed an error", Evaluate::WhenUnclear, vec![page()], Some(true)),
            ("was repeated after an error", Evaluate::WhenUnclear, vec![not_found(), call("x", false)], None),
            ("failed last", Evaluate::WhenUnclear, vec![call("x", false), call("no", true)], None),
            ("failed first", Evaluate::WhenUnclear, vec![call("no", true), call("x", false)], None),
            ("has no answer", Evaluate::WhenUnclear, vec![CallMade { answer: None, ..call("", false) }], None),
            ("was not made", Evaluate::WhenUnclear, Vec::new(), Some(true)),
        ] {
            let claimed = "I opened the site X, and everything is there as the step says.";
            let found = passed(act(Some(evaluate)), StepStatus::Completed, claimed, calls);
            assert_eq!(found, expected, "a call {what}, {evaluate:?}");
        }
        let reported = vec![call("Error: 404", false)];
        assert_eq!(passed(PlannerConfig::default(), StepStatus::Completed, &"x".repeat(51), reported), None);
    }

    #[test]
    fn the_words_are_options() {
        let words = || PlannerConfig {
            error_prefix: Some(String::new()),
            error_word: Some("失敗".into()),
            ..PlannerConfig::default()
        };
        assert_eq!(passed(words(), StepStatus::Completed, &"Error: ".repeat(10), Vec::new()), Some(true));
        assert_eq!(passed(words(), StepStatus::Completed, "購入に失敗した", Vec::new()), Some(false));
        let failed = vec![call("失敗", false)];
        assert_eq!(passed(words(), StepStatus::Completed, "購入した", failed), Some(false));
    }
}
