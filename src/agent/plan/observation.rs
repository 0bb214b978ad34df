//! The observation of a step: its answer, each of its calls with its status, and the last page that the calls showed (B9,
//! B14). Rules read the answer and the statuses; the rest is for the model (B23).

use super::inputs::instructions;
use super::page_snapshots;
use super::state::{CallMade, PlanState};
use super::work::Work;
use crate::prompts::beginning;
use sekisho_config::PlannerConfig;

/// Maximum characters of a step's answer in an observation.
const MAX_STEP_ANSWER: usize = 20_000;

/// Calls of a step in an observation: the latest ones.
const MAX_CALLS: usize = 20;

/// Maximum characters of a call's arguments in an observation.
const MAX_ARGUMENTS: usize = 200;

/// Maximum characters of a call's answer in an observation.
const MAX_CALL_ANSWER: usize = 300;

/// The tool whose answer is the text of a page, whose author must not decide how a step ends.
const PAGE_READER: &str = "web_fetch";

/// How a call of a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStatus {
    Succeeded,
    /// Its tool says so, or its answer begins with a mark of errors.
    Failed,
    Unanswered,
}

/// The answer of the current step: the text of its run, or `Error:` with the reason why there is none.
pub(super) fn step_answer(state: &PlanState) -> String {
    match &state.run.failure {
        Some(failure) => format!("Error: {failure}"),
        None => beginning(state.run.text.trim(), MAX_STEP_ANSWER).to_owned(),
    }
}

/// The observation of the current step, whose answer this is.
pub(super) async fn observation(work: &Work, state: &PlanState, answer: &str) -> String {
    let parts = [answer.to_owned(), calls(&state.run.calls, &state.planner), page(work, state).await];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}

/// A line for each call: its status and the beginning of its answer.
fn calls(calls: &[CallMade], planner: &PlannerConfig) -> String {
    if calls.is_empty() {
        return String::new();
    }
    let earlier = calls.len().saturating_sub(MAX_CALLS);
    let mut text = "The calls of the step:".to_owned();
    if earlier > 0 {
        text.push_str(&format!("\n({earlier} earlier calls)"));
    }
    for call in &calls[earlier..] {
        let status = match call.status(planner) {
            CallStatus::Succeeded => "succeeded: ",
            CallStatus::Failed => "failed: ",
            CallStatus::Unanswered => "not answered",
        };
        let answer = one_line(call.answer.as_deref().unwrap_or_default(), MAX_CALL_ANSWER);
        let arguments = one_line(&call.arguments, MAX_ARGUMENTS);
        text.push_str(&format!("\n- {} {arguments}: {status}{answer}", call.tool));
    }
    text
}

fn one_line(text: &str, max: usize) -> String {
    beginning(text.trim(), max).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The part of the last page that the step needs. Its elements are in the snapshot, if there is one since the page's address
/// was last reported.
async fn page(work: &Work, state: &PlanState) -> String {
    let answers = state.run.calls.iter().filter_map(|call| Some((call.tool.as_str(), call.answer.as_deref()?)));
    let Some(page) = page_snapshots::last(answers) else { return String::new() };
    let place = match page_snapshots::has_elements(page) {
        true => work
            .keep_snapshot(state.total_attempts, page)
            .await
            .map(|place| format!("its snapshot is in the file {place}")),
        false => Some("no snapshot of it was taken".to_owned()),
    };
    let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
    format!("The page{place}:\n{}", page_snapshots::digest(page, &instructions(state.current())))
}

impl CallMade {
    pub(super) fn status(&self, planner: &PlannerConfig) -> CallStatus {
        let marks = [planner.error_prefix(), planner.error_word()];
        match &self.answer {
            None => CallStatus::Unanswered,
            Some(_) if self.failed || marks.into_iter().any(|mark| self.begins_with(mark)) => CallStatus::Failed,
            Some(_) => CallStatus::Succeeded,
        }
    }

    /// Whether its answer begins with a mark of errors. A page may have the mark anywhere in its text.
    pub(super) fn begins_with(&self, mark: &str) -> bool {
        let answer = self.answer.as_deref().unwrap_or_default();
        !mark.is_empty() && self.tool != PAGE_READER && answer.trim_start().starts_with(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::PlanPreset;

    fn call(tool: &str, answer: Option<&str>, failed: bool) -> CallMade {
        let (id, arguments, answer) = ("a".to_owned(), r#"{"target":"e5"}"#.to_owned(), answer.map(str::to_owned));
        CallMade { id, key: None, tool: tool.to_owned(), arguments, answer, failed, earlier: false }
    }

    fn of(preset: PlanPreset) -> PlannerConfig {
        PlannerConfig { preset, ..PlannerConfig::default() }
    }

    #[test]
    fn a_call_has_failed_where_its_tool_or_the_beginning_of_its_answer_says_so() {
        use CallStatus::{Failed, Succeeded, Unanswered};
        for (preset, tool, answer, failed, expected) in [
            (PlanPreset::PlanAndAct, "click", Some("ERROR: element not found"), false, Failed),
            (PlanPreset::PlanAndAct, "click", Some("\nERROR: element not found"), false, Failed),
            (PlanPreset::PlanAndAct, "click", Some("- heading \"ERROR: a list\" [ref=e1]"), false, Succeeded),
            (PlanPreset::PlanAndAct, "web_fetch", Some("ERROR: list of common errors"), false, Succeeded),
            (PlanPreset::PlanAndAct, "web_fetch", Some("no such page"), true, Failed),
            (PlanPreset::PlanAndAct, "click", Some("Error: element not found"), false, Succeeded),
            (PlanPreset::Steps, "click", Some("Error: element not found"), false, Failed),
            (PlanPreset::Steps, "click", Some("clicked"), true, Failed),
            (PlanPreset::Steps, "click", None, false, Unanswered),
        ] {
            assert_eq!(call(tool, answer, failed).status(&of(preset)), expected, "{preset:?} {tool} {answer:?}");
        }
    }

    #[test]
    fn each_call_is_named_with_its_status_and_the_beginning_of_its_answer() {
        let long = "x".repeat(2 * MAX_CALL_ANSWER);
        let made = [
            call("pw__browser_click", Some("ERROR: element\n  not found"), false),
            call("pay", None, false),
            call("add", Some(&long), false),
        ];
        let text = calls(&made, &of(PlanPreset::PlanAndAct));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "- pw__browser_click {\"target\":\"e5\"}: failed: ERROR: element not found");
        assert_eq!(lines[2], "- pay {\"target\":\"e5\"}: not answered");
        assert!(lines[3].starts_with("- add {\"target\":\"e5\"}: succeeded: xxx"), "{text}");
        assert!(lines[3].len() < MAX_CALL_ANSWER + 50, "{text}");
        assert_eq!(calls(&[], &of(PlanPreset::Steps)), "");
        let many: Vec<_> = (0..MAX_CALLS + 3).map(|_| call("add", Some("1"), false)).collect();
        let text = calls(&many, &of(PlanPreset::Steps));
        assert!(text.contains("(3 earlier calls)") && text.lines().count() == MAX_CALLS + 2, "{text}");
    }
}
