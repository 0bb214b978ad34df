//! Calls whose outcome is not known: they were started, and their run stopped before the answer. The caller of the run, or an
//! administrator of its tenant, finds out and says so; the run goes on with that when it is resumed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::entry::{Entry, JournalAnswer, Part, Past, Settled};
use super::held_run::HeldRun;
use super::refusal::{is_running, no_such_call, too_large_answer, unavailable, unknown, unusable};
use super::{JournalQuestion, Journals, MAX_JOURNAL_BYTES, Owner, Running};
use sekisho_core::administration::{Administrator, AdministratorProof, Ownership};
use sekisho_core::call::CallContext;
use sekisho_core::error::CallError;
use sekisho_store::ProgramRunState;

/// A call whose outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UnsettledProgramCall)]
pub struct UnknownCall {
    /// Its position among the calls of the run, from 1.
    #[serde(rename = "call")]
    pub number: u32,
    pub tool: String,
    /// In hex.
    pub arguments_sha256: String,
}

/// What became of such a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// It was made: the program gets this value.
    Made(Value),
    /// It was not: it is made when the run is resumed.
    NotMade,
    /// Nobody can say: the program gets the error.
    Unknown,
}

impl Journals {
    /// The calls of a run whose outcome is not known, in their order. The run is not taken.
    /// Errors: `not_found` for a run of another caller, unless the asking one administers its tenant, and for a run of
    /// another endpoint, one that has ended and one that has expired; `conversation_locked` while it runs; `too_large`
    /// if it has no journal any more; `replay_diverged` if the journal does not open; `overloaded`.
    pub async fn unknown_calls(&self, asking: &CallContext, id: &str) -> Result<Vec<UnknownCall>, CallError> {
        let owner = self.owner_for(asking, id).await?;
        self.check_stopped(id).await?;
        let past = self.read(id, &owner).await?.1;
        Ok(unknown_calls(&past).into_iter().map(|(_, call)| call).collect())
    }

    /// Settles a call of a run that does not run. `call`: its number; none for the only one.
    /// Errors: as [`unknown_calls`](Self::unknown_calls); `invalid_request` if there is no such call, or several;
    /// `too_large` if its answer does not fit into the journal.
    pub async fn settle(
        self: &Arc<Self>,
        asking: &CallContext,
        id: &str,
        (call, settlement): (Option<u32>, Settlement),
    ) -> Result<UnknownCall, CallError> {
        let owner = self.owner_for(asking, id).await?;
        self.check_stopped(id).await?;
        // Refused before the run is taken, which adds a part to its journal.
        settlement_entries(&self.read(id, &owner).await?.1, call, &settlement)?;
        let (journals, id) = (Arc::clone(self), Arc::from(id));
        // In a task: for a client that has left, too, a run that was taken is stopped again.
        let settled = tokio::spawn(async move { journals.settle_taken(&owner, &id, call, &settlement).await });
        settled.await.map_err(CallError::internal)?
    }

    async fn settle_taken(
        self: &Arc<Self>,
        owner: &Owner,
        id: &Arc<str>,
        call: Option<u32>,
        settlement: &Settlement,
    ) -> Result<UnknownCall, CallError> {
        let Some(_running) = Running::of(self, id) else { return Err(self.why_not_taken(id, owner).await) };
        let held = self.take_run(id, owner).await?;
        let settled = self.add_settlement(owner, (id, &held), call, settlement).await;
        self.release(id, &held).await;
        settled
    }

    async fn add_settlement(
        &self,
        owner: &Owner,
        (id, held): (&str, &HeldRun),
        call: Option<u32>,
        settlement: &Settlement,
    ) -> Result<UnknownCall, CallError> {
        let (parts, past) = self.taken_journal(id, owner, held.lease()).await?;
        let (entries, found) = settlement_entries(&past, call, settlement)?;
        let sealed = self.sealed(owner, id, parts, &Part { start: None, entries })?;
        let added = self.store.add_part(held.lease(), parts, &sealed).await;
        match added.map_err(|error| unavailable(&error))? {
            true => Ok(found),
            false => Err(is_running()),
        }
    }

    /// Errors: `conversation_locked` while a process runs it, here or elsewhere: its calls under way will have answers.
    async fn check_stopped(&self, id: &str) -> Result<(), CallError> {
        let runs_here = self.running.lock().contains(id);
        let runs = runs_here || self.store.is_held(id, self.replica()).await.map_err(|error| unavailable(&error))?;
        if runs { Err(is_running()) } else { Ok(()) }
    }

    /// The owner of a run whose journal the caller may settle.
    async fn owner_for(&self, asking: &CallContext, id: &str) -> Result<Owner, CallError> {
        let own = Owner::of(asking);
        let run = self.store.get(id, own.of_store()).await.map_err(|error| unavailable(&error))?;
        if let Some(run) = run {
            return match run.state {
                ProgramRunState::Unusable => Err(unusable(run.reason.as_deref())),
                _ => Ok(own),
            };
        }
        let owner = self.store.owner(id).await.map_err(|error| unavailable(&error))?.ok_or_else(unknown)?;
        let (tenant, caller_key, endpoint) = owner;
        let tenant: Arc<str> = tenant.into();
        // The error must not tell that there is such a run.
        Administrator::for_owner(&asking.caller, &Ownership::Tenant(Arc::clone(&tenant))).map_err(|_| unknown())?;
        Ok(Owner { tenant, caller_key: caller_key.into(), endpoint })
    }
}

/// The entries that settle a call, and the call.
/// Errors: `invalid_request` if there is no such call, or several; `too_large` if they do not fit into the journal.
fn settlement_entries(
    past: &Past,
    call: Option<u32>,
    settlement: &Settlement,
) -> Result<(Vec<Entry>, UnknownCall), CallError> {
    let mut unknown = unknown_calls(past);
    unknown.retain(|(_, found)| call.is_none_or(|call| found.number == call));
    let (number, found) = match unknown.pop() {
        Some(only) if unknown.is_empty() => only,
        _ => return Err(no_such_call(unknown_calls(past).into_iter().map(|(_, call)| call))),
    };
    let settled = if *settlement == Settlement::NotMade { Settled::NotMade } else { Settled::Unknown };
    let mut entries = vec![Entry::Settled { number, settled }];
    // Behind the other one: it is no answer of the tool.
    if let Settlement::Made(value) = settlement {
        entries.push(Entry::Answered { number, answer: JournalAnswer { is_ok: true, json: value.to_string() } });
    }
    if past.bytes.saturating_add(entries.iter().map(Entry::bytes).sum()) > MAX_JOURNAL_BYTES {
        return Err(too_large_answer());
    }
    Ok((entries, found))
}

/// With the numbers of their requests.
fn unknown_calls(past: &Past) -> Vec<(u32, UnknownCall)> {
    let unknown = past.requests.iter().filter(|(_, request)| request.is_unknown());
    let mut calls: Vec<_> = unknown
        .filter_map(|(number, request)| match &request.question {
            JournalQuestion::Call { ordinal, tool, arguments } => {
                let call =
                    UnknownCall { number: ordinal + 1, tool: tool.clone(), arguments_sha256: hex::encode(arguments) };
                Some((*number, call))
            }
            JournalQuestion::Other(_) => None,
        })
        .collect();
    calls.sort_by_key(|(_, call)| call.number);
    calls
}
