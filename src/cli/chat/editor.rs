//! Reads messages on a terminal, of several lines where wanted, and keeps them for the next conversations.

use std::path::{Path, PathBuf};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, Config, Editor, Helper, KeyCode, KeyEvent, Modifiers};

/// Messages that are kept.
const MAX_KEPT: usize = 1_000;

const PROMPT: &str = "› ";

pub(super) struct MessageEditor {
    editor: Editor<SeveralLines, FileHistory>,
    history: PathBuf,
}

impl MessageEditor {
    /// Errors: the terminal cannot be used.
    pub(super) fn open(history: &Path) -> Result<Self, ReadlineError> {
        let config = Config::builder().max_history_size(MAX_KEPT)?.build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(SeveralLines));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        // The first conversation has no history.
        let _missing = editor.load_history(history);
        Ok(Self { editor, history: history.to_owned() })
    }

    /// Waits for a message; blocks.
    /// Errors: as [`Editor::readline`].
    pub(super) fn read(&mut self) -> Result<String, ReadlineError> {
        Ok(self.editor.readline(PROMPT)?.replace("\\\n", "\n"))
    }

    /// Keeps a message, in a file that only this user can read. A failure only means that it is missing there.
    pub(super) fn keep(&mut self, message: &str) {
        let _kept = self.editor.add_history_entry(message);
        if let Err(error) = self.editor.save_history(&self.history) {
            tracing::debug!(%error, file = %self.history.display(), "the history of messages cannot be written");
        }
    }
}

/// A message goes on after a line that ends in a backslash.
struct SeveralLines;

impl Validator for SeveralLines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match context.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for SeveralLines {
    type Candidate = String;
}

impl Hinter for SeveralLines {
    type Hint = String;
}

impl Highlighter for SeveralLines {}

impl Helper for SeveralLines {}
