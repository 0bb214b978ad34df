//! What an agent did before it handed a call to its client. The client's transcript does not show it, so it
//! waits here, and is put back when the client comes with its result.
//!
//! A run is found by the ids of the calls that were handed out, which nobody can guess, for the same caller and after
//! the same messages. Everything else in a transcript is taken as it is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::Message;

/// How long a client may take for its calls.
const RUN_TTL: Duration = Duration::from_secs(600);

/// Most memory of the runs that wait. Beyond it the oldest run of the caller with the most goes, so that nobody pushes
/// out what others wait for.
const MAX_BYTES: usize = 64 << 20;

/// What a run, and each of its messages, takes beside the text, roughly.
const OVERHEAD_BYTES: usize = 512;

/// The runs that wait for their clients.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    /// By the first of the calls that the client makes.
    by_call: HashMap<String, Arc<Run>>,
    /// Their keys, the oldest first.
    order: VecDeque<String>,
    /// What the runs of each caller take.
    bytes_of: HashMap<Arc<str>, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Run {
    caller_key: Arc<str>,
    /// What the client had sent.
    transcript: Transcript,
    /// Ids of the calls that the client makes.
    awaited: Vec<String>,
    messages: Vec<Message>,
    bytes: usize,
    until: Instant,
}

/// A digest of a conversation's messages. System prompts do not count: clients write the time into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transcript([u8; 32]);

impl Waiting {
    /// Keeps what a run added to the transcript that its client sent, where its last turn has calls for the client.
    pub fn keep(&self, caller_key: &Arc<str>, transcript: &[Message], added: Vec<Message>) {
        let awaited = awaited_after(&added);
        let Some(first) = awaited.first().cloned() else { return };
        let run = Run {
            caller_key: Arc::clone(caller_key),
            transcript: Transcript::of(transcript),
            awaited,
            bytes: added.iter().map(Message::bytes).sum::<usize>() + OVERHEAD_BYTES * (added.len() + 1),
            messages: added,
            until: Instant::now() + RUN_TTL,
        };
        self.lock().add(first, run);
    }

    /// The client's messages, with what happened in between put in the place of turns that wait.
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

    /// For each message the caller's run that waits for its calls, whatever the transcript.
    fn runs_of(&self, caller_key: &str, messages: &[Message]) -> Vec<Option<Arc<Run>>> {
        let (runs, now) = (self.lock(), Instant::now());
        let find = |message: &Message| {
            let Message::Assistant(turn) = message else { return None };
            let run = turn.calls.iter().find_map(|call| runs.by_call.get(&call.id))?;
            let waits = *run.caller_key == *caller_key && run.until > now && run.awaits(message);
            waits.then(|| Arc::clone(run))
        };
        messages.iter().map(find).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The place in `order` of the oldest run of the caller whose runs take the most.
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
    /// Whether a turn has the calls that the client was asked for, all of them and no other.
    fn awaits(&self, message: &Message) -> bool {
        let Message::Assistant(turn) = message else { return false };
        turn.calls.len() == self.awaited.len() && turn.calls.iter().all(|call| self.awaited.contains(&call.id))
    }
}

/// Ids of the last turn's calls that have no answer.
fn awaited_after(added: &[Message]) -> Vec<String> {
    let answered =
        |id: &str| added.iter().any(|message| matches!(message, Message::Tool(answer) if answer.call_id == id));
    let last = added.iter().rev().find_map(|message| match message {
        Message::Assistant(turn) => Some(turn),
        _ => None,
    });
    let calls = last.into_iter().flat_map(|turn| &turn.calls);
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
            Message::User(text) => self.parts(&["user", text]),
            Message::Assistant(turn) => {
                let calls = turn.calls.iter().flat_map(|call| [&*call.id, &*call.tool, &*call.arguments]);
                let parts: Vec<_> = ["assistant", &turn.text].into_iter().chain(calls).collect();
                self.parts(&parts);
            }
            Message::Tool(answer) => self.parts(&["tool", &answer.call_id, &answer.text]),
        }
    }

    /// Lengths go before what they measure, so that no two transcripts read the same.
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
