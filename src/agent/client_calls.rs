//! Runs that are paused until their client has run its own tools. The client's transcript does not show what the
//! agent did before; it is stored, and restored when the client sends its results.
//!
//! A run is found by the unguessable ids of the calls that the client received, for the same caller and after the
//! same messages. Everything else in a transcript is used unchanged.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Message;
use super::conversation::stored;
use super::message::{AssistantTurn, UserPart};
use crate::core::error::CallError;
use crate::infra::store::{self, Store};

/// How long a client may take to run its calls.
const RUN_TTL: Duration = Duration::from_hours(1);

/// Maximum bytes of one caller's paused runs; above it the oldest are deleted.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct PausedRun {
    /// A digest of the messages that the client sent; see [`TranscriptHasher`].
    transcript: String,
    /// Ids of the calls that the client runs.
    expected_calls: Vec<String>,
    /// What the run added, as the store has messages.
    messages: Vec<String>,
}

/// Stores the messages that a run added to its client's transcript, if its last turn has calls for the client.
///
/// # Errors
/// The store cannot be used.
pub(super) async fn keep(
    store: &Store,
    caller_key: &str,
    transcript: &[Message],
    added: &[Message],
) -> Result<(), CallError> {
    let expected_calls = calls_after(added);
    let Some(call) = expected_calls.first().cloned() else { return Ok(()) };
    let messages = added.iter().map(stored::write).collect();
    let run = PausedRun { transcript: transcript_of(transcript), expected_calls, messages };
    let run = serde_json::to_string(&run).map_err(CallError::internal)?;
    let now = Timestamp::now();
    let expires = now.saturating_add(RUN_TTL).map_err(CallError::internal)?;
    let run = store::PausedRun { caller_key, call: &call, run: &run, expires };
    store.keep_paused_run(run, now, MAX_BYTES).await.map_err(CallError::from)
}

/// The client's messages, with each turn that was paused replaced by the stored messages of its run.
///
/// # Errors
/// The store cannot be used: without what the run did, the model would do it again.
pub(super) async fn restore(
    store: &Store,
    caller_key: &str,
    messages: Vec<Message>,
) -> Result<Vec<Message>, CallError> {
    let runs = runs_of(store, caller_key, &messages).await?;
    if runs.is_empty() {
        return Ok(messages);
    }
    let mut restored = Vec::with_capacity(messages.len());
    let mut hasher = TranscriptHasher::default();
    for message in messages {
        let run = message.as_assistant().and_then(|turn| turn.calls().find_map(|call| runs.get(&call.id)));
        let run = run.filter(|run| run.awaits(&message) && run.transcript == hasher.digest());
        hasher.add(&message);
        match run {
            Some(run) => restored.extend(run.read()?),
            None => restored.push(message),
        }
    }
    Ok(restored)
}

/// The caller's runs that wait for calls of these messages, by their first call; the transcript is not compared.
async fn runs_of(
    store: &Store,
    caller_key: &str,
    messages: &[Message],
) -> Result<HashMap<String, PausedRun>, CallError> {
    let calls = messages.iter().filter_map(Message::as_assistant).flat_map(AssistantTurn::calls);
    let calls: Vec<_> = calls.map(|call| call.id.as_str()).collect();
    let found = store.paused_runs(caller_key, &calls, Timestamp::now()).await.map_err(CallError::from)?;
    let read = |(call, run): (String, String)| Ok((call, serde_json::from_str(&run)?));
    found.into_iter().map(read).collect::<Result<_, serde_json::Error>>().map_err(CallError::internal)
}

impl PausedRun {
    /// Whether a turn has exactly the calls that the client was sent.
    fn awaits(&self, message: &Message) -> bool {
        let Message::Assistant(turn) = message else { return false };
        turn.calls().count() == self.expected_calls.len()
            && turn.calls().all(|call| self.expected_calls.contains(&call.id))
    }

    fn read(&self) -> Result<Vec<Message>, CallError> {
        let messages = self.messages.iter().map(|message| stored::read(message));
        messages.collect::<Result<_, _>>().map_err(CallError::internal)
    }
}

/// Ids of the last turn's calls that have no result.
fn calls_after(added: &[Message]) -> Vec<String> {
    let answered =
        |id: &str| added.iter().any(|message| matches!(message, Message::Tool(answer) if answer.call_id == id));
    let last = added.iter().rev().find_map(Message::as_assistant);
    let calls = last.into_iter().flat_map(AssistantTurn::calls);
    calls.map(|call| call.id.clone()).filter(|id| !answered(id)).collect()
}

fn transcript_of(messages: &[Message]) -> String {
    let mut hasher = TranscriptHasher::default();
    messages.iter().for_each(|message| hasher.add(message));
    hasher.digest()
}

/// Computes a digest of a conversation's messages, without system prompts: clients write the current time into them.
#[derive(Default)]
struct TranscriptHasher(Sha256);

impl TranscriptHasher {
    fn add(&mut self, message: &Message) {
        match message {
            Message::System(_) => {}
            Message::User(message) => {
                let parts = message.parts.iter().flat_map(|part| match part {
                    UserPart::Text(text) => ["text", &**text],
                    UserPart::Image(image) => [&*image.media_type, &*image.base64],
                    UserPart::File(file) => [&*file.name, file.digest()],
                });
                let parts: Vec<_> = ["user"].into_iter().chain(parts).collect();
                self.parts(&parts);
            }
            Message::Assistant(turn) => {
                let text = turn.text();
                let calls = turn.calls().flat_map(|call| [&*call.id, &*call.tool, &*call.arguments]);
                let parts: Vec<_> = ["assistant", &text].into_iter().chain(calls).collect();
                self.parts(&parts);
            }
            Message::Tool(answer) => self.parts(&["tool", &answer.call_id, &answer.text]),
        }
    }

    /// Each field is preceded by its length, so that different transcripts never give the same input.
    fn parts(&mut self, parts: &[&str]) {
        self.0.update(parts.len().to_le_bytes());
        for part in parts {
            self.0.update(part.len().to_le_bytes());
            self.0.update(part.as_bytes());
        }
    }

    fn digest(&self) -> String {
        hex::encode(self.0.clone().finalize())
    }
}

#[cfg(test)]
mod tests;
