//! Writes the audit lines of changes that the gateway applies while it runs: of configurations and the lock.

use std::collections::BTreeSet;
use std::path::Path;

use super::lock::named;
use sekisho_audit::{Audit, AuditEvent, EventKind};
use sekisho_calls::registry::lock::Lock;

/// A configuration was applied, or refused for this reason.
pub(super) fn record_reload(audit: &Audit, problem: Option<String>) {
    audit.event(AuditEvent {
        success: problem.is_none(),
        detail: problem,
        ..AuditEvent::new(EventKind::ConfigurationReloaded)
    });
}

/// Other tools are approved from now on, as the lock in this file says.
pub(super) fn record_lock(audit: &Audit, file: &Path, before: Option<&Lock>, now: Option<&Lock>) {
    let pin = |lock: Option<&'_ Lock>, name: &str| lock.and_then(|lock| lock.get(name).cloned());
    let names: BTreeSet<_> = before.iter().chain(&now).flat_map(|lock| lock.pins().keys()).collect();
    let changed: Vec<_> = names.into_iter().filter(|name| pin(before, name) != pin(now, name)).collect();
    let detail = match now {
        None => "no lock applies any more".to_owned(),
        Some(_) => format!("{} tools: {}", changed.len(), named(changed.iter().map(|name| name.as_str()))),
    };
    audit.event(AuditEvent {
        subject: Some(file.display().to_string()),
        detail: Some(detail),
        ..AuditEvent::new(EventKind::LockApplied)
    });
}
