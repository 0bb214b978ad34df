//! Journals of programs that call tools: the work of each run, so that it can be resumed.
//!
//! A run that needs an approval, or whose process was killed, is resumed by executing the same program again: it gets
//! the answers that are in the journal. From the first call on that is not there, all calls are made anew.
//!
//! An entry is written before its effect ([`RunJournal`]), sealed for its caller, its run and the place of each part in
//! it. It is kept for 24 hours. A run that is too large for it goes on, and cannot be resumed.

mod context;
mod entry;
mod held_run;
mod program_file;
mod recordings;
mod refusal;
mod run;
mod settle;
#[cfg(test)]
mod tests;
mod unwritten;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use sekisho_config::Config;
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::error::CallError;
use sekisho_core::json;
pub use sekisho_core::reading::{MAX_JOURNAL_BYTES, Reading};
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{ProgramRunLease, ProgramRunOwner, ProgramRunState, ProgramRunStore, StoreError, StoredProgramRun};

pub use self::context::RunContext;
pub use self::entry::{JournalAnswer, JournalQuestion, Past, RunStart, decode, encode};
pub use self::recordings::Recordings;
pub use self::run::{Found, NotRecordedError, Replay, RunEnd, RunJournal, TOO_LARGE, TOO_MANY_READINGS};
pub use self::settle::{Settlement, UnknownCall};

use self::entry::Part;
use self::held_run::HeldRun;
use self::refusal::{another_call, damaged, is_running, unavailable, unknown, unusable};

/// The kind of the sealed texts.
const SEALED_KIND: &str = "journal";

/// How often a process that is gone may have written another part while a run was taken from it.
const MAX_PARTS_MEANWHILE: usize = 8;

/// The journals of all callers.
#[derive(Debug)]
pub struct Journals {
    store: ProgramRunStore,
    sealer: Sealer,
    /// The id of this gateway, if it is a replica.
    replica: OnceLock<Arc<str>>,
    /// The runs that this process has.
    running: Mutex<HashSet<Arc<str>>>,
    /// Runs that have ended, and were recorded.
    pub recordings: Recordings,
}

/// The call that began a run, to make it again.
#[derive(Debug)]
pub struct RecordedCall {
    pub arguments: Arguments,
    pub context: RunContext,
}

impl Journals {
    pub fn new(config: &Config, store: ProgramRunStore) -> Self {
        let recordings = Recordings::new(config, store.recorded());
        Self { store, sealer: Sealer::new(config), replica: OnceLock::new(), running: Mutex::default(), recordings }
    }

    /// Sets the id of this replica: runs of another one that lives are not resumed here.
    pub fn set_replica(&self, id: &Arc<str>) {
        self.replica.get_or_init(|| Arc::clone(id));
    }

    /// Whether journals can be sealed: without a key no run has one.
    pub fn can_keep(&self) -> bool {
        self.sealer.is_available()
    }

    /// The journal of a run that begins with a call. Nothing is written yet. `input`: the program's further input;
    /// `None` if it is too large.
    /// Errors: the call's arguments have no JSON.
    pub fn begin(
        self: &Arc<Self>,
        call: &CallContext,
        arguments: &Arguments,
        input: Option<Vec<u8>>,
    ) -> Result<RunJournal, CallError> {
        let context = serde_json::to_string(&RunContext::of(call)).map_err(CallError::internal)?;
        let text = serde_json::to_string(arguments).map_err(CallError::internal)?;
        let start = input.map(|input| RunStart { arguments: text, context, input });
        let id: Arc<str> = call.id.to_string().into();
        Ok(RunJournal::new(self, id, Owner::of(call), digest(arguments), start))
    }

    /// The journal of a run that a call resumes, and the past of the run.
    /// Errors: `not_found` for a run of another caller or endpoint, and for one that has ended or expired;
    /// `conversation_locked` while it runs; `too_large` if it has no journal any more; `replay_diverged` if the journal
    /// does not open; `overloaded`.
    pub async fn resume(
        self: &Arc<Self>,
        call: &CallContext,
        arguments: &Arguments,
        id: &str,
    ) -> Result<(RunJournal, Past), CallError> {
        let (journals, owner, id) = (Arc::clone(self), Owner::of(call), Arc::from(id));
        let begun = (call.tool.clone(), digest(arguments));
        // In a task: a run that was taken for a client that has left is stopped again, as its journal is dropped.
        let taken = tokio::spawn(async move { journals.take(owner, id, begun).await });
        taken.await.map_err(CallError::internal)?
    }

    /// `tool` and the digest of `arguments`: of the call that must have begun the run.
    async fn take(
        self: &Arc<Self>,
        owner: Owner,
        id: Arc<str>,
        (tool, arguments): (String, String),
    ) -> Result<(RunJournal, Past), CallError> {
        let Some(running) = Running::of(self, &id) else { return Err(self.why_not_taken(&id, &owner).await) };
        let held = self.take_run(&id, &owner).await?;
        let (parts, past) = match self.taken_journal(&id, &owner, held.lease()).await {
            Ok(taken) => taken,
            Err(error) => {
                self.release(&id, &held).await;
                return Err(error);
            }
        };
        let begun_by = serde_json::from_str::<RunContext>(&past.start.context);
        let begun_with = json::parse_as::<Arguments>(past.start.arguments.as_bytes());
        if !begun_by.is_ok_and(|context| context.tool == tool)
            || !begun_with.is_ok_and(|begun_with| digest(&begun_with) == arguments)
        {
            self.release(&id, &held).await;
            return Err(another_call());
        }
        Ok((RunJournal::resumed(running, owner, arguments, (held, parts), &past), past))
    }

    async fn take_run(&self, id: &str, owner: &Owner) -> Result<HeldRun, CallError> {
        let asked = Instant::now();
        let taken = self.store.take(id, owner.of_store(), self.replica()).await;
        match taken.map_err(|error| unavailable(&error))? {
            Some(lease) => Ok(HeldRun::new(self.store.clone(), lease, asked)),
            None => Err(self.why_not_taken(id, owner).await),
        }
    }

    /// The run with these validated arguments that waits for an approval.
    pub async fn awaiting(
        &self,
        call: &CallContext,
        arguments: &Arguments,
        approval: &str,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let found = self.store.awaiting(Owner::of(call).of_store(), &digest(arguments), approval).await?;
        Ok(found.map(Into::into))
    }

    /// The run waits for an approval of the call that resumes it. A failure is logged: with another id, nobody finds it by that.
    pub async fn await_approval(&self, call: &CallContext, run: &str, approval: &str) {
        if let Err(error) = self.store.await_approval(run, Owner::of(call).of_store(), approval).await {
            tracing::error!(%error, run, "the approval that the run of a program waits for could not be recorded");
        }
    }

    /// The call that began a run, which is not taken. `asking`: a call of the same caller and endpoint.
    /// Errors: as [`resume`](Self::resume).
    pub async fn recorded_call(&self, asking: &CallContext, id: &str) -> Result<RecordedCall, CallError> {
        let owner = Owner::of(asking);
        let run = self.store.get(id, owner.of_store()).await.map_err(|error| unavailable(&error))?;
        let run = run.ok_or_else(unknown)?;
        if run.state == ProgramRunState::Unusable {
            return Err(unusable(run.reason.as_deref()));
        }
        let past = self.read(id, &owner).await?.1;
        let arguments = json::parse_as(past.start.arguments.as_bytes()).map_err(|_| damaged(id))?;
        let context = serde_json::from_str(&past.start.context).map_err(|_| damaged(id))?;
        Ok(RecordedCall { arguments, context })
    }

    /// The runs of a caller, the latest first.
    /// Errors: `overloaded` when they cannot be read now.
    pub async fn list(&self, asking: &CallContext) -> Result<Vec<StoredProgramRun>, CallError> {
        let listed = self.store.of_owner(Owner::of(asking).of_store()).await;
        listed.map_err(|error| unavailable(&error))
    }

    /// Removes expired runs. Called every minute.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        self.recordings.forget_expired().await?;
        self.store.forget_expired().await
    }

    /// The journal of a run that was taken. Its former process can write no part any more: this process has the next
    /// number.
    async fn taken_journal(&self, id: &str, owner: &Owner, lease: &ProgramRunLease) -> Result<(i64, Past), CallError> {
        for _ in 0..MAX_PARTS_MEANWHILE {
            let (parts, past) = self.read(id, owner).await?;
            let sealed = self.sealed(owner, id, parts, &Part { start: None, entries: Vec::new() })?;
            let added = self.store.add_part(lease, parts, &sealed).await;
            if added.map_err(|error| unavailable(&error))? {
                return Ok((parts + 1, past));
            }
        }
        Err(is_running())
    }

    /// The number of a journal's parts, and their content.
    async fn read(&self, id: &str, owner: &Owner) -> Result<(i64, Past), CallError> {
        let parts = self.parts(id, owner).await?;
        let count = i64::try_from(parts.len()).map_err(CallError::internal)?;
        Ok((count, Past::of(parts).map_err(|error| damaged(id).caused_by(error))?))
    }

    async fn parts(&self, id: &str, owner: &Owner) -> Result<Vec<Part>, CallError> {
        let stored = self.store.parts(id).await.map_err(|error| unavailable(&error))?;
        let mut parts = Vec::with_capacity(stored.len());
        for (at, (number, sealed)) in (0..).zip(&stored) {
            if *number != at {
                return Err(damaged(id));
            }
            parts.push(self.opened(owner, id, at, sealed).map_err(|error| damaged(id).caused_by(error))?);
        }
        Ok(parts)
    }

    fn sealed(&self, owner: &Owner, run: &str, number: i64, part: &Part) -> Result<String, CallError> {
        let bytes = encode(part).map_err(CallError::internal)?;
        let whose = owner.of_part(run, number);
        let whose = SealedFor { tenant: &owner.tenant, owner: &whose, kind: SEALED_KIND };
        self.sealer.seal(whose, &bytes).map_err(CallError::internal)
    }

    fn opened(&self, owner: &Owner, run: &str, number: i64, sealed: &str) -> Result<Part, String> {
        let whose = owner.of_part(run, number);
        let whose = SealedFor { tenant: &owner.tenant, owner: &whose, kind: SEALED_KIND };
        let bytes = self.sealer.open(whose, sealed).map_err(|error| error.to_string())?;
        decode(&bytes).map_err(|error| error.to_string())
    }

    async fn why_not_taken(&self, id: &str, owner: &Owner) -> CallError {
        match self.store.get(id, owner.of_store()).await {
            Err(error) => unavailable(&error),
            Ok(None) => unknown(),
            Ok(Some(StoredProgramRun { state: ProgramRunState::Unusable, reason, .. })) => unusable(reason.as_deref()),
            Ok(Some(_)) => is_running(),
        }
    }

    /// A run that was taken can be taken again.
    async fn release(&self, id: &str, held: &HeldRun) {
        if let Err(error) = self.store.stop(held.lease(), None).await {
            tracing::warn!(%error, run = id, "the end of the run of a program could not be recorded");
        }
    }

    /// The id of this gateway in leases, if it is a replica.
    fn replica(&self) -> Option<&str> {
        self.replica.get().map(|id| &**id)
    }
}

/// The only one who resumes a run: a caller at an endpoint, with the tools that its programs have there.
#[derive(Debug, Clone)]
struct Owner {
    tenant: Arc<str>,
    caller_key: Arc<str>,
    endpoint: String,
}

impl Owner {
    fn of(call: &CallContext) -> Self {
        let caller = &call.caller;
        let mut endpoint = Sha256::new();
        for list in caller.tools.lists().chain(call.nesting.scope.lists()) {
            endpoint.update((list.len() as u64).to_be_bytes());
            for pattern in list {
                endpoint.update((pattern.len() as u64).to_be_bytes());
                endpoint.update(pattern);
            }
        }
        Self {
            tenant: Arc::clone(&caller.tenant),
            caller_key: Arc::clone(&caller.key),
            endpoint: hex::encode(endpoint.finalize()),
        }
    }

    fn of_store(&self) -> ProgramRunOwner<'_> {
        ProgramRunOwner { tenant: &self.tenant, caller_key: &self.caller_key, endpoint: &self.endpoint }
    }

    /// The owner of a part: the part opens only in its place of its run, and for the endpoint where the run began.
    fn of_part(&self, run: &str, number: i64) -> String {
        format!("{}\u{1f}{}\u{1f}{run}\u{1f}{number}", self.caller_key, self.endpoint)
    }
}

/// A run that this process has. No other call of the process takes the run until it ends.
#[derive(Debug)]
struct Running {
    journals: Arc<Journals>,
    id: Arc<str>,
}

impl Running {
    fn of(journals: &Arc<Journals>, id: &Arc<str>) -> Option<Self> {
        let is_first = journals.running.lock().insert(Arc::clone(id));
        is_first.then(|| Self { journals: Arc::clone(journals), id: Arc::clone(id) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.journals.running.lock().remove(&self.id);
    }
}

fn digest(arguments: &Arguments) -> String {
    hex::encode(json::digest(arguments))
}
