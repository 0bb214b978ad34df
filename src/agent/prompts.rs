//! All prompts for models (A58): one file each, which an operator's folder may replace.

use std::io;
use std::path::Path;

use jiff::civil::Date;
use thiserror::Error;

use super::toolbox::ToolDescription;
use sekisho_config::ProfilePrompt;

/// The prompts of all agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    with_tools: String,
    without_tools: String,
    reasoning_summary: String,
    conversation_summary: String,
    context_summary: String,
    selection: String,
    title: String,
    planner: String,
    replanner: String,
    evaluator: String,
    plan_step: String,
    plan_answer: String,
}

/// A prompt of the operator's folder that cannot be read.
#[derive(Debug, Error)]
#[error("the prompt {file} cannot be read: {source}")]
pub struct UnreadablePrompt {
    file: String,
    source: io::Error,
}

/// Maximum characters of a thread's summary (A42).
pub const MAX_SUMMARY: usize = 300;

/// Maximum characters of a conversation's title (C32).
pub const MAX_TITLE: usize = 50;

/// Maximum characters of the user's message in the input of a summary (A46).
const MAX_USER: usize = 1_000;

/// Maximum characters of the reply in the input of a summary (A46).
const MAX_REPLY: usize = 2_000;

/// Placeholder for a missing summary.
const NO_SUMMARY: &str = "(なし)";

impl Default for Prompts {
    fn default() -> Self {
        Self {
            with_tools: include_str!("prompts/with_tools.md").into(),
            without_tools: include_str!("prompts/without_tools.md").into(),
            reasoning_summary: include_str!("prompts/reasoning_summary.md").into(),
            conversation_summary: include_str!("prompts/conversation_summary.md").into(),
            context_summary: include_str!("prompts/context_summary.md").into(),
            selection: include_str!("prompts/selection.md").into(),
            title: include_str!("prompts/title.md").into(),
            planner: include_str!("prompts/planner.md").into(),
            replanner: include_str!("prompts/replanner.md").into(),
            evaluator: include_str!("prompts/evaluator.md").into(),
            plan_step: include_str!("prompts/plan_step.md").into(),
            plan_answer: include_str!("prompts/plan_answer.md").into(),
        }
    }
}

impl Prompts {
    /// The prompts, replaced by the files that `folder` has: `with_tools.md`, `without_tools.md`,
    /// `reasoning_summary.md`, `conversation_summary.md`, `context_summary.md`, `selection.md`, `title.md`, `planner.md`,
    /// `replanner.md`, `evaluator.md`, `plan_step.md`, `plan_answer.md`.
    /// Errors: the folder does not exist, or a file in it is not readable text.
    pub fn load(folder: &Path) -> Result<Self, UnreadablePrompt> {
        // A mistyped folder must not pass for an empty one.
        std::fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
        let mut prompts = Self::default();
        for (name, prompt) in [
            ("with_tools.md", &mut prompts.with_tools),
            ("without_tools.md", &mut prompts.without_tools),
            ("reasoning_summary.md", &mut prompts.reasoning_summary),
            ("conversation_summary.md", &mut prompts.conversation_summary),
            ("context_summary.md", &mut prompts.context_summary),
            ("selection.md", &mut prompts.selection),
            ("title.md", &mut prompts.title),
            ("planner.md", &mut prompts.planner),
            ("replanner.md", &mut prompts.replanner),
            ("evaluator.md", &mut prompts.evaluator),
            ("plan_step.md", &mut prompts.plan_step),
            ("plan_answer.md", &mut prompts.plan_answer),
        ] {
            let file = folder.join(name);
            match std::fs::read_to_string(&file) {
                Ok(text) => *prompt = text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(unreadable(&file, source)),
            }
        }
        Ok(prompts)
    }

    /// The system prompt of a run, with `{current_date}` (A59) and `{tools_info}` (A60) filled in; empty if the profile
    /// has none.
    pub fn system(&self, today: Date, tools: &[ToolDescription], own: &ProfilePrompt) -> String {
        let general = if tools.is_empty() { &self.without_tools } else { &self.with_tools };
        let parts = [own.replace.as_ref().or(Some(general)), own.append.as_ref()];
        let parts = parts.into_iter().flatten().map(String::as_str).filter(|part| !part.is_empty());
        let prompt = parts.collect::<Vec<_>>().join("\n\n");
        // The tools last: `{current_date}` in a description is not replaced.
        prompt.replace("{current_date}", &today.to_string()).replace("{tools_info}", &tools_info(tools))
    }

    /// The prompt to summarize the tool calls of a reply (A73).
    pub fn reasoning_summary(&self) -> &str {
        &self.reasoning_summary
    }

    /// The prompt to select tools for a task.
    pub fn selection(&self) -> &str {
        &self.selection
    }

    /// The prompt to summarize the older part of a conversation that is too long for the model.
    pub fn context_summary(&self) -> &str {
        &self.context_summary
    }

    /// The prompt for the title of a conversation.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The prompt to make a plan, with `{max_steps}` filled in.
    pub fn planner(&self, max_steps: usize) -> String {
        self.planner.replace("{max_steps}", &max_steps.to_string())
    }

    /// The prompt to change a plan, with `{max_steps}` filled in.
    pub fn replanner(&self, max_steps: usize) -> String {
        self.replanner.replace("{max_steps}", &max_steps.to_string())
    }

    /// The prompt to evaluate a step.
    pub fn evaluator(&self) -> &str {
        &self.evaluator
    }

    /// The text for an agent that carries out a step, after its own prompt; `error_mark` begins the result of a step
    /// that cannot be done.
    pub fn plan_step(&self, error_mark: &str) -> String {
        self.plan_step.replace("{error_mark}", error_mark)
    }

    /// The prompt to write the answer of a plan.
    pub fn plan_answer(&self) -> &str {
        &self.plan_answer
    }

    /// The prompt to summarize a thread.
    pub fn conversation_summary(&self) -> &str {
        &self.conversation_summary
    }
}

/// The input of a thread's new summary (A46): the old one, and the start of the latest exchange.
pub fn summary_input(old: Option<&str>, user: &str, reply: &str) -> String {
    format!(
        "Old summary:\n{}\n\nUser:\n{}\n\nAssistant:\n{}",
        old.unwrap_or(NO_SUMMARY),
        beginning(user, MAX_USER),
        beginning(reply, MAX_REPLY),
    )
}

/// The input for a title: the start of the first exchange.
pub fn title_input(user: &str, reply: &str) -> String {
    format!("User:\n{}\n\nAssistant:\n{}", beginning(user, MAX_USER), beginning(reply, MAX_REPLY))
}

/// The system message with a thread's summary, placed before the history (A30).
pub fn reminder(summary: &str) -> String {
    format!("[過去の会話の要約]\n{summary}")
}

/// The first `max` characters, or all if there are fewer.
pub fn beginning(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// `- name: description`, one line for each tool that the model is shown (A52).
fn tools_info(tools: &[ToolDescription]) -> String {
    let line = |tool: &ToolDescription| format!("- {}: {}", tool.name, tool.description);
    tools.iter().filter(|tool| !tool.is_deferred).map(line).collect::<Vec<_>>().join("\n")
}

fn unreadable(file: &Path, source: io::Error) -> UnreadablePrompt {
    UnreadablePrompt { file: file.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::civil::date;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolDescription {
        let (name, description, parameters) = (name.into(), description.into(), Arc::new(json!({})));
        ToolDescription { name, description, parameters, is_deferred: false }
    }

    #[test]
    fn the_prompt_contains_the_date_and_the_tools() {
        let tools = [tool("weather", "Tells the weather."), tool("clock", "Not to be filled in: {current_date}")];
        let prompt = Prompts::default().system(date(2026, 11, 21), &tools, &ProfilePrompt::default());
        assert!(prompt.starts_with("Today is 2026-11-21."), "{prompt}");
        assert!(prompt.contains("\n- weather: Tells the weather.\n- clock: Not to be filled in: {current_date}\n"));
        assert!(!prompt.contains("{tools_info}"));
    }

    #[test]
    fn without_tools_the_prompt_offers_none() {
        let prompt = Prompts::default().system(date(2026, 11, 21), &[], &ProfilePrompt::default());
        assert!(prompt.contains("2026-11-21") && prompt.contains("no tools"), "{prompt}");
    }

    /// A61–A64.
    #[test]
    fn the_prompt_has_the_rules_of_the_specification() {
        let prompt = Prompts::default().system(date(2026, 11, 21), &[tool("clock", "")], &ProfilePrompt::default());
        for rule in [
            "has a `format` parameter, ask for `json`",
            "Never invent a URL. Give only those that appear in a `url` field",
            "like [1], and list them at the end under the heading 参考文献",
            "Answer in the language of the question.",
        ] {
            assert!(prompt.contains(rule), "{rule}: {prompt}");
        }
    }

    #[test]
    fn the_prompt_of_a_profile_replaces_the_general_one_or_follows_it() {
        let text = |text: &str| Some(text.to_owned());
        let system = |replace, append| {
            let own = ProfilePrompt { replace, append };
            Prompts::default().system(date(2026, 11, 21), &[tool("clock", "")], &own)
        };
        assert_eq!(system(text("It is {current_date}."), text("Be brief.")), "It is 2026-11-21.\n\nBe brief.");
        assert_eq!(system(text(""), None), "");
        let appended = system(None, text("Be brief."));
        assert!(appended.starts_with("Today is 2026-11-21.") && appended.ends_with("\n\nBe brief."), "{appended}");
    }

    #[test]
    fn a_file_in_the_folder_replaces_only_its_prompt() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("without_tools.md"), "Only {current_date}.").unwrap();
        let prompts = Prompts::load(folder.path()).unwrap();
        assert_eq!(prompts.system(date(2026, 1, 2), &[], &ProfilePrompt::default()), "Only 2026-01-02.");
        assert_eq!(Prompts { without_tools: Prompts::default().without_tools, ..prompts }, Prompts::default());
    }

    #[test]
    fn an_unreadable_folder_or_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        assert!(Prompts::load(&missing).unwrap_err().to_string().contains("missing"));
        std::fs::write(folder.path().join("with_tools.md"), b"\xff\xfe").unwrap();
        assert!(Prompts::load(folder.path()).unwrap_err().to_string().contains("with_tools.md"));
    }

    #[test]
    fn a_summary_is_made_from_the_start_of_the_exchange() {
        let input = summary_input(None, &"質".repeat(1_001), &"答".repeat(2_001));
        assert!(input.contains("(なし)"));
        assert_eq!((input.matches('質').count(), input.matches('答').count()), (1_000, 2_000));
        assert!(summary_input(Some("before"), "q", "a").contains("before"));
        assert_eq!(reminder("x"), "[過去の会話の要約]\nx");
    }

    proptest! {
        #[test]
        fn a_beginning_is_a_prefix_and_never_too_long(text in "\\PC{0,40}", max in 0_usize..40) {
            let cut = beginning(&text, max);
            prop_assert!(text.starts_with(cut));
            prop_assert_eq!(cut.chars().count(), text.chars().count().min(max));
        }
    }
}
