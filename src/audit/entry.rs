//! The messages to the writer, and the fields of a call's line.

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::chain::{Chain, Hash, Micros};
use super::event::AuditEvent;
use sekisho_core::call::CallId;
use sekisho_core::record::{CallSummary, KeptArguments, shortened};

/// A line to be written.
#[derive(Debug)]
pub(super) enum Item {
    Call(Entry),
    /// With whoever waits for it.
    Event(Box<AuditEvent>, Option<oneshot::Sender<()>>),
}

impl Item {
    /// Whoever waits until the line is on the disk.
    pub(super) fn take_waiter(&mut self) -> Option<oneshot::Sender<()>> {
        match self {
            Self::Call(entry) => entry.acknowledge.take(),
            Self::Event(_, acknowledge) => acknowledge.take(),
        }
    }
}

/// One call as it is sent to the writer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) call: Arc<CallSummary>,
    pub(super) arguments: Option<KeptArguments>,
    pub(super) policy_input: Option<Box<RawValue>>,
    pub(super) repeated: Option<Repeated>,
    /// Notified once the line is on the disk; dropped when the disk fails.
    pub(super) acknowledge: Option<oneshot::Sender<()>>,
}

/// Further calls that were refused alike, in the same line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repeated {
    /// All calls of the line.
    pub(super) calls: u64,
    pub(super) last_call_id: CallId,
}

/// The line of an entry that follows a chain.
pub(super) struct Line<'a>(pub(super) Chain, pub(super) &'a Entry);

/// The fields in their order. A text of a caller is [`shortened`].
impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(chain, Entry { call, arguments, policy_input, repeated, .. }) = self;
        // JSON does not need their number.
        let mut line = serializer.serialize_struct("Line", 1)?;
        line.serialize_field("seq", &(chain.lines + 1))?;
        line.serialize_field("time", &Micros(call.time))?;
        line.serialize_field("call_id", &call.id)?;
        line.serialize_field("tenant", shortened(&call.tenant))?;
        line.serialize_field("caller", shortened(&call.caller))?;
        line.serialize_field("anonymous", &call.anonymous)?;
        if let Some(key) = &call.key {
            line.serialize_field("key", &**key)?;
        }
        line.serialize_field("claimed_user", &call.claimed_user)?;
        line.serialize_field("via", &call.via)?;
        line.serialize_field("client", &call.client)?;
        line.serialize_field("request_id", &Some(&call.request_id).filter(|id| !id.is_empty()))?;
        line.serialize_field("depth", &call.depth)?;
        if let Some(parent) = &call.parent {
            line.serialize_field("parent", parent)?;
        }
        line.serialize_field("dry_run", &call.dry_run)?;
        line.serialize_field("session", &call.session.as_deref().map(shortened))?;
        for (name, id) in [("run", call.run.as_deref()), ("program", call.program.as_deref())] {
            if let Some(id) = id {
                line.serialize_field(name, id)?;
            }
        }
        if let Some(approval) = &call.approval {
            line.serialize_field("approval", shortened(approval))?;
        }
        if let Some(interpreter) = &call.interpreter {
            line.serialize_field("interpreter", interpreter)?;
        }
        line.serialize_field("tool", &*call.tool)?;
        line.serialize_field("status", &call.status)?;
        line.serialize_field("code", &call.code)?;
        line.serialize_field("stage", &call.stage)?;
        line.serialize_field("arguments_sha256", &Hash::from_digest(call.arguments_digest))?;
        match arguments {
            None => {}
            Some(KeptArguments::Whole(text)) => line.serialize_field("arguments", text)?,
            Some(KeptArguments::TooLarge { bytes }) => line.serialize_field("arguments_bytes", bytes)?,
        }
        if !call.flags.is_empty() {
            line.serialize_field("flags", &call.flags)?;
        }
        if !call.guards.is_empty() {
            line.serialize_field("guards", &call.guards)?;
        }
        line.serialize_field("policy_version", &call.policy_version)?;
        if let Some(input) = policy_input {
            line.serialize_field("policy_input", input)?;
        }
        if let Some(version) = &call.registry_version {
            line.serialize_field("registry_version", version)?;
        }
        if let Some(hash) = &call.lock_hash {
            line.serialize_field("lock_hash", &**hash)?;
        }
        line.serialize_field("cost_usd", &call.cost_usd)?;
        line.serialize_field("tokens", &call.tokens)?;
        line.serialize_field("attempts", &call.attempts)?;
        line.serialize_field("duration_us", &call.duration.as_micros())?;
        line.serialize_field("trace_id", &call.trace_id.map(hex::encode))?;
        if let Some(Repeated { calls, last_call_id }) = repeated {
            line.serialize_field("calls", calls)?;
            line.serialize_field("last_call_id", last_call_id)?;
        }
        line.serialize_field("prev", &chain.hash)?;
        line.end()
    }
}
