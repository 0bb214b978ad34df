//! A conversation on a terminal: a line, what comes of it, the next line (D29).

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Chat;
use crate::agent::FinishReason;
use crate::cli::{Exit, present};
use crate::core::call::BudgetScopes;

const PROMPT: &str = "› ";

/// What a line asks for.
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

/// Until `quit`, the end of the input, or the second ctrl-C in a row.
pub(super) async fn hold(mut chat: Chat) -> Exit {
    let mut editor = match DefaultEditor::new() {
        Ok(editor) => editor,
        Err(problem) => return unreadable(&problem),
    };
    chat.screen.hint(&format!("{} — /tools, /clear, quit; ctrl-C stops a turn, twice leaves", chat.agent));
    let mut interrupted = false;
    loop {
        // It waits for keys: a thread of its own, so that the gateway goes on meanwhile.
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
                chat.screen.hint("ctrl-C again leaves");
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
                chat.screen.hint("the conversation begins anew");
            }
            Line::Unknown => chat.screen.hint("there are /tools, /clear and quit"),
            Line::Say(text) => {
                // Only a line that cannot be found again, where it fails.
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
            present::table(&["tool", "what it does"], tools.into_iter().map(row).collect());
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
    fn lines_are_commands_or_said_to_the_agent() {
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
