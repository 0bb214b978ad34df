//! The last conversation on this state directory, which `--resume` continues; only this user can read it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use sekisho_agent::Message;
use sekisho_agent::message::{AssistantTurn, RequestedCall, ToolMessage};

/// The version of the file's form.
const VERSION: u32 = 1;

/// A conversation between two turns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptConversation {
    version: u32,
    /// The profile, as `--model` names it.
    pub(super) model: String,
    pub(super) session: String,
    messages: Vec<KeptMessage>,
}

/// A message without the parts that only the provider of its turn takes back, and without pictures.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "role")]
enum KeptMessage {
    System { text: String },
    User { text: String },
    Assistant { text: String, calls: Vec<KeptCall> },
    Tool { call_id: String, tool: String, text: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptCall {
    id: String,
    tool: String,
    arguments: String,
}

impl KeptConversation {
    pub(super) fn new(model: &str, session: &str, messages: &[Message]) -> Self {
        let messages = messages.iter().map(KeptMessage::from).collect();
        Self { version: VERSION, model: model.to_owned(), session: session.to_owned(), messages }
    }

    pub(super) fn messages(self) -> Vec<Message> {
        self.messages.into_iter().map(Message::from).collect()
    }

    /// Errors: there is no such file, or it has another form.
    pub(super) fn load(state_directory: &Path) -> Result<Self, String> {
        let file = file(state_directory);
        if !file.exists() {
            return Err(format!("there is no conversation to resume in {}", state_directory.display()));
        }
        let at = |problem: String| format!("{} cannot be resumed: {problem}", file.display());
        let text = fs::read(&file).map_err(|error| at(error.to_string()))?;
        let kept: Self = serde_json::from_slice(&text).map_err(|error| at(error.to_string()))?;
        match kept.version {
            VERSION => Ok(kept),
            other => Err(at(format!("it is of version {other}, and this program reads {VERSION}"))),
        }
    }

    /// Replaces the file as a whole.
    /// Errors: it cannot be written.
    pub(super) fn save(&self, state_directory: &Path) -> Result<(), String> {
        let file = file(state_directory);
        let at = |error: std::io::Error| format!("{} cannot be written: {error}", file.display());
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        DirBuilder::new().recursive(true).mode(0o700).create(state_directory).map_err(at)?;
        let unfinished = file.with_extension("new");
        let mut options = OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished).map_err(at)?;
        new.write_all(&text).and_then(|()| new.sync_all()).map_err(at)?;
        fs::rename(&unfinished, &file).map_err(at)
    }
}

/// Writes a conversation as Markdown, into a new file that only this user can read.
/// Errors: the file exists or cannot be written.
pub(super) fn write_transcript(file: &Path, messages: &[Message]) -> Result<(), String> {
    let written = messages.iter().filter_map(|message| match message {
        Message::User(message) => Some(format!("## You\n\n{}\n", message.text().trim())),
        Message::Assistant(turn) if !turn.text().trim().is_empty() => {
            Some(format!("## Agent\n\n{}\n", turn.text().trim()))
        }
        Message::Tool(result) => Some(format!("> {} was called\n", result.tool)),
        Message::Assistant(_) | Message::System(_) => None,
    });
    let text = written.collect::<Vec<_>>().join("\n");
    let at = |error: std::io::Error| format!("{} cannot be written: {error}", file.display());
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(at)?;
    new.write_all(text.as_bytes()).map_err(at)
}

/// Lines that were typed before.
pub(super) fn history_file(state_directory: &Path) -> PathBuf {
    state_directory.join("chat_history")
}

fn file(state_directory: &Path) -> PathBuf {
    state_directory.join("chat_conversation.json")
}

impl From<&Message> for KeptMessage {
    fn from(message: &Message) -> Self {
        match message {
            Message::System(text) => Self::System { text: text.clone() },
            Message::User(message) => Self::User { text: message.text() },
            Message::Assistant(turn) => {
                let calls = turn.calls().map(|call| KeptCall {
                    id: call.id.clone(),
                    tool: call.tool.clone(),
                    arguments: call.arguments.clone(),
                });
                Self::Assistant { text: turn.text(), calls: calls.collect() }
            }
            Message::Tool(result) => {
                Self::Tool { call_id: result.call_id.clone(), tool: result.tool.clone(), text: result.text.clone() }
            }
        }
    }
}

impl From<KeptMessage> for Message {
    fn from(message: KeptMessage) -> Self {
        match message {
            KeptMessage::System { text } => Self::System(text),
            KeptMessage::User { text } => Self::User(text.into()),
            KeptMessage::Assistant { text, calls } => {
                let calls = calls.into_iter().map(|call| RequestedCall::new(call.id, call.tool, call.arguments));
                Self::Assistant(AssistantTurn::new(text, calls))
            }
            KeptMessage::Tool { call_id, tool, text } => {
                Self::Tool(ToolMessage { call_id, tool, text, ..ToolMessage::default() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn conversation() -> Vec<Message> {
        let call = RequestedCall::new("c1".into(), "calculator".into(), r#"{"expression":"6*7"}"#.into());
        let result =
            ToolMessage { call_id: "c1".into(), tool: call.tool.clone(), text: "42".into(), ..ToolMessage::default() };
        vec![
            Message::User("6 * 7?".into()),
            Message::Assistant(AssistantTurn::new("", [call])),
            Message::Tool(result),
            Message::Assistant(AssistantTurn::new("It is 42.", [])),
        ]
    }

    #[test]
    fn a_conversation_is_continued_as_it_was() {
        let directory = TempDir::new().expect("a directory");
        let state = directory.path().join("state");
        assert!(KeptConversation::load(&state).expect_err("nothing yet").contains("no conversation to resume"));
        KeptConversation::new("fast", "s-1", &conversation()).save(&state).expect("written");
        let mode = fs::metadata(file(&state)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let kept = KeptConversation::load(&state).expect("the conversation");
        assert_eq!((kept.model.as_str(), kept.session.as_str()), ("fast", "s-1"));
        assert_eq!(kept.messages(), conversation());
        fs::write(file(&state), r#"{"version": 2, "model": "m", "session": "s", "messages": []}"#).expect("written");
        assert!(KeptConversation::load(&state).expect_err("of another version").contains("version 2"));
    }

    #[test]
    fn a_transcript_is_a_new_file() {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("talk.md");
        write_transcript(&file, &conversation()).expect("written");
        let text = fs::read_to_string(&file).expect("a text");
        assert_eq!(text, "## You\n\n6 * 7?\n\n> calculator was called\n\n## Agent\n\nIt is 42.\n");
        assert!(write_transcript(&file, &[]).expect_err("it exists").contains("talk.md"));
    }
}
