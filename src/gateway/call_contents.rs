//! The arguments and results of calls where `recording.content` wants them: sealed and written beside the index, removed when they are
//! old or too many, and opened for administrators, with an event in the audit trail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};

use super::parts::component_error;
use super::{CallIndex, History, StartError};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_calls::pipeline::Contents;
use sekisho_config::{AuditArguments, ConsoleRole, ContentConfig};
use sekisho_core::caller::{Caller, Owner};
use sekisho_core::client_request::ClientRequest;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallContent, CallSummary, KeptValue};
use sekisho_store::sealing::{SealedFor, Sealer};
use sekisho_store::{CallIndexStore, IndexedCall, NewCallContent};

/// The part of the maximum after which the maximum is looked at again, beside every ten minutes.
const PARTS_OF_MAXIMUM: u64 = 16;

/// The contents on their way to the store, and the bytes there.
#[derive(Debug)]
pub(super) struct KeptContents {
    waiting: Arc<Contents>,
    /// Bytes that were written since the maximum was looked at.
    written: AtomicU64,
}

/// A call with its arguments and its result.
#[derive(Debug)]
pub struct OpenedContent {
    pub found: IndexedCall,
    pub content: CallContent,
}

impl KeptContents {
    /// Errors: there is no key that seals.
    pub(super) fn new(waiting: &Arc<Contents>, sealer: &Sealer) -> Result<Self, StartError> {
        if !sealer.is_available() {
            let problem = "`recording.content` keeps arguments and results of calls, which cannot be sealed: set it to the \
                           output of `openssl rand -hex 32`, the same at all replicas";
            return Err(component_error("secrets.key")(problem));
        }
        Ok(Self { waiting: Arc::clone(waiting), written: AtomicU64::default() })
    }

    /// Seals and writes the contents that wait. Those that cannot be written are lost, which the log says.
    pub(super) async fn write(&self, store: &CallIndexStore, sealer: &Sealer) {
        let waiting = self.waiting.take();
        let taken = waiting.entries.len() as u64;
        let sealed: Vec<_> =
            waiting.entries.into_iter().filter_map(|(call, content)| seal(sealer, call, &content)).collect();
        let bytes: u64 = sealed.iter().map(|content| content.sealed.len() as u64).sum();
        let unsealed = taken - sealed.len() as u64;
        let lost = match sealed.is_empty() {
            true => 0,
            false => match store.add_contents(&sealed).await {
                Ok(()) => 0,
                Err(error) => {
                    tracing::warn!(%error, "contents of calls cannot be written");
                    sealed.len() as u64
                }
            },
        };
        let lost = waiting.dropped + unsealed + lost;
        if lost > 0 {
            tracing::warn!(
                lost,
                "the arguments and results of calls are not kept: they could not be sealed or written in time"
            );
        }
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if written > max_bytes(self.waiting.settings()) / PARTS_OF_MAXIMUM {
            self.written.store(0, Ordering::Relaxed);
            remove_old_contents(store, self.waiting.settings()).await;
        }
    }
}

/// Removes contents that are old, and the oldest above the maximum: also where further ones are not kept any more.
pub(super) async fn remove_old_contents(store: &CallIndexStore, settings: &ContentConfig) {
    let days = i64::try_from(settings.retention_days).unwrap_or(i64::MAX);
    let kept = SignedDuration::from_secs(days.saturating_mul(24 * 3_600));
    let since = Timestamp::now().checked_sub(kept).unwrap_or(Timestamp::MIN);
    match store.retain_contents(since, max_bytes(settings)).await {
        Ok(0) => {}
        Ok(contents) => tracing::info!(contents, "old arguments and results of calls were removed"),
        Err(error) => tracing::warn!(%error, "old arguments and results of calls cannot be removed"),
    }
}

fn max_bytes(settings: &ContentConfig) -> u64 {
    u64::from(settings.max_megabytes) << 20
}

impl CallIndex {
    /// The arguments and the result of a call; `None` where they are not kept, or their key is not in force any more.
    async fn content(&self, call: &CallSummary) -> Result<Option<CallContent>, CallError> {
        let sealed = self.store.content_of(call).await?;
        let opened = sealed.and_then(|sealed| self.sealer.open(sealed_for(&call.owner), &sealed).ok());
        Ok(opened.and_then(|text| serde_json::from_slice(&text).ok()))
    }
}

impl History {
    /// Whether the arguments and the result of a call may be kept, for a caller who may open them.
    /// Errors: the database fails.
    pub async fn has_content(&self, caller: &Caller, call: &CallSummary) -> Result<bool, CallError> {
        let may_be_kept = self.trail_has_arguments(&call.tool) || self.index.store.has_content(call).await?;
        Ok(may_be_kept && self.opens_contents(caller))
    }

    /// The arguments and the result of a call. The audit trail has that they were opened, before anybody gets them.
    /// Errors: `not_found`: there is no such call that the caller may see, or they are not kept; `denied` without the
    /// role `admin`; `overloaded` when the trail cannot take the line; the database fails.
    pub async fn open_content(
        &self,
        caller: &Arc<Caller>,
        request: Option<&Arc<ClientRequest>>,
        id: &str,
    ) -> Result<OpenedContent, CallError> {
        let found = self.call(caller, id).await?;
        if !self.opens_contents(caller) {
            let message = "to open the arguments and the result of a call requires the role `admin` (`console.roles`)";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        let content = match self.index.content(&found.call).await? {
            Some(content) => content,
            None => self.content_of_trail(caller, &found.call).await?,
        };
        let event = AuditEvent {
            subject: Some(found.call.id.to_string()),
            detail: Some(found.call.tool.to_string()),
            caller: Some(Arc::clone(caller)),
            ..AuditEvent::new(EventKind::CallContentOpened).of_request(request, None)
        };
        self.pipeline.settlement.audit.reserve()?.write_event(event).wait().await?;
        Ok(OpenedContent { found, content })
    }

    /// The arguments that the audit trail has, of a tool whose arguments it has now.
    async fn content_of_trail(&self, caller: &Caller, call: &CallSummary) -> Result<CallContent, CallError> {
        let line = match self.trail_has_arguments(&call.tool) {
            true => self.past_call(caller, &call.id.to_string()).await.map(|line| line.arguments.0),
            false => Ok(None),
        };
        let arguments = match line {
            Err(error) if error.code() == ErrorCode::NotFound => None,
            line => line?,
        };
        let arguments = arguments.map(KeptValue::Whole).ok_or_else(|| {
            let message = "the arguments and the result of this call are not kept: `recording.content` says of which calls, \
                           and for how long";
            CallError::new(ErrorCode::NotFound, message)
        })?;
        Ok(CallContent { arguments, result: KeptValue::Absent })
    }

    fn trail_has_arguments(&self, tool: &str) -> bool {
        let snapshot = self.pipeline.registry.snapshot();
        snapshot.get(tool).is_some_and(|tool| tool.metadata.audit_arguments == AuditArguments::Full)
    }

    fn opens_contents(&self, caller: &Caller) -> bool {
        self.configuration.console_roles(caller).contains(&ConsoleRole::Admin)
    }
}

fn seal(sealer: &Sealer, call: Arc<CallSummary>, content: &CallContent) -> Option<NewCallContent> {
    let text = serde_json::to_vec(content).ok()?;
    let sealed = sealer.seal(sealed_for(&call.owner), &text).ok()?;
    Some(NewCallContent { call, sealed })
}

fn sealed_for(owner: &Owner) -> SealedFor<'_> {
    SealedFor { tenant: &owner.tenant, owner: &owner.caller, kind: "content of a call" }
}
