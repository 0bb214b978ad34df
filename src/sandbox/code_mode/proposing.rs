//! Programs that propose their effects: calls that change nothing are made while the program runs, all others are captured, and
//! answered by a token. A person approves the list of them once the program has ended; then they are made ([`commit`]).
//!
//! [`commit`]: super::commit

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::errors::error_json;
use super::tokens::Tokens;
use super::wanted::{ListedCall, Wanted};
use super::{ProgramTools, StartReason};
use sekisho_calls::approval::{Proposal, ProposedEffect, ProposedRead};
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;

/// Maximum bytes of the arguments of all reads and effects: an approval keeps no more.
const MAX_BYTES: usize = 256 << 10;

/// The calls of a program that proposes its effects.
#[derive(Debug)]
pub(super) struct Proposing {
    pub(super) tokens: Tokens,
    calls: Mutex<ProposedCalls>,
}

/// By their positions among the calls of the program, from 1. As many as a program may make.
#[derive(Debug, Default, Clone)]
pub(super) struct ProposedCalls {
    /// The number of the next request.
    pub(super) next: u32,
    pub(super) reads: BTreeMap<u32, MadeRead>,
    pub(super) effects: BTreeMap<u32, ProposedEffect>,
    /// The values of the arguments; what exceeds [`MAX_BYTES`] is counted and not kept.
    bytes: usize,
}

#[derive(Debug, Clone)]
pub(super) struct MadeRead {
    pub(super) tool: String,
    pub(super) arguments: Arguments,
    pub(super) answer_sha256: String,
}

impl Proposing {
    pub(super) fn new(tokens: Tokens) -> Self {
        Self { tokens, calls: Mutex::default() }
    }

    /// Counts a request of the program.
    pub(super) fn count(&self, number: u32) {
        let mut calls = self.calls.lock();
        calls.next = calls.next.max(number.saturating_add(1));
    }

    pub(super) fn take(&self) -> ProposedCalls {
        std::mem::take(&mut *self.calls.lock())
    }

    fn add_effect(&self, effect: ProposedEffect) {
        let mut calls = self.calls.lock();
        if calls.has_room_for(&effect.arguments) {
            calls.effects.insert(effect.call, effect);
        }
    }

    fn add_read(&self, call: u32, read: MadeRead) {
        let mut calls = self.calls.lock();
        if calls.has_room_for(&read.arguments) {
            calls.reads.insert(call, read);
        }
    }

    /// The effects before this position whose values are in these arguments.
    fn references(&self, position: u32, arguments: &Arguments) -> Result<Vec<u32>, CallError> {
        let (calls, mut found) = (self.calls.lock(), Vec::new());
        let mut find = |call: u32, _: &str| match call < position && calls.effects.contains_key(&call) {
            true => {
                found.push(call);
                Ok(Value::Null)
            }
            false => {
                let message = format!("the program has no effect {call} before this one");
                Err(CallError::new(ErrorCode::InvalidArguments, message))
            }
        };
        self.tokens.replaced(Value::Object(arguments.clone()), &mut find)?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The arguments with a number in place of each value that is not known yet, for schemas that want one.
    fn with_numbers(&self, arguments: Arguments) -> Result<Arguments, CallError> {
        match self.tokens.replaced(Value::Object(arguments), &mut |_, _| Ok(1.into()))? {
            Value::Object(arguments) => Ok(arguments),
            _ => Err(CallError::internal("arguments are an object")),
        }
    }
}

impl ProposedCalls {
    fn has_room_for(&mut self, arguments: &Arguments) -> bool {
        self.bytes = self.bytes.saturating_add(json::canonical(arguments).len());
        !self.are_too_large()
    }

    /// Whether some are left out.
    pub(super) fn are_too_large(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// The same with the present answers of the reads.
    pub(super) fn with_reads(&self, reads: BTreeMap<u32, MadeRead>) -> Self {
        Self { reads, ..self.clone() }
    }

    /// The list for an approver.
    pub(super) fn proposal(&self, run: &Arc<str>, program: &[u8; 32], policy_version: &Arc<str>) -> Proposal {
        let read = |(call, read): (&u32, &MadeRead)| ProposedRead {
            call: *call,
            tool: read.tool.clone(),
            arguments_sha256: hex::encode(json::digest(&read.arguments)),
            answer_sha256: read.answer_sha256.clone(),
        };
        Proposal {
            run: run.to_string(),
            program: hex::encode(program),
            policy_version: policy_version.to_string(),
            reads: self.reads.iter().map(read).collect(),
            effects: self.effects.values().cloned().collect(),
        }
    }
}

impl ProgramTools<'_> {
    /// Whether a request is a call that is captured: it may change something, or needs a value that is not known yet.
    pub(super) fn captures(&self, wanted: &Wanted) -> bool {
        let (Some(proposing), Wanted::Call(call)) = (&self.proposing, wanted) else { return false };
        let needs_value = |arguments: &Arguments| proposing.tokens.are_among(arguments);
        call.arguments.as_ref().is_ok_and(needs_value) || !self.pipeline.changes_nothing(&call.tool, &self.call.caller)
    }

    /// Captures a call, and gives the program's answer.
    pub(super) async fn capture(&self, proposing: &Proposing, call: &ListedCall) -> Result<String, String> {
        let ListedCall { position, tool, arguments } = call;
        let captured = match self.admitted(arguments.clone()?) {
            Ok(arguments) => self.add_effect(proposing, *position, tool, arguments).await,
            Err(error) => Err(error),
        };
        captured.map(|()| proposing.tokens.placeholder(*position)).map_err(|error| error_json(&error))
    }

    /// Lists a call again that was answered in an earlier part of the run. `None`: the run is to end.
    pub(super) async fn list_again(
        &self,
        proposing: &Proposing,
        call: &ListedCall,
        answer: &Result<String, String>,
    ) -> Option<()> {
        let (Ok(arguments), tool) = (&call.arguments, &call.tool) else { return Some(()) };
        if answer.as_ref().is_ok_and(|answer| *answer == proposing.tokens.placeholder(call.position)) {
            return match self.add_effect(proposing, call.position, tool, arguments.clone()).await {
                Ok(()) => Some(()),
                Err(error) => self.stop_refused(error, false),
            };
        }
        let was_captured =
            !self.pipeline.changes_nothing(tool, &self.call.caller) || proposing.tokens.are_among(arguments);
        // One that was captured and refused is no effect, and has no answer of its tool.
        if answer.is_ok() || !was_captured {
            list_read(proposing, call, answer);
        }
        Some(())
    }

    async fn add_effect(
        &self,
        proposing: &Proposing,
        position: u32,
        tool: &str,
        arguments: Arguments,
    ) -> Result<(), CallError> {
        let refers_to = proposing.references(position, &arguments)?;
        let context = self.context(position - 1, tool.to_owned(), &arguments, StartReason::default());
        let mut proposed = Arc::clone(&self.pipeline).proposed(context, arguments.clone()).await;
        let is_invalid = |error: &CallError| error.code() == ErrorCode::InvalidArguments;
        if !refers_to.is_empty() && proposed.as_ref().is_err_and(is_invalid) {
            let arguments = proposing.with_numbers(arguments.clone())?;
            let context = self.context(position - 1, tool.to_owned(), &arguments, StartReason::default());
            proposed = Arc::clone(&self.pipeline).proposed(context, arguments).await;
        }
        let arguments = as_stored(&arguments)?;
        proposing.add_effect(ProposedEffect { call: position, arguments, refers_to, ..proposed? });
        Ok(())
    }
}

/// In the form in which an approval stores them, where `1.0` is `1`: the list of a run that is resumed is compared with that.
fn as_stored(arguments: &Arguments) -> Result<Arguments, CallError> {
    serde_json::from_slice(&json::canonical(arguments)).map_err(CallError::internal)
}

/// Adds a call that was made, with its answer.
pub(super) fn list_read(proposing: &Proposing, call: &ListedCall, answer: &Result<String, String>) {
    if let Ok(arguments) = &call.arguments {
        let (tool, arguments) = (call.tool.clone(), arguments.clone());
        proposing.add_read(call.position, MadeRead { tool, arguments, answer_sha256: answer_sha256(answer) });
    }
}

/// Of an error only the code counts: its message may say when to try again.
pub(super) fn answer_sha256(answer: &Result<String, String>) -> String {
    let hash = match answer {
        Ok(json) => Sha256::new().chain_update("value").chain_update(json),
        Err(json) => Sha256::new().chain_update("error").chain_update(code_and_message(json).0),
    };
    hex::encode(hash.finalize())
}

/// Of the JSON of an error.
pub(super) fn code_and_message(json: &str) -> (String, String) {
    let error = serde_json::from_str::<Value>(json).unwrap_or_default();
    let message = error["message"].as_str().unwrap_or_default();
    let info = serde_json::from_str::<Value>(message).unwrap_or_default();
    let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
    (text("code"), text("message"))
}
