//! Shows a run: the answer on standard output, progress on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rust_decimal::Decimal;
use serde_json::Value;

use super::folded;
use super::markdown::Markdown;
use crate::cli::present;
use sekisho_agent::plan::{Step, StepStatus};
use sekisho_agent::{Event, RunError, RunUsage};

/// Codes of a terminal: dimmed from here on, and as before.
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// Refresh interval of the spinner.
const TICK: Duration = Duration::from_millis(100);

pub(super) struct Screen {
    /// Print events as lines of JSON instead.
    json: bool,
    /// Output from models and tools must not contain terminal escape sequences.
    terminal: bool,
    /// Shows answers on a terminal with styles; elsewhere, and with `NO_COLOR`, they are printed as they are.
    markdown: Option<Markdown>,
    /// Steps are dimmed.
    styled_steps: bool,
    spinner: Option<ProgressBar>,
    /// The last line of the answer has no line end yet.
    midline: bool,
    spent_usd: Decimal,
    used_tokens: u64,
}

impl Screen {
    pub(super) fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let styles = present::may_style();
        Self {
            json,
            terminal,
            markdown: (terminal && styles).then(Markdown::new),
            styled_steps: io::stderr().is_terminal() && styles,
            spinner: None,
            midline: false,
            spent_usd: Decimal::ZERO,
            used_tokens: 0,
        }
    }

    /// Prints a hint of the program itself.
    pub(super) fn hint(&self, text: &str) {
        if !self.json {
            present::info(text);
        }
    }

    /// Shows a spinner on a terminal.
    pub(super) fn wait(&mut self, doing: &str) {
        if self.json || !io::stderr().is_terminal() {
            return;
        }
        let spinner = self.spinner.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
            let spinner =
                ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            spinner.enable_steady_tick(TICK);
            spinner
        });
        spinner.set_message(folded(doing));
    }

    pub(super) fn show(&mut self, event: Event) {
        if self.json {
            return present::json_line(&event);
        }
        match event {
            Event::Content { text } => self.print(&text),
            Event::ToolInput { tool_name, arguments, .. } => {
                let arguments = folded(&Value::Object(arguments).to_string());
                self.print_note(&format!("→ {tool_name} {arguments}"));
                self.wait(&tool_name);
            }
            Event::ToolResult { tool_name, result, .. } => {
                self.print_note(&format!("← {tool_name}: {}", folded(&result)));
                self.wait("thinking");
            }
            Event::ToolError { tool_name, error, .. } => {
                self.print_note(&format!("✗ {tool_name}: {}", folded(&error)));
                self.wait("thinking");
            }
            Event::Error(RunError { message, .. }) | Event::PartFailed(RunError { message, .. }) => {
                self.end_line();
                present::info(&present::harmless(&message));
            }
            Event::Status { message, .. } | Event::Retry { message } => self.print_note(&message),
            Event::Compacted { tokens_before, tokens_after, .. } => self.print_note(&format!(
                "the conversation was shortened for the model, from about {tokens_before} to {tokens_after} tokens"
            )),
            Event::Finished { .. } => self.end_line(),
            Event::Usage(usage) => self.count(&usage),
            Event::Plan { steps, .. } => self.show_plan(&steps),
            Event::Step { step, attempt } => self.show_step(&step, attempt),
            Event::Evaluation { passed: false, reason, .. } => {
                self.print_note(&format!("  {}", folded(&reason)));
            }
            Event::Thinking { .. }
            | Event::ClientToolCall { .. }
            // A run in this process does not pause.
            | Event::Approval(_)
            | Event::Resumed { .. }
            | Event::SubAgentBegin { .. }
            | Event::SubAgentText { .. }
            | Event::SubAgentEnd { .. }
            | Event::Evaluation { .. }
            | Event::Node { .. } => {}
        }
    }

    /// The usage of the conversation so far.
    pub(super) fn cost(&self) -> String {
        format!("{} tokens, ${}", self.used_tokens, self.spent_usd.normalize())
    }

    /// The plan as a checklist.
    fn show_plan(&mut self, steps: &[Step]) {
        self.print_note("Plan:");
        for step in steps {
            self.print_note(&checklist_line(step));
        }
        self.wait("thinking");
    }

    /// A step of the checklist whose status changed.
    fn show_step(&mut self, step: &Step, attempt: u32) {
        let again = if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
        self.print_note(&format!("{}{again}", checklist_line(step)));
        self.wait("thinking");
    }

    fn print(&mut self, text: &str) {
        let text = if self.terminal { present::harmless(text) } else { text.into() };
        match &mut self.markdown {
            Some(markdown) => {
                let shown = markdown.push(&text);
                self.write(&shown);
            }
            None => self.write(&text),
        }
    }

    fn write(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.stop_waiting();
        let mut out = io::stdout();
        let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.midline = text.chars().next_back().map_or(self.midline, |last| last != '\n');
    }

    fn print_note(&mut self, text: &str) {
        self.end_line();
        let text = present::harmless(text);
        match self.styled_steps {
            true => present::info(&format!("{DIM}{text}{PLAIN}")),
            false => present::info(&text),
        }
    }

    fn end_line(&mut self) {
        let rest = self.markdown.as_mut().map(Markdown::finish).unwrap_or_default();
        self.write(&rest);
        self.stop_waiting();
        if self.midline {
            present::line("");
            self.midline = false;
        }
    }

    fn count(&mut self, usage: &RunUsage) {
        self.spent_usd = self.spent_usd.saturating_add(usage.cost_usd);
        let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        self.used_tokens = self.used_tokens.saturating_add(tokens);
        let so_far = if self.spent_usd == usage.cost_usd {
            String::new()
        } else {
            format!(", ${} so far", self.spent_usd.normalize())
        };
        let (turns, calls) = (present::counted(&usage.turns, "turn"), present::counted(&usage.tool_calls, "tool call"));
        self.print_note(&format!("{turns}, {calls}, {tokens} tokens, ${}{so_far}", usage.cost_usd.normalize()));
    }

    fn stop_waiting(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

fn checklist_line(step: &Step) -> String {
    let mark = match step.status {
        StepStatus::Pending => "[ ]",
        StepStatus::Executing => "[…]",
        StepStatus::Completed => "[x]",
        StepStatus::Failed => "[!]",
    };
    format!("  {mark} {}. {}", step.id, folded(&step.instruction))
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
