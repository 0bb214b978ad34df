//! The messages to the writer, and the fields of a call's line.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::chain::{Chain, Hash, micros};
use super::event::AuditEvent;
use sekisho_core::call::{CallId, Caller, ClientRequest, InterpreterSession, Stage, Via};
use sekisho_core::error::{CallError, ErrorCode, rules_of};
use sekisho_core::record::{CallRecord, KeptArguments, Status, shortened};

/// A line to be written.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are calls, which need no allocation of their own")]
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

/// One call as it is sent to the writer: owned, and cheap to create.
#[derive(Debug)]
pub(super) struct Entry {
    time: SystemTime,
    pub(super) call_id: CallId,
    pub(super) caller: Arc<Caller>,
    claimed_user: Option<Box<str>>,
    via: Via,
    request: Option<Arc<ClientRequest>>,
    depth: u32,
    /// The call whose tool made it.
    parent: Option<CallId>,
    dry_run: bool,
    session: Option<Arc<str>>,
    /// The session of an interpreter in which its program ran.
    interpreter: Option<Box<InterpreterSession>>,
    pub(super) tool: Box<str>,
    pub(super) status: Status,
    pub(super) code: Option<ErrorCode>,
    stage: Option<Stage>,
    arguments_digest: [u8; 32],
    arguments: Option<KeptArguments>,
    flags: Box<[Box<str>]>,
    policy_version: Option<Arc<str>>,
    registry_version: Option<i64>,
    cost_usd: Decimal,
    tokens: u64,
    attempts: u32,
    duration: Duration,
    trace_id: Option<[u8; 16]>,
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

impl Entry {
    pub(super) fn new(record: &CallRecord<'_>, acknowledge: Option<oneshot::Sender<()>>) -> Self {
        let call = record.call;
        Self {
            time: SystemTime::now(),
            call_id: call.id,
            caller: Arc::clone(&call.caller),
            claimed_user: call.origin.claimed_user.as_deref().map(|user| shortened(user).into()),
            via: call.via,
            request: call.origin.request.clone(),
            depth: call.nesting.depth,
            parent: call.nesting.parent.as_ref().map(|parent| parent.id),
            dry_run: call.dry_run,
            session: call.origin.session.as_ref().map(|session| Arc::clone(&session.id)),
            interpreter: call.progress.interpreter.get().map(Box::new),
            tool: shortened(record.tool.unwrap_or(&call.tool)).into(),
            status: record.status,
            code: record.error.map(CallError::code),
            stage: record.error.and_then(CallError::stage),
            arguments_digest: record.arguments_digest,
            arguments: record.arguments.cloned(),
            flags: rules_of(record.flags).into_iter().map(Into::into).collect(),
            policy_version: record.policy_version.cloned(),
            registry_version: record.registry_version,
            cost_usd: record.cost_usd,
            tokens: record.tokens,
            attempts: record.attempts,
            duration: record.duration,
            trace_id: record.trace_id,
            repeated: None,
            acknowledge,
        }
    }
}

/// A line's fields, in their order.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    seq: u64,
    /// RFC 3339, UTC.
    #[serde(serialize_with = "micros")]
    time: SystemTime,
    call_id: CallId,
    tenant: &'a str,
    caller: &'a str,
    anonymous: bool,
    /// The managed key that the caller sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    claimed_user: Option<&'a str>,
    via: Via,
    client: Option<IpAddr>,
    request_id: Option<&'a str>,
    depth: u32,
    /// The id of the call whose tool made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<CallId>,
    dry_run: bool,
    session: Option<&'a str>,
    /// The session of an interpreter in which its program ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    interpreter: Option<&'a InterpreterSession>,
    tool: &'a str,
    status: Status,
    code: Option<ErrorCode>,
    stage: Option<Stage>,
    arguments_sha256: Hash,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    /// The size of arguments that are too large for a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_bytes: Option<usize>,
    /// Rules of suspected prompt injections in the tool's texts.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    flags: &'a [Box<str>],
    policy_version: Option<&'a str>,
    /// The version of the registrations that replicas share.
    #[serde(skip_serializing_if = "Option::is_none")]
    registry_version: Option<i64>,
    cost_usd: Decimal,
    tokens: u64,
    attempts: u32,
    duration_us: u128,
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_call_id: Option<CallId>,
    prev: Hash,
}

impl<'a> Line<'a> {
    /// The line of `entry` that follows `chain`.
    pub(super) fn after(chain: &Chain, entry: &'a Entry) -> Self {
        let (arguments, arguments_bytes) = match &entry.arguments {
            None => (None, None),
            Some(KeptArguments::Whole(text)) => (Some(&**text), None),
            Some(KeptArguments::TooLarge { bytes }) => (None, Some(*bytes)),
        };
        Self {
            seq: chain.lines + 1,
            time: entry.time,
            call_id: entry.call_id,
            tenant: shortened(&entry.caller.tenant),
            caller: shortened(&entry.caller.id),
            anonymous: entry.caller.anonymous,
            key: entry.caller.key_id.as_deref(),
            claimed_user: entry.claimed_user.as_deref(),
            via: entry.via,
            client: entry.request.as_ref().and_then(|request| request.address),
            request_id: entry.request.as_ref().map(|request| shortened(&request.id)),
            depth: entry.depth,
            parent: entry.parent,
            dry_run: entry.dry_run,
            session: entry.session.as_deref().map(shortened),
            interpreter: entry.interpreter.as_deref(),
            tool: &entry.tool,
            status: entry.status,
            code: entry.code,
            stage: entry.stage,
            arguments_sha256: Hash::from_digest(entry.arguments_digest),
            arguments,
            arguments_bytes,
            flags: &entry.flags,
            policy_version: entry.policy_version.as_deref(),
            registry_version: entry.registry_version,
            cost_usd: entry.cost_usd,
            tokens: entry.tokens,
            attempts: entry.attempts,
            duration_us: entry.duration.as_micros(),
            trace_id: entry.trace_id.map(hex::encode),
            calls: entry.repeated.map(|repeated| repeated.calls),
            last_call_id: entry.repeated.map(|repeated| repeated.last_call_id),
            prev: chain.hash,
        }
    }
}
