//! A conversation on a terminal: reads a message, runs it, reads the next (D29).

use std::path::Path;

use rustyline::error::ReadlineError;

use super::editor::MessageEditor;
use super::kept::{history_file, write_transcript};
use super::{Chat, folded, profiles};
use crate::cli::{Exit, present};
use sekisho_agent::FinishReason;
use sekisho_core::call::BudgetScopes;

const COMMANDS: &str = "/tools, /model [PROFILE], /cost, /save FILE, /clear, quit";

/// The command of a line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Nothing,
    Leave,
    Tools,
    Clear,
    Cost,
    /// Changes the profile, or without a name shows it.
    Model(Option<String>),
    Save(String),
    Unknown,
    Say(String),
}

impl Line {
    fn parse(line: &str) -> Self {
        let line = line.trim();
        let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, argument.trim()) {
            ("", _) => Self::Nothing,
            ("quit" | "exit" | "/quit" | "/exit", "") => Self::Leave,
            ("/tools", "") => Self::Tools,
            ("/clear", "") => Self::Clear,
            ("/cost", "") => Self::Cost,
            ("/model", name) => Self::Model((!name.is_empty()).then(|| name.to_owned())),
            ("/save", file) if !file.is_empty() => Self::Save(file.to_owned()),
            (command, "") if command.starts_with('/') => Self::Unknown,
            _ => Self::Say(line.to_owned()),
        }
    }
}

/// Runs until `quit`, the end of the input, or two consecutive ctrl-C.
pub(super) async fn hold(mut chat: Chat) -> Exit {
    let mut editor = match MessageEditor::open(&history_file(&chat.state_directory)) {
        Ok(editor) => editor,
        Err(problem) => return unreadable(&problem),
    };
    let keys = "a backslash or alt-enter for another line; ctrl-C stops a turn, twice quits";
    chat.screen.hint(&format!("{} — {COMMANDS}; {keys}", chat.agent));
    let mut interrupted = false;
    loop {
        // Reading blocks: it gets a thread of its own, so that the gateway keeps running.
        let read = tokio::task::spawn_blocking(move || {
            let line = editor.read();
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
            Line::Say(text) => {
                editor.keep(&text);
                match chat.ask(text).await {
                    Ok(reason) => interrupted = reason == FinishReason::Aborted,
                    Err(error) => present::problem(&error.to_string()),
                }
            }
            command => obey(&mut chat, command).await,
        }
    }
}

/// A command that does not end the conversation.
async fn obey(chat: &mut Chat, command: Line) {
    match command {
        Line::Tools => show_tools(chat).await,
        Line::Clear => {
            chat.history.clear();
            chat.screen.hint("the conversation was cleared");
        }
        Line::Cost => chat.screen.hint(&chat.screen.cost()),
        Line::Model(None) => {
            let profiles = profiles(&chat.agents.gateway().configuration().current());
            chat.screen.hint(&format!("{}; {profiles}", chat.model));
        }
        Line::Model(Some(name)) => match chat.change_model(&name) {
            Ok(()) => chat.screen.hint(&format!("the conversation goes on with {name}")),
            Err(error) => present::problem(&error.to_string()),
        },
        Line::Save(file) => match write_transcript(Path::new(&file), &chat.history) {
            Ok(()) => chat.screen.hint(&format!("the conversation is in {file}")),
            Err(problem) => present::problem(&problem),
        },
        Line::Unknown => chat.screen.hint(&format!("unknown command; use {COMMANDS}")),
        Line::Nothing | Line::Leave | Line::Say(_) => {}
    }
}

async fn show_tools(chat: &Chat) {
    match chat.toolbox(&BudgetScopes::default(), &[]).list().await {
        Ok(tools) => {
            let row = |tool: sekisho_agent::ToolDescription| vec![tool.name, folded(&tool.description)];
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
            ("/save", Line::Unknown),
            ("/save talk.md", Line::Save("talk.md".into())),
            ("/model", Line::Model(None)),
            ("/model  fast ", Line::Model(Some("fast".into()))),
            ("/cost", Line::Cost),
            ("one\ntwo", Line::Say("one\ntwo".into())),
            ("exit the loop", Line::Say("exit the loop".into())),
            ("/etc/passwd is what?", Line::Say("/etc/passwd is what?".into())),
            ("how do I quit", Line::Say("how do I quit".into())),
        ] {
            assert_eq!(Line::parse(line), expected, "{line:?}");
        }
    }
}
