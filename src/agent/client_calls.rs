//! Runs that are paused until their client has run its own tools. The client's transcript does not show what the
//! agent did before; it is kept here and restored when the client sends its results.
//!
//! A run is found by the unguessable ids of the calls that the client received, for the same caller and after the
//! same messages. Everything else in a transcript is used unchanged.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::Message;
use super::message::{AssistantTurn, UserPart};

/// How long a client may take to run its calls.
const RUN_TTL: Duration = Duration::from_secs(600);

/// Memory limit of all paused runs. Above it, the oldest run of the caller with the largest total is evicted, so that
/// no caller can evict the runs of others.
const MAX_BYTES: usize = 64 << 20;

/// Estimated memory of a run, and of each of its messages, besides the text.
const OVERHEAD_BYTES: usize = 512;

/// The runs that are paused until their clients answer.
#[derive(Debug, Default)]
pub struct PausedRuns(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    /// Key: the id of the first call that the client runs.
    by_call: HashMap<String, Arc<Run>>,
    /// The keys, oldest first.
    order: VecDeque<String>,
    /// Bytes of each caller's runs.
    bytes_of: HashMap<Arc<str>, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Run {
    caller_key: Arc<str>,
    /// The messages that the client sent.
    transcript: Transcript,
    /// Ids of the calls that the client runs.
    expected_calls: Vec<String>,
    messages: Vec<Message>,
    bytes: usize,
    until: Instant,
}

/// A digest of a conversation's messages, without system prompts: clients write the current time into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transcript([u8; 32]);

impl PausedRuns {
    /// Stores the messages that a run added to its client's transcript, if its last turn has calls for the client.
    pub fn keep(&self, caller_key: &Arc<str>, transcript: &[Message], added: Vec<Message>) {
        let expected_calls = calls_after(&added);
        let Some(first) = expected_calls.first().cloned() else { return };
        let run = Run {
            caller_key: Arc::clone(caller_key),
            transcript: Transcript::of(transcript),
            expected_calls,
            bytes: added.iter().map(Message::bytes).sum::<usize>() + OVERHEAD_BYTES * (added.len() + 1),
            messages: added,
            until: Instant::now() + RUN_TTL,
        };
        self.0.lock().add(first, run);
    }

    /// The client's messages, with each turn that was paused replaced by the stored messages of its run.
    pub fn restore(&self, caller_key: &str, messages: Vec<Message>) -> Vec<Message> {
        let runs = self.runs_of(caller_key, &messages);
        if runs.iter().all(Option::is_none) {
            return messages;
        }
        let mut restored = Vec::with_capacity(messages.len());
        let mut hasher = TranscriptHasher::default();
        for (message, run) in messages.into_iter().zip(runs) {
            let run = run.filter(|run| run.transcript == hasher.digest());
            hasher.add(&message);
            match run {
                Some(run) => restored.extend(run.messages.iter().cloned()),
                None => restored.push(message),
            }
        }
        restored
    }

    /// For each message the caller's paused run that it answers; the transcript is not compared.
    fn runs_of(&self, caller_key: &str, messages: &[Message]) -> Vec<Option<Arc<Run>>> {
        let (runs, now) = (self.0.lock(), Instant::now());
        let find = |message: &Message| {
            let Message::Assistant(turn) = message else { return None };
            let run = turn.calls().find_map(|call| runs.by_call.get(&call.id))?;
            let waits = *run.caller_key == *caller_key && run.until > now && run.awaits(message);
            waits.then(|| Arc::clone(run))
        };
        messages.iter().map(find).collect()
    }
}

impl Runs {
    fn add(&mut self, call: String, run: Run) {
        let now = Instant::now();
        while self.order.front().is_some_and(|oldest| self.by_call.get(oldest).is_none_or(|run| run.until <= now)) {
            self.remove(0);
        }
        self.bytes += run.bytes;
        *self.bytes_of.entry(Arc::clone(&run.caller_key)).or_default() += run.bytes;
        self.by_call.insert(call.clone(), Arc::new(run));
        self.order.push_back(call);
        while self.bytes > MAX_BYTES
            && let Some(index) = self.oldest_of_largest()
        {
            self.remove(index);
        }
    }

    /// The index in `order` of the oldest run of the caller whose runs use the most memory.
    fn oldest_of_largest(&self) -> Option<usize> {
        let (largest, _) = self.bytes_of.iter().max_by_key(|(_, bytes)| **bytes)?;
        let is_its = |call: &String| self.by_call.get(call).is_some_and(|run| run.caller_key == *largest);
        self.order.iter().position(is_its)
    }

    fn remove(&mut self, index: usize) {
        let Some(run) = self.order.remove(index).and_then(|call| self.by_call.remove(&call)) else { return };
        self.bytes = self.bytes.saturating_sub(run.bytes);
        if let Some(bytes) = self.bytes_of.get_mut(&run.caller_key) {
            *bytes = bytes.saturating_sub(run.bytes);
            if *bytes == 0 {
                self.bytes_of.remove(&run.caller_key);
            }
        }
    }
}

impl Run {
    /// Whether a turn has exactly the calls that the client was sent.
    fn awaits(&self, message: &Message) -> bool {
        let Message::Assistant(turn) = message else { return false };
        turn.calls().count() == self.expected_calls.len()
            && turn.calls().all(|call| self.expected_calls.contains(&call.id))
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

impl Transcript {
    fn of(messages: &[Message]) -> Self {
        let mut hasher = TranscriptHasher::default();
        messages.iter().for_each(|message| hasher.add(message));
        hasher.digest()
    }
}

#[derive(Default)]
struct TranscriptHasher(Sha256);

impl TranscriptHasher {
    fn add(&mut self, message: &Message) {
        match message {
            Message::System(_) => {}
            Message::User(message) => {
                let parts = message.parts.iter().flat_map(|part| match part {
                    UserPart::Text(text) => ["text", text.as_str()],
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

    fn digest(&self) -> Transcript {
        Transcript(self.0.clone().finalize().into())
    }
}

#[cfg(test)]
mod tests;
