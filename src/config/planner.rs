//! The planner of an agent: how it plans, and the branches after each evaluation.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::Findings;

/// Maximum bytes of a file of branches.
const MAX_FILE_BYTES: u64 = 65_536;

/// Most branches of a file.
const MAX_BRANCHES: usize = 50;

/// Lets an agent plan: steps, each of which it runs with its tools and evaluates. Without a value, a setting has that of
/// the preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlannerConfig {
    pub preset: PlanPreset,
    /// Maximum steps of a plan: 5 with `steps`, 20 with `plan_and_act`.
    pub max_steps: Option<usize>,
    /// Attempts at a step before the plan is changed (A20): 2 with `steps`, 1 with `plan_and_act`.
    pub max_attempts: Option<u32>,
    /// Attempts at all steps of all plans together (A21): 10 with `steps`, 30 with `plan_and_act`.
    pub max_total_attempts: Option<u32>,
    /// Steps that one run of the agent takes together (B10).
    pub steps_per_dispatch: usize,
    /// Temperature of the planner's and the evaluator's requests (B21). Default: the profile's.
    pub temperature: Option<f64>,
    /// When the model evaluates a step that did not fail: `when_unclear` with `steps`, `always` with `plan_and_act`.
    pub evaluate: Option<Evaluate>,
    /// A completed step whose result has more characters than this, and whose calls succeeded, has passed, if the model is not
    /// asked (A24).
    pub min_result_chars: usize,
    /// A result that begins with this has failed (A23): `Error:` with `steps`. Empty: none.
    pub error_prefix: Option<String>,
    /// A result that contains this has failed, and a step whose last call has an answer that begins with it (B23): `ERROR:` with
    /// `plan_and_act`. Empty: none.
    pub error_word: Option<String>,
    /// Tokens of the plan's memory in a request of the planner.
    pub memory_tokens: usize,
    /// A JSON file with the branches after an evaluation (B25), in place of the preset's.
    pub branches: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanPreset {
    /// One to five steps, planned anew after failures.
    #[default]
    Steps,
    /// Longer plans that are evaluated and changed after each step.
    PlanAndAct,
}

/// When the model evaluates a step that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evaluate {
    /// Where the rules do not decide.
    WhenUnclear,
    Always,
}

/// One branch after an evaluation. The first one whose conditions all hold is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Empty: always.
    pub when: Vec<Condition>,
    pub then: Move,
}

/// A condition after an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    Passed,
    Failed,
    /// The evaluator wants another plan, the attempts at the step are used up, or the plan goes in circles.
    NeedReplan,
    /// More work would be more attempts than the plan may make.
    AttemptsUsedUp,
    StepsLeft,
    /// The evaluator: the whole goal is reached.
    GoalReached,
    /// The evaluator: the goal cannot be reached. Or the plan goes in circles after it was changed for that.
    Impossible,
}

/// Where a branch leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// `Executor_Dispatch`, with the step after this one; without one, the end.
    NextStep,
    /// `Executor_Dispatch`, with this step.
    SameStep,
    /// `Planner_Init`.
    PlanAnew,
    /// `Planner_Replanning`.
    Replan,
    /// The end: finished.
    Finish,
    /// The end: impossible.
    GiveUp,
}

impl Default for PlannerConfig {
    fn default() -> Self {
        Self {
            preset: PlanPreset::default(),
            max_steps: None,
            max_attempts: None,
            max_total_attempts: None,
            steps_per_dispatch: 1,
            temperature: None,
            evaluate: None,
            min_result_chars: 50,
            error_prefix: None,
            error_word: None,
            memory_tokens: 4_000,
            branches: None,
        }
    }
}

impl PlannerConfig {
    pub fn max_steps(&self) -> usize {
        self.max_steps.unwrap_or(self.preset.choose(5, 20))
    }

    pub fn max_attempts(&self) -> u32 {
        self.max_attempts.unwrap_or(self.preset.choose(2, 1))
    }

    pub fn max_total_attempts(&self) -> u32 {
        self.max_total_attempts.unwrap_or(self.preset.choose(10, 30))
    }

    pub fn evaluate(&self) -> Evaluate {
        self.evaluate.unwrap_or(self.preset.choose(Evaluate::WhenUnclear, Evaluate::Always))
    }

    /// Empty: none.
    pub fn error_prefix(&self) -> &str {
        self.error_prefix.as_deref().unwrap_or(self.preset.choose("Error:", ""))
    }

    /// Empty: none.
    pub fn error_word(&self) -> &str {
        self.error_word.as_deref().unwrap_or(self.preset.choose("", "ERROR:"))
    }

    /// The branches of the file, or of the preset.
    /// Errors: the problem of the file.
    pub fn read_branches(&self) -> Result<Vec<Branch>, String> {
        match &self.branches {
            Some(file) => read_file(file),
            None => {
                parse(self.preset.choose(include_str!("planner/steps.json"), include_str!("planner/plan_and_act.json")))
            }
        }
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        findings.above_zero(&format!("{at}.max_steps"), self.max_steps());
        findings.above_zero(&format!("{at}.max_attempts"), self.max_attempts());
        findings.above_zero(&format!("{at}.max_total_attempts"), self.max_total_attempts());
        findings.above_zero(&format!("{at}.steps_per_dispatch"), self.steps_per_dispatch);
        findings.above_zero(&format!("{at}.memory_tokens"), self.memory_tokens);
        if self.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            findings.add(format!("{at}.temperature"), "is not between 0 and 2", "0 is a usual value for planning");
        }
        if let Err(problem) = self.read_branches() {
            findings.add(format!("{at}.branches"), problem, "docs/plans.md describes the file");
        }
    }
}

impl PlanPreset {
    fn choose<T>(self, steps: T, plan_and_act: T) -> T {
        match self {
            Self::Steps => steps,
            Self::PlanAndAct => plan_and_act,
        }
    }
}

fn read_file(file: &Path) -> Result<Vec<Branch>, String> {
    let size = std::fs::metadata(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{} is larger than {MAX_FILE_BYTES} bytes", file.display()));
    }
    let text = std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    parse(&text).map_err(|problem| format!("{}: {problem}", file.display()))
}

fn parse(text: &str) -> Result<Vec<Branch>, String> {
    let branches: Vec<Branch> =
        serde_json::from_str(text).map_err(|error| format!("is no list of branches: {error}"))?;
    if branches.len() > MAX_BRANCHES {
        return Err(format!("has more than {MAX_BRANCHES} branches"));
    }
    match branches.iter().position(|branch| branch.when.is_empty()) {
        None => Err("has no last branch for everything else, with an empty `when`".to_owned()),
        Some(first) if first + 1 < branches.len() => {
            Err(format!("the branches after number {} are never reached: its `when` is empty", first + 1))
        }
        Some(_) => Ok(branches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_have_the_numbers_of_their_documents() {
        let of = |preset| PlannerConfig { preset, ..PlannerConfig::default() };
        let steps = of(PlanPreset::Steps);
        let numbers = (steps.max_steps(), steps.max_attempts(), steps.max_total_attempts(), steps.min_result_chars);
        assert_eq!(numbers, (5, 2, 10, 50));
        assert_eq!((steps.evaluate(), steps.error_prefix(), steps.error_word()), (Evaluate::WhenUnclear, "Error:", ""));
        let act = of(PlanPreset::PlanAndAct);
        assert_eq!((act.evaluate(), act.error_prefix(), act.error_word()), (Evaluate::Always, "", "ERROR:"));
        assert!(steps.read_branches().is_ok() && act.read_branches().is_ok());
    }

    #[test]
    fn a_file_of_branches_is_checked() {
        for (text, problem) in [
            ("{}", "is no list of branches"),
            (r#"[{"when": ["tired"], "then": "finish"}]"#, "unknown variant `tired`"),
            (r#"[{"when": [], "then": "sleep"}]"#, "unknown variant `sleep`"),
            (r#"[{"when": ["failed"], "then": "give_up"}]"#, "no last branch"),
            (r#"[{"when": [], "then": "give_up"}, {"when": ["failed"], "then": "finish"}]"#, "never reached"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("branches.json");
        let config = PlannerConfig { branches: Some(file.clone()), ..PlannerConfig::default() };
        assert!(config.read_branches().unwrap_err().contains("cannot be read"));
        std::fs::write(&file, r#"[{"when": ["failed"], "then": "give_up"}, {"when": [], "then": "next_step"}]"#)
            .unwrap();
        assert_eq!(config.read_branches().unwrap().len(), 2);
    }
}
