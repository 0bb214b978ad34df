//! Routes that change the gateway's tools; they need the role `admin`. Each change has a line in the audit trail.

pub(super) mod calls;
pub(super) mod mcp;
pub(super) mod openapi;
pub(super) mod resources;
pub(super) mod sign_in;

use std::sync::Arc;

use super::request::RequestMeta;
use crate::core::error::CallError;
use crate::gateway::Gateway;
use crate::infra::audit::{AuditEvent, EventKind};

/// Makes an administrator's change, and writes its line. Both are done to their end, even if the client disconnects.
/// Nothing is changed when the trail cannot take the line.
async fn recorded<T: Send + 'static>(
    gateway: &Gateway,
    origin: &RequestMeta,
    kind: EventKind,
    subject: &str,
    change: impl Future<Output = Result<T, CallError>> + Send + 'static,
) -> Result<T, CallError> {
    let slot = gateway.pipeline.settlement.audit.reserve()?;
    let event = AuditEvent {
        subject: Some(subject.to_owned()),
        caller: Some(Arc::clone(&origin.caller)),
        ..AuditEvent::new(kind).of_request(origin.request.as_ref(), origin.trace.as_ref())
    };
    let work = async move {
        let result = change.await;
        let detail = result.as_ref().err().map(|error| error.message().to_owned());
        slot.write_event(AuditEvent { success: result.is_ok(), detail, ..event }).wait().await?;
        result
    };
    gateway.run_to_end(work).await
}
