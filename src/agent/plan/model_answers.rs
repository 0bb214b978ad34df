//! The JSON that planner and evaluator write. Its form is the form of the requests; the loop asks once more for another
//! one.

use serde::Deserialize;
use serde_json::{Value, json};

use super::state::Verdict;
use crate::OutputFormat;
use sekisho_core::error::CallError;

/// Maximum characters of an instruction.
pub(super) const MAX_INSTRUCTION: usize = 4_000;

/// A plan.
#[derive(Debug, Deserialize)]
pub(super) struct PlanAnswer {
    steps: Vec<WrittenStep>,
    #[serde(default)]
    pub(super) success_criteria: String,
}

/// A change of a plan (B5).
#[derive(Debug, Deserialize)]
pub(super) struct ReplanAnswer {
    pub(super) decision: Decision,
    #[serde(default)]
    steps: Vec<WrittenStep>,
    #[serde(default)]
    pub(super) reason: String,
    pub(super) success_criteria: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    Modify,
    Discard,
    New,
    Impossible,
}

/// A step as a text (B22), or with its expected result.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenStep {
    Text(String),
    Parts {
        instruction: String,
        #[serde(default)]
        expected: String,
    },
}

#[derive(Debug, Deserialize)]
pub(super) struct EvaluationAnswer {
    passed: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    need_replan: bool,
    #[serde(default)]
    goal_reached: bool,
    #[serde(default)]
    impossible: bool,
}

impl PlanAnswer {
    pub(super) fn steps(self) -> Vec<(String, String)> {
        self.steps.into_iter().map(WrittenStep::parts).collect()
    }

    /// Errors: never, for this schema.
    pub(super) fn format(max_steps: usize) -> Result<OutputFormat, CallError> {
        let steps = steps(1, max_steps);
        let properties = json!({"steps": steps, "success_criteria": {"type": "string"}});
        format("plan", &properties, &["steps"])
    }
}

impl ReplanAnswer {
    pub(super) fn take_steps(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.steps).into_iter().map(WrittenStep::parts).collect()
    }

    /// Errors: never, for this schema.
    pub(super) fn format(max_steps: usize) -> Result<OutputFormat, CallError> {
        let properties = json!({
            "decision": {"enum": ["modify", "discard", "new", "impossible"]},
            "steps": steps(0, max_steps),
            "reason": {"type": "string"},
            "success_criteria": {"type": "string"},
        });
        format("change_of_plan", &properties, &["decision"])
    }
}

impl EvaluationAnswer {
    /// Errors: never, for this schema.
    pub(super) fn format() -> Result<OutputFormat, CallError> {
        let boolean = json!({"type": "boolean"});
        let properties = json!({
            "passed": boolean, "reason": {"type": "string"}, "need_replan": boolean,
            "goal_reached": boolean, "impossible": boolean,
        });
        format("evaluation", &properties, &["passed"])
    }
}

impl From<EvaluationAnswer> for Verdict {
    fn from(answer: EvaluationAnswer) -> Self {
        let EvaluationAnswer { passed, reason, need_replan, goal_reached, impossible } = answer;
        Self { passed, reason, need_replan, goal_reached, impossible }
    }
}

impl WrittenStep {
    fn parts(self) -> (String, String) {
        match self {
            Self::Text(instruction) => (instruction, String::new()),
            Self::Parts { instruction, expected } => (instruction, expected),
        }
    }
}

fn steps(min: usize, max: usize) -> Value {
    let text = json!({"type": "string", "minLength": 1, "maxLength": MAX_INSTRUCTION, "pattern": "\\S"});
    let parts = json!({
        "type": "object",
        "properties": {"instruction": text, "expected": {"type": "string", "maxLength": MAX_INSTRUCTION}},
        "required": ["instruction"],
    });
    json!({"type": "array", "minItems": min, "maxItems": max, "items": {"anyOf": [text, parts]}})
}

fn format(name: &str, properties: &Value, required: &[&str]) -> Result<OutputFormat, CallError> {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    OutputFormat::of_schema(name.to_owned(), schema, false).map_err(CallError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_texts_or_steps_with_their_results_within_bounds() {
        let format = PlanAnswer::format(2).unwrap();
        let read = |text: &str| format.read(text);
        for (text, steps) in [
            (r#"{"steps": ["look", "buy"]}"#, vec![("look", ""), ("buy", "")]),
            (
                "```json\n{\"steps\": [{\"id\": 1, \"instruction\": \"look\", \"expected\": \"a price\"}], \"success_criteria\": \"known\"}\n```",
                vec![("look", "a price")],
            ),
        ] {
            let plan: PlanAnswer = serde_json::from_str(&read(text).unwrap()).unwrap();
            let expected: Vec<_> = steps.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            assert_eq!(plan.steps(), expected);
        }
        for text in [
            "",
            "no",
            "[]",
            "{}",
            r#"{"steps": []}"#,
            r#"{"steps": ["a", "b", "c"]}"#,
            r#"{"steps": [" "]}"#,
            r#"{"steps": [{"expected": "x"}]}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let long = json!({"steps": ["x".repeat(MAX_INSTRUCTION + 1)]}).to_string();
        assert!(read(&long).is_err());
    }

    #[test]
    fn changes_and_evaluations_have_their_fields() {
        let format = ReplanAnswer::format(3).unwrap();
        let text = format.read(r#"{"decision": "modify", "steps": ["other way"]}"#).unwrap();
        let mut change: ReplanAnswer = serde_json::from_str(&text).unwrap();
        assert_eq!((change.decision, change.take_steps().len()), (Decision::Modify, 1));
        assert!(format.read(r#"{"decision": "sleep"}"#).is_err());
        let format = EvaluationAnswer::format().unwrap();
        let text = format.read(r#"{"passed": false, "reason": "no price"}"#).unwrap();
        let verdict = Verdict::from(serde_json::from_str::<EvaluationAnswer>(&text).unwrap());
        assert!(!verdict.passed && !verdict.need_replan && verdict.reason == "no price");
        assert!(format.read(r#"{"passed": "yes"}"#).is_err());
    }
}
