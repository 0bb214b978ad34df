//! Routes that change the gateway's tools; they need the role `admin`. Each change has a line in the audit trail.

pub(super) mod mcp;
pub(super) mod openapi;
pub(super) mod sign_in;

use std::sync::Arc;

use super::request::RequestMeta;
use crate::core::error::CallError;
use crate::gateway::Gateway;
use crate::infra::audit::{AuditEvent, EventKind};

/// Makes an administrator's change, and writes its line. Nothing is changed when the trail cannot take the line.
async fn recorded<T>(
    gateway: &Gateway,
    origin: &RequestMeta,
    kind: EventKind,
    subject: &str,
    change: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let slot = gateway.pipeline.settlement.audit.reserve()?;
    let result = change.await;
    let event = AuditEvent {
        success: result.is_ok(),
        subject: Some(subject.to_owned()),
        detail: result.as_ref().err().map(|error| error.message().to_owned()),
        caller: Some(Arc::clone(&origin.caller)),
        ..AuditEvent::new(kind).of_request(origin.request.as_ref(), origin.trace.as_ref())
    };
    slot.write_event(event);
    result
}
