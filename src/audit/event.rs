//! The events of the trail beside calls: failed authentications, and changes by administrators.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::chain::{Chain, Hash, Micros};
use sekisho_core::call::{Caller, ClientRequest, TraceParent};
use sekisho_core::record::{EventRecord, shortened};

/// The kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A request had wrong or no credentials.
    Unauthenticated,
    McpServerRegistered,
    McpServerRemoved,
    CollectionRegistered,
    CollectionRemoved,
    /// A tenant, model or skill was added, changed or removed.
    ResourceChanged,
    /// An administrator had a server connected, or a document fetched, again.
    ServerReconnected,
    SignInStarted,
    SignInFinished,
    /// A caller, or an administrator, revoked the sign-in of a caller to an upstream.
    SignInRevoked,
    /// A caller stored or replaced its credential for an upstream.
    CredentialStored,
    /// A caller removed its credential for an upstream.
    CredentialRemoved,
    /// A caller asked for a source of the catalogue.
    SourceRequested,
    /// An administrator switched a source on for a user, a key or a tenant.
    SourceSwitchedOn,
    /// An administrator refused a request for a source.
    SourceRefused,
    /// An administrator switched a source off for whom it was on.
    SourceSwitchedOff,
    /// A client registered at the authorization server of the gateway.
    OauthClientRegistered,
    /// A user signed in with a client at the authorization server of the gateway.
    OauthSessionStarted,
    /// A session of a user with a client ended: by its client, an administrator, the provider, or because a token was used twice.
    OauthSessionEnded,
    /// A caller signed in to the console.
    ConsoleSignedIn,
    ConsoleSignedOut,
    ConfigurationReloaded,
    /// An administrator proposed a change of the configuration.
    ConfigurationChangeProposed,
    /// An administrator applied a change of the configuration.
    ConfigurationChangeApplied,
    /// An administrator took a change of the configuration out of force.
    ConfigurationChangeUndone,
    /// The running gateway applied a changed `tools.lock`.
    LockApplied,
    /// An administrator changed `tools.lock` over HTTP, or `sekisho lock approve` did while no gateway ran.
    LockApproved,
    /// An administrator gave back the leases of a lost replica.
    LeasesReleased,
    /// An administrator created a managed key.
    KeyCreated,
    /// An administrator gave a managed key another token.
    KeyRotated,
    KeyRevoked,
    /// A call needs the approval of a person.
    ApprovalAsked,
    /// An approver approved a call.
    ApprovalGiven,
    /// An approver denied a call.
    ApprovalDenied,
    /// A call is about to be sent by an approval.
    ApprovalUsed,
    /// Nobody decided in time, or the call was not made in time.
    ApprovalExpired,
    /// The process of an approved call stopped before its answer.
    ApprovalOutcomeUnknown,
    /// An administrator had known destinations forgotten.
    DestinationsForgotten,
    /// A caller deleted a session of an interpreter.
    InterpreterSessionDeleted,
    /// A caller made copies of a session of an interpreter.
    InterpreterSessionForked,
    /// The caller of a program's run, or an administrator, said what became of a call whose outcome was not known.
    ProgramRunSettled,
    /// A caller, or an administrator, said what became of a call whose outcome was not known.
    EffectResolved,
    /// An administrator opened the arguments and the result of a call.
    CallContentOpened,
}

/// A line of the trail that is not about a call.
#[derive(Debug, Clone)]
pub struct AuditEvent {
    pub time: SystemTime,
    pub kind: EventKind,
    /// Whether it was done.
    pub success: bool,
    /// The server, collection or file that it is about.
    pub subject: Option<String>,
    /// The change, or the reason of the refusal.
    pub detail: Option<String>,
    /// The caller of an administrator's request.
    pub caller: Option<Arc<Caller>>,
    pub request: Option<Arc<ClientRequest>>,
    pub trace_id: Option<[u8; 16]>,
    /// Number of equal events that have this line together; `request` is the first one's.
    pub count: u64,
}

impl AuditEvent {
    /// An event of now, that succeeded.
    pub fn new(kind: EventKind) -> Self {
        Self {
            time: SystemTime::now(),
            kind,
            success: true,
            subject: None,
            detail: None,
            caller: None,
            request: None,
            trace_id: None,
            count: 1,
        }
    }

    /// For the index, with the texts of its line.
    pub fn record(&self) -> EventRecord {
        let (caller, request) = (self.caller.as_deref(), self.request.as_deref());
        let kind = serde_json::to_value(self.kind).ok();
        let short = |text: &str| shortened(text).to_owned();
        EventRecord {
            time: self.time,
            event: kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned(),
            success: self.success,
            tenant: caller.map(|caller| short(&caller.tenant)),
            caller: caller.map(|caller| short(&caller.id)),
            key: caller.and_then(|caller| caller.key_id.as_deref()).map(str::to_owned),
            subject: self.subject.as_deref().map(short),
            detail: self.detail.as_deref().map(short),
            client: request.and_then(|request| request.address).map(|address| address.to_string()),
            request_id: request.map(|request| short(&request.id)),
            count: self.count,
        }
    }

    /// The request that it came with.
    #[must_use]
    pub fn of_request(mut self, request: Option<&Arc<ClientRequest>>, trace: Option<&TraceParent>) -> Self {
        self.request = request.cloned();
        self.trace_id = trace.map(|trace| trace.trace_id);
        self
    }
}

/// The fields of a line, in their order.
#[derive(Serialize)]
pub(super) struct EventLine<'a> {
    seq: u64,
    time: Micros,
    event: EventKind,
    success: bool,
    subject: Option<&'a str>,
    detail: Option<&'a str>,
    tenant: Option<&'a str>,
    caller: Option<&'a str>,
    /// The managed key that the caller sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    client: Option<std::net::IpAddr>,
    request_id: Option<&'a str>,
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "is_one")]
    count: u64,
    prev: Hash,
}

impl<'a> EventLine<'a> {
    pub(super) fn after(chain: &Chain, event: &'a AuditEvent) -> Self {
        let request = event.request.as_deref();
        Self {
            seq: chain.lines + 1,
            time: Micros(event.time),
            event: event.kind,
            success: event.success,
            subject: event.subject.as_deref().map(shortened),
            detail: event.detail.as_deref().map(shortened),
            tenant: event.caller.as_deref().map(|caller| shortened(&caller.tenant)),
            caller: event.caller.as_deref().map(|caller| shortened(&caller.id)),
            key: event.caller.as_deref().and_then(|caller| caller.key_id.as_deref()),
            client: request.and_then(|request| request.address),
            request_id: request.map(|request| shortened(&request.id)),
            trace_id: event.trace_id.map(hex::encode),
            count: event.count,
            prev: chain.hash,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}
