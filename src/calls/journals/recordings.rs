//! Runs that are recorded: each is kept sealed for its caller when it has ended, to be exported and played again. Off by default.

use std::path::PathBuf;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use sekisho_config::{Config, RecordingConfig};
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::run_file::{RunCaller, RunHeader, RunKind, SealedRun, VERSION};
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{ListedRecordedRun, NewRecordedRun, RecordedRunOwner, RecordedRunStore, StoreError};

/// The kind of the sealed texts.
const SEALED_KIND: &str = "recorded_run";

/// The recorded runs of all callers.
#[derive(Debug)]
pub struct Recordings {
    store: RecordedRunStore,
    sealer: Sealer,
    settings: RecordingConfig,
    lock_file: PathBuf,
}

impl Recordings {
    pub(super) fn new(config: &Config, store: RecordedRunStore) -> Self {
        let (settings, lock_file) = (config.recording.clone(), config.lock_file());
        Self { store, sealer: Sealer::new(config), settings, lock_file }
    }

    /// Whether runs are recorded: as configured, and where they can be sealed.
    pub fn are_kept(&self) -> bool {
        self.settings.runs && self.sealer.is_available()
    }

    /// Whether the audit lines of calls have the input of policies.
    pub fn has_decisions(&self) -> bool {
        self.settings.decisions
    }

    /// Maximum bytes of a run.
    pub fn max_bytes(&self) -> usize {
        self.settings.max_run_bytes
    }

    /// The header of a run that ends now.
    pub async fn header(
        &self,
        (kind, id, name): (RunKind, &str, &str),
        caller: &Caller,
        policy_version: &str,
    ) -> RunHeader {
        let lock = tokio::fs::read(&self.lock_file).await.ok();
        let Caller { id: caller_id, tenant, roles, anonymous, .. } = caller;
        RunHeader {
            version: VERSION,
            kind,
            id: id.to_owned(),
            recorded_at: Timestamp::now().to_string(),
            name: name.to_owned(),
            caller: RunCaller {
                id: caller_id.to_string(),
                tenant: tenant.to_string(),
                roles: roles.clone(),
                anonymous: *anonymous,
            },
            policy_version: policy_version.to_owned(),
            lock_sha256: lock.map(|lock| hex::encode(Sha256::digest(lock))),
        }
    }

    /// Keeps a run. A failure is logged: the run has ended, whether it is recorded or not.
    pub async fn keep(&self, (tenant, caller_key): (&str, &str), header: &RunHeader, text: &str) {
        let (run, bytes, max_bytes) = (&*header.id, text.len(), self.settings.max_run_bytes);
        if bytes > max_bytes {
            tracing::info!(run, bytes, max_bytes, "a run is larger than `recording.max_run_bytes`, and is not kept");
            return;
        }
        let whose = SealedFor { tenant, owner: &of_run(caller_key, run), kind: SEALED_KIND };
        let sealed = match self.sealer.seal(whose, text.as_bytes()) {
            Ok(sealed) => sealed,
            Err(error) => return tracing::error!(%error, run, "a run that was recorded could not be sealed"),
        };
        let new = NewRecordedRun {
            id: run,
            owner: RecordedRunOwner { tenant, caller_key },
            kind: header.kind.as_str(),
            name: &header.name,
            bytes,
            sealed: &sealed,
            lifetime: self.settings.retention(),
        };
        if let Err(error) = self.store.keep(new, self.settings.max_runs_per_caller).await {
            tracing::error!(%error, run, "a run that was recorded could not be stored");
        }
    }

    /// The runs of a caller, the latest first.
    /// Errors: `overloaded` when they cannot be read now.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<ListedRecordedRun>, CallError> {
        self.store.of_caller(owner_of(caller)).await.map_err(CallError::from)
    }

    /// The text of a run.
    /// Errors: `not_found` for a run of another caller, and for one that is not kept; `internal` if it does not open;
    /// `overloaded`.
    pub async fn get(&self, caller: &Caller, id: &str) -> Result<String, CallError> {
        let SealedRun { sealed, .. } = self.get_sealed(caller, id).await?;
        let whose = SealedFor { tenant: &caller.tenant, owner: &of_run(&caller.key, id), kind: SEALED_KIND };
        let bytes = self.sealer.open(whose, &sealed).map_err(CallError::internal)?;
        String::from_utf8(bytes).map_err(CallError::internal)
    }

    /// A run as it is stored.
    /// Errors: `not_found` as for [`get`](Self::get); `overloaded`.
    pub async fn get_sealed(&self, caller: &Caller, id: &str) -> Result<SealedRun, CallError> {
        let found = self.store.get(id, owner_of(caller)).await.map_err(CallError::from)?;
        Ok(SealedRun { version: VERSION, id: id.to_owned(), sealed: found.ok_or_else(unknown)? })
    }

    /// The text of a sealed run, whether it is still stored or not.
    /// Errors: `invalid_request`: it was sealed for another caller or with another key, or was changed.
    pub fn open(&self, caller: &Caller, run: &SealedRun) -> Result<String, CallError> {
        let whose = SealedFor { tenant: &caller.tenant, owner: &of_run(&caller.key, &run.id), kind: SEALED_KIND };
        let opened = self.sealer.open(whose, &run.sealed).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let message = "the file does not open: it was sealed for another caller or with another key, or was changed";
        opened.ok_or_else(|| CallError::new(ErrorCode::InvalidRequest, message))
    }

    /// Removes expired runs.
    pub(super) async fn forget_expired(&self) -> Result<(), StoreError> {
        self.store.forget_expired().await
    }
}

fn owner_of(caller: &Caller) -> RecordedRunOwner<'_> {
    RecordedRunOwner { tenant: &caller.tenant, caller_key: &caller.key }
}

/// A text opens only as that run of that caller.
fn of_run(caller_key: &str, run: &str) -> String {
    format!("{caller_key}\u{1f}{run}")
}

fn unknown() -> CallError {
    let message = "there is no recorded run with this id for this caller: runs are recorded while `recording.runs` is true, and kept \
                   for `recording.retention_days`; `sekisho runs recorded` lists them";
    CallError::new(ErrorCode::NotFound, message)
}
