//! Results that are too large for a model: stored for a while, sealed, and read in parts by their handles.
//!
//! A handle is 128 random bits and no secret: only the tenant, caller and session of its call read a result, as long as
//! the caller may use the tool that made it ([`ToolAccess`]). For others there is none. The stored results of a
//! tenant's callers are bounded together; the caller with the most bytes loses the oldest result. Small results are in
//! the store, larger ones in object storage, if replicas share one.

mod large;
mod objects;
mod preview;
mod sample;
mod shape;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;

use crate::tool::MAX_STORED_BYTES;
use sekisho_config::{Config, ResultsConfig};
use sekisho_core::call::{CallContext, Caller, Deadline};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::session::workspace_of;
use sekisho_observe::metrics::{LargeResultOutcome, Metrics};
use sekisho_outbound::blobs::Blobs;
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{ListedResult, NewResult, ResultContent, ResultOwner, Store, StoreError};

pub use self::large::{LargeResult, ResultKind};
pub use self::preview::{Preview, preview_of_value};

/// The kind of the sealed texts.
const SEALED_KIND: &str = "result";

/// Bytes that the stored results of one tenant may have together.
const MAX_TENANT_BYTES: u64 = 256 << 20;

/// Digits of a handle: 128 bits in hex.
const HANDLE_DIGITS: usize = 32;

/// The stored results of all callers.
#[derive(Debug)]
pub struct Results {
    store: Store,
    sealer: Sealer,
    metrics: Arc<Metrics>,
    /// For results that are too large for the store, if there is object storage.
    blobs: OnceLock<Blobs>,
    /// Until it is set, nothing is read.
    access: OnceLock<Box<dyn ToolAccess>>,
    max_inline_bytes: AtomicUsize,
    lifetime_seconds: AtomicU64,
}

/// The tools that each caller may use now: several keys and tokens of one caller may use different ones.
pub trait ToolAccess: fmt::Debug + Send + Sync {
    /// False also where there is no such tool any more.
    fn may_use(&self, caller: &Arc<Caller>, tool: &str) -> bool;
}

/// A stored result, opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedResult {
    /// The tool that made it.
    pub tool: String,
    pub kind: ResultKind,
    pub text: String,
}

impl Results {
    pub fn new(config: &Config, store: Store, metrics: Arc<Metrics>) -> Self {
        let results = Self {
            store,
            sealer: Sealer::new(config),
            metrics,
            blobs: OnceLock::new(),
            access: OnceLock::new(),
            max_inline_bytes: AtomicUsize::default(),
            lifetime_seconds: AtomicU64::default(),
        };
        results.reconfigure(&config.results);
        results
    }

    pub fn reconfigure(&self, config: &ResultsConfig) {
        self.max_inline_bytes.store(config.max_inline_bytes, Ordering::Relaxed);
        self.lifetime_seconds.store(config.lifetime_seconds, Ordering::Relaxed);
    }

    /// Sets the check of who may read which tool's results.
    pub fn set_access(&self, access: impl ToolAccess + 'static) {
        self.access.get_or_init(|| Box::new(access));
    }

    /// Whether results can be sealed.
    pub fn can_keep(&self) -> bool {
        self.sealer.is_available()
    }

    /// Bytes of a result that a model still gets whole.
    pub fn max_inline_bytes(&self) -> usize {
        self.max_inline_bytes.load(Ordering::Relaxed)
    }

    /// Stores the result of a call for its caller and session, by the call's `deadline`. `may_read`: whether the caller
    /// may use the tool that reads it. The result does not change; if it is not stored, the answer has no handle.
    pub async fn keep(&self, call: &CallContext, large: &LargeResult, may_read: bool, deadline: Deadline) -> bool {
        let outcome = match may_read {
            true => call.within(deadline, self.try_keep(call, large)).await.unwrap_or(LargeResultOutcome::Unavailable),
            false => LargeResultOutcome::NotReadable,
        };
        self.metrics.large_result(outcome);
        if !matches!(outcome, LargeResultOutcome::Stored) {
            let (reason, bytes) = (outcome.as_str(), large.text.len());
            tracing::info!(reason, bytes, tool = call.tool, "a result that is too large for a model is not stored");
        }
        outcome == LargeResultOutcome::Stored
    }

    async fn try_keep(&self, call: &CallContext, large: &LargeResult) -> LargeResultOutcome {
        if large.text.len() > MAX_STORED_BYTES {
            return LargeResultOutcome::TooLarge;
        }
        let caller = &call.caller;
        let sealed = match self.sealer.seal(sealed_for(caller), large.text.as_bytes()) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::debug!(%error, "a result cannot be sealed");
                return LargeResultOutcome::NoKey;
            }
        };
        let content = match self.content_of(caller, sealed).await {
            Ok(content) => content,
            Err(outcome) => return outcome,
        };
        let session = session_of(call);
        let new = NewResult {
            handle: &large.handle,
            owner: owner(caller, &session),
            tool: &call.tool,
            content_type: large.kind.content_type(),
            bytes: large.text.len() as u64,
            content: &content,
            lifetime: Duration::from_secs(self.lifetime_seconds.load(Ordering::Relaxed)),
        };
        match self.store.results().keep(new, MAX_TENANT_BYTES).await {
            Ok(removed) => {
                removed.into_iter().for_each(|object| self.remove_object(object));
                LargeResultOutcome::Stored
            }
            Err(error) => {
                tracing::warn!(%error, "a result cannot be stored");
                if let ResultContent::Object(object) = content {
                    self.remove_object(object.key);
                }
                LargeResultOutcome::Unavailable
            }
        }
    }

    /// The result with that handle, if the call's caller and session may read it.
    /// Errors: `unknown_result`; `overloaded` when it cannot be read now.
    pub async fn read(&self, call: &CallContext, handle: &str) -> Result<OpenedResult, CallError> {
        if !is_handle(handle) {
            return Err(unknown());
        }
        let session = session_of(call);
        let stored = self.store.results().get(handle, owner(&call.caller, &session)).await;
        let stored = stored.map_err(|error| unavailable(&error))?;
        let stored = stored.filter(|stored| self.may_use(&call.caller, &stored.tool)).ok_or_else(unknown)?;
        let sealed = self.sealed_text(stored.content).await?;
        let text = self.sealer.open(sealed_for(&call.caller), &sealed).map_err(CallError::internal)?;
        let kind = ResultKind::of_content_type(&stored.content_type);
        Ok(OpenedResult { tool: stored.tool, kind, text: String::from_utf8(text).map_err(CallError::internal)? })
    }

    /// At most so many results that the caller may read, of all its sessions, the latest first. `before`: the moment and handle of
    /// the last one of another page.
    /// Errors: `overloaded` when they cannot be read now.
    pub async fn list(
        &self,
        caller: &Arc<Caller>,
        before: Option<(Timestamp, &str)>,
        max: usize,
    ) -> Result<Vec<ListedResult>, CallError> {
        let mut before = before.map(|(created, handle)| (created, handle.to_owned()));
        let mut listed = Vec::new();
        loop {
            let from = before.as_ref().map(|(created, handle)| (*created, handle.as_str()));
            let found = self.store.results().of_caller((&*caller.tenant, &*caller.key), from, max).await;
            let found = found.map_err(|error| unavailable(&error))?;
            let has_more = found.len() == max;
            before = found.last().map(|last| (last.created, last.handle.clone()));
            listed.extend(found.into_iter().filter(|result| self.may_use(caller, &result.tool)));
            if !has_more || listed.len() >= max {
                listed.truncate(max);
                return Ok(listed);
            }
        }
    }

    /// Removes expired results. Called every minute.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        let removed = self.store.results().forget_expired().await?;
        removed.into_iter().for_each(|object| self.remove_object(object));
        Ok(())
    }

    fn may_use(&self, caller: &Arc<Caller>, tool: &str) -> bool {
        self.access.get().is_some_and(|access| access.may_use(caller, tool))
    }
}

fn new_handle() -> String {
    hex::encode(rand::random::<[u8; HANDLE_DIGITS / 2]>())
}

fn is_handle(text: &str) -> bool {
    text.len() == HANDLE_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn session_of(call: &CallContext) -> String {
    call.session_of_results().map(|id| workspace_of(&call.caller.key, id)).unwrap_or_default()
}

fn owner<'a>(caller: &'a Caller, session: &'a str) -> ResultOwner<'a> {
    ResultOwner { tenant: &caller.tenant, caller_key: &caller.key, session }
}

fn sealed_for(caller: &Caller) -> SealedFor<'_> {
    SealedFor { tenant: &caller.tenant, owner: &caller.key, kind: SEALED_KIND }
}

/// The same for a handle of another caller or session, of a tool that the caller may not use, and for one that has expired.
fn unknown() -> CallError {
    let message = "there is no result with this handle for this caller and session, or it is no longer stored; \
                   call the tool again";
    CallError::new(ErrorCode::UnknownResult, message)
}

fn unavailable(error: &dyn std::fmt::Display) -> CallError {
    let message = "stored results cannot be read now; try again shortly";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1)).caused_by(error)
}
