//! A conversation on a terminal: reads a line, runs it, reads the next (D29).

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Chat;
use crate::agent::FinishReason;
use crate::cli::{Exit, present};
use crate::core::call::BudgetScopes;

const PROMPT: &str = "› ";

/// The command of a line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Nothing,
    Leave,
    Tools,
    Clear,
    Unknown,
    Say(String),
}

impl Line {
    fn parse(line: &str) -> Self {
        match line.trim() {
            "" => Self::Nothing,
            "quit" | "exit" | "/quit" | "/exit" => Self::Leave,
            "/tools" => Self::Tools,
            "/clear" => Self::Clear,
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => Self::Unknown,
            text => Self::Say(text.to_owned()),
        }
    }
}

/// Runs until `quit`, the end of the input, or two consecutive ctrl-C.
pub(super) async fn hold(mut chat: Chat) -> Exit {
    let mut editor = match DefaultEditor::new() {
        Ok(editor) => editor,
        Err(problem) => return unreadable(&problem),
    };
    chat.screen.hint(&format!("{} — /tools, /clear, quit; ctrl-C stops a turn, twice quits", chat.agent));
    let mut interrupted = false;
    loop {
        // Reading blocks: it gets a thread of its own, so that the gateway keeps running.
        let read = tokio::task::spawn_blocking(move || {
            let line = editor.readline(PROMPT);
            (editor, line)
        });
        let Ok((back, line)) = read.await else { return Exit::Misconfigured };
        editor = back;
        let line = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) if !interrupted => {
                interrupted = true;
                chat.screen.hint("press ctrl-C again to quit");
                continue;
            }
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Exit::Done,
            Err(problem) => return unreadable(&problem),
        };
        interrupted = false;
        match Line::parse(&line) {
            Line::Nothing => {}
            Line::Leave => return Exit::Done,
            Line::Tools => show_tools(&chat).await,
            Line::Clear => {
                chat.history.clear();
                chat.screen.hint("the conversation was cleared");
            }
            Line::Unknown => chat.screen.hint("unknown command; use /tools, /clear or quit"),
            Line::Say(text) => {
                // A failure only means that the line is missing from the history.
                let _kept = editor.add_history_entry(text.as_str());
                match chat.ask(text).await {
                    Ok(reason) => interrupted = reason == FinishReason::Aborted,
                    Err(error) => present::problem(&error.to_string()),
                }
            }
        }
    }
}

async fn show_tools(chat: &Chat) {
    match chat.toolbox(&BudgetScopes::default()).list().await {
        Ok(tools) => {
            let row = |tool: crate::agent::ToolDescription| vec![tool.name, present::folded(&tool.description)];
            present::table(&["tool", "description"], tools.into_iter().map(row).collect());
        }
        Err(problem) => present::problem(&problem.to_string()),
    }
}

fn unreadable(problem: &ReadlineError) -> Exit {
    present::problem(&format!("the terminal cannot be read: {problem}"));
    Exit::Misconfigured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages_to_the_agent() {
        for (line, expected) in [
            ("", Line::Nothing),
            ("  \t", Line::Nothing),
            ("quit", Line::Leave),
            (" exit ", Line::Leave),
            ("/tools", Line::Tools),
            ("/clear", Line::Clear),
            ("/tool", Line::Unknown),
            ("/etc/passwd is what?", Line::Say("/etc/passwd is what?".into())),
            ("how do I quit", Line::Say("how do I quit".into())),
        ] {
            assert_eq!(Line::parse(line), expected, "{line:?}");
        }
    }
}
