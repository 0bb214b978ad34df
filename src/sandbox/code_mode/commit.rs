//! The end of a program that proposes its effects: their approval, and the effects themselves.
//!
//! All of it is in the journal of the run, behind the requests of the program: the approved list, and each effect with its answer. So a
//! run whose process is killed goes on behind the last answer, and an effect of unknown outcome is not made again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::errors::{error_json, value_json};
use super::program_run::{NeededByCall, Stop};
use super::proposing::{MadeRead, ProposedCalls, Proposing, answer_sha256, code_and_message};
use super::wanted::Wanted;
use super::{ProgramTools, StartReason};
use sekisho_calls::approval::{Proposal, ProposedEffect};
use sekisho_calls::journals::{Found, JournalQuestion, RunJournal};
use sekisho_calls::tool::{BUILTIN, PROGRAM_EFFECTS};
use sekisho_core::call::{CallContext, CallKind, CallResumption, Target};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_guest_protocol::{End, Outcome, ReadSoFar};

/// Maximum effects that an error lists, and characters of each.
const MAX_LISTED: usize = 50;
const MAX_SHOWN: usize = 300;

/// Maximum bytes of the values that are put into the arguments of one effect, or into the result of the program: as of one value.
const MAX_FILLED: usize = 16 << 20;

/// The values of the effects that are made, by the positions of their calls.
type Made = BTreeMap<u32, Value>;

impl ProgramTools<'_> {
    /// Has the effects of a program approved, and makes them. Values of effects in the program's result become those that they have.
    /// `None`: the run is to end.
    pub(super) async fn commit(&self, outcome: &mut Outcome) -> Option<()> {
        let (Some(proposing), Some(journal)) = (&self.proposing, &self.journal) else { return Some(()) };
        if outcome.end != (End::Exited { code: 0 }) || self.is_to_end() {
            return Some(());
        }
        let calls = proposing.take();
        if calls.are_too_large() {
            let message = "the reads and effects of the program have too large arguments for one approval: propose fewer at a time";
            return self.stop_refused(CallError::new(ErrorCode::TooLarge, message), true);
        }
        if calls.effects.is_empty() {
            return Some(());
        }
        let approved = self.approved(journal, &calls).await?;
        let (mut made, mut told, count) = (Made::new(), Vec::new(), approved.effects_to_make().count());
        for (at, effect) in approved.effects_to_make().enumerate() {
            let number = calls.next.saturating_add(1).saturating_add(u32::try_from(at).ok()?);
            let is_as_approved =
                |now: &ProposedEffect| now.sha256 == effect.sha256 && now.arguments == effect.arguments;
            if !calls.effects.get(&effect.call).is_some_and(is_as_approved) {
                let why = "it is another call than the one that was approved, such as of a tool that has changed";
                return self.stop_refused(failed(effect, (at, count), why), true);
            }
            // A value that somebody has told is not the tool's: the approver of the list has not approved it.
            if journal.is_settled(number) {
                told.push(effect.call);
            }
            let is_shown = !effect.refers_to.iter().any(|call| told.contains(call));
            let shown: Arc<[String]> = if is_shown { Arc::from(&effect.reasons[..]) } else { Arc::default() };
            match self.make_effect(proposing, number, (effect, shown), &made).await? {
                Ok(value) => made.insert(effect.call, value),
                Err(why) => return self.stop_refused(failed(effect, (at, count), &why), true),
            };
        }
        fill_in(proposing, outcome, &made);
        Some(())
    }

    /// The list that an approver has approved.
    async fn approved(&self, journal: &RunJournal, calls: &ProposedCalls) -> Option<Proposal> {
        let question = JournalQuestion::Other(Sha256::digest("the effects of the program").into());
        let asked = match journal.find(calls.next, &question, true, (Vec::new(), false)) {
            Found::Answered(answer) => match serde_json::from_str(&answer.json) {
                Ok(approved) => return Some(approved),
                Err(error) => return self.stop_refused(CallError::internal(error), true),
            },
            Found::New { approval } => approval,
            _ => return self.stop_run(Stop::Diverged("it had other effects".to_owned())),
        };
        let version = self.pipeline.policy_version();
        let Some(id) = asked else {
            let proposal = calls.proposal(journal.id(), &self.parent.program, &version);
            return self.ask(journal, calls.next, proposal, None).await;
        };
        let calls = calls.with_reads(self.read_again(&calls.reads).await?);
        let proposal = calls.proposal(journal.id(), &self.parent.program, &version);
        match Arc::clone(&self.pipeline).effects_of(Arc::clone(&id), Arc::clone(&self.call.caller)).await {
            Ok((was, left)) if was == proposal => {
                self.ask(journal, calls.next, left.unwrap_or(proposal), Some(id)).await
            }
            // It is another list by now: somebody must look at it again.
            Ok(_) => self.ask(journal, calls.next, proposal, None).await,
            Err(error) => self.stop_refused(error, false),
        }
    }

    /// Passes the list through the pipeline, where it needs an approval. The approved list is in the journal before any effect is made.
    async fn ask(
        &self,
        journal: &RunJournal,
        number: u32,
        proposal: Proposal,
        approval: Option<Arc<str>>,
    ) -> Option<Proposal> {
        let (arguments, text) = match (proposal.to_arguments(), serde_json::to_string(&proposal)) {
            (Ok(arguments), Ok(text)) => (arguments, text),
            (Err(error), _) => return self.stop_refused(error, true),
            (_, Err(error)) => return self.stop_refused(CallError::internal(error), true),
        };
        let target = Target {
            kind: CallKind::Effects,
            source: Some(BUILTIN.to_owned()),
            name: format!("program {}", proposal.program),
        };
        let context = self.context(u32::MAX, PROGRAM_EFFECTS.to_owned(), &arguments, StartReason::default());
        let resumption = CallResumption { approval, ..CallResumption::default() };
        let context = CallContext { target: Some(Box::new(target)), resumption, ..context };
        let answered = Arc::clone(&self.pipeline).call(context, arguments).await;
        let Err(error) = &answered.reply.outcome else {
            self.record_answer(number, &Ok(text), false).await?;
            return Some(proposal);
        };
        let Some(needed) = answered.needed_approval() else {
            let is_over = matches!(
                error.code(),
                ErrorCode::ApprovalDenied
                    | ErrorCode::ApprovalExpired
                    | ErrorCode::ApprovalMismatch
                    | ErrorCode::UnknownOutcome
            );
            let refusal = CallError::new(error.code(), error.message()).with_details(error.details().to_vec());
            return self.stop_refused(refusal, is_over);
        };
        journal.pause(number, &needed.id);
        self.recorded(journal.write().await)?;
        let details = error.details().iter().cloned().chain(listed(&proposal)).collect();
        let (message, approval) = (error.message().to_owned(), needed.clone());
        self.stop_run(Stop::Approval(NeededByCall { tool: None, message, details, approval }))
    }

    /// The reads with their present answers. `None`: the run is to end.
    async fn read_again(&self, reads: &BTreeMap<u32, MadeRead>) -> Option<BTreeMap<u32, MadeRead>> {
        let mut again = BTreeMap::new();
        for (call, read) in reads {
            if !self.pipeline.changes_nothing(&read.tool, &self.call.caller) {
                let message = format!(
                    "the program has read from {}, whose calls may change something by now: run it anew",
                    read.tool
                );
                return self.stop_refused(CallError::new(ErrorCode::ReplayDiverged, message), true);
            }
            let context = self.context(call - 1, read.tool.clone(), &read.arguments, StartReason::default());
            // No reply that is on record.
            let context = CallContext { resumption: CallResumption::default(), ..context };
            let answered = Arc::clone(&self.pipeline).call(context, read.arguments.clone()).await;
            self.record_charge(&answered);
            let answer = match &answered.reply.outcome {
                Ok(answer) => value_json(&answer.output).map_err(|error| error_json(&error)),
                Err(error) => Err(error_json(error)),
            };
            again.insert(*call, MadeRead { answer_sha256: answer_sha256(&answer), ..read.clone() });
        }
        Some(again)
    }

    /// Makes one effect, or gives why it has failed. `shown`: the reasons that its approver has seen. `None`: the run is to end.
    async fn make_effect(
        &self,
        proposing: &Proposing,
        number: u32,
        (effect, shown): (&ProposedEffect, Arc<[String]>),
        made: &Made,
    ) -> Option<Result<Value, String>> {
        let arguments = proposing.tokens.replaced(Value::Object(effect.arguments.clone()), &mut values_of(made));
        let wanted = match arguments {
            Ok(Value::Object(arguments)) => Wanted::call(effect.call - 1, effect.tool.clone(), arguments),
            Ok(_) => return Some(Err("its arguments are no object".to_owned())),
            Err(error) => return Some(Err(error.message().to_owned())),
        };
        let may_repeat = self.may_repeat(&wanted);
        let found = self.find(number, &wanted, may_repeat, ReadSoFar::default())?;
        Some(match self.answer_found(number, wanted, (may_repeat, found), Some(shown)).await? {
            Ok(json) => serde_json::from_str(&json).map_err(|error| error.to_string()),
            Err(json) => {
                let (code, message) = code_and_message(&json);
                Err(format!("{code}: {message}"))
            }
        })
    }

    /// Ends the run with an error. `is_over`: it cannot be resumed.
    pub(super) fn stop_refused<T>(&self, error: CallError, is_over: bool) -> Option<T> {
        self.stop_run(Stop::Refused { error, is_over })
    }
}

/// The parts of effects' values that tokens name, one after the other.
fn values_of(made: &Made) -> impl FnMut(u32, &str) -> Result<Value, CallError> {
    let mut left = MAX_FILLED;
    move |call, pointer| {
        let Some(value) = made.get(&call).and_then(|value| value.pointer(pointer)) else {
            let what = if pointer.is_empty() { String::new() } else { format!(" at {pointer:?}") };
            let message = format!("it needs the value of effect {call}{what}, and there is none");
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        };
        let Some(rest) = left.checked_sub(value.to_string().len()) else {
            let message = format!("the values of effects in it have more than {MAX_FILLED} bytes: use smaller parts");
            return Err(CallError::new(ErrorCode::TooLarge, message));
        };
        left = rest;
        Ok(value.clone())
    }
}

/// The first effect that is not made as it was approved. Those before it are made, those behind it are not.
fn failed(effect: &ProposedEffect, (at, count): (usize, usize), why: &str) -> CallError {
    let ProposedEffect { call, tool, .. } = effect;
    let number = at + 1;
    let message = format!(
        "the run stopped at effect {number} of {count}, its call {call}, of {tool}: {why}. The {at} before it were made, and none after \
         it was sent"
    );
    let detail = Detail { path: format!("call {call}"), rule: "effect".to_owned(), message: format!("{tool}: {why}") };
    CallError::tool(message).with_detail(detail)
}

/// The effects, for the caller.
fn listed(proposal: &Proposal) -> impl Iterator<Item = Detail> {
    proposal.effects_to_make().take(MAX_LISTED).map(|effect| {
        let arguments: String = Value::Object(effect.arguments.clone()).to_string().chars().take(MAX_SHOWN).collect();
        let message = format!("{}: {arguments}", effect.tool);
        Detail { path: format!("call {}", effect.call), rule: "proposed".to_owned(), message }
    })
}

/// Puts the values of effects into the result of the program. Of one that is struck out there is none: null. Where they are too large
/// together, their tokens stay.
fn fill_in(proposing: &Proposing, outcome: &mut Outcome, made: &Made) {
    let filled = |value: Value| {
        let mut values = values_of(made);
        let mut of = |call: u32, pointer: &str| match values(call, pointer) {
            Err(error) if error.code() != ErrorCode::TooLarge => Ok(Value::Null),
            value => value,
        };
        proposing.tokens.are_in(&value).then(|| proposing.tokens.replaced(value, &mut of).ok()).flatten()
    };
    let result = outcome.result.as_deref().and_then(|result| serde_json::from_str::<Value>(result).ok());
    if let Some(result) = result.and_then(filled) {
        outcome.result = Some(result.to_string());
    }
    let stdout = &mut outcome.stdout;
    if let Some(text) = str::from_utf8(&stdout.bytes).ok().and_then(|text| filled(text.into())) {
        let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
        stdout.total = stdout.total - stdout.bytes.len() as u64 + text.len() as u64;
        stdout.bytes = text.into_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_in_one_place_have_a_limit() {
        let made = Made::from([(1, Value::from("x".repeat(MAX_FILLED / 2)))]);
        let mut values = values_of(&made);
        assert!(values(1, "").is_ok());
        assert_eq!(values(1, "").unwrap_err().code(), ErrorCode::TooLarge);
        assert_eq!(values(2, "").unwrap_err().code(), ErrorCode::InvalidArguments);
    }
}
