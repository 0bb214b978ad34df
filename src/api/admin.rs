//! Routes for operators and administrators. Changes of resources that all tenants share need the proof of
//! `SharedAdministrator`. Each change has a line in the audit trail.

pub(super) mod call_content;
pub(super) mod call_export;
pub(super) mod call_query;
pub(super) mod calls;
pub(super) mod changes;
pub(super) mod cluster;
pub(super) mod configuration;
pub(super) mod events;
pub(super) mod failures;
pub(super) mod flow;
pub(super) mod keys;
pub(super) mod limits;
pub(super) mod lock;
pub(super) mod mcp;
pub(super) mod openapi;
pub(super) mod overview;
pub(super) mod policies;
pub(super) mod python_tools;
pub(super) mod servers;
pub(super) mod sign_in;
pub(super) mod tool_usage;
pub(super) mod usage;

use std::sync::Arc;

use super::request::RequestMeta;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

/// Makes a change that a request of the API asks for, and writes its line.
pub async fn recorded<T: Send + 'static>(
    gateway: &Gateway,
    meta: &RequestMeta,
    kind: EventKind,
    subject: &str,
    change: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    let event = AuditEvent {
        subject: Some(subject.to_owned()),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    };
    record_change(gateway, event, change).await
}

/// Makes an administrator's change, and writes its line. Both are done to their end, even if the client disconnects.
/// Nothing is changed when the trail cannot take the line.
/// Errors: the errors of the change, and `overloaded` when the trail cannot take the line.
pub fn record_change<T: Send + 'static>(
    gateway: &Gateway,
    event: AuditEvent,
    change: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> impl Future<Output = Result<T, CallError>> + Send {
    record_changes(gateway, vec![event], change)
}

/// The same for a change of several things, with a line for each.
pub(super) async fn record_changes<T: Send + 'static>(
    gateway: &Gateway,
    events: Vec<AuditEvent>,
    change: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    let audit = &gateway.pipeline.settlement.audit;
    let slots = events.iter().map(|_| audit.reserve()).collect::<Result<Vec<_>, _>>()?;
    let work = async move {
        let result = change.await;
        let problem = result.as_ref().err().map(|error| error.message().to_owned());
        let success = result.is_ok();
        let written = slots.into_iter().zip(events).map(|(slot, event)| {
            let detail = problem.clone().or_else(|| event.detail.clone());
            slot.write_event(AuditEvent { success, detail, ..event })
        });
        for line in written.collect::<Vec<_>>() {
            line.wait().await?;
        }
        result
    };
    gateway.background().run_to_end(work).await
}
