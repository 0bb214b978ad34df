//! Writes the audit line of an approval.

use std::path::Path;
use std::sync::Arc;

use crate::cli::{present, serve};
use sekisho_audit::{Audit, AuditError, AuditEvent, EventKind};
use sekisho_config::Config;

/// Maximum number of names in the line.
const MAX_NAMED: usize = 10;

/// A running gateway writes a line of its own when it applies the lock. Where no gateway ever ran there is no trail.
pub(super) fn approval<'a>(config: &Config, lock_file: &Path, tools: impl Iterator<Item = &'a str>) {
    let trail = config.audit_file();
    if !trail.exists() {
        return;
    }
    let tools: Vec<_> = tools.collect();
    let shown = tools[..tools.len().min(MAX_NAMED)].join(", ");
    let user = rustix::process::getuid().as_raw();
    let event = AuditEvent {
        subject: Some(lock_file.display().to_string()),
        detail: Some(format!("{} tools, by the user with the id {user}: {shown}", tools.len())),
        ..AuditEvent::new(EventKind::LockApproved)
    };
    match Audit::open(trail, &config.audit, Arc::default()) {
        Ok(audit) => {
            audit.event(event);
            if let Some(runtime) = serve::runtime() {
                runtime.block_on(audit.close());
            }
        }
        Err(AuditError::InUse { .. }) => {}
        Err(problem) => present::problem(&format!("the approval has no line in the audit trail: {problem}")),
    }
}
