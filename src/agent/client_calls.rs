//! Runs that are paused until their client has run its own tools, or a person has decided about calls. The client's
//! transcript does not show the earlier work of the agent. That work is stored, and restored when the client sends its
//! results, or the calls for which the run paused.
//!
//! A run is found by the unguessable ids of the calls that the client received, for the same caller and after the
//! same messages. Everything else in a transcript is used unchanged.

use std::collections::{HashMap, HashSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Message;
use super::conversation::stored;
use super::message::{AssistantTurn, RequestedCall, ToolMessage, UserPart};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::Store;

/// How long a run is kept that its client continues. A client sends its calls again with each later message, and the thoughts of the
/// run belong to them: sessions of a client last for days.
const RUN_TTL: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How long a run is kept that waits for an approver: longer than any approval waits and can be used.
const APPROVAL_TTL: SignedDuration = SignedDuration::from_hours(24);

/// Maximum bytes of one caller's paused runs; above it the oldest are deleted.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct PausedRun {
    /// A digest of the messages that the client sent; see [`TranscriptHasher`].
    transcript: String,
    /// Ids of the calls that the client runs.
    expected_calls: Vec<String>,
    /// The messages that the run added, in the store's form.
    messages: Vec<String>,
    /// Missing in a run of an earlier version.
    #[serde(default)]
    prefix: Option<SentPrefix>,
}

/// The gateway's own beginning of a run's requests, before the client's messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SentPrefix {
    /// The agent, which has a prompt of its own.
    pub(super) agent: String,
    pub(super) system: String,
    /// A digest of the other system prompts: the client's, and the summary of its thread.
    pub(super) others: String,
    /// A digest of the tools.
    pub(super) tools: String,
}

/// A client's messages with the messages of its kept runs.
#[derive(Debug, Default)]
pub(super) struct Restored {
    pub(super) messages: Vec<Message>,
    /// With which the runs began: the next one begins with the same.
    pub(super) prefix: Option<SentPrefix>,
}

/// Stores the messages that a run added to its client's transcript, if its last turn has calls without an answer: calls
/// of the client's tools, and calls for which the run paused.
/// Errors: the store cannot be used.
pub(super) async fn keep(
    store: &Store,
    caller_key: &str,
    transcript: &[Message],
    (added, prefix): (&[Message], &SentPrefix),
) -> Result<(), CallError> {
    let open = open_calls(added);
    if open.is_empty() {
        return Ok(());
    }
    let expected_calls = open.iter().filter(|call| call.approval.is_none()).map(|call| call.id.clone()).collect();
    let messages = added.iter().map(stored::write).collect();
    let prefix = Some(prefix.clone());
    let run = PausedRun { transcript: transcript_of(transcript), expected_calls, messages, prefix };
    run.store(store, caller_key, added).await
}

/// Adds the answer of a call to the run that paused for it.
/// Errors: the store cannot be used.
pub(super) async fn keep_answer(store: &Store, caller_key: &str, answer: &ToolMessage) -> Result<(), CallError> {
    let found = store
        .paused_runs()
        .waiting_for(caller_key, &[answer.call_id.as_str()], store.now())
        .await
        .map_err(CallError::from)?;
    for (_, run) in found {
        let mut run: PausedRun = serde_json::from_str(&run).map_err(CallError::internal)?;
        let mut added = run.read()?;
        if answered_calls(&added).contains(answer.call_id.as_str()) {
            continue;
        }
        added.push(Message::Tool(answer.clone()));
        run.messages = added.iter().map(stored::write).collect();
        run.store(store, caller_key, &added).await?;
    }
    Ok(())
}

/// The client's messages, with each turn that was paused replaced by the stored messages of its run.
/// Errors: the store cannot be used: without the messages of the run, the model would do its work again.
/// `unknown_session`: the client continues a run that is not kept.
pub(super) async fn restore(store: &Store, caller_key: &str, messages: Vec<Message>) -> Result<Restored, CallError> {
    let runs = runs_of(store, caller_key, &messages).await?;
    if runs.is_empty() && !messages.iter().any(has_paused_calls_of_client) {
        return Ok(Restored { messages, prefix: None });
    }
    let last = messages.iter().rposition(|message| message.as_assistant().is_some());
    let mut restored = Vec::with_capacity(messages.len());
    let mut prefixes: Vec<&SentPrefix> = Vec::new();
    let mut hasher = TranscriptHasher::default();
    for (index, message) in messages.into_iter().enumerate() {
        let turn = message.as_assistant().filter(|turn| is_of_client(turn));
        let run = turn.and_then(|turn| turn.calls().find_map(|call| runs.get(&call.id)));
        let run = run.filter(|run| run.awaits(&message) && run.transcript == hasher.digest());
        hasher.add(&message);
        match run {
            Some(run) => {
                restored.extend(run.read()?);
                prefixes.extend(&run.prefix);
            }
            None => {
                let others = without_paused_calls(message, &restored, Some(index) == last)?;
                restored.extend(others);
            }
        }
    }
    // Thoughts of some of them are bound to another beginning.
    if prefixes.iter().any(|prefix| *prefix != prefixes[0]) {
        forget_bound_thoughts(&mut restored);
    }
    let prefix = prefixes.first().copied().cloned();
    Ok(Restored { messages: restored, prefix })
}

/// Removes the thoughts of kept runs that a provider takes back only after the beginning with which they were made.
pub(super) fn forget_bound_thoughts(messages: &mut [Message]) {
    let is_kept = |message: &&mut Message| message.as_assistant().is_some_and(|turn| !is_of_client(turn));
    messages.iter_mut().filter(is_kept).for_each(Message::forget_bound_thoughts);
}

/// Removes calls for which a run paused, where they cannot be made: providers refuse a call without a result.
pub(super) fn forget_paused(messages: &mut Vec<Message>) {
    let answered: HashSet<String> = answered_calls(messages).into_iter().map(str::to_owned).collect();
    for message in &mut *messages {
        if let Message::Assistant(turn) = message {
            turn.retain_calls(|call| call.approval.is_none() || answered.contains(&call.id));
        }
    }
    messages.retain(|message| !matches!(message, Message::Assistant(turn) if turn.parts.is_empty()));
}

/// The caller's runs that wait for calls of these messages, by those calls; the transcript is not compared.
async fn runs_of(
    store: &Store,
    caller_key: &str,
    messages: &[Message],
) -> Result<HashMap<String, PausedRun>, CallError> {
    let calls: Vec<_> = calls_of(messages).map(|call| call.id.as_str()).collect();
    let found = store.paused_runs().waiting_for(caller_key, &calls, store.now()).await.map_err(CallError::from)?;
    let read = |(call, run): (String, String)| Ok((call, serde_json::from_str(&run)?));
    found.into_iter().map(read).collect::<Result<_, serde_json::Error>>().map_err(CallError::internal)
}

impl PausedRun {
    /// Stores it for each call by which it is found: the first one that its client runs, and those that need approval.
    async fn store(&self, store: &Store, caller_key: &str, added: &[Message]) -> Result<(), CallError> {
        let paused: Vec<_> = last_turn(added).into_iter().flat_map(AssistantTurn::paused_calls).collect();
        let ttl = if paused.is_empty() { RUN_TTL } else { APPROVAL_TTL };
        let now = store.now();
        let expires = now.later(ttl);
        let run = serde_json::to_string(self).map_err(CallError::internal)?;
        let calls = self.expected_calls.first().into_iter().chain(paused.into_iter().map(|call| &call.id));
        for call in calls.map(String::as_str) {
            let run = sekisho_store::PausedRun { caller_key, call, run: &run, expires };
            store.paused_runs().keep(run, now, MAX_BYTES).await.map_err(CallError::from)?;
        }
        Ok(())
    }

    /// Whether a turn has exactly the calls that the client was to run. Clients that do not know of the others may leave those
    /// out.
    fn awaits(&self, message: &Message) -> bool {
        let Message::Assistant(turn) = message else { return false };
        let of_client: Vec<_> = turn.calls().filter(|call| call.approval.is_none()).collect();
        of_client.len() == self.expected_calls.len()
            && of_client.iter().all(|call| self.expected_calls.contains(&call.id))
    }

    fn read(&self) -> Result<Vec<Message>, CallError> {
        let messages = self.messages.iter().map(|message| stored::read(message));
        messages.collect::<Result<_, _>>().map_err(CallError::internal)
    }
}

/// A turn of a client's transcript whose run is not restored: without calls for which a run paused, where other turns follow
/// it or have these calls already.
/// Errors: `unknown_session`: the client continues the run.
fn without_paused_calls(message: Message, before: &[Message], is_last: bool) -> Result<Option<Message>, CallError> {
    let mut turn = match message {
        Message::Assistant(turn) if is_of_client(&turn) && turn.paused_calls().next().is_some() => turn,
        other => return Ok(Some(other)),
    };
    let known: HashSet<_> = calls_of(before).map(|call| call.id.as_str()).collect();
    // A client adds each answer of a paused run to its transcript, and all but the first one say the same.
    let is_repeated = turn.paused_calls().all(|call| known.contains(call.id.as_str()));
    if is_last && !is_repeated {
        return Err(not_kept());
    }
    turn.retain_calls(|call| call.approval.is_none());
    let is_empty = turn.parts.is_empty() || is_repeated && turn.calls().next().is_none();
    Ok((!is_empty).then_some(Message::Assistant(turn)))
}

fn not_kept() -> CallError {
    let message = format!(
        "the run that waits for an approver is not kept: it was paused more than {} hours ago, or after other messages than \
         these; leave the calls that wait out of the conversation to go on without it",
        APPROVAL_TTL.as_secs() / 3_600
    );
    CallError::new(ErrorCode::UnknownSession, message)
}

fn has_paused_calls_of_client(message: &Message) -> bool {
    message.as_assistant().is_some_and(|turn| is_of_client(turn) && turn.paused_calls().next().is_some())
}

/// Whether a turn is as a client sent it. Others belong to responses that the gateway keeps.
fn is_of_client(turn: &AssistantTurn) -> bool {
    turn.api.is_none()
}

/// The last turn's calls that have no result.
fn open_calls(added: &[Message]) -> Vec<&RequestedCall> {
    let answered = answered_calls(added);
    let calls = last_turn(added).into_iter().flat_map(AssistantTurn::calls);
    calls.filter(|call| !answered.contains(call.id.as_str())).collect()
}

fn last_turn(messages: &[Message]) -> Option<&AssistantTurn> {
    messages.iter().rev().find_map(Message::as_assistant)
}

fn calls_of(messages: &[Message]) -> impl Iterator<Item = &RequestedCall> {
    messages.iter().filter_map(Message::as_assistant).flat_map(AssistantTurn::calls)
}

fn answered_calls(messages: &[Message]) -> HashSet<&str> {
    let answered = messages.iter().filter_map(|message| match message {
        Message::Tool(answer) => Some(answer.call_id.as_str()),
        Message::System(_) | Message::User(_) | Message::Assistant(_) => None,
    });
    answered.collect()
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
